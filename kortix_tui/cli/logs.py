"""`kortix sessions logs`: what a session printed, and what it prints next."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from kortix_tui.base.words import SessionStatus, Wanted
from kortix_tui.cli.output import coloured, note
from kortix_tui.cli.records import RecordPrinter

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime

POLL_S = 0.05


def _printer(timestamps: bool, verbose: bool) -> RecordPrinter:
    return RecordPrinter(sys.stdout.write, colour=coloured(sys.stdout), timestamps=timestamps, builds=verbose)


def say_records(runtime: Runtime, reference: str, *, tail: int | None, timestamps: bool, verbose: bool) -> None:
    """Print what is there."""
    session, printer = runtime.sessions.find(reference), _printer(timestamps, verbose)
    reader = runtime.sessions.records(session.id, tail=tail)
    while records := reader.read():
        printer.show(records)
    printer.end_line()


def follow(runtime: Runtime, reference: str, *, tail: int | None, timestamps: bool, verbose: bool) -> None:
    """Print what is there and what comes, until the session has ended or the person leaves."""
    session, printer = runtime.sessions.find(reference), _printer(timestamps, verbose)
    reader = runtime.sessions.records(session.id, tail=tail)
    try:
        while True:
            # The state first: what has ended by then has all of its records in the read that follows.
            session = runtime.sessions.find(session.id)
            while records := reader.read():
                printer.show(records)
                sys.stdout.flush()
            over = session.status in (SessionStatus.STOPPED, SessionStatus.FAILED)
            if session.removed_at is not None or (over and session.wanted is Wanted.STOPPED):
                break
            time.sleep(POLL_S)
    finally:
        printer.end_line()
        sys.stdout.flush()
    note(session.reason_text or f"Session {session.id} is {session.status}.")
