"""`kortix connections`: the accounts of connectors. Values go in and are never printed again."""

from __future__ import annotations

import argparse

from kortix_tui.base.errors import Refused
from kortix_tui.base.text import visible_line
from kortix_tui.cli.connecting import add_account, add_connect, connect
from kortix_tui.cli.connector_page import CONNECTIONS, connection_cells
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import ask, matches, note, say, say_json, say_table
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_project, add_yes
from kortix_tui.cli.unseen import can_ask
from kortix_tui.cli.vault_access import add_access, with_vault


def add_connections(parser: Parser) -> None:
    """Add the verbs."""
    parser.keeps_words = True
    verbs = Verbs(
        parser,
        "connections ls",
        "connections add billing --account sandbox",
        "connections rm billing --account sandbox",
    )
    verb = verbs.add(
        "ls", _ls, "list accounts, where their values are and until when they last", aliases=("list",),
        examples=("connections ls", "connections ls billing --json"),
    )  # fmt: skip
    verb.add_argument("connector", metavar="SLUG", nargs="?", help="only this connector's")
    add_project(verb)
    add_filter(verb)
    add_json(verb)
    verb = verbs.add(
        "add", _add, "connect one more account of a connector", aliases=("connect",),
        examples=("connections add billing --account sandbox", "connections add billing --account prod --default"),
    )  # fmt: skip
    add_account(verb, needed=True)
    add_connect(verb)
    verb = verbs.add(
        "rm", _rm, "forget an account and its value; a secret that was bound stays", aliases=("remove",),
        examples=("connections rm billing", "connections rm billing --account sandbox --yes"),
    )  # fmt: skip
    verb.add_argument("connector", metavar="SLUG", help="the connector")
    add_account(verb)
    add_yes(verb, "do not ask")
    add_access(verb)
    add_project(verb)
    add_json(verb)
    verb = verbs.add(
        "default", _default, "have calls without an account use this one",
        examples=("connections default billing --account prod",),
    )  # fmt: skip
    verb.add_argument("connector", metavar="SLUG", help="the connector")
    add_account(verb, needed=True)
    add_access(verb)
    add_project(verb)
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.resolve(arguments.project)
        connections = runtime.connections.list(project, connector=arguments.connector)
    rows = [connection_cells(one) for one in connections]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([connections[at] for at in fitting])
        return
    hint = "No account fits." if rows else "Nothing is connected yet."
    say_table(CONNECTIONS, [rows[at] for at in fitting], empty=f"{hint} Connect one: kortix connectors connect SLUG")


def _add(arguments: argparse.Namespace) -> int:
    with acting(again=False) as runtime:
        return connect(runtime, arguments)


def _rm(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        found = runtime.connections.find(project, arguments.connector, arguments.account)
        name = f"{found.connector}/{found.account}"
        if not arguments.yes:
            if not can_ask():
                raise Refused("Nobody can be asked.", hint="Add --yes to forget it without a question.")
            if not ask(f"Forget {visible_line(name)} of {project.slug} and its value? [y/N]", wanted="y"):
                note("Nothing was changed.")
                return 1
        gone = with_vault(
            runtime, arguments, lambda: runtime.connections.remove(project, arguments.connector, arguments.account)
        )
        left = runtime.connections.list(project, connector=found.connector)
    if arguments.json:
        say_json(gone)
        return 0
    say(f"{visible_line(name)} is forgotten. If anybody may have seen the value, have its issuer revoke it.")
    if gone.is_default and left:
        note(
            f"Calls need an account now, or a new default: kortix connections default {found.connector} --account NAME"
        )
    return 0


def _default(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        made = with_vault(
            runtime, arguments,
            lambda: runtime.connections.make_default(project, arguments.connector, arguments.account),
        )  # fmt: skip
    if arguments.json:
        say_json(made)
    else:
        say(f"Calls of {visible_line(made.connector)} without an account use {made.account} now.")
