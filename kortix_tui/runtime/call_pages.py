"""Calls as the console and the command line show them: read from the store, in any process."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

from kortix_tui.base.text import shorten, visible
from kortix_tui.base.words import CallState, Risk, Verdict
from kortix_tui.broker.connectors.model import HttpCall, Materialised, McpCall, RuleSource
from kortix_tui.runtime.connector_views import ApprovalView, CallRuleView, CallView
from kortix_tui.store.database import Store
from kortix_tui.store.models import Call, CallRule, Connection

RISKS: Final = {Risk.DESTRUCTIVE: 0, Risk.WRITE: 1, Risk.READ: 2}
"""Riskiest first."""
MOST_TOLD: Final = 3
MOST_FIRST: Final = 2
MOST_VALUE: Final = 40
_TELLING: Final = ("to", "recipient", "email", "channel", "url", "path", "repo", "subject", "title", "name", "id")
_CALLS: Final = (
    f"SELECT {', '.join('c.' + name for name in Call.model_fields)}, p.slug, s.title, s.agent FROM calls c"
    " JOIN projects p ON p.id = c.project_id LEFT JOIN sessions s ON s.id = c.session_id"
)
_RULES: Final = (
    f"SELECT {', '.join('r.' + name for name in CallRule.model_fields)}, p.slug FROM call_rules r"
    " JOIN projects p ON p.id = r.project_id"
)


def calls(store: Store, clauses: str, values: tuple[Any, ...]) -> list[CallView]:
    """The calls that a `WHERE … ORDER BY …` selects."""
    return [_call(row) for row in store.all(f"{_CALLS} {clauses}", values)]


def approvals(store: Store, clauses: str, values: tuple[Any, ...]) -> list[ApprovalView]:
    """The same, each with exactly what will be sent. For calls that have a request."""
    return [_approval(store, view) for view in calls(store, clauses, values) if view.request is not None]


def rules(store: Store, clauses: str, values: tuple[Any, ...]) -> list[CallRuleView]:
    """Remembered approvals that a `WHERE … ORDER BY …` selects."""
    now, views = store.clock.now(), list[CallRuleView]()
    for row in store.all(f"{_RULES} {clauses}", values):
        rule = CallRule.of(row[:-1])
        active = rule.revoked_at is None and rule.used < rule.most and rule.expires_at > now
        views.append(CallRuleView(**rule.model_dump(), project=row[-1], active=active))
    return views


def _call(row: tuple[Any, ...]) -> CallView:
    call, (slug, title, agent) = Call.of(row[:-3]), row[-3:]
    says = RuleSource.model_validate_json(call.rule).says()
    return CallView(**call.model_dump(), project=slug, session_title=title, agent=agent or None, rule_says=says)


def _approval(store: Store, view: CallView) -> ApprovalView:
    request = Materialised.model_validate_json(view.request or "")
    sent = request.call if isinstance(request.call, HttpCall) else as_http(request.call)
    raw = sent.body or b""
    # The digest of what is shown, whatever the row says: a decision names what was seen.
    shown = view.model_dump() | {"digest": request.digest()}
    return ApprovalView(
        **shown, method=sent.method or None, url=sent.url, headers=sent.headers,
        body=_text(raw) if raw else None, body_bytes=len(raw),
        credential=_credential(store, request), identical=_identical(store, view),
        last_approved=_last_approved(store, view), waiting=view.state is CallState.PENDING and view.left_at is None,
    )  # fmt: skip


def as_http(call: McpCall) -> HttpCall:
    """A tool server's call in the same form: all that the digest covers is shown."""
    facts = [("tool", call.tool)]
    if call.program is not None:
        facts += [("command", shlex.join(call.program.command)), ("image", call.program.image)]
        facts += [("may reach", host) for host in call.program.hosts]
    return HttpCall(method="", url=call.endpoint, headers=tuple(facts), body=call.arguments.encode())


def _text(raw: bytes) -> str:
    try:
        return visible(raw.decode())
    except UnicodeDecodeError:
        return f"({len(raw):,} bytes that are not text)"


def _credential(store: Store, request: Materialised) -> str | None:
    if request.credential is None:
        return None
    row = store.one(f"SELECT {Connection.columns()} FROM connections WHERE id = ?", (request.credential,))
    known = Connection.of(row) if row else None
    who = f"{known.account} ({known.auth})" if known else "a connection that is gone"
    return f"{who}, in {request.credential_place}" if request.credential_place else who


def _identical(store: Store, view: CallView) -> tuple[str, ...]:
    query = "SELECT id FROM calls WHERE digest = ? AND state = 'pending' AND id != ? ORDER BY created_at, id"
    return tuple(row[0] for row in store.all(query, (view.digest, view.id)))


def _last_approved(store: Store, view: CallView) -> str | None:
    row = store.one(
        "SELECT arguments FROM calls WHERE project_id = ? AND connector = ? AND action = ? AND id != ? AND verdict = ?"
        " AND decided_at IS NOT NULL AND state IN ('approved', 'executing', 'done', 'failed', 'unknown')"
        " ORDER BY decided_at DESC LIMIT 1",
        (view.project_id, view.connector, view.action, view.id, Verdict.ASK),
    )
    return row[0] if row else None


def summary(view: Call) -> str:
    """A pending call in one line: what its arguments say of who or what it is about, or the first of them."""
    arguments = json.loads(view.arguments)
    told = [(name, arguments[name]) for name in _TELLING if isinstance(arguments.get(name), str | int)][:MOST_TOLD]
    if len(told) < MOST_FIRST:
        told += islice((one for one in _scalars(arguments) if one not in told), MOST_FIRST - len(told))
    return ", ".join(f"{name}: {shorten(json.dumps(value, ensure_ascii=False), MOST_VALUE)}" for name, value in told)


def _scalars(arguments: dict[str, Any]) -> Iterator[tuple[str, str | int | float]]:
    """Texts and numbers, each by its own name, as deep as they are."""
    waiting = list(reversed(arguments.items()))
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += reversed(value.items())
        elif isinstance(value, str | int | float):
            yield name, value
