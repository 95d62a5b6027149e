"""What agents asked for: `kortix secrets requests`, `provide` and `decline`, which the inbox uses, too."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import BOLD, matches, note, paint, say, say_fields, say_json, say_table
from kortix_tui.cli.parsing import Verbs, add_filter, add_json
from kortix_tui.cli.secret_input import add_exposure
from kortix_tui.cli.secret_page import say_changes
from kortix_tui.cli.unseen import value_of
from kortix_tui.cli.vault_access import add_access, ready_vault, with_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_views import SecretRequestView

COLUMNS = (
    Column("ID"),
    Column("SECRET", flexible=True),
    Column("EXPOSURE", drop=3),
    Column("AGENT", drop=1),
    Column("SESSION", drop=2),
    Column("AGE", right=True),
    Column("REASON", flexible=True),
)


def add_requests(verbs: Verbs) -> None:
    """Add the verbs."""
    verb = verbs.add("requests", _requests, "list what agents asked for, oldest first", examples=("secrets requests",))
    add_filter(verb)
    add_json(verb)
    verb = verbs.add(
        "provide", provide, "answer an agent's request with a value, typed unseen or from standard input",
        examples=("secrets provide req_7k2m", "pass show stripe | kortix secrets provide req_7k2m"),
    )  # fmt: skip
    add_request(verb)
    add_provision(verb)
    add_access(verb)
    add_json(verb)
    verb = verbs.add("decline", decline, "answer an agent's request with no", examples=("secrets decline req_7k2m",))
    add_request(verb)
    add_access(verb)
    add_json(verb)


def add_request(parser: argparse.ArgumentParser) -> None:
    """The request's id."""
    parser.add_argument("request", metavar="REQUEST", help="the request's id, or a unique beginning of it")


def add_provision(parser: argparse.ArgumentParser) -> None:
    """How a provided value is stored."""
    add_exposure(parser)
    parser.add_argument("--only-me", action="store_true", help="only for sessions that you start yourself")


def _requests(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        requests = runtime.secrets.requests()
    now = datetime.now(UTC)
    rows = [
        (one.id, f"{one.project}  {one.identifier}", one.exposure.value, one.agent, one.session_id,
         age(one.created_at, now), one.reason)
        for one in requests
    ]  # fmt: skip
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([requests[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty="No agent waits for a secret.")


def show(arguments: argparse.Namespace) -> None:
    """Print one request in full."""
    with reading() as runtime:
        request = runtime.secrets.request(arguments.request)
    if arguments.json:
        say_json(request)
        return
    say_request(request)
    note(f"Type the value unseen: kortix review act {request.id} provide")
    note(f"Or say no: kortix review act {request.id} decline")


def provide(arguments: argparse.Namespace) -> int:
    """Have the person type the value that an agent asked for."""
    with acting() as runtime:
        request = runtime.secrets.request(arguments.request)
        if not arguments.json:
            say_request(request)
        ready_vault(runtime, arguments)
        value = value_of(f"Value of {request.identifier}")
        change = with_vault(
            runtime,
            arguments,
            lambda: runtime.secrets.provide(request.id, value, exposure=arguments.exposure, only_me=arguments.only_me),
        )
    say_changes(change, arguments)
    if not request.granted:
        note(
            f"Agent {request.agent} still needs the grant: kortix secrets grant {change.secret.identifier}"
            f" --agent {request.agent} --project {request.project}"
        )
        note("A grant counts for sessions that start after its merge.")
    return 0


def decline(arguments: argparse.Namespace) -> int:
    """Say no to an agent's request; the vault stays as it is."""
    with acting() as runtime:
        request = runtime.secrets.decline(runtime.secrets.request(arguments.request).id)
    if arguments.json:
        say_json(request)
    else:
        say(f"Declined {visible_line(request.identifier)}; agent {visible_line(request.agent)} is told so.")
    return 0


def _exposure(request: SecretRequestView) -> str:
    from kortix_tui.runtime.secret_words import MEANING

    if request.stored is not None:
        return f"stays {request.stored.value}, as it is stored: {MEANING[request.stored]}"
    return f"{request.exposure.value}, as the agent asks: {MEANING[request.exposure]}"


def say_request(request: SecretRequestView) -> None:
    """One request in full: what is asked, by whom, and what giving it would mean."""
    say(paint(f"{request.project}  {visible_line(request.identifier)}", BOLD))
    say_fields([
        ("request", request.id),
        ("asked by", f"agent {request.agent} in session {request.session_id}  {request.session_title}"),
        ("when", f"{age(request.created_at, datetime.now(UTC))} ago"),
        ("exposure", _exposure(request)),
        ("grant", "its grant on the base branch admits it" if request.granted else "not granted to this agent yet"),
    ])  # fmt: skip
    if request.reason:
        say(f"reason, in the agent's words: {visible(request.reason)}")
