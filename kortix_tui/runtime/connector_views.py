"""What the console and the command line show of connectors, calls and egress. Fields are only ever added."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from kortix_tui.base.words import CallState, ConnectionState, Risk, Verdict
from kortix_tui.broker.connectors.model import CatalogueDifference
from kortix_tui.runtime.views import View
from kortix_tui.store.models import Call, CallRule, Egress


class ConnectionView(View):
    """One account of a connector; never its value."""

    id: str
    connector: str
    account: str
    is_default: bool
    auth: str
    username: str | None
    identifier: str | None = Field(description="Identifier of the secret that holds the value.")
    state: ConnectionState
    scopes: tuple[str, ...] = ()
    expires_at: datetime | None
    created_by: str
    created_at: datetime
    used_at: datetime | None


class ConnectorView(View):
    """One connector of a project's base branch."""

    project: str
    slug: str
    name: str | None
    provider: str
    enabled: bool
    sensitive: bool
    auth: str = Field(description="Kind of auth; read from the document where the manifest says none.")
    place: str = Field(description="Where it goes: base URL, endpoint, or the program of a stdio server.")
    default_mode: str = Field(description="`allow_all` (gates are off) or `risk`.")
    gates_off: bool = Field(description="Whether nothing of it ever asks or is blocked.")
    connected: bool = Field(description="Whether it has a usable connection, or needs none, and its actions are known.")
    problem: str | None = Field(description="What is missing, and what to do.")
    actions: int | None = Field(description="How many; unknown before it was synced.")
    pending: bool = Field(description="Whether a changed document waits for a person to accept it.")
    agents: tuple[str, ...] = Field(description="Agents that may use it, by their grants on the base branch.")
    connections: tuple[ConnectionView, ...]


class ActionView(View):
    """One action, and what would happen if it was called with no arguments known."""

    name: str
    title: str
    description: str
    risk: Risk
    method: str | None
    path: str | None
    verdict: Verdict
    rule: str = Field(description="Which rule says so, in words.")
    conditional: bool = Field(description="Whether arguments or limits can change the verdict.")
    unavailable: str | None
    input_schema: dict[str, object]


class RuleView(View):
    """One rule of a policy as written, and what it does."""

    source: str = Field(description="`project` or `connector`.")
    index: int
    match: str
    verdict: Verdict
    conditions: tuple[str, ...] = Field(description="In words.")
    matches: int = Field(description="Actions whose name it matches.")
    decides: int = Field(description="Actions for which it is the first that can decide.")
    note: str | None = Field(description="`matches nothing`, `never reached: rule 1 decides before it`.")


class PolicyView(View):
    """A connector's whole policy: every rule, and every action with what would happen."""

    project: str
    connector: str
    default_mode: str
    sensitive: bool
    rules: tuple[RuleView, ...]
    actions: tuple[ActionView, ...]


class SyncResult(View):
    """What reading a connector's document or server gave."""

    connector: str
    catalogue_id: str
    state: str = Field(description="`accepted`, or `pending` when it differs from what was accepted before.")
    changed: bool
    title: str
    base_url: str | None
    actions: int
    notes: tuple[str, ...]
    difference: CatalogueDifference | None


class CallView(Call):
    """A call with what belongs to it."""

    project: str
    session_title: str | None
    agent: str | None
    rule_says: str


class ApprovalView(CallView):
    """A call that waits, or waited, for a person: exactly what will be sent."""

    method: str | None
    url: str | None
    headers: tuple[tuple[str, str], ...]
    body: str | None = Field(description="As text, made visible; binary bodies as a note of their size.")
    body_bytes: int
    credential: str | None = Field(description="Account, auth and where it goes; never the value.")
    identical: tuple[str, ...] = Field(description="Other pending calls with the same digest but for their session.")
    last_approved: str | None = Field(description="Arguments, as canonical JSON, of the last approved call of it.")
    waiting: bool = Field(description="Whether the agent's call is still held open for the answer.")


class DecisionResult(View):
    """What a decision did."""

    id: str
    state: CallState
    note: str | None


class CallRuleView(CallRule):
    """A remembered approval."""

    project: str
    active: bool


class EgressView(Egress):
    """An attempt to reach a host."""

    project: str
    session_title: str
    agent: str


class ReplayLine(View):
    """One recorded call under another policy."""

    call_id: str
    session_id: str | None
    action: str = Field(description="`connector.action`.")
    created_at: datetime
    was: Verdict
    now: Verdict
    rule: str


class ReplayResult(View):
    """A changed policy over the recorded calls."""

    calls: int
    changed: tuple[ReplayLine, ...]
    would_run: int
    would_ask: int
    would_block: int
    skipped: int = Field(description="Calls of connectors or actions that the changed manifest does not have.")
