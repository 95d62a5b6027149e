"""Bytes on their way between a client and git: bounded in size, in time and in what they unpack to."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from kortix_tui.base.errors import DeadlineExceeded, InvalidInput
from kortix_tui.repository import pktline
from kortix_tui.repository.pack_scan import PackScan
from kortix_tui.repository.pktline import BadPacket, RefCommand

_COMMANDS_BYTES = 65536
_COMMANDS = 16
_PIECE = 65536
_RATIO = 100
_RATIO_FROM = 1 << 20

Chunks = AsyncGenerator[bytes, None]


class TooLarge(InvalidInput):
    """More bytes came than may come."""


@dataclass(frozen=True, slots=True)
class Push:
    """The beginning of a push.

    Attributes:
        commands: What it asks for.
        capabilities: What the pusher's git can do.
        start: All bytes read so far; git gets them unchanged.
        pack_at: Where in them the pack begins.
    """

    commands: tuple[RefCommand, ...]
    capabilities: frozenset[str]
    start: bytes
    pack_at: int


async def timely(body: AsyncIterator[bytes], idle_s: float) -> Chunks:
    """The same bytes, as long as they keep coming.

    Raises:
        DeadlineExceeded: Nothing came for `idle_s` seconds.
    """
    while True:
        try:
            async with asyncio.timeout(idle_s):
                chunk = await anext(body)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise DeadlineExceeded(f"The client sent nothing for {idle_s:g} seconds.") from error
        yield chunk


async def unpacked(body: Chunks) -> Chunks:
    """Undo gzip in small pieces, so that a bomb is met before it is unpacked.

    Raises:
        TooLarge: It unpacks to more than a hundred times its size.
        BadPacket: It is not gzip.
    """
    unpacker = zlib.decompressobj(wbits=31)
    taken = made = 0
    async for chunk in body:
        taken += len(chunk)
        rest = chunk
        while rest and not unpacker.eof:
            try:
                piece = unpacker.decompress(rest, _PIECE)
            except zlib.error as error:
                raise BadPacket("the body is not gzip") from error
            rest = unpacker.unconsumed_tail
            made += len(piece)
            if made > _RATIO_FROM and made > _RATIO * taken:
                raise TooLarge("The request unpacks to too much.")
            if piece:
                yield piece
    if not unpacker.eof:
        raise BadPacket("the body ends too early")


async def bounded(body: Chunks, limit: int) -> bytes:
    """The whole body.

    Raises:
        TooLarge: It is longer than the limit.
    """
    content = bytearray()
    async for chunk in body:
        content += chunk
        if len(content) > limit:
            raise TooLarge("The request is too large.")
    return bytes(content)


async def discard(body: Chunks, limit: int) -> None:
    """Read the rest away, so that the client gets to the answer.

    Raises:
        TooLarge: There is more than the limit.
    """
    size = 0
    async for chunk in body:
        size += len(chunk)
        if size > limit:
            raise TooLarge("The request is too large.")


async def read_push(body: Chunks) -> Push:
    """Read up to the end of the ref changes.

    Raises:
        BadPacket: These are not ref changes, or too many.
    """
    buffer = bytearray()
    commands: list[RefCommand] = []
    capabilities: frozenset[str] = frozenset()
    at = 0
    async for chunk in body:
        buffer += chunk
        while (found := pktline.take(buffer, at)) is not None:
            line, at = found
            if line is None:
                return Push(tuple(commands), capabilities, bytes(buffer), at)
            if line.startswith(b"shallow "):
                continue
            command, said = pktline.parse_command(line)
            commands.append(command)
            capabilities = capabilities or said
            if len(commands) > _COMMANDS:
                raise BadPacket("too many ref changes")
        if at > _COMMANDS_BYTES:
            raise BadPacket("too many ref changes")
    raise BadPacket("the ref changes end too early")


async def feed_push(stdin: asyncio.StreamWriter, push: Push, body: Chunks, scan: PackScan, limit: int) -> None:
    """Pass a push on to git, looking at its pack on the way; when git stops listening, read the rest away.

    Raises:
        PackRefused: The pack breaks a cap.
        TooLarge: The body is longer than the limit.
    """
    size = len(push.start)
    try:
        scan.feed(push.start[push.pack_at :])
        stdin.write(push.start)
        await stdin.drain()
        async for chunk in body:
            size += len(chunk)
            if size > limit:
                raise TooLarge("The request is too large.")
            scan.feed(chunk)
            stdin.write(chunk)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        await discard(body, limit)
    finally:
        stdin.close()  # also when the client stopped: the process must not wait for what never comes


class Watch:
    """Ends a process whose output nobody takes, also while nobody asks for it."""

    def __init__(self, process: asyncio.subprocess.Process, idle_s: float, wall_s: float) -> None:
        self.fired = False
        self._process = process
        self._idle_s = idle_s
        self._loop = asyncio.get_running_loop()
        self._end = self._loop.time() + wall_s
        self._last = self._loop.time()
        self._timer = self._loop.call_later(min(idle_s, wall_s), self._look)

    def touch(self) -> None:
        """Something moved."""
        self._last = self._loop.time()

    def cancel(self) -> None:
        """The process has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        due = min(self._last + self._idle_s, self._end)
        now = self._loop.time()
        if now < due:
            self._timer = self._loop.call_later(due - now, self._look)
            return
        self.fired = True
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
