"""`kortix review`: everything that waits for a person, of every kind, in one list."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kortix_tui.base.clock import age
from kortix_tui.base.errors import UsageError
from kortix_tui.cli import approvals, changes, secret_requests, vault
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import reading
from kortix_tui.cli.output import GREEN, RED, YELLOW, matches, say_json, say_table
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_project
from kortix_tui.cli.vault_access import add_access

if TYPE_CHECKING:
    from kortix_tui.runtime.inbox import InboxItem

RISKS: Final[dict[str, str]] = {"destructive": RED, "write": YELLOW, "read": GREEN}
COLUMNS = (
    Column("ITEM"),
    Column("KIND", drop=1),
    Column("RISK", drop=3, style=lambda word: RISKS.get(word.strip(), "")),
    Column("AGENT", drop=2),
    Column("AGE", right=True),
    Column("TITLE", flexible=True),
)
VAULT: Final = "vault"
CALL: Final = "cal"
"""How ids of calls begin."""
REQUEST: Final = "req"
"""How ids of agents' requests begin."""
VERDICTS: Final[dict[str, dict[str, Callable[[argparse.Namespace], int | None]]]] = {
    "call": {"approve": approvals.approve, "deny": approvals.deny},
    "change request": {"merge": changes.merge, "close": changes.close},
    "secret request": {"provide": secret_requests.provide, "decline": secret_requests.decline},
    "locked vault": {"unlock": vault.unlock},
}
WHAT: Final = (
    "as `review ls` names it: cal_… is a call, N or SLUG#N a change request, req_… an agent's request; or vault"
)


def add_review(parser: Parser) -> None:
    """Add the verbs."""
    parser.keeps_words = True
    verbs = Verbs(parser, "review ls", "review show billing#3", "review act billing#3 merge", "review act vault unlock")
    verb = verbs.add(
        "ls", _ls, "list what waits for you, riskiest and oldest first", aliases=("list",), examples=("review ls",)
    )
    verb.add_argument("--project", metavar="SLUG", help="only this project's, and what concerns all")
    add_filter(verb)
    add_json(verb)
    verb = verbs.add(
        "show", _show, "one thing that waits, in full",
        examples=("review show cal_7k2m", "review show billing#3", "review show req_7k2m"),
    )  # fmt: skip
    verb.add_argument("item", metavar="ITEM", help=WHAT)
    add_project(verb)
    add_json(verb)
    verb = verbs.add(
        "act", _act, "decide about one thing that waits",
        examples=("review act cal_7k2m approve", 'review act cal_7k2m deny --note "ask the customer first"',
                  "review act billing#3 merge", "review act billing#3 close --at 3f2a91c0d4e7",
                  "review act req_7k2m provide", "review act vault unlock"),
    )  # fmt: skip
    verb.add_argument("item", metavar="ITEM", help=WHAT)
    words = [verdict for kind in VERDICTS.values() for verdict in kind]
    verb.add_argument("verdict", choices=words, help=f"what is decided: {', '.join(words)}")
    verb.add_argument("--at", metavar="SHA", help="of a change request: the reviewed commit; default: shown last")
    verb.add_argument("--message", metavar="TEXT", help="of a change request: first line of the merge commit")
    approvals.add_decision(verb)
    secret_requests.add_provision(verb)
    add_access(verb)
    add_project(verb)
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        items = runtime.inbox.list(project=project)
    rows = [_cells(item) for item in items]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([items[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty="Nothing waits for you.")


def _cells(item: InboxItem) -> tuple[str, ...]:
    risk = item.risk.value if item.risk else ""
    return item.reference, item.kind.value, risk, item.agent or "", age(item.since, datetime.now(UTC)), item.title


def _show(arguments: argparse.Namespace) -> None:
    match _kind(arguments):
        case "locked vault":
            vault.status(arguments)
        case "call":
            approvals.show(arguments)
        case "secret request":
            secret_requests.show(arguments)
        case _:
            changes.show(arguments)


def _act(arguments: argparse.Namespace) -> int | None:
    kind = _kind(arguments)
    verdicts = VERDICTS[kind]
    if arguments.verdict not in verdicts:
        raise UsageError(f"A {kind} takes {' or '.join(f'`{verdict}`' for verdict in verdicts)}.")
    return verdicts[arguments.verdict](arguments)


def _kind(arguments: argparse.Namespace) -> str:
    """Which kind of thing is meant; its own commands find it under their own name of the argument."""
    arguments.change = arguments.request = arguments.call = arguments.item.strip()
    arguments.keyfile, arguments.recovery = None, False
    if arguments.change == VAULT:
        return "locked vault"
    if arguments.call.startswith(CALL) and "#" not in arguments.call:
        return "call"
    return "secret request" if arguments.change.startswith(REQUEST) else "change request"
