"""What the door of one session needs from the rest of the program."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Protocol

from pydantic import BaseModel, ConfigDict, Field

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
