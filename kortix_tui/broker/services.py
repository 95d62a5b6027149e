"""What the door of one session needs from the rest of the program."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.words import CallState, Exposure, Risk, SecretRequestState, Verdict
from kortix_tui.repository.door import DoorAnswer
from kortix_tui.sandbox.channel import Channel


class SessionInfo(BaseModel):
    """What an agent may know of its session."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    project: str
    agent: str
    base_branch: str
    branch: str
    title: str


class ChangeInfo(BaseModel):
    """A change request, as its own session sees it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    status: str
    title: str
    head_commit: str
    url: str | None = None


class ChangeProposal(BaseModel):
    """What an agent sends to open a change request or to bring its own up to date."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=200)]
    description: Annotated[str, Field(max_length=64 * 1024)] = ""
    head_commit: Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]


class SecretState(StrEnum):
    """What a session has of a secret. Only the first three are, or will be, values in its sandbox."""

    DELIVERED = "delivered"
    GRANTED = "granted"
    SHADOWED = "shadowed"
    NOT_GRANTED = "not granted"
    MISSING = "missing"
    CONNECTOR = "connector only"
    EGRESS = "egress only"
    KEPT = "kept on the host"


class SecretInfo(BaseModel):
    """What an agent may know of a secret; never its value.

    Attributes:
        name: The environment variable; unknown where the secret is missing.
        state: `granted` comes with the next prompt; `shadowed` gives way to another one of the same name; `missing` is
            named by the agent's grant and not stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    identifier: str
    name: str | None
    exposure: Exposure | None
    state: SecretState


class SecretWish(BaseModel):
    """What an agent sends to ask a person for a value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    identifier: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$")]
    exposure: Literal[Exposure.CONNECTOR, Exposure.ENVIRONMENT] = Exposure.CONNECTOR
    reason: Annotated[str, Field(max_length=500)] = ""


class SecretReport(BaseModel):
    """What became of such a request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    identifier: str
    exposure: Exposure
    state: SecretRequestState


class SecretService(Protocol):
    """The session's secrets, without their values."""

    async def list(self) -> list[SecretInfo]:
        """Every secret that the session may know of."""
        ...

    async def request(self, wish: SecretWish, /) -> SecretReport:
        """Ask a person for a value."""
        ...

    async def report(self, request_id: str, /) -> SecretReport:
        """What became of a request of this session."""
        ...


class ConnectorInfo(BaseModel):
    """A connector, as a session that may use it sees it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    slug: str
    name: str | None
    provider: str
    actions: int
    connected: bool
    problem: str | None = Field(description="Why calls cannot work now, and that a person must do something.")
    accounts: tuple[str, ...] = ()


class ActionInfo(BaseModel):
    """An action, as an agent sees it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(description="`connector.action`.")
    title: str
    description: str
    risk: Risk
    verdict: Verdict = Field(description="What policy says when the arguments change nothing.")
    input_schema: dict[str, Any]


class CallWish(BaseModel):
    """What an agent sends to call an action.

    Attributes:
        key: Made by the caller, once for each call: the same key again is the same call, also after a lost connection.
        arguments: The JSON text as the caller wrote it; read strictly by the host (no duplicate keys, no NaN).
        wait: Seconds that this request may be held open for the answer, at most `LONGEST_HOLD_S`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: Annotated[str, Field(pattern=r"^[a-z0-9]{16,64}$")]
    connector: Annotated[str, Field(min_length=1, max_length=128)]
    action: Annotated[str, Field(min_length=1, max_length=128)]
    arguments: Annotated[str, Field(max_length=4 << 20)] = "{}"
    account: Annotated[str, Field(max_length=128)] | None = None
    reason: Annotated[str, Field(max_length=4000)] = ""
    wait: Annotated[float, Field(ge=0)] = 0


class CallReport(BaseModel):
    """What became of a call.

    Attributes:
        state: As stored; `pending` is answered to agents as `pending_approval`.
        code: Why it was refused or failed.
        message: What to do now, in words: for a pending one to end the turn, for a blocked one that it is final.
        status: Of the HTTP answer.
        body: The answer as text, at most 1 MiB; base64 where `binary`. JSON stays the text that it is.
        truncated: Whether the answer is longer; the rest can be read below `/v1/agent/calls/ID/output`.
        bytes: Size of the whole answer as far as it is stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    connector: str
    action: str
    state: CallState
    code: str | None = None
    message: str | None = None
    note: str | None = None
    expires_at: datetime | None = None
    status: int | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    body: str | None = None
    binary: bool = False
    truncated: bool = False
    bytes: int | None = None


LONGEST_HOLD_S: Final = 25.0
"""A request at the door is held open so long at most; the caller asks again by the call's id."""


class ConnectorService(Protocol):
    """The session's connectors. Which session it is follows from the door alone (I11)."""

    async def connectors(self) -> list[ConnectorInfo]:
        """Connectors that the agent's grant names."""
        ...

    async def actions(self, connector: str | None = None, /) -> list[ActionInfo]:
        """Actions of one of them, or of all."""
        ...

    async def call(self, wish: CallWish, /) -> CallReport:
        """Call an action, or join the call of that key. Never raises for what policy or a grant refuses: that is a
        stored, audited call in state `refused`."""
        ...

    async def report(self, call_id: str, wait: float, leave: bool, /) -> CallReport:
        """What became of a call of this session; `leave` says that the caller waits no longer."""
        ...

    async def output(self, call_id: str, /) -> tuple[bytes, str]:
        """The whole stored answer, and its media type."""
        ...

    async def lost(self, call_id: str, /) -> None:
        """A final answer did not reach its caller: the session is told in another way."""
        ...


class EgressService(Protocol):
    """The session's way to the network."""

    async def open(self, method: str, host: str, port: int, /) -> Passage:
        """A connection to a host that the agent's rules and the operator's ceiling allow; every attempt is recorded.

        Raises:
            Refused: No rule allows it, or it resolves to a closed range.
            KortixError: It cannot be reached.
        """
        ...


class Passage(Protocol):
    """One open connection to the outside."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def close(self, sent: int, received: int, /, *, code: str | None = None) -> None:
        """End it, and record how many bytes went each way; `code` says why it did not end by itself."""
        ...


class GitService(Protocol):
    """Smart HTTP for the session's repository."""

    async def handle(
        self, method: str, tail: str, query: str, headers: Mapping[str, str], body: AsyncIterator[bytes], /
    ) -> DoorAnswer:
        """Serve one request."""
        ...


class DoorServices(Protocol):
    """Behind the door of one session. Errors are `KortixError`s; the door turns them into answers."""

    @property
    def agent_token(self) -> str:
        """What the agent's requests must carry."""
        ...

    @property
    def channel_key(self) -> str | None:
        """What the supervisor must carry; `None` while none was given out."""
        ...

    @property
    def git(self) -> GitService | None:
        """The repository; `None` for an agent without access to it."""
        ...

    @property
    def secrets(self) -> SecretService:
        """The secret verbs."""
        ...

    @property
    def connectors(self) -> ConnectorService | None:
        """The connector verbs; `None` while only work is being rescued."""
        ...

    @property
    def egress(self) -> EgressService | None:
        """The way to the network; `None` for an agent without one."""
        ...

    async def supervise(self, channel: Channel) -> None:
        """Serve the supervisor until its channel closes. A newer channel replaces an older one."""
        ...

    async def session(self) -> SessionInfo:
        """Facts about the session."""
        ...

    async def changes(self) -> list[ChangeInfo]:
        """The session's change requests, oldest first."""
        ...

    async def open_change(self, proposal: ChangeProposal) -> ChangeInfo:
        """Open a change request at a head that the host has seen pushed."""
        ...

    async def deny_merge(self) -> None:
        """Record that the agent asked for a merge, which no agent may do."""
        ...
