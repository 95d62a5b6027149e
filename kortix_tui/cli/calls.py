"""`kortix connectors calls`: every brokered call, whatever became of it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.words import CallState
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import reading
from kortix_tui.cli.output import matches, say_json, say_table, status_style
from kortix_tui.cli.parsing import Verbs, add_filter, add_json, count

if TYPE_CHECKING:
    from kortix_tui.runtime.connector_views import CallView

COLUMNS = (
    Column("CALL", drop=4),
    Column("STATE", style=status_style),
    Column("ACTION", flexible=True),
    Column("STATUS", right=True, drop=2),
    Column("BY", drop=1),
    Column("RULE", drop=5),
    Column("TOOK", right=True, drop=3),
    Column("AGE", right=True),
)


def add_calls_verb(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add(
        "calls", _ls, "list calls, newest first, with what became of each",
        examples=("connectors calls", "connectors calls --session kab3 --state denied", "connectors calls --json"),
    )  # fmt: skip
    verb.add_argument("--session", metavar="ID", help="only this session's")
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    states = [state.value for state in CallState]
    verb.add_argument("--state", metavar="STATE", choices=states, help=f"only those in one state: {', '.join(states)}")
    verb.add_argument("--limit", metavar="N", type=count, default=100, help="at most this many (default 100)")
    add_filter(verb)
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        found = runtime.calls.list(
            project=runtime.projects.find(arguments.project) if arguments.project else None,
            session=runtime.sessions.find(arguments.session).id if arguments.session else None,
            state=CallState(arguments.state) if arguments.state else None,
            limit=arguments.limit,
        )
    rows = [_cells(each) for each in found]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([found[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty="No call fits.")


def _cells(one: CallView) -> tuple[str, ...]:
    state = f"{one.state.value}: {one.code}" if one.code else one.state.value
    took = "" if one.duration_ms is None else f"{one.duration_ms:.0f} ms"
    return (
        one.id, state, f"{one.connector}.{one.action}", str(one.status or ""), one.agent or one.created_by,
        one.rule_says, took, age(one.created_at, datetime.now(UTC)),
    )  # fmt: skip
