"""Standard input, output and error of a container, over the engine's own connection.

Not through the SDK: it hands out a blocking socket from inside a connection pool. Here the same request becomes a
stream that asyncio code can read.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Final
from urllib.parse import quote, urlsplit

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.sandbox.docker.endpoint import Endpoint
from kortix_tui.sandbox.failures import SandboxFailed

OUTPUT: Final = 1
ERROR: Final = 2
_HEAD: Final = struct.Struct(">BxxxI")
_LONGEST_FRAME: Final = 16 << 20
_LONGEST_ANSWER: Final = 64 << 10
_ATTACH_S: Final = 30.0


class Attachment:
    """Both directions of a container's streams; the engine writes what comes out in frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, data: bytes) -> None:
        """Write to its standard input.

        Raises:
            OSError: The connection is gone.
        """
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> tuple[int, bytes] | None:
        """The next piece, and which stream it is of; `None` at the end.

        Raises:
            OSError: The connection broke, or what came is no frame.
        """
        try:
            stream, length = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
            if stream not in (0, OUTPUT, ERROR) or length > _LONGEST_FRAME:
                raise ConnectionError("the engine sent no frame")
            return stream, await self._reader.readexactly(length)
        except asyncio.IncompleteReadError:
            return None

    def close(self) -> None:
        """Let go of the connection, whatever is under way."""
        self._writer.transport.abort()


async def attach(endpoint: Endpoint, container_id: str) -> Attachment:
    """Attach to a container, before it is started, so that nothing is missed.

    Raises:
        EngineUnavailable: The engine does not answer.
        SandboxFailed: It refuses.
    """
    try:
        async with asyncio.timeout(_ATTACH_S):
            reader, writer = await _connect(endpoint)
            try:
                path = f"/containers/{quote(container_id, safe='')}/attach?stream=1&stdin=1&stdout=1&stderr=1"
                writer.write(
                    f"POST {path} HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
                    "Content-Length: 0\r\n\r\n".encode()
                )
                await writer.drain()
                await _upgraded(reader)
            except BaseException:
                writer.transport.abort()
                raise
    except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise EngineUnavailable(
            f"The Docker engine at {visible_line(endpoint.url)} did not attach.", hint="Look at the engine's log."
        ) from error
    return Attachment(reader, writer)


async def _connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix":
        return await asyncio.open_unix_connection(parts.path, limit=_LONGEST_ANSWER)
    return await asyncio.open_connection(parts.hostname or "localhost", parts.port or 2375, limit=_LONGEST_ANSWER)


async def _upgraded(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if status != [b"101"]:
        words = visible_line(shorten(head.split(b"\r\n", 1)[0].decode("latin-1"), 200))
        raise SandboxFailed(f"The Docker engine does not attach: {words}.")
