"""`kortix demo --no-console` where an agent asks: each call is shown, and the person at the terminal decides."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import Conflict, DeadlineExceeded, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import SessionStatus
from kortix_tui.cli.approvals import say_call
from kortix_tui.cli.output import BOLD, at_terminal, note, paint, say
from kortix_tui.cli.waiting import ENDED, POLL_S, progress_printer

if TYPE_CHECKING:
    from kortix_tui.runtime.connector_views import ApprovalView
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import SessionView
    from kortix_tui.store.records import RecordReader

WORK_S: Final = 300.0
"""How long the agent may work without asking for anything; for a person there is no limit but the call's own."""
_YES: Final = ("y", "yes")
_NO: Final = ("n", "no")


def decide_on_the_way(
    runtime: Runtime, session: SessionView, records: RecordReader, command: Callable[[str], str]
) -> None:
    """Follow a session's first turn to its end, and show each call that waits on the way.

    Args:
        runtime: The demo's; it hosts.
        session: Whose turn.
        records: The session's, from where they are shown.
        command: Words after `kortix`, as a command that works as it is printed.

    Raises:
        Refused: The session stopped before the turn had ended.
        DeadlineExceeded: The agent neither asked for anything nor ended.
    """
    printer, shown, end = progress_printer(), set[str](), time.monotonic() + WORK_S
    while True:
        over = _is_over(runtime, session.id)
        while new := records.read():
            printer.show(new)
        if over:
            printer.end_line()
            return
        waiting = [call for call in runtime.approvals.pending() if call.session_id == session.id]
        for call in waiting:
            if call.id not in shown:
                printer.end_line()
                shown.add(call.id)
                _decide(runtime, call, command)
        if waiting:
            end = time.monotonic() + WORK_S
        if time.monotonic() > end:
            raise DeadlineExceeded(f"The agent neither asked nor ended within {WORK_S:.0f} s.")
        time.sleep(POLL_S)


def _is_over(runtime: Runtime, session_id: str) -> bool:
    """Whether the turn has ended, be it well or not."""
    if runtime.sessions.prompts(session_id)[0].state in ENDED:
        return True
    view = runtime.sessions.find(session_id)
    if view.removed_at is None and view.status not in (SessionStatus.STOPPED, SessionStatus.FAILED):
        return False
    raise Refused(view.reason_text or f"The session is {view.status}.")


def _decide(runtime: Runtime, call: ApprovalView, command: Callable[[str], str]) -> None:
    """Show one call and ask; where nobody can be asked, or they want it later, say by which command."""
    say()
    say_call(call)
    say()
    answer = _ask() if _person_is_here() else ""
    if answer not in (*_YES, *_NO):
        say(f"It waits for a person:  {paint(command(f'review act {call.id} approve'), BOLD)}")
        say(f"Or, to say no:          {command(f'review act {call.id} deny --note')} 'why'")
        sys.stdout.flush()
        return
    approve = answer in _YES
    told = None if approve else _line("What is the agent told? (enter for nothing)")
    try:
        runtime.approvals.decide(
            call.id, digest=call.digest or "", approve=approve, note=told, terminal=at_terminal(), pinned=False
        )
    except Conflict as error:  # somebody was quicker, or it expired while the question stood
        note(error.message)
        return
    name = visible_line(f"{call.connector}.{call.action}")
    say(f"Approved {name}; it is sent once." if approve else f"Denied {name}; the agent is told.")


def _person_is_here() -> bool:
    """Whether a person can be asked. An agent's shell is not asked: it may not decide (invariant I1)."""
    from kortix_tui.runtime.decisions import agent_environment

    return at_terminal() and agent_environment(os.environ) is None


def _ask() -> str:
    while True:
        answer = _line("Send it? [y]es, [n]o, or [l]ater:").lower()
        if answer in (*_YES, *_NO, "l", "later"):
            return answer


def _line(question: str) -> str:
    sys.stdout.write(f"{question} ")
    sys.stdout.flush()
    text = sys.stdin.readline()
    if not text:
        raise Refused("The terminal was closed.", hint="What was not decided waits: kortix review ls")
    return text.strip()
