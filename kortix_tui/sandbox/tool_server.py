"""Tool servers as programs in containers of their own: what is asked of whoever makes them.

Every method has a deadline of its own and raises `EngineUnavailable` when the engine cannot be reached.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import ClassVar, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import KortixError
from kortix_tui.sandbox.commands import Progress

LONGEST_LINE: Final = 16 << 20
"""Bytes of one message of a program."""


class ProgramBroken(KortixError):
    """A program's end, or something of it that is no message."""

    code: ClassVar[str] = "program_broken"


class ToolServerSpec(BaseModel):
    """Everything that decides how a tool server's container is made.

    Attributes:
        server_id: Names it; used once.
        image: Local image reference, from `prepare`.
        command: The program; runs as uid 1000 in the image's own working folder.
        door: Host folder with the socket of its way to the network; `None` for one that has none.
        runtime: OCI runtime; the engine's default when absent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str
    install_id: str
    project_id: str
    connector: str
    image: str
    command: tuple[str, ...] = Field(min_length=1)
    door: Path | None
    cpus: float = 1.0
    memory_bytes: int = 512 << 20
    pids: int = 256
    runtime: str | None = None


class ToolProcess(Protocol):
    """A program that was started; whatever comes from it is untrusted."""

    async def send(self, line: bytes, /) -> None:
        """Write a line to its standard input.

        Raises:
            OSError: It has ended.
        """
        ...

    async def receive(self) -> bytes | None:
        """The next line of its standard output, without the line's end; `None` when it has ended.

        Raises:
            ProgramBroken: A line is longer than `LONGEST_LINE`.
            OSError: The connection to it broke.
        """
        ...

    def complaints(self) -> bytes:
        """The newest that it wrote to its standard error; may hold its credential."""
        ...

    async def close(self) -> None:
        """End it, and remove its container. Ended already: no change."""
        ...


class ToolServerProvider(Protocol):
    """Makes, finds and ends the containers of tool servers."""

    async def pin(self, image: str, progress: Progress, /) -> str:
        """The id of an image, which is a hash of what it holds; fetched when it is not here.

        Raises:
            NotFound: It is nowhere to be had.
        """
        ...

    async def prepare(self, image_id: str, progress: Progress, /) -> str:
        """A reference of that image with our entry in it; built when it is not here.

        Raises:
            ImageRefused: It cannot carry a program of ours.
            BuildFailed: It could not be built.
            NotFound: The image is gone.
        """
        ...

    async def start(self, spec: ToolServerSpec, greeting: bytes, /) -> ToolProcess:
        """Start a program.

        Args:
            spec: What to make.
            greeting: The line that its entry reads first, without the line's end; holds the credential.

        Raises:
            SandboxFailed: The engine could not start it.
        """
        ...

    async def reap(self, install_id: str, kept: Collection[str]) -> list[str]:
        """Remove this home's tool servers, but those that are named; returns the ids of the removed ones."""
        ...
