"""What the door of one session needs from the rest of the program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from enum import StrEnum
from typing import Annotated, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.words import Exposure, SecretRequestState
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
