"""How a person connects an account: a value typed unseen or read, a secret that is there, or consent in a browser."""

from __future__ import annotations

import argparse
import select
import sys
from functools import partial
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import InvalidInput, KortixError, Refused, UsageError
from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.connector_page import say_sync, say_waiting
from kortix_tui.cli.output import YELLOW, ask, at_terminal, note, paint, say, say_json, say_prose
from kortix_tui.cli.parsing import add_json, add_project
from kortix_tui.cli.unseen import ask_unseen, can_ask, read_value
from kortix_tui.cli.vault_access import add_access, ready_vault, with_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.connection_calls import Authorizing
    from kortix_tui.runtime.connections import ConnectionChange
    from kortix_tui.runtime.connector_views import ConnectionView, ConnectorView
    from kortix_tui.runtime.connectors import AuthNeeds
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.store.models import Project

_VALUES: Final = {"bearer": "token", "basic": "password", "api_key": "key", "custom": "value", "oauth2": "token"}
LOOK_S: Final = 1.0


def add_account(parser: argparse.ArgumentParser, *, needed: bool = False) -> None:
    """`--account`."""
    parser.add_argument(
        "--account", metavar="NAME", required=needed, default=None if needed else "default",
        help="which of several accounts" + ("" if needed else "; default: `default`"),
    )  # fmt: skip


def add_connect(parser: argparse.ArgumentParser) -> None:
    """Everything that says how an account is connected."""
    parser.add_argument("connector", metavar="SLUG", help="the connector, as kortix.yaml names it")
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--token", metavar="-", type=_standard_input, help="read the token, key or password from standard input"
    )
    how.add_argument("--secret", metavar="ID", help="use a secret that is there; its exposure must be `connector`")
    how.add_argument("--device", action="store_true", help="OAuth with a code that you type on any device")
    how.add_argument("--browser", action="store_true", help="OAuth with a page that you open in a browser")
    parser.add_argument("--username", metavar="NAME", help="for auth `basic`")
    parser.add_argument("--client-id", metavar="ID", help="for OAuth: the id of the client registered for you")
    parser.add_argument(
        "--client-secret",
        metavar="-",
        type=_standard_input,
        help="for OAuth: read the client's secret from standard input",
    )
    parser.add_argument("--scope", metavar="NAME", action="append", dest="scopes", help="for OAuth; may be repeated")
    parser.add_argument(
        "--port", metavar="N", type=int, default=0, help="for OAuth: the loopback port registered at the provider"
    )
    parser.add_argument("--default", action="store_true", help="have calls without an account use this one")
    add_access(parser)
    add_project(parser)
    add_json(parser)


def _standard_input(text: str) -> str:
    if text != "-":
        # Not repeated: it may be the value itself.
        raise argparse.ArgumentTypeError("only `-` is taken, for standard input: a value here would be seen by others")
    return text


def connect(runtime: Runtime, arguments: argparse.Namespace) -> int:
    """Connect an account, and read what the connector can do where nobody has yet."""
    project = runtime.projects.resolve(arguments.project)
    runtime.connectors.refresh(project)
    connector = runtime.connectors.show(project, arguments.connector)
    if connector.actions is None and not connector.pending and not _tells_only_members(connector):
        read_actions(runtime, project, connector.slug, quiet=arguments.json)
    needs = runtime.connectors.auth(project, connector.slug)
    if needs.type == "none":
        note(f"{connector.slug} needs no credential.")
        return _finish(runtime, project, connector.slug, None, arguments)
    if not arguments.json:
        _say_needs(connector.slug, needs)
    if ending := ending_calls(runtime, project, connector.slug, arguments.account):
        note(f"When it is connected anew, {ending} asked with the old credential.")
    ready_vault(runtime, arguments)
    if needs.type == "oauth2" and arguments.token is None and arguments.secret is None:
        made = _by_oauth(runtime, project, needs, arguments)
    else:
        made = _by_value(runtime, project, needs, arguments)
    return _finish(runtime, project, connector.slug, made, arguments)


def read_actions(runtime: Runtime, project: Project, slug: str, *, quiet: bool = False) -> None:
    """Have a connector's document or server read, with the words that belong to it."""
    note(f"Reading what {slug} can do …")
    result = runtime.connectors.sync(project, slug)
    if not quiet:
        say_sync(result)


def offer_acceptance(runtime: Runtime, project: Project, slug: str) -> int:
    """Show what changed outside and ask whether it is to count; 1 where it does not."""
    waiting = runtime.connectors.pending(project, slug)
    if waiting is None:
        note(f"Nothing of {slug} waits to be accepted.")
        return 0
    say_waiting(waiting)
    if ending := ending_calls(runtime, project, slug):
        say(paint(f"{ending} asked about the old document", YELLOW))
    if not at_terminal():
        note(f"To accept exactly this: kortix connectors accept {slug} --at {waiting.catalogue_id}")
        return 1
    if not ask("Accept it? It counts from the next call on. [y/N]", wanted="y"):
        note("What was accepted before stays in force.")
        return 1
    runtime.connectors.accept(project, slug, waiting.catalogue_id, terminal=True, pinned=False)
    say(f"Accepted: {visible_line(slug)} has {waiting.actions} actions.")
    return 0


def ending_calls(runtime: Runtime, project: Project, slug: str, account: str | None = None) -> str:
    """Which waiting calls a change ends, as the beginning of a sentence; nothing where none waits."""
    found = [
        call
        for call in runtime.approvals.pending(project)
        if call.connector == slug and (account is None or call.account == account)
    ]
    if not found:
        return ""
    return "1 call that waits ends: it was" if len(found) == 1 else f"{len(found)} calls that wait end: they were"


def _tells_only_members(connector: ConnectorView) -> bool:
    return connector.provider in ("mcp", "graphql") and connector.auth != "none"


def _say_needs(slug: str, needs: AuthNeeds) -> None:
    source = "its document says" if needs.from_document else "kortix.yaml says"
    where = f", sent as {needs.place} to {needs.origin} only" if needs.origin else ""
    say_prose(visible(f"{slug} uses auth {needs.type} ({source}){where}."))


def _by_value(runtime: Runtime, project: Project, needs: AuthNeeds, arguments: argparse.Namespace) -> ConnectionChange:
    username = arguments.username
    if needs.type == "basic" and username is None:
        username = _typed("User name", "--username NAME")
    what = _VALUES[needs.type]
    value: Secret | None = None
    if arguments.token is not None:
        value = read_value(f"The {what}")
    elif arguments.secret is None:
        if not can_ask():
            raise UsageError(f"Nobody can be asked for the {what} here.", hint="Give it on standard input: --token -")
        value = ask_unseen(f"The {what} of {arguments.connector}")
    return with_vault(
        runtime, arguments,
        lambda: runtime.connections.connect(
            project, arguments.connector, value, account=arguments.account, username=username,
            secret=arguments.secret, make_default=arguments.default,
        ),
    )  # fmt: skip


def _by_oauth(runtime: Runtime, project: Project, needs: AuthNeeds, arguments: argparse.Namespace) -> ConnectionChange:
    from kortix_tui.runtime.connections import ConnectionChange

    grant = needs.grant
    if arguments.device or arguments.browser:
        grant = "device" if arguments.device else "authorization_code"
    client_id = arguments.client_id or needs.client_id or _typed("Id of the client", "--client-id ID")
    secret = _client_secret(arguments, needed=grant == "client_credentials")
    scopes = tuple(arguments.scopes) if arguments.scopes else None
    if grant == "client_credentials":
        return with_vault(
            runtime, arguments,
            lambda: runtime.connections.connect(
                project, arguments.connector, secret, account=arguments.account, client_id=client_id, scopes=scopes,
                make_default=arguments.default,
            ),
        )  # fmt: skip
    begun = with_vault(
        runtime, arguments,
        partial(
            runtime.connections.authorize, project, arguments.connector, account=arguments.account,
            client_id=client_id, client_secret=secret, scopes=scopes, port=arguments.port,
            grant="device" if grant == "device" else "authorization_code", make_default=arguments.default,
        ),
    )  # fmt: skip
    return ConnectionChange(connection=_wait_for_consent(runtime, begun), warnings=())


def _client_secret(arguments: argparse.Namespace, *, needed: bool) -> Secret | None:
    if arguments.client_secret is not None:
        return read_value("The client's secret")
    if not can_ask():
        if needed:
            raise UsageError("Nobody can be asked for the client's secret.", hint="Give it: --client-secret -")
        return None
    typed = ask_unseen("The client's secret" + ("" if needed else " (nothing for a public client)"), needed=needed)
    return typed if len(typed) else None


def _wait_for_consent(runtime: Runtime, begun: Authorizing) -> ConnectionView:
    """Tell the person where to agree, and wait; over SSH they paste the address that the browser ends at."""
    note("Open this address and agree:")
    sys.stderr.write(f"  {visible_line(begun.url)}\n")
    if begun.user_code is not None:
        note(f"The code to type there: {visible_line(begun.user_code)}")
    elif can_ask():
        note(
            "Where the browser is on another machine it cannot come back: paste the address that it shows in the end,"
            f" which begins with {begun.redirect_uri}, and press Enter."
        )
    sys.stderr.flush()
    try:
        while True:
            pasted = _line() if begun.user_code is None else None
            try:
                found = runtime.connections.authorization(begun.flow, wait_s=LOOK_S, pasted=pasted)
            except (Refused, InvalidInput) as error:
                if pasted is None:
                    raise
                note(str(error))
                continue
            if found is not None:
                return found
    except BaseException:
        _give_up(runtime, begun)
        raise


def _give_up(runtime: Runtime, begun: Authorizing) -> None:
    try:
        runtime.connections.cancel(begun.flow)
    except KortixError:
        return  # it is over already, or its host is


def _line() -> str | None:
    """A line that was typed since, without waiting for one."""
    if not can_ask() or not select.select([sys.stdin], [], [], 0)[0]:
        return None
    return sys.stdin.readline().strip() or None


def _typed(what: str, option: str) -> str:
    if not can_ask():
        raise UsageError(f"{what}: nobody can be asked for it here.", hint=f"Give it: {option}")
    sys.stderr.write(f"{what}: ")
    sys.stderr.flush()
    text = sys.stdin.readline().strip()
    if not text:
        raise Refused("Nothing was typed; nothing was changed.")
    return text


def _finish(
    runtime: Runtime, project: Project, slug: str, made: ConnectionChange | None, arguments: argparse.Namespace
) -> int:
    connector = runtime.connectors.show(project, slug)
    if connector.actions is None and not connector.pending:
        read_actions(runtime, project, slug, quiet=arguments.json)
        connector = runtime.connectors.show(project, slug)
    if arguments.json:
        say_json(made if made is not None else connector)
        return 0
    if made is not None:
        account = "" if made.connection.account == "default" else f" as {made.connection.account}"
        say(f"{visible_line(slug)} is connected{account}.")
        for text in made.warnings:
            note(text)
    if connector.pending:
        note(f"It changed outside. Look and accept: kortix connectors accept {slug}")
    if connector.gates_off:
        note("Gates are off: every call of it runs without asking. To change that: kortix connectors policy mode risk")
    if not connector.agents:
        note(f"No agent may use it yet: kortix connectors grant {slug} --agent NAME")
    return 0
