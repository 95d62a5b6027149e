"""The connection to the host: one HTTP request at the door, upgraded to frames."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, AsyncIterator

from kortix_tui.guest import wire

_HANDSHAKE_S = 10.0
_SILENCE_S = 45.0
_DRAIN_S = 30.0
_HEAD_LIMIT = 16 * 1024


class LinkFailed(Exception):
    """The host could not be reached, refused, or went away."""


class Link:
    """An upgraded connection.

    Args:
        reader: From the host.
        writer: To the host.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._draining = asyncio.Lock()

    @classmethod
    async def open(cls, door: str, key: str | None) -> Link:
        """Connect to the door and ask for the channel.

        Args:
            door: Path of the socket.
            key: The channel key, once there is one.

        Raises:
            LinkFailed: No host, or it said no.
        """
        request = "POST /v1/supervisor HTTP/1.1\r\nHost: door\r\nConnection: Upgrade\r\nUpgrade: kortix/1\r\n"
        if key:
            request += f"Authorization: Bearer {key}\r\n"
        try:
            reader, writer = await asyncio.wait_for(asyncio.open_unix_connection(door, limit=_HEAD_LIMIT), _HANDSHAKE_S)
        except (OSError, asyncio.TimeoutError) as error:
            raise LinkFailed(str(error) or type(error).__name__) from error
        try:
            writer.write(request.encode("ascii") + b"Content-Length: 0\r\n\r\n")
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _HANDSHAKE_S)
        except (OSError, EOFError, asyncio.TimeoutError, asyncio.LimitOverrunError) as error:
            writer.close()
            raise LinkFailed(str(error) or type(error).__name__) from error
        status = head.split(b"\r\n", 1)[0]
        if status.split(b" ")[1:2] != [b"101"]:
            writer.close()
            raise LinkFailed(f"the host answered {status[:100]!r}")
        return cls(reader, writer)

    def post(self, header: dict[str, Any], body: bytes = b"") -> None:
        """Send a frame without waiting; for small answers."""
        self._writer.write(wire.encode(header, body))

    async def send(self, *frames: bytes) -> None:
        """Send frames and wait until the host takes them.

        Raises:
            LinkFailed: It does not.
        """
        try:
            self._writer.writelines(frames)
            async with self._draining:
                await asyncio.wait_for(self._writer.drain(), _DRAIN_S)
        except (OSError, asyncio.TimeoutError) as error:
            raise LinkFailed(f"the host takes nothing: {error}") from error

    async def frames(self) -> AsyncIterator[tuple[dict[str, Any], bytes]]:
        """What the host sends, until it goes away. It pings, so long silence means that it is gone."""
        decoder = wire.Decoder()
        while True:
            try:
                data = await asyncio.wait_for(self._reader.read(wire.PIECE), _SILENCE_S)
            except asyncio.TimeoutError as error:
                raise LinkFailed("the host is silent") from error
            except OSError as error:
                raise LinkFailed(f"the connection broke: {error}") from error
            if not data:
                raise LinkFailed("the host closed the connection")
            for header, body in decoder.feed(data):
                yield wire.parse_header(header), body

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._writer.close()
