"""What the runtime asks of a sandbox provider. Docker is the first; others plug in by entry point.

Every method is asynchronous, has a deadline of its own, is idempotent, and raises `EngineUnavailable` when the
engine cannot be reached: the caller tries again later and never concludes that a sandbox is gone.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

ENTRY_POINT_GROUP = "kortix_tui.sandbox_providers"
"""Where another distribution registers a provider under its name."""


class SandboxSpec(BaseModel):
    """Everything that decides how a sandbox is made. The session id names it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    install_id: str = Field(description="The home's id: other homes' sandboxes are never touched.")
    project_id: str
    image: str = Field(description="Local image reference, made by the image builder.")
    door: Path = Field(description="Host folder with the session's socket; mounted read-only at /run/kortix.")
    cpus: float = Field(gt=0)
    memory_bytes: int = Field(gt=0)
    pids: int = 2048
    runtime: str | None = Field(
        default=None, description="OCI runtime such as `runsc`; the engine's default when absent."
    )


class SandboxState(BaseModel):
    """What the engine says of one of our sandboxes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    project_id: str
    container_id: str
    image: str
    running: bool
    paused: bool = False
    exit_code: int | None = None
    out_of_memory: bool = False
    created_at: datetime
    started_at: datetime | None = None


class EngineInfo(BaseModel):
    """The engine in use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str
    found_by: str = Field(description="`DOCKER_HOST`, `context NAME`, `settings` or `default socket`.")
    version: str
    api_version: str
    isolation: str = Field(description="What separates a sandbox from the host, in words: `runc`, `runsc (gVisor)`, …")
    warnings: tuple[str, ...] = ()


class Provider(Protocol):
    """Makes, finds and ends sandboxes."""

    async def info(self) -> EngineInfo:
        """The engine, or `EngineUnavailable` with what to do."""
        ...

    async def start(self, spec: SandboxSpec) -> SandboxState:
        """Make the sandbox run: start it, or make one on the session's volumes. Running already: no change."""
        ...

    async def inspect(self, session_id: str) -> SandboxState | None:
        """Its state; `None` only when the engine answered that there is none."""
        ...

    async def stop(self, session_id: str, *, grace_s: float = 5.0) -> None:
        """End its processes, keep container and volumes. Stopped or absent: no change."""
        ...

    async def remove(self, session_id: str, *, volumes: bool) -> None:
        """Remove the container, and with `volumes` the work kept in it. Absent: no change."""
        ...

    async def owned(self, install_id: str) -> list[SandboxState]:
        """All containers of this home, running or not."""
        ...

    async def owned_volumes(self, install_id: str) -> set[str]:
        """Session ids that have volumes of this home."""
        ...

    async def output(self, session_id: str, *, lines: int = 50) -> str:
        """The newest lines that the sandbox's main process printed, for a diagnosis; untrusted."""
        ...

    async def close(self) -> None:
        """Let go of connections and threads."""
        ...
