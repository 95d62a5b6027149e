"""`kortix egress`: which hosts sandboxes reached, and which they were refused."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kortix_tui.base.words import Outcome
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import reading
from kortix_tui.cli.output import matches, say_json, say_table, status_style
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, count

if TYPE_CHECKING:
    from kortix_tui.runtime.connector_views import EgressView

COLUMNS = (
    Column("AT"),
    Column("SESSION"),
    Column("AGENT", drop=3),
    Column("TO", flexible=True),
    Column("METHOD", drop=4),
    Column("OUTCOME", style=status_style),
    Column("WHY", drop=1),
    Column("OUT", right=True, drop=2),
    Column("IN", right=True, drop=2),
)
_BINARY = 1024


def add_egress(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "egress ls", "egress ls --denied", "egress ls --session kab3 --json")
    verb = verbs.add(
        "ls", _ls, "list attempts of sandboxes to reach the network, newest first", aliases=("list",),
        examples=("egress ls", "egress ls --denied --project shop", "egress ls --session kab3 --filter example.com"),
    )  # fmt: skip
    verb.add_argument("--session", metavar="ID", help="only this session's")
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    verb.add_argument("--denied", action="store_true", help="only what was refused")
    verb.add_argument("--limit", metavar="N", type=count, default=100, help="at most this many (default 100)")
    add_filter(verb)
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        found = runtime.egress.list(
            project=runtime.projects.find(arguments.project) if arguments.project else None,
            session_id=runtime.sessions.find(arguments.session).id if arguments.session else None,
            outcomes=(Outcome.DENIED,) if arguments.denied else (),
            limit=arguments.limit,
        )
    rows = [_cells(each) for each in found]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([found[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty="No attempt fits.")


def _cells(one: EgressView) -> tuple[str, ...]:
    opened = one.address is not None
    out, back = (_size(one.bytes_out), _size(one.bytes_in)) if opened else ("", "")
    state = "open" if opened and one.ended_at is None else one.outcome.value
    return (
        f"{one.at.astimezone():%Y-%m-%d %H:%M:%S}", one.session_id, one.agent, f"{one.host}:{one.port}", one.method,
        state, one.code or one.rule or "", out, back,
    )  # fmt: skip


def _size(count: int) -> str:
    """Bytes as people read them."""
    amount, units = float(count), ["B", "KiB", "MiB", "GiB"]
    while amount >= _BINARY and len(units) > 1:
        amount /= _BINARY
        units.pop(0)
    return f"{amount:.0f} {units[0]}" if units[0] == "B" else f"{amount:.1f} {units[0]}"
