"""Approvals, connectors and policies in memory for console tests."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kortix_tui.base.errors import Conflict, NotFound
from kortix_tui.base.words import CallState, Risk, Verdict
from kortix_tui.runtime.call_memory import Remember
from kortix_tui.runtime.connector_views import ApprovalView, DecisionResult

if TYPE_CHECKING:
    from console_source import MemorySource

NOW = datetime(2026, 3, 14, 12, 4, 30, tzinfo=UTC)
RISKS = (Risk.DESTRUCTIVE, Risk.WRITE, Risk.READ)


def a_call(number: int, session: Any, action: str = "create_refund", **changes: Any) -> ApprovalView:
    created = NOW - timedelta(minutes=changes.pop("minutes", 3))
    arguments = changes.pop("arguments", {"amount": 4200, "charge": f"ch_{number}", "reason": "duplicate"})
    body = json.dumps(arguments, separators=(",", ":"), ensure_ascii=False)
    values: dict[str, Any] = {
        "id": f"call_{number}", "project_id": session.project_id, "session_id": session.id, "key": f"key{number:013d}",
        "connector": "billing-api", "action": action, "account": "default", "risk": Risk.WRITE,
        "state": CallState.PENDING, "verdict": Verdict.ASK, "rule": "{}", "code": None, "message": None,
        "reason": "The customer was charged twice.", "arguments": body, "request": "{}",
        "digest": f"{number:02d}c1e{'5f' * 27}a902"[:64], "status": None, "bytes": None, "duration_ms": None,
        "output": None, "created_by": f"agent of {session.id}", "created_at": created,
        "expires_at": created + timedelta(hours=24), "decided_by": None, "decided_at": None, "note": None,
        "started_at": None, "ended_at": None, "asked_at": created, "left_at": None, "collected_at": None,
        "told_at": None, "project": session.project, "session_title": session.title, "agent": session.agent,
        "rule_says": "connector rule 2: match *", "method": "POST",
        "url": "https://billing.example/v1/refunds", "headers": (("content-type", "application/json"),),
        "body": body, "body_bytes": len(body.encode("utf-8", "surrogatepass")),
        "credential": "default (bearer), in header authorization", "identical": (), "last_approved": None,
        "waiting": True,
    }  # fmt: skip
    return ApprovalView(**(values | changes))


class MemoryApprovals:
    """Decides as the real one does; what was decided is in the source's `calls`."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.rows: list[ApprovalView] = []

    def pending(self) -> list[ApprovalView]:
        waiting = [row for row in self.rows if row.state is CallState.PENDING]
        found = [
            row.model_copy(
                update={"identical": tuple(o.id for o in waiting if o.digest == row.digest and o.id != row.id)}
            )
            for row in waiting
        ]
        return sorted(found, key=lambda row: (RISKS.index(row.risk), row.created_at, row.id))

    def show(self, reference: str) -> ApprovalView:
        for row in self.rows:
            if row.id == reference:
                return row
        raise NotFound(f"No call {reference}.")

    def decide(
        self, reference: str, *, digest: str, approve: bool, note: str | None = None,
        remember: Remember | None = None, terminal: bool, pinned: bool,
    ) -> DecisionResult:  # fmt: skip
        row = self.show(reference)
        if row.state is not CallState.PENDING:
            raise Conflict(f"Call {row.id} is {row.state} already.")
        if row.digest != digest:
            raise Conflict(f"Call {row.id} is not what was shown: look again.")
        state = CallState.APPROVED if approve else CallState.DENIED
        self._source.calls.append(("decide", row.id, approve, note, remember))
        self.replace(row.model_copy(update={"state": state, "note": note, "decided_by": "dana", "decided_at": NOW}))
        return DecisionResult(id=row.id, state=state, note=note)

    # What tests do.

    def replace(self, view: ApprovalView) -> None:
        self.rows = [view if row.id == view.id else row for row in self.rows]
        self._source.version += 1

    def add(self, *views: ApprovalView) -> None:
        self.rows += views
        self._source.version += 1


class MemoryConnectors:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.rows: list[Any] = []

    def list(self, project: Any) -> list[Any]:
        return [row for row in self.rows if row.project == project.slug]


class MemoryPolicies:
    def __init__(self, source: MemorySource) -> None:
        self._source = source


def fill_calls(source: MemorySource) -> None:
    """Calls as they wait on a working day."""
    first, _, third, *_ = source.session_rows
    same = {"digest": "7c1e" + "ab" * 28 + "a902", "arguments": {"to": "dana@example.org", "text": "Paid."}}
    source.approvals.rows = [
        a_call(1, first, minutes=9, last_approved='{"amount":4000,"charge":"ch_0","reason":"duplicate"}'),
        a_call(2, third, "delete_customer", risk=Risk.DESTRUCTIVE, minutes=2, method="DELETE",
               url="https://billing.example/v1/customers/cus_41", headers=(), body=None, body_bytes=0,
               arguments={"id": "cus_41"}, reason="asked [b]now[/b]\x1b[31m"),
        a_call(3, first, "send_mail", minutes=5, **same),
        a_call(4, third, "send_mail", minutes=4, **same),
    ]  # fmt: skip
