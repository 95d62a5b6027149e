"""Transitions of brokered calls (invariant I5). Each is one statement that names the state it leaves and must change
one row, with its audit event, in the caller's transaction. What decides works in any process; what executes is fenced
by the host's epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import Conflict, NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Activity, CallState, Outcome, Risk, Verdict
from kortix_tui.broker.connectors.model import Materialised, RuleSource
from kortix_tui.runtime import call_keys
from kortix_tui.runtime.sessions import WAKE, insert_prompt
from kortix_tui.store.audit import SYSTEM, Actor
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Call

_OUTCOMES: Final[Mapping[CallState, Outcome]] = {
    CallState.DONE: Outcome.SUCCESS,
    CallState.PENDING: Outcome.PENDING,
    CallState.EXECUTING: Outcome.PENDING,
    CallState.REFUSED: Outcome.DENIED,
    CallState.DENIED: Outcome.DENIED,
}
_LOST: Final = "The host ended while this call was under way: it may have run. It is not repeated."
_UNWRITTEN: Final = "What became of this call could not be written down: it may have run. It is not repeated."


class NewCall(BaseModel):
    """A call before anything became of it.

    Attributes:
        reason: What the caller says it is for; redacted.
        request: Everything that will be sent; `None` for one that is refused before.
        actor: Who calls: an agent, or the operator.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    project_id: str
    session_id: str | None
    key: str
    connector: str
    action: str
    account: str | None
    risk: Risk
    verdict: Verdict
    rule: RuleSource
    reason: str
    arguments: str
    request: Materialised | None
    actor: Actor


@dataclass(frozen=True)
class End:
    """How an executed call ended.

    Attributes:
        state: `done`, `failed` or `unknown`.
        output: Name of the file that holds the answer.
        reply: What else is known of the answer (`Head` of `call_reports` as JSON).
    """

    state: CallState
    code: str | None = None
    message: str | None = None
    status: int | None = None
    bytes: int | None = None
    duration_ms: float | None = None
    output: str | None = None
    reply: str | None = None


def find(tx: Transaction, call_id: str) -> Call | None:
    """The call's row as the transaction sees it."""
    row = tx.execute(f"SELECT {Call.columns()} FROM calls WHERE id = ?", (call_id,)).fetchone()
    return Call.of(row) if row else None


# Coming in


def refuse(tx: Transaction, new: NewCall, code: str, message: str) -> Call:
    """A call that a grant, the policy or its own shape forbids: stored, and never asked for."""
    return _insert(tx, new, CallState.REFUSED, code=code, message=message, ended_at=tx.now_text, **_collected(tx))


def ask(tx: Transaction, new: NewCall, expires_at: datetime) -> tuple[Call, bool]:
    """A call that waits for a person; whether it is new. An identical one that its session has waiting is joined."""
    digest = _digest(new)
    row = tx.execute(
        f"SELECT {Call.columns()} FROM calls WHERE session_id = ? AND digest = ? AND state = 'pending'",
        (new.session_id, digest),
    ).fetchone()
    if row is not None:
        call_keys.join(tx, new.session_id, new.key, Call.of(row))
        _audit(tx, "connector.call.join", Call.of(row), new.actor, Outcome.PENDING)
        return Call.of(row), False
    call = _insert(tx, new, CallState.PENDING, expires_at=to_text(expires_at), asked_at=tx.now_text)
    settle_activity(tx, call.session_id)
    return call, True


def begin(tx: Transaction, new: NewCall) -> Call:
    """A call that policy, memory or the operator lets run: written before its first byte leaves."""
    return _insert(tx, new, CallState.EXECUTING, started_at=tx.now_text, asked_at=tx.now_text)


def begin_approved(tx: Transaction, call_id: str, digest: str) -> Call | None:
    """The one moment in which an approval is used up; `None` when it is not, or no longer, there to be used."""
    changed = tx.execute(
        "UPDATE calls SET state = 'executing', started_at = ? WHERE id = ? AND state = 'approved' AND digest = ?"
        " AND expires_at > ?",
        (tx.now_text, call_id, digest, tx.now_text),
    ).rowcount
    if changed != 1:
        return None
    call = _found(tx, call_id)
    _audit(tx, "connector.call.begin", call, SYSTEM, Outcome.PENDING)
    return call


# Ending


def finish(tx: Transaction, call_id: str, end: End, *, collected: bool) -> Call | None:
    """The executed call has ended; `None` when somebody else wrote its end before.

    Args:
        tx: The transaction.
        call_id: Which.
        end: How.
        collected: Whether its caller gets the answer now.
    """
    values = _ending(tx, end) | (_collected(tx) if collected else {})
    if not _move(tx, call_id, (CallState.EXECUTING,), end.state, values):
        return None
    call = _found(tx, call_id)
    _audit(tx, "connector.call", call, SYSTEM, _outcome(end.state))
    return call


def ended(call: Call, end: End, at: datetime, collected: bool) -> Call:
    """The call's row as `finish` will write it."""
    told = {"ended_at": at, "collected_at": at if collected else None}
    return call.model_copy(update=vars(end) | told)


def close(tx: Transaction, call: Call, state: CallState, code: str, message: str) -> bool:
    """End a call that was never sent: `expired` or `superseded`."""
    values = {"code": code, "message": message, "ended_at": tx.now_text}
    if not _move(tx, call.id, (CallState.PENDING, CallState.APPROVED), state, values):
        return False
    _audit(tx, f"connector.approval.{state}", _found(tx, call.id), SYSTEM, Outcome.FAILURE, reason=message)
    settle_activity(tx, call.session_id)
    return True


def lose_executing(tx: Transaction, only: frozenset[str] | None = None) -> list[Call]:
    """Calls that an earlier host left under way: they may have run. Also those whose end this one could not write."""
    rows = tx.execute(f"SELECT {Call.columns()} FROM calls WHERE state = 'executing'").fetchall()
    lost = list[Call]()
    for call in map(Call.of, rows):
        message = _LOST if only is None else _UNWRITTEN
        end = End(CallState.UNKNOWN, code="may_have_run", message=message)
        if (only is None or call.id in only) and (ended := finish(tx, call.id, end, collected=False)) is not None:
            lost.append(ended)
    return lost


# Deciding


def decide(tx: Transaction, call_id: str, digest: str, *, approve: bool, actor: Actor, note: str | None) -> Call:
    """A person's one decision about a pending call.

    Raises:
        NotFound: There is no such call.
        Conflict: It is decided, over, or not what the person was shown.
        Refused: Its session is being removed.
    """
    state = CallState.APPROVED if approve else CallState.DENIED
    if approve:
        _check_session(tx, call_id)
    changed = tx.execute(
        "UPDATE calls SET state = ?, decided_by = ?, decided_at = ?, note = ?, ended_at = ?, code = ?, message = ?"
        " WHERE id = ? AND state = 'pending' AND digest = ? AND expires_at > ?",
        (
            state, actor.label, tx.now_text, note, None if approve else tx.now_text,
            None if approve else "denied", None if approve else "A person denied this call.",
            call_id, digest, tx.now_text,
        ),
    ).rowcount  # fmt: skip
    if changed != 1:
        raise _why_undecided(tx, call_id, digest)
    call = _found(tx, call_id)
    outcome = Outcome.SUCCESS if approve else Outcome.DENIED
    _audit(tx, f"connector.approval.{state}", call, actor, outcome, note=note)
    settle_activity(tx, call.session_id)
    return call


def _check_session(tx: Transaction, call_id: str) -> None:
    row = tx.execute(
        "SELECT s.wanted, s.removed_at FROM calls c JOIN sessions s ON s.id = c.session_id WHERE c.id = ?", (call_id,)
    ).fetchone()
    if row is not None and (row[0] == "removed" or row[1] is not None):
        raise Refused("The session of this call is removed.", hint="Nothing is sent for it any more.")


def _why_undecided(tx: Transaction, call_id: str, digest: str) -> NotFound | Conflict:
    call = find(tx, call_id)
    if call is None:
        return NotFound(f"No call {visible_line(call_id[:80])}.", hint="See `kortix review ls`.")
    if call.state is not CallState.PENDING:
        by = f" by {call.decided_by}" if call.decided_by else ""
        return Conflict(f"That call is {call.state.value} already{by}.", hint="See `kortix review ls`.")
    if call.digest != digest:
        return Conflict("That call is not what you were shown.", hint="Look at it again: kortix review show ID")
    return Conflict("That call waited too long: it has expired.", hint="The agent may ask again.")


# What its caller does


def leave(tx: Transaction, call_id: str) -> None:
    """Its caller waits no longer: the session is told by a prompt."""
    if tx.execute("UPDATE calls SET left_at = ? WHERE id = ? AND left_at IS NULL", (tx.now_text, call_id)).rowcount:
        call = _found(tx, call_id)
        _audit(tx, "connector.call.leave", call, SYSTEM, Outcome.PENDING)
        settle_activity(tx, call.session_id)


def come_back(tx: Transaction, call_id: str) -> None:
    """A caller waits again."""
    changed = tx.execute(
        "UPDATE calls SET left_at = NULL, asked_at = ? WHERE id = ? AND left_at IS NOT NULL AND told_at IS NULL",
        (tx.now_text, call_id),
    ).rowcount
    if changed:
        call = _found(tx, call_id)
        _audit(tx, "connector.call.wait", call, SYSTEM, Outcome.PENDING)
        settle_activity(tx, call.session_id)


def collect(tx: Transaction, call_id: str) -> None:
    """Its caller got the final answer, so that no prompt has to carry it."""
    changed = tx.execute(
        "UPDATE calls SET collected_at = ? WHERE id = ? AND collected_at IS NULL", (tx.now_text, call_id)
    ).rowcount
    if changed:
        _audit(tx, "connector.call.collect", _found(tx, call_id), SYSTEM, Outcome.SUCCESS)


def uncollect(tx: Transaction, call_id: str) -> None:
    """The answer was sent, and its caller was not there any more."""
    changed = tx.execute(
        "UPDATE calls SET collected_at = NULL, left_at = ? WHERE id = ? AND collected_at IS NOT NULL"
        " AND told_at IS NULL",
        (tx.now_text, call_id),
    ).rowcount
    if changed:
        _audit(tx, "connector.call.leave", _found(tx, call_id), SYSTEM, Outcome.PENDING)


def tell(tx: Transaction, call: Call, text: str, *, wake: bool) -> bool:
    """Queue the one prompt that carries a final answer to a session whose call waits no longer.

    It is the answer to what the session itself asked for: whether a person is with the session does not change.

    Args:
        tx: The transaction.
        call: The final call.
        text: The prompt.
        wake: Start the session when it is stopped: a person has acted.
    """
    changed = tx.execute(
        "UPDATE calls SET told_at = ? WHERE id = ? AND told_at IS NULL AND collected_at IS NULL", (tx.now_text, call.id)
    ).rowcount
    if changed != 1 or call.session_id is None:
        return False
    prompt = insert_prompt(tx, call.session_id, text, created_by=f"call {call.id}")
    waking = f", {WAKE}" if wake else ""
    tx.execute(
        f"UPDATE sessions SET updated_at = ?, active_at = ?{waking} WHERE id = ? AND removed_at IS NULL"
        " AND wanted != 'removed'",
        (tx.now_text, tx.now_text, call.session_id),
    )
    _audit(tx, "connector.call.tell", call, SYSTEM, Outcome.SUCCESS, prompt=prompt)
    return True


def settle_activity(tx: Transaction, session_id: str | None) -> None:
    """Bring a running session's activity in step with its turn and its calls.

    While a turn runs, it waits as long as a call of it is held open for a person; between turns, as long as anything
    of it waits for one. The idle clock starts anew when a wait is over.
    """
    row = tx.execute("SELECT status, activity FROM sessions WHERE id = ?", (session_id,)).fetchone()
    if row is None or row[0] != "running":
        return
    runs = tx.execute(
        "SELECT 1 FROM prompts WHERE session_id = ? AND state = 'running' LIMIT 1", (session_id,)
    ).fetchone()
    held = "AND left_at IS NULL" if runs else ""
    waits = tx.execute(
        f"SELECT 1 FROM calls WHERE session_id = ? AND state = 'pending' {held} LIMIT 1", (session_id,)
    ).fetchone()
    now = Activity.WAITING if waits else Activity.WORKING if runs else Activity.IDLE
    if now != row[1]:
        tx.execute(
            "UPDATE sessions SET activity = ?, active_at = ?, updated_at = ? WHERE id = ?",
            (now, tx.now_text, tx.now_text, session_id),
        )


# Inside


def _insert(tx: Transaction, new: NewCall, state: CallState, **values: Any) -> Call:
    row: dict[str, Any] = {
        "id": new.id, "project_id": new.project_id, "session_id": new.session_id, "key": new.key,
        "connector": new.connector, "action": new.action, "account": new.account, "risk": new.risk, "state": state,
        "verdict": new.verdict, "rule": new.rule.model_dump_json(), "reason": new.reason, "arguments": new.arguments,
        "request": new.request.model_dump_json() if new.request else None,
        "digest": new.request.digest() if new.request else None,
        "created_by": new.actor.label, "created_at": tx.now_text,
    } | values  # fmt: skip
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    tx.execute(f"INSERT INTO calls ({names}) VALUES ({marks})", tuple(row.values()))
    call = _found(tx, new.id)
    _audit(tx, "connector.call", call, new.actor, _outcome(state))
    return call


def _move(
    tx: Transaction, call_id: str, before: tuple[CallState, ...], after: CallState, values: Mapping[str, Any]
) -> bool:
    assignments = "".join(f", {name} = ?" for name in values)
    marks = ", ".join("?" * len(before))
    changed = tx.execute(
        f"UPDATE calls SET state = ?{assignments} WHERE id = ? AND state IN ({marks})",
        (after, *values.values(), call_id, *before),
    ).rowcount
    return changed == 1


def _ending(tx: Transaction, end: End) -> dict[str, Any]:
    return {
        "code": end.code, "message": end.message, "status": end.status, "bytes": end.bytes,
        "duration_ms": end.duration_ms, "output": end.output, "reply": end.reply,
        "ended_at": tx.now_text,
    }  # fmt: skip


def _collected(tx: Transaction) -> dict[str, str]:
    return {"collected_at": tx.now_text}


def _digest(new: NewCall) -> str:
    assert new.request is not None  # noqa: S101 - only what is known whole is asked for
    return new.request.digest()


def _found(tx: Transaction, call_id: str) -> Call:
    call = find(tx, call_id)
    assert call is not None  # noqa: S101 - rows of calls are never deleted
    return call


def _outcome(state: CallState) -> Outcome:
    return _OUTCOMES.get(state, Outcome.FAILURE)


def _audit(tx: Transaction, event: str, call: Call, actor: Actor, outcome: Outcome, **more: Any) -> None:
    detail = {
        "call": call.id, "state": call.state.value, "verdict": call.verdict.value, "risk": call.risk.value,
        "rule": RuleSource.model_validate_json(call.rule).says(), "account": call.account, "digest": call.digest,
        "code": call.code, "status": call.status, "bytes": call.bytes, "duration_ms": call.duration_ms,
        "decided_by": call.decided_by,
    } | more  # fmt: skip
    tx.audit(
        event, scope=f"{call.connector}.{call.action}", actor=actor, outcome=outcome, project_id=call.project_id,
        session_id=call.session_id, **{name: value for name, value in detail.items() if value is not None},
    )  # fmt: skip
