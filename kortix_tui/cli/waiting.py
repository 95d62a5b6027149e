"""`--wait`: this process hosts, shows progress on standard error, and its exit status says how the turn ended."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Activity, PromptState, SessionStatus, Wanted
from kortix_tui.cli.output import coloured, note
from kortix_tui.cli.records import RecordPrinter

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import SessionView
    from kortix_tui.store.models import Prompt
    from kortix_tui.store.records import RecordReader

FINISHED, FAILED, NEEDS_PERSON = 0, 1, 3
POLL_S = 0.05
ENDED = (PromptState.FINISHED, PromptState.FAILED, PromptState.UNKNOWN, PromptState.REMOVED)


def progress_printer() -> RecordPrinter:
    """Records on standard error, beside the result."""

    def write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    return RecordPrinter(write, colour=coloured(sys.stderr), builds=True)


def wait_for_turn(runtime: Runtime, prompt: Prompt, records: RecordReader, timeout_s: float) -> int:
    """Wait until a prompt's turn has ended, whoever is the host; returns the exit status.

    Raises:
        DeadlineExceeded: The time-out came first. The session goes on.
        KeyboardInterrupt: The person left. The session goes on.
    """
    printer = progress_printer()
    end = time.monotonic() + timeout_s
    try:
        while True:
            # The states are read before the records: what is over then has all of its output in this read.
            current, session = _prompt(runtime, prompt), runtime.sessions.find(prompt.session_id)
            while new := records.read():
                printer.show(new)
            if (status := _verdict(current, session)) is not None:
                printer.end_line()
                return status
            if time.monotonic() > end:
                raise DeadlineExceeded(
                    f"The turn did not end within {timeout_s:.0f} s; session {session.id} goes on.",
                    hint=f"Follow it: kortix sessions logs -f {session.id}",
                )
            time.sleep(POLL_S)
    finally:
        printer.end_line()


def _prompt(runtime: Runtime, prompt: Prompt) -> Prompt:
    found = next((each for each in runtime.sessions.prompts(prompt.session_id) if each.id == prompt.id), None)
    return found or prompt


def _verdict(prompt: Prompt, session: SessionView) -> int | None:
    """The exit status once it is known."""
    if prompt.state in ENDED:
        if prompt.state is PromptState.FINISHED:
            return FINISHED
        reason = prompt.message or session.reason_text or f"The turn is {prompt.state}."
        note(visible_line(reason))
        return FAILED
    if session.activity is Activity.WAITING and prompt.state is PromptState.RUNNING:
        note(f"Session {session.id} waits for you: see `kortix review ls`.")
        return NEEDS_PERSON
    ended = session.status in (SessionStatus.STOPPED, SessionStatus.FAILED)
    if session.removed_at is not None or (ended and session.wanted is not Wanted.RUNNING):
        note(visible_line(session.reason_text or f"The session is {session.status}; the prompt stays in its queue."))
        return FAILED
    return None


def wait_until(
    runtime: Runtime, reference: str, done: Callable[[SessionView], bool], *, timeout_s: float, what: str
) -> SessionView:
    """Wait until a session is as wanted.

    Raises:
        DeadlineExceeded: It did not get there in time.
    """
    printer, records = progress_printer(), runtime.sessions.records(reference, tail=0)
    end = time.monotonic() + timeout_s
    try:
        while True:
            view = runtime.sessions.find(reference)
            while new := records.read():
                printer.show(new)
            if done(view):
                return view
            if time.monotonic() > end:
                raise DeadlineExceeded(
                    f"Session {view.id} was not {what} within {timeout_s:.0f} s; it is still tried.",
                    hint=f"See: kortix sessions show {view.id}",
                )
            time.sleep(POLL_S)
    finally:
        printer.end_line()
