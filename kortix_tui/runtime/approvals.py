"""Approvals as the operator handles them: what waits, exactly what would be sent, and the one decision about it.

A decision is one transaction, in any process; the host sees it within its poll and sends what was approved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kortix_tui.base.errors import Ambiguous, InvalidInput, NotFound, Refused
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import CallState, Outcome
from kortix_tui.runtime import call_ledger, call_memory, call_pages
from kortix_tui.runtime.call_memory import Remember
from kortix_tui.runtime.connector_views import ApprovalView, CallRuleView, DecisionResult
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.decisions import check_decision
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Call, Project

MAX_NOTE: Final = 4000
_PIN: Final = ("digest", "--digest D")
T = TypeVar("T")


class Approvals:
    """The approval verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # Reading

    def pending(self, project: Project | None = None) -> list[ApprovalView]:
        """What waits for a person: the riskiest first, then the oldest."""
        clause, values = ("AND c.project_id = ?", (project.id,)) if project is not None else ("", ())
        views = call_pages.approvals(
            self._context.store, f"WHERE c.state = 'pending' {clause} ORDER BY c.created_at, c.id", values
        )
        return sorted(views, key=lambda view: call_pages.RISKS[view.risk])

    def show(self, reference: str) -> ApprovalView:
        """The approval of an id or of a unique beginning of one; also one that is decided.

        Raises:
            NotFound: There is none.
            Ambiguous: Several fit.
        """
        identity = self._find(reference)
        view = call_pages.approvals(self._context.store, "WHERE c.id = ?", (identity,))[0]
        self._context.reading(
            "connector.approval.read", scope=f"call {view.id}", project_id=view.project_id, session_id=view.session_id
        )
        return view

    def rules(self, *, project: Project | None = None) -> list[CallRuleView]:
        """Remembered approvals, those in force first, newest first."""
        clause, values = ("WHERE r.project_id = ?", (project.id,)) if project is not None else ("", ())
        found = call_pages.rules(self._context.store, f"{clause} ORDER BY r.created_at DESC, r.id", values)
        return sorted(found, key=lambda rule: not rule.active)

    # Deciding

    def decide(
        self,
        reference: str,
        *,
        digest: str,
        approve: bool,
        note: str | None = None,
        remember: Remember | None = None,
        terminal: bool,
        pinned: bool,
    ) -> DecisionResult:
        """Approve or deny one call, once.

        Args:
            reference: The call.
            digest: Of what the person was shown.
            approve: Whether it may be sent.
            note: What the agent is told beside.
            remember: Have calls of the same shape run without asking from now on; with an approval only.
            terminal: Whether a person can be asked.
            pinned: Whether the exact digest was given.

        Raises:
            Refused: No person decides (invariant I1), or the session is being removed.
            Conflict: It is decided or over already, or not what was shown.
            NotFound: There is no such call.
            InvalidInput: The note is too long, or what should be remembered does not fit the call.
        """
        text = _checked_note(note)
        if remember is not None and not approve:
            raise InvalidInput("Only an approval can be remembered.", hint="To block calls, change the policy.")
        identity = self._find(reference)
        self._check(identity, approve, terminal=terminal, pinned=pinned)
        actor = self._context.actor

        def change(tx: Transaction) -> Call:
            call = call_ledger.decide(tx, identity, digest, approve=approve, actor=actor, note=text)
            if remember is not None:
                call_memory.remember(tx, call, remember, actor)
            return call

        return _result(self._write(change))

    def decide_identical(
        self, digest: str, *, approve: bool, note: str | None = None, terminal: bool, pinned: bool = True
    ) -> list[DecisionResult]:
        """Decide every pending call of one digest, in one transaction: they are the same, down to the last byte.

        Raises:
            NotFound: None is pending.
            Refused, Conflict: As `decide`.
        """
        text = _checked_note(note)
        query = "SELECT id FROM calls WHERE digest = ? AND state = 'pending' ORDER BY created_at, id"
        identities = [row[0] for row in self._context.store.all(query, (digest,))]
        if not identities:
            raise NotFound("No pending call is of that digest.", hint="See `kortix review ls`.")
        self._check(identities[0], approve, terminal=terminal, pinned=pinned)

        def change(tx: Transaction) -> list[Call]:
            actor = self._context.actor
            return [
                call_ledger.decide(tx, identity, digest, approve=approve, actor=actor, note=text)
                for identity in identities
            ]

        return [_result(call) for call in self._write(change)]

    def revoke_rule(self, reference: str) -> CallRuleView:
        """Take the remembered approval of an id, or of a unique beginning of one, back.

        Raises:
            NotFound: There is none.
            Ambiguous: Several fit.
        """
        rows = self._context.store.all(
            "SELECT id FROM call_rules WHERE substr(id, 1, ?) = ?"
            " ORDER BY revoked_at IS NOT NULL, created_at DESC LIMIT 6",
            (len(reference), reference),
        )
        identity = _only(reference, rows, "remembered approval", "kortix policy rules ls")
        self._write(lambda tx: call_memory.revoke(tx, identity, self._context.actor))
        return call_pages.rules(self._context.store, "WHERE r.id = ?", (identity,))[0]

    # Inside

    def _write(self, change: Callable[[Transaction], T]) -> T:
        with self._context.store.write() as tx:
            return change(tx)

    def _find(self, reference: str) -> str:
        rows = self._context.store.all(
            "SELECT id FROM calls WHERE request IS NOT NULL AND substr(id, 1, ?) = ?"
            " ORDER BY state != 'pending', created_at DESC LIMIT 6",
            (len(reference), reference),
        )
        return _only(reference, rows, "call", "kortix review ls")

    def _check(self, identity: str, approve: bool, *, terminal: bool, pinned: bool) -> None:
        """Refuse a decision that no person takes, and have the attempt on record."""
        what = "Approving" if approve else "Denying"
        try:
            check_decision(what, settings=self._context.settings, terminal=terminal, pinned=pinned, pin=_PIN)
        except Refused as refusal:
            call = call_pages.calls(self._context.store, "WHERE c.id = ?", (identity,))[0]
            event = f"connector.approval.{CallState.APPROVED if approve else CallState.DENIED}"
            with self._context.store.write() as tx:
                tx.audit(
                    event, scope=f"{call.connector}.{call.action}", actor=self._context.actor, outcome=Outcome.DENIED,
                    project_id=call.project_id, session_id=call.session_id, call=call.id, reason=refusal.message,
                )  # fmt: skip
            raise


def _only(reference: str, rows: Sequence[tuple[str]], what: str, listing: str) -> str:
    """The one id among those found that a person means."""
    shown = shorten(visible_line(reference), 80)
    if not rows or not reference:
        raise NotFound(f"No {what} {shown}.", hint=f"See `{listing}`.")
    found = [row[0] for row in rows]
    if len(found) > 1 and reference not in found:
        raise Ambiguous(f"{shown} fits {', '.join(found[:5])}.", hint="Give more of it.")
    return reference if reference in found else found[0]


def _checked_note(note: str | None) -> str | None:
    text = (note or "").strip()
    if len(text) > MAX_NOTE:
        raise InvalidInput(f"The note has {len(text):,} characters; at most {MAX_NOTE:,} are taken.")
    return text or None


def _result(call: Call) -> DecisionResult:
    return DecisionResult(id=call.id, state=call.state, note=call.note)
