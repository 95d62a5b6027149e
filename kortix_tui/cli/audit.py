"""`kortix audit`: the record of everything that happened."""

from __future__ import annotations

import argparse

from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import reading
from kortix_tui.cli.output import counted, matches, note, say, say_json, say_table, status_style
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, count

COLUMNS = (
    Column("SEQ", right=True, drop=3),
    Column("AT"),
    Column("EVENT"),
    Column("SCOPE", flexible=True),
    Column("PERFORMED BY", drop=1),
    Column("OUTCOME", drop=2, style=status_style),
)


def add_audit(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "audit ls --limit 20", "audit ls --event change_request.", "audit verify")
    verb = verbs.add(
        "ls", _ls, "list events, newest first", aliases=("list",),
        examples=("audit ls --limit 20", "audit ls --event change_request. --json", "audit ls --session kab3"),
    )  # fmt: skip
    verb.add_argument("--session", metavar="ID", help="only this session's")
    verb.add_argument("--event", metavar="PREFIX", help="only events that begin so: session., change_request.merge")
    verb.add_argument("--limit", metavar="N", type=count, default=100, help="at most this many (default 100)")
    add_filter(verb)
    add_json(verb)
    verb = verbs.add(
        "verify", _verify, "recompute the chain and find any change, cut or reordering", examples=("audit verify",)
    )
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        session = runtime.sessions.find(arguments.session).id if arguments.session else None
        events = runtime.audit.list(session_id=session, event=arguments.event, limit=arguments.limit)
    rows = [
        (str(each.seq), f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}", each.event, each.scope, each.performed_by,
         each.outcome.value)
        for each in events
    ]  # fmt: skip
    # What an event was about, such as a call's id, is in its detail only.
    fitting = [
        at for at, row in enumerate(rows) if matches(arguments.filter, (*row, *map(str, events[at].detail.values())))
    ]
    if arguments.json:
        say_json([events[at] for at in fitting])
    else:
        among = f" among the newest {arguments.limit}; see --limit" if len(events) == arguments.limit else ""
        say_table(COLUMNS, [rows[at] for at in fitting], empty=f"No event fits{among}.")


def _verify(arguments: argparse.Namespace) -> int:
    with reading() as runtime:
        report = runtime.audit.verify()
    if arguments.json:
        say_json(report)
    elif report.ok:
        say(f"The record is whole: {counted(report.rows, 'event')}, head {report.head or 'none'}.")
    else:
        note(f"The record is broken at row {report.broken_at}: {report.fault}.")
    return 0 if report.ok else 1
