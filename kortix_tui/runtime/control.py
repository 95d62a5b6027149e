"""`control.sock`: what passes between a process and the host and must not be stored. Today that is shells.

The socket lies in the home (0700), is 0600 itself, and takes only peers of our own user. Frames are those of the
sandbox channel: a JSON header, checked against a model, and raw bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kortix_tui.base.errors import InvalidInput, KortixError, Refused
from kortix_tui.base.words import Outcome, SessionStatus
from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context, Failure
from kortix_tui.store.audit import Actor

if TYPE_CHECKING:
    from kortix_tui.sandbox.shell_stream import ShellStream

OpenShell = Callable[[str, int, int, str], "Awaitable[ShellStream]"]

GREETING_S: Final = 10.0
OPEN_S: Final = 30.0
MAX_SHELLS: Final = 32
_CHUNK: Final = 64 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
Size = Annotated[int, Field(ge=1, le=9999)]


class Frame(BaseModel):
    """The header of one frame; its raw bytes travel beside it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenRequest(Frame):
    """First frame of a client: a shell in this session's sandbox."""

    type: Literal["open"] = "open"
    session_id: str = Field(max_length=32)
    rows: Size
    columns: Size
    term: str = Field(max_length=64, pattern=r"^[A-Za-z0-9._+-]+$")
    actor: Actor


class Data(Frame):
    """Keys to the shell, or output from it; the bytes are the body."""

    type: Literal["data"] = "data"


class Resize(Frame):
    """The operator's window changed."""

    type: Literal["resize"] = "resize"
    rows: Size
    columns: Size


class Opened(Frame):
    """The shell runs."""

    type: Literal["opened"] = "opened"


class Closed(Frame):
    """The shell ended; without a code, the sandbox was lost before it did."""

    type: Literal["closed"] = "closed"
    exit_code: int | None


class Rejected(Frame):
    """No shell, and why."""

    type: Literal["rejected"] = "rejected"
    failure: Failure


FromClient = TypeAdapter[OpenRequest | Data | Resize](
    Annotated[OpenRequest | Data | Resize, Field(discriminator="type")]
)
FromHost = TypeAdapter[Opened | Data | Closed | Rejected](
    Annotated[Opened | Data | Closed | Rejected, Field(discriminator="type")]
)


def pack(frame: Frame, body: bytes = b"") -> bytes:
    """A frame's bytes."""
    return wire.pack(frame.model_dump_json().encode(), body)


@contextmanager
def short_path(socket_file: Path) -> Iterator[str]:
    """A name of the socket that fits into `sun_path` (108 bytes) however long the home's path is."""
    folder = os.open(socket_file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{socket_file.name}"
    finally:
        os.close(folder)


class ControlServer:
    """The host's end. Whoever holds the host lock owns the socket file."""

    def __init__(self, context: Context, open_shell: OpenShell) -> None:
        """Prepare; nothing listens yet.

        Args:
            context: The host's.
            open_shell: Opens a shell in a running session's sandbox: session id, rows, columns, terminal type.
        """
        self._context = context
        self._open_shell = open_shell
        self._path = context.home.control_socket
        self._server: asyncio.Server | None = None
        self._shells = set[asyncio.Task[None]]()

    async def start(self) -> None:
        """Bind and listen; a socket that a dead host left is replaced."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            self._path.unlink(missing_ok=True)
            with short_path(self._path) as name:
                listener.bind(name)
            self._path.chmod(0o600)
            self._server = await asyncio.start_unix_server(self._accept, sock=listener)
        except BaseException:
            listener.close()
            raise

    async def close(self) -> None:
        """Hang up every shell and stop listening. Safe to call again, and without a start."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for task in self._shells:
            task.cancel()
        await asyncio.gather(*self._shells, return_exceptions=True)
        await server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this callback as a task
        self._shells.add(task)
        try:
            await self._serve(reader, writer)
        except KortixError as error:
            with contextlib.suppress(OSError):
                writer.write(pack(Rejected(failure=Failure.of(error))))
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or the host goes: its end of the socket says so
        finally:
            self._shells.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = _frames(reader)
        try:
            async with asyncio.timeout(GREETING_S):
                first = await anext(frames, None)
        except TimeoutError:
            raise InvalidInput("The client did not say what it wants.") from None
        if first is None:
            return
        # Only now: closing a socket with unread input takes the refusal away from the peer.
        _check_peer(writer.get_extra_info("socket"))
        if len(self._shells) > MAX_SHELLS:
            raise Refused(f"{MAX_SHELLS} shells are open already.", hint="Close one of them.")
        request = first[0]
        if not isinstance(request, OpenRequest):
            raise InvalidInput("The client did not ask for a shell first.")
        shell = await self._open(request)
        began, traffic = time.monotonic(), Traffic()
        try:
            writer.write(pack(Opened()))
            await _relay(frames, writer, shell, traffic)
        finally:
            await asyncio.shield(self._finish(request, shell, traffic, time.monotonic() - began))

    async def _open(self, request: OpenRequest) -> ShellStream:
        session_id = request.session_id
        row = self._context.store.one("SELECT status, removed_at FROM sessions WHERE id = ?", (session_id,))
        try:
            if row is None or row[1] is not None:
                raise Refused("There is no such session, or it was removed.", hint="See `kortix sessions ls`.")
            if row[0] != SessionStatus.RUNNING:
                raise Refused(
                    f"Session {session_id} is {row[0]}: it has no shell.",
                    hint=f"Resume it first: kortix sessions resume {session_id}",
                )
            async with asyncio.timeout(OPEN_S):
                shell = await self._open_shell(session_id, request.rows, request.columns, request.term)
        except TimeoutError:
            await self._audit("session.shell.open", request, Outcome.FAILURE)
            raise Refused("The sandbox did not open a shell in time.", hint="Try again in a moment.") from None
        except KortixError:
            await self._audit("session.shell.open", request, Outcome.FAILURE)
            raise
        await self._audit("session.shell.open", request, Outcome.SUCCESS)
        return shell

    async def _finish(self, request: OpenRequest, shell: ShellStream, traffic: Traffic, seconds: float) -> None:
        with contextlib.suppress(KortixError):
            await shell.close()
        await self._audit(
            "session.shell.close", request, Outcome.SUCCESS, seconds=round(seconds, 1), exit_code=shell.exit_code,
            bytes_in=traffic.inward, bytes_out=traffic.outward,
        )  # fmt: skip

    async def _audit(self, event: str, request: OpenRequest, outcome: Outcome, **detail: Any) -> None:
        store = self._context.store
        # The peer is our own user; who that is comes from us, only the way in is what the peer says of itself.
        actor = request.actor.model_copy(update={"kind": "human", "name": self._context.actor.name})

        def write() -> None:
            with store.write() as tx:
                row = tx.execute("SELECT project_id FROM sessions WHERE id = ?", (request.session_id,)).fetchone()
                tx.audit(
                    event, scope=f"session {request.session_id}", actor=actor, outcome=outcome,
                    project_id=row[0] if row else None, session_id=request.session_id if row else None, **detail,
                )  # fmt: skip

        await asyncio.to_thread(write)


class Traffic:
    """How many bytes went through a shell; the bytes themselves are kept nowhere."""

    def __init__(self) -> None:
        self.inward = 0
        self.outward = 0


def _check_peer(connection: socket.socket) -> None:
    size = _CREDENTIALS.size
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.geteuid():
        raise Refused("This home belongs to another user.")


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[OpenRequest | Data | Resize, bytes]]:
    decoder = wire.Decoder()
    while data := await reader.read(_CHUNK):
        try:
            for header, body in decoder.feed(data):
                yield FromClient.validate_json(header), body
        except (wire.FrameError, ValidationError):
            raise InvalidInput("The client sent something that is not the protocol.") from None


async def _relay(
    frames: AsyncIterator[tuple[OpenRequest | Data | Resize, bytes]],
    writer: asyncio.StreamWriter,
    shell: ShellStream,
    traffic: Traffic,
) -> None:
    """Carry bytes both ways until the shell ends or the client hangs up."""

    async def inward() -> None:
        async for frame, body in frames:
            if isinstance(frame, Resize):
                await shell.resize(frame.rows, frame.columns)
            elif isinstance(frame, Data):
                traffic.inward += len(body)
                await shell.write(body)

    async def outward() -> None:
        while data := await shell.read():
            traffic.outward += len(data)
            for start in range(0, len(data), wire.PIECE):
                writer.write(pack(Data(), data[start : start + wire.PIECE]))
                await writer.drain()
        writer.write(pack(Closed(exit_code=shell.exit_code)))
        await writer.drain()

    ways = {asyncio.create_task(inward()), asyncio.create_task(outward())}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
