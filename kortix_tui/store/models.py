"""Rows as the rest of the program sees them. `--json` prints these models; their fields are documented and stable."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kortix_tui.base.words import (
    Activity,
    CallState,
    ChangeStatus,
    ConnectionState,
    Exposure,
    Outcome,
    PromptState,
    RequestState,
    Risk,
    SecretRequestState,
    SessionStatus,
    VaultState,
    Verdict,
    Wanted,
)


class Row(BaseModel):
    """A row read from the store; columns that the model does not name stay inside the store."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def columns(cls) -> str:
        """The select list, in field order."""
        return ", ".join(cls.model_fields)

    @classmethod
    def of(cls, row: tuple[Any, ...]) -> Self:
        """Validate one selected row."""
        return cls.model_validate(dict(zip(cls.model_fields, row, strict=True)))


class Project(Row):
    """A git repository known to this home by a slug."""

    id: str
    slug: str
    source: str = Field(description="Absolute path of the operator's repository, or its URL.")
    kind: str = Field(description="`checkout`, `bare` or `url`.")
    base_branch: str
    base_commit: str | None
    owner: str
    created_at: datetime
    fetched_at: datetime | None


class Session(Row):
    """One run of work: id = branch = sandbox name."""

    id: str
    project_id: str
    title: str
    agent: str
    status: SessionStatus
    activity: Activity
    wanted: Wanted
    reason: str | None = Field(description="Why it is in this status, as a stable word.")
    reason_text: str | None = Field(description="The same in a sentence that says what to do.")
    base_branch: str
    base_commit: str | None
    head_commit: str | None = Field(description="Newest commit that the session pushed.")
    template: str | None
    image: str | None
    idle_minutes: float
    owner: str
    origin: str
    attended: bool = Field(
        default=False, description="Whether a person at a terminal started it, and sent every prompt since."
    )
    files: int
    additions: int
    deletions: int
    created_at: datetime
    updated_at: datetime
    active_at: datetime
    started_at: datetime | None
    stopped_at: datetime | None
    removed_at: datetime | None


class Prompt(Row):
    """One prompt and the turn that answers it."""

    id: str
    session_id: str
    n: int
    text: str
    state: PromptState
    exit_code: int | None
    message: str | None
    created_by: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class SecretRow(Row):
    """What the store knows of a secret: an index of the vault, without the value."""

    id: str
    project_id: str
    identifier: str
    name: str = Field(description="The environment variable that it becomes.")
    owner: str = Field(description="`project`, or the person whose own it is.")
    exposure: Exposure
    gateway: bool = Field(description="Whether the model gateway may use it.")
    hosts: tuple[str, ...] = Field(description="Where its value may be sent; of egress-enforced secrets.")
    version: int
    created_by: str
    created_at: datetime
    rotated_at: datetime
    used_at: datetime | None
    plain_at: datetime | None = Field(description="Since when this version has been in a sandbox as plain text.")

    @field_validator("hosts", mode="before")
    @classmethod
    def _read_hosts(cls, value: object) -> object:
        return json.loads(value) if isinstance(value, str) else value


class Delivery(Row):
    """A version of a secret that went into a session's sandbox."""

    session_id: str
    secret_id: str
    version: int
    at: datetime


class SecretRequest(Row):
    """An agent's request for a value that only a person can give."""

    id: str
    project_id: str
    session_id: str
    identifier: str
    exposure: Exposure
    reason: str
    state: SecretRequestState
    created_at: datetime
    decided_by: str | None
    decided_at: datetime | None


class VaultRow(Row):
    """What the host said last of the vault, and the newest generation that was ever seen of it."""

    vault_id: str | None
    generation: int
    mac: str
    state: VaultState
    reason: str | None
    asked: bool = Field(description="Whether a person locked it on purpose.")
    since: datetime


class Rescue(Row):
    """Work that was not on the session's branch when its sandbox ended, kept under a ref of its own."""

    session_id: str
    n: int
    commit_id: str
    ref: str
    reason: str
    files: int
    at: datetime


class Change(Row):
    """A change request."""

    id: str
    project_id: str
    number: int
    session_id: str
    title: str
    description: str
    status: ChangeStatus
    base_branch: str
    base_commit: str
    head_commit: str
    files: int
    additions: int
    deletions: int
    merge_commit: str | None
    reviewed_head: str | None
    opened_by: str
    decided_by: str | None
    created_at: datetime
    updated_at: datetime
    decided_at: datetime | None


class Merge(Row):
    """The intent of a merge, written before the world changes; a restart completes it from the source's state."""

    id: str
    change_id: str
    reviewed_head: str
    base_before: str
    merge_commit: str
    state: str
    message: str | None
    performed_by: str
    created_at: datetime
    ended_at: datetime | None


class Request(Row):
    """Something that a process asks the host to do."""

    id: str
    kind: str
    payload: str
    state: RequestState
    result: str | None
    error: str | None
    actor: str
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class HostRow(Row):
    """Which process holds the runtime lock, as it last said."""

    epoch: int
    pid: int
    kind: str
    started_at: datetime
    beat_at: datetime

    @field_validator("pid")
    @classmethod
    def _positive(cls, value: int) -> int:
        if value <= 0:
            raise ValueError("a process id is positive")
        return value


class Connection(Row):
    """A credential stored for a connector: one account. Its values are in the vault, under `identifier`."""

    id: str
    project_id: str
    connector: str
    account: str = Field(description="`default` where there is only one.")
    is_default: bool
    auth: str = Field(description="Kind of auth, as in the manifest: `bearer`, `basic`, `oauth2` …")
    username: str | None
    identifier: str | None = Field(description="Identifier of the secret that holds the value; none for auth `none`.")
    details: str = Field(description="What else is not secret, as JSON: scopes, client id, identifiers of tokens.")
    state: ConnectionState
    version: int = Field(description="Counts up with each new token or value.")
    expires_at: datetime | None
    created_by: str
    created_at: datetime
    updated_at: datetime
    used_at: datetime | None


class Call(Row):
    """One brokered call, whatever became of it.

    `request` is what will be sent (`broker.connectors.model.Materialised` as JSON) and `digest` its SHA-256. `rule`
    says which rule decided (`broker.connectors.model.RuleSource` as JSON).
    """

    id: str
    project_id: str
    session_id: str | None = Field(description="None for a call that the operator makes from the command line.")
    key: str
    connector: str
    action: str = Field(description="Relative to its connector.")
    account: str | None
    risk: Risk
    state: CallState
    verdict: Verdict
    rule: str
    code: str | None = Field(description="Why it was refused or failed: `connector_not_assigned`, `policy_block` …")
    message: str | None
    reason: str = Field(description="What the agent says it is for. Not verified.")
    arguments: str = Field(description="Canonical JSON (RFC 8785).")
    request: str | None
    digest: str | None
    status: int | None = Field(description="Of the HTTP answer.")
    bytes: int | None = Field(description="Size of the answer's body.")
    duration_ms: float | None
    output: str | None = Field(description="Name of the file below the session's folder that holds the whole answer.")
    created_by: str
    created_at: datetime
    expires_at: datetime | None = Field(description="When a pending one ends unanswered.")
    decided_by: str | None
    decided_at: datetime | None
    note: str | None = Field(description="What the person who decided tells the agent.")
    started_at: datetime | None
    ended_at: datetime | None
    asked_at: datetime | None = Field(description="When its caller last asked what became of it.")
    left_at: datetime | None = Field(description="When its caller stopped waiting; it is told by a prompt then.")
    collected_at: datetime | None = Field(description="When its caller got the final answer.")
    told_at: datetime | None = Field(description="When a prompt with the answer was queued.")
    reply: str | None = Field(
        default=None, description="What else is known of the answer, as JSON: headers that an agent may see."
    )


class CallRule(Row):
    """Approval memory: calls of one shape that run without asking, so often and so long."""

    id: str
    project_id: str
    session_id: str | None = Field(description="Set where only this session's calls count.")
    connector: str
    action: str
    arguments: str = Field(description="JSON object of dotted paths to the values they must have.")
    most: int
    used: int
    from_call: str
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_by: str | None
    revoked_at: datetime | None


class Egress(Row):
    """One attempt of a sandbox to reach a host."""

    id: str
    session_id: str
    at: datetime
    host: str
    port: int
    method: str = Field(description="`CONNECT`, or the method of a plain HTTP request.")
    outcome: Outcome
    code: str | None = Field(description="Why it was refused or failed.")
    rule: str | None = Field(description="The host or preset that allowed it.")
    address: str | None
    bytes_out: int
    bytes_in: int
    ended_at: datetime | None
