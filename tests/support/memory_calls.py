"""Approvals, connectors and policies in memory for console tests."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from kortix_tui.base.errors import Conflict, InvalidInput, NotFound
from kortix_tui.base.words import CallState, ConnectionState, Risk, Verdict
from kortix_tui.broker.connectors.model import CatalogueDifference
from kortix_tui.runtime.call_memory import Remember, paths
from kortix_tui.runtime.connection_calls import Authorizing
from kortix_tui.runtime.connections import ConnectionChange
from kortix_tui.runtime.connector_views import (
    ActionView,
    ApprovalView,
    CallRuleView,
    ConnectionView,
    ConnectorView,
    DecisionResult,
    PolicyView,
    RuleView,
    SyncResult,
)
from kortix_tui.runtime.connectors import AuthNeeds, PendingCatalogue
from kortix_tui.store.models import Project
from kortix_tui.vault.secret import Secret

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
        self.remembered: list[CallRuleView] = []

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
        if remember is not None:
            self._remember(row, remember)
        return DecisionResult(id=row.id, state=state, note=note)

    def _remember(self, row: ApprovalView, wish: Remember) -> None:
        known = paths(json.loads(row.arguments))
        rule = CallRuleView(
            id=f"rul_{row.id}", project_id=row.project_id, session_id=row.session_id if wish.this_session else None,
            connector=row.connector, action=row.action, most=wish.most, used=0, from_call=row.id, created_by="dana",
            arguments=json.dumps({path: known[path] for path in wish.arguments}), created_at=NOW,
            expires_at=NOW + timedelta(hours=wish.hours), revoked_by=None, revoked_at=None, project=row.project,
            active=True,
        )  # fmt: skip
        self.remembered.insert(0, rule)

    def rules(self, *, project: Project | None = None) -> list[CallRuleView]:
        return [rule for rule in self.remembered if project is None or rule.project_id == project.id]

    # What tests do.

    def replace(self, view: ApprovalView) -> None:
        self.rows = [view if row.id == view.id else row for row in self.rows]
        self._source.version += 1

    def add(self, *views: ApprovalView) -> None:
        self.rows += views
        self._source.version += 1


def a_connection(connector: str = "billing-api", account: str = "default", **changes: Any) -> ConnectionView:
    values: dict[str, Any] = {
        "id": f"con_{connector}_{account}", "connector": connector, "account": account, "is_default": True,
        "auth": "bearer", "username": None, "identifier": f"connection.{connector}.{account}",
        "state": ConnectionState.READY, "scopes": (), "expires_at": None, "created_by": "dana",
        "created_at": NOW - timedelta(days=2), "used_at": NOW - timedelta(minutes=9),
    }  # fmt: skip
    return ConnectionView(**(values | changes))


def a_connector(slug: str, **changes: Any) -> ConnectorView:
    values: dict[str, Any] = {
        "project": "acme-api", "slug": slug, "name": None, "provider": "openapi", "enabled": True, "sensitive": False,
        "auth": "bearer", "place": f"https://{slug}.example", "default_mode": "allow_all", "gates_off": False,
        "connected": True, "problem": None, "actions": 4, "pending": False, "agents": ("refactor",),
        "connections": (a_connection(slug),),
    }  # fmt: skip
    return ConnectorView(**(values | changes))


def an_action(name: str, risk: Risk, verdict: Verdict, rule: str, **changes: Any) -> ActionView:
    values: dict[str, Any] = {
        "name": name, "title": name, "description": "", "risk": risk, "method": "POST", "path": f"/{name}",
        "verdict": verdict, "rule": rule, "conditional": False, "unavailable": None, "input_schema": {},
    }  # fmt: skip
    return ActionView(**(values | changes))


def a_rule(index: int, match: str, verdict: Verdict, **changes: Any) -> RuleView:
    values: dict[str, Any] = {
        "source": "connector", "index": index, "match": match, "verdict": verdict, "conditions": (), "matches": 4,
        "decides": 2, "note": None,
    }  # fmt: skip
    return RuleView(**(values | changes))


class MemoryConnectors:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.rows: list[ConnectorView] = []
        self.needs = AuthNeeds(
            type="bearer", place="header authorization", origin="https://billing.example", grant=None, client_id=None,
            scopes=(), from_document=False,
        )  # fmt: skip
        self.waiting: dict[str, PendingCatalogue] = {}
        self.faults: dict[str, str] = {}

    def list(self, project: Project) -> list[ConnectorView]:
        if project.slug in self.faults:
            raise InvalidInput(self.faults[project.slug])
        return [row for row in self.rows if row.project == project.slug]

    def find(self, project: Project, slug: str) -> ConnectorView:
        for row in self.list(project):
            if row.slug == slug:
                return row
        raise NotFound(f"Project {project.slug} has no connector {slug}.")

    def replace(self, view: ConnectorView) -> ConnectorView:
        self.rows = [view if (row.project, row.slug) == (view.project, view.slug) else row for row in self.rows]
        self._source.version += 1
        return view

    def auth(self, project: Project, slug: str) -> AuthNeeds:
        self.find(project, slug)
        return self.needs

    def pending(self, project: Project, slug: str) -> PendingCatalogue | None:
        self.find(project, slug)
        return self.waiting.get(slug)

    def sync(self, project: Project, slug: str) -> SyncResult:
        row = self.find(project, slug)
        self._source.calls.append(("sync", slug))
        waiting = self.waiting.get(slug)
        if waiting is not None:
            self.replace(row.model_copy(update={"pending": True}))
        elif row.actions is None:
            self.replace(row.model_copy(update={"actions": 4, "connected": True, "problem": None}))
        return SyncResult(
            connector=slug, catalogue_id="cat_1", state="pending" if waiting else "accepted",
            changed=waiting is not None or row.actions is None, title=f"{slug} API", base_url=row.place, actions=4,
            notes=("1 operation cannot be called: it is on another server.",),
            difference=waiting.difference if waiting else None,
        )  # fmt: skip

    def accept(
        self, project: Project, slug: str, catalogue_id: str, *, terminal: bool, pinned: bool = True
    ) -> ConnectorView:
        waiting = self.waiting.pop(slug, None)
        if waiting is None or waiting.catalogue_id != catalogue_id:
            raise Conflict("That is not what waits to be accepted.")
        self._source.calls.append(("accept", slug, catalogue_id, terminal))
        update = {"pending": False, "actions": waiting.actions}
        return self.replace(self.find(project, slug).model_copy(update=update))


class MemoryConnections:
    """Keeps what it was given in `values`, for tests to look at."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.values: dict[str, bytes] = {}
        self.agreed = threading.Event()
        self.pasted: list[str] = []

    def connect(
        self, project: Project, connector: str, value: Secret | None, *, account: str = "default",
        username: str | None = None, secret: str | None = None, client_id: str | None = None,
    ) -> ConnectionChange:  # fmt: skip
        self._source.vault.opened()
        if value is not None:
            self.values[f"{connector}/{account}"] = value.use("the test looks at it")
        self._source.calls.append(("connect", connector, account, username, secret, client_id))
        return ConnectionChange(connection=self._made(project, connector, account), warnings=())

    def authorize(
        self, project: Project, connector: str, *, account: str = "default", client_id: str | None = None,
        client_secret: Secret | None = None,
    ) -> Authorizing:  # fmt: skip
        self._source.calls.append(("authorize", connector, account, client_id, client_secret is not None))
        self._wanted = (project, connector, account)
        return Authorizing(
            flow="flow1", url="https://login.example/authorize?client_id=c&state=s", user_code=None,
            redirect_uri="http://127.0.0.1:4711/", expires_at=NOW + timedelta(minutes=5),
        )  # fmt: skip

    def authorization(self, flow: str, *, wait_s: float = 0, pasted: str | None = None) -> ConnectionView | None:
        if pasted is not None:
            self.pasted.append(pasted)
            self.agreed.set()
        return self._made(*self._wanted) if self.agreed.wait(min(wait_s, 0.05)) else None

    def cancel(self, flow: str) -> None:
        self._source.calls.append(("cancel", flow))

    def remove(self, project: Project, connector: str, account: str = "default") -> ConnectionView:
        self._source.vault.opened()
        row = self._source.connectors.find(project, connector)
        gone = next(one for one in row.connections if one.account == account)
        self._source.calls.append(("remove connection", connector, account))
        left = tuple(one for one in row.connections if one != gone)
        self._source.connectors.replace(row.model_copy(update={"connections": left, "connected": False}))
        return gone

    def _made(self, project: Project, connector: str, account: str) -> ConnectionView:
        row, made = self._source.connectors.find(project, connector), a_connection(connector, account)
        others = tuple(one for one in row.connections if one.account != account)
        update = {"connections": (*others, made), "connected": row.actions is not None}
        self._source.connectors.replace(row.model_copy(update=update))
        return made


class MemoryPolicies:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.rows: dict[str, PolicyView] = {}

    def view(self, project: Project, connector: str) -> PolicyView:
        if connector not in self.rows:
            raise NotFound(f"Project {project.slug} has no connector {connector}.")
        return self.rows[connector]


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


def fill_connectors(source: MemorySource) -> None:
    """Connectors as they are on a working day."""
    rule = "connector rule 2: match *"
    source.connectors.rows = [
        a_connector("billing-api", name="Billing", default_mode="risk"),
        a_connector(
            "github", provider="mcp", agents=(), connections=(), connected=False, gates_off=True, actions=None,
            problem="It has no account: kortix connectors connect github", place="https://api.github.example/mcp",
        ),
        a_connector("weather", project="web", auth="none", connections=(), gates_off=True, agents=("builder",)),
        a_connector("helpdesk", pending=True, sensitive=True, provider="http"),
    ]  # fmt: skip
    source.connectors.waiting["helpdesk"] = PendingCatalogue(
        connector="helpdesk", catalogue_id="cat_9", title="Help desk", base_url="https://helpdesk.example", actions=5,
        notes=(), created_by="dana", created_at=NOW, auth=("bearer", "api_key"),
        image=None,
        difference=CatalogueDifference(
            added=("close_ticket",), removed=("old_search",), changed=("send_reply", "get_ticket"),
            riskier=("get_ticket",),
        ),
    )  # fmt: skip
    never = "never reached: rule 2 decides before it"
    for slug in ("billing-api", "github", "weather", "helpdesk"):
        source.policies.rows[slug] = PolicyView(
            project="web" if slug == "weather" else "acme-api", connector=slug, default_mode="risk", sensitive=False,
            rules=(
                a_rule(0, "get_*", Verdict.RUN, conditions=("limit is 10",)), a_rule(1, "*", Verdict.ASK),
                a_rule(2, "drop_*", Verdict.BLOCK, matches=0, decides=0, note=never),
            ),
            actions=(
                an_action("get_customers", Risk.READ, Verdict.RUN, "connector rule 1: match get_*", conditional=True),
                an_action("create_refund", Risk.WRITE, Verdict.ASK, rule),
                an_action("delete_customer", Risk.DESTRUCTIVE, Verdict.BLOCK, rule),
                an_action("upload", Risk.WRITE, Verdict.ASK, rule, unavailable="it is on another server"),
            ),
        )  # fmt: skip
