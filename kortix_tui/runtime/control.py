"""`control.sock`: what passes between a process and the host and must not be stored: shells, and secrets.

The socket lies in the home (0700), is 0600 itself, and takes only peers of our own user.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import struct
from collections.abc import AsyncIterator, Callable
from typing import Final, Protocol

from pydantic import BaseModel, ValidationError

from kortix_tui.base.errors import InvalidInput, KortixError, Refused
from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context, Failure
from kortix_tui.runtime.control_frames import (
    MAX_CALL,
    Answer,
    Call,
    Data,
    FromClient,
    OpenRequest,
    Part,
    Rejected,
    Resize,
    pack,
    pack_whole,
    short_path,
)
from kortix_tui.runtime.shell_serving import OpenShell, serve_shell
from kortix_tui.store.audit import Actor

GREETING_S: Final = 10.0
BODY_S: Final = 60.0
MAX_CLIENTS: Final = 32
_CHUNK: Final = 64 * 1024
_CREDENTIALS: Final = struct.Struct("3i")
Incoming = OpenRequest | Data | Resize | Call | Part


class Calls(Protocol):
    """Who does what clients call for."""

    async def answer(
        self, verb: str, arguments: str, secrets: tuple[bytes, ...], actor: Actor, /
    ) -> tuple[BaseModel, bytes]:
        """Do it; the result, and bytes that must not be stored either.

        Raises:
            KortixError: It was not done; the client gets message and hint.
        """
        ...


class ControlServer:
    """The host's end. Whoever holds the host lock owns the socket file."""

    def __init__(self, context: Context, open_shell: OpenShell, calls: Callable[[], Calls]) -> None:
        """Prepare; nothing listens yet.

        Args:
            context: The host's.
            open_shell: Opens a shell in a running session's sandbox: session id, rows, columns, terminal type.
            calls: Makes what answers calls, when the first one comes.
        """
        self._context = context
        self._open_shell = open_shell
        self._make_calls = calls
        self._calls: Calls | None = None
        self._path = context.home.control_socket
        self._server: asyncio.Server | None = None
        self._clients = set[asyncio.Task[None]]()

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
        """Hang up every client and stop listening. Safe to call again, and without a start."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        for _ in range(3):
            await asyncio.sleep(0)  # a connection that was being accepted at this moment gets its task first
        for task in self._clients:
            task.cancel()
        await asyncio.gather(*self._clients, return_exceptions=True)
        await server.wait_closed()
        self._path.unlink(missing_ok=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this callback as a task
        self._clients.add(task)
        try:
            await self._serve(reader, writer)
        except KortixError as error:
            with contextlib.suppress(OSError):
                writer.write(pack(Rejected(failure=Failure.of(error))))
                await writer.drain()
        except (OSError, asyncio.CancelledError):
            pass  # the client left, or the host goes: its end of the socket says so
        finally:
            self._clients.discard(task)
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
        if len(self._clients) > MAX_CLIENTS:
            raise Refused(f"{MAX_CLIENTS} clients are connected already.", hint="Close a shell.")
        match first:
            case (OpenRequest() as request, _):
                await serve_shell(self._context, self._open_shell, request, frames, writer)
            case (Call() as call, body):
                await self._call(call, body, frames, writer)
            case _:
                raise InvalidInput("The client did not say first what it wants.")

    async def _call(
        self, call: Call, body: bytes, frames: AsyncIterator[tuple[Incoming, bytes]], writer: asyncio.StreamWriter
    ) -> None:
        whole = bytearray(body)
        more = call.more
        try:
            async with asyncio.timeout(BODY_S):
                while more:
                    following = await anext(frames, None)
                    if following is None:
                        raise InvalidInput("The client left before it had sent everything.")
                    frame, piece = following
                    if not isinstance(frame, Part) or len(whole) + len(piece) > MAX_CALL:
                        raise InvalidInput("The client did not send what it announced.")
                    whole += piece
                    more = frame.more
        except TimeoutError:
            raise InvalidInput("The client did not send what it announced.") from None
        if sum(call.sizes) != len(whole):
            raise InvalidInput("The client did not send what it announced.")
        secrets, start = list[bytes](), 0
        for size in call.sizes:
            secrets.append(bytes(whole[start : start + size]))
            start += size
        whole[:] = bytes(len(whole))
        # The peer is our own user; who that is comes from us, only the way in is what the peer says of itself.
        actor = call.actor.model_copy(update={"kind": "human", "name": self._context.actor.name})
        self._calls = self._calls or self._make_calls()
        result, given = await self._calls.answer(call.verb, call.arguments, tuple(secrets), actor)
        told = result.model_dump_json().encode()
        for frame_bytes in pack_whole(Answer(result=len(told)), told + given):
            writer.write(frame_bytes)
            await writer.drain()


def _check_peer(connection: socket.socket) -> None:
    size = _CREDENTIALS.size
    _, uid, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    if uid != os.geteuid():
        raise Refused("This home belongs to another user.")


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[Incoming, bytes]]:
    decoder = wire.Decoder()
    while data := await reader.read(_CHUNK):
        try:
            for header, body in decoder.feed(data):
                yield FromClient.validate_json(header), body
        except (wire.FrameError, ValidationError):
            raise InvalidInput("The client sent something that is not the protocol.") from None
