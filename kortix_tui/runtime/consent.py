"""A decision that no person takes is refused, and the attempt is in the record (I1)."""

from __future__ import annotations

from kortix_tui.base.errors import Refused
from kortix_tui.base.words import Outcome
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.decisions import check_decision
from kortix_tui.runtime.views import ChangeView


def require_person(
    context: Context, what: str, event: str, change: ChangeView, *, terminal: bool, pinned: bool
) -> None:
    """Check who decides about a change request, before anything is asked or done.

    Args:
        context: This process's.
        what: The act, for the message: `Merging`.
        event: The audit event of a refusal, such as `change_request.merge`.
        change: What is decided about.
        terminal: Whether a person can be asked.
        pinned: Whether the exact commit was named.

    Raises:
        Refused: As `check_decision` says.
    """
    try:
        check_decision(what, settings=context.settings, terminal=terminal, pinned=pinned)
    except Refused as refusal:
        with context.store.write() as tx:
            tx.audit(
                event, scope=f"change {change.project}#{change.number}", actor=context.actor, outcome=Outcome.DENIED,
                project_id=change.project_id, session_id=change.session_id, reason=refusal.message,
            )  # fmt: skip
        raise
