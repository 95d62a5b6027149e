"""Approval memory: calls of one exact shape that run without asking, so often and so long (table `call_rules`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Final

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Outcome
from kortix_tui.broker.connectors.model import Materialised
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Call, CallRule

MAX_DEPTH: Final = 8


class Remember(BaseModel):
    """What a person wants remembered of an approval.

    Attributes:
        arguments: Dotted paths of the arguments whose values count; the values are those of the approved call.
        most: How many calls may use it.
        hours: How long it may be used.
        this_session: Whether only the session that asked may use it; otherwise every session of the project.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    arguments: tuple[str, ...]
    most: Annotated[int, Field(ge=1, le=10_000)] = 10
    hours: Annotated[float, Field(gt=0, le=30 * 24)] = 8
    this_session: bool = True


def paths(arguments: Any) -> dict[str, Any]:
    """Every argument by its dotted path. Lists, and what is nested too deep, count as one value."""
    return dict(_paths(arguments, "", MAX_DEPTH))


def _paths(value: Any, before: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value and depth > 0:
        for name, inner in value.items():
            yield from _paths(inner, f"{before}.{_escaped(name)}" if before else _escaped(name), depth - 1)
    elif before:
        yield before, value


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace(".", "\\.")


def remember(tx: Transaction, call: Call, wish: Remember, actor: Actor) -> str:
    """Make a rule from an approved call, in the transaction of its approval; returns the rule's id.

    Raises:
        InvalidInput: No argument is bound, or one that the call does not have.
        Refused: The call has no session whose calls could use it.
    """
    known = paths(json.loads(call.arguments))
    unknown = [path for path in wish.arguments if path not in known]
    if unknown:
        raise InvalidInput(
            f"The call has no argument {visible_line(unknown[0][:80])}.", hint=f"It has: {', '.join(known) or 'none'}."
        )
    if known and not wish.arguments:
        raise InvalidInput(
            "At least one argument's value must be bound.",
            hint="To let every call of the action run, change the policy: a person merges that.",
        )
    if call.session_id is None:
        raise Refused("A call of the operator's own asks nobody: there is nothing to remember.")
    identity = new_id("rul")
    bound = rfc8785.dumps({path: known[path] for path in wish.arguments}).decode()
    tx.execute(
        "INSERT INTO call_rules (id, project_id, session_id, connector, action, arguments, most, from_call, created_by,"
        " created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            identity, call.project_id, call.session_id if wish.this_session else None, call.connector, call.action,
            bound, wish.most, call.id, actor.label, tx.now_text, to_text(tx.now + timedelta(hours=wish.hours)),
        ),
    )  # fmt: skip
    tx.audit(
        "connector.rule.create", scope=f"{call.connector}.{call.action}", actor=actor, project_id=call.project_id,
        session_id=call.session_id, rule=identity, call=call.id, most=wish.most, hours=wish.hours,
        bound=list(wish.arguments), this_session=wish.this_session,
    )  # fmt: skip
    return identity


def matching(store: Store, request: Materialised, session_id: str) -> CallRule | None:
    """The rule that would let this call run now, or `None`. It is used up by `consume` only.

    The shape must be the same: connector as it was defined and documented then, action, account as it was connected
    then, the names of all arguments, and the values of those that were bound.
    """
    given = paths(json.loads(request.arguments))
    rows = store.all(
        f"SELECT {', '.join('r.' + name for name in CallRule.model_fields)}, c.request FROM call_rules r"
        " JOIN calls c ON c.id = r.from_call WHERE NOT EXISTS (SELECT 1 FROM connections n WHERE n.id = ?"
        " AND n.created_at > c.created_at) AND r.project_id = ? AND r.connector = ? AND r.action = ?"
        " AND r.revoked_at IS NULL AND r.used < r.most AND r.expires_at > ? AND coalesce(r.session_id, ?) = ?"
        " ORDER BY r.expires_at",
        (
            request.credential, request.project_id, request.connector, request.action, to_text(store.clock.now()),
            session_id, session_id,
        ),
    )  # fmt: skip
    for row in rows:
        rule, first = CallRule.of(row[:-1]), Materialised.model_validate_json(row[-1])
        if _same_place(first, request) and _same_shape(rule, first, given):
            return rule
    return None


def _same_place(one: Materialised, other: Materialised) -> bool:
    return (one.definition_hash, one.document_hash, one.credential) == (
        other.definition_hash, other.document_hash, other.credential,
    )  # fmt: skip


def _same_shape(rule: CallRule, first: Materialised, given: dict[str, Any]) -> bool:
    bound: dict[str, Any] = json.loads(rule.arguments)
    if given.keys() != paths(json.loads(first.arguments)).keys():
        return False
    # Canonical JSON: in Python True equals 1, in an argument it does not.
    return all(path in given and rfc8785.dumps(given[path]) == rfc8785.dumps(value) for path, value in bound.items())


def consume(tx: Transaction, rule_id: str) -> bool:
    """Use a rule for one call, in the transaction that begins it; false when it is used up, over or revoked."""
    changed = tx.execute(
        "UPDATE call_rules SET used = used + 1 WHERE id = ? AND used < most AND expires_at > ? AND revoked_at IS NULL",
        (rule_id, tx.now_text),
    ).rowcount
    return changed == 1


def revoke(tx: Transaction, rule_id: str, actor: Actor) -> None:
    """Take a rule back: from now on its calls ask again.

    Raises:
        NotFound: There is no such rule.
    """
    columns = CallRule.columns()
    row = tx.execute(f"SELECT {columns} FROM call_rules WHERE id = ?", (rule_id,)).fetchone()
    if row is None:
        raise NotFound(f"No remembered approval {visible_line(rule_id[:80])}.", hint="See `kortix policy rules ls`.")
    rule = CallRule.of(row)
    tx.execute(
        "UPDATE call_rules SET revoked_by = ?, revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
        (actor.label, tx.now_text, rule_id),
    )
    tx.audit(
        "connector.rule.revoke", scope=f"{rule.connector}.{rule.action}", actor=actor, outcome=Outcome.SUCCESS,
        project_id=rule.project_id, session_id=rule.session_id, rule=rule.id, used=rule.used,
    )  # fmt: skip
