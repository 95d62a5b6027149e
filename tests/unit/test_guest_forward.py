"""From the loopback port to the door: a dumb, patient pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kortix_tui.guest import forward
from kortix_tui.guest.identity import Identity

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def forwarding(door: Path, patience: float = 20.0) -> AsyncIterator[int]:
    server = forward.listen(0)
    port = server.getsockname()[1]
    task = asyncio.create_task(forward.serve(server, str(door), patience=patience))
    try:
        yield port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Sends back everything, and only after the other half was closed says so."""
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")
    writer.close()


async def test_megabytes_go_both_ways_and_halves_close_alone(short_folder: Path) -> None:
    door = short_folder / "door.sock"
    data = os.urandom(3_000_000)
    async with await asyncio.start_unix_server(echo, str(door)), forwarding(door) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        async def send() -> None:
            writer.write(data)
            writer.write_eof()
            await writer.drain()

        _, found = await asyncio.gather(send(), reader.read(-1))
        assert found == data + b"<end>"
        writer.close()


async def test_a_connection_waits_for_a_host_that_is_away(short_folder: Path) -> None:
    door = short_folder / "door.sock"
    async with forwarding(door) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello")
        writer.write_eof()
        waiting = asyncio.create_task(reader.read(-1))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with await asyncio.start_unix_server(echo, str(door)):
            assert await waiting == b"hello<end>"
        writer.close()


async def test_patience_ends(short_folder: Path) -> None:
    async with forwarding(short_folder / "nothing", patience=0.2) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read(-1) == b""
        writer.close()


async def test_more_connections_than_places_wait_their_turn(
    short_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_CONNECTIONS", 3)
    door = short_folder / "door.sock"
    async with await asyncio.start_unix_server(echo, str(door)), forwarding(door) as port:

        async def one(number: int) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"%d" % number)
            writer.write_eof()
            try:
                return await reader.read(-1)
            finally:
                writer.close()

        assert await asyncio.gather(*map(one, range(12))) == [b"%d<end>" % number for number in range(12)]


async def test_the_child_process_forwards_and_its_end_is_seen(short_folder: Path) -> None:
    door = short_folder / "door.sock"
    server = forward.listen(0)
    async with await asyncio.start_unix_server(echo, str(door)):
        child = forward.Forwarder(server, str(door), Identity(None))
        reader, writer = await asyncio.open_connection("127.0.0.1", server.getsockname()[1])
        writer.write(b"x")
        writer.write_eof()
        assert await reader.read(-1) == b"x<end>"
        writer.close()
        assert child.poll() is None
        child.end()
        child.end()
    server.close()


async def test_a_host_that_dies_in_the_middle_ends_the_connection(short_folder: Path) -> None:
    """A reset is no end of a half: a program that waits for an answer must be told."""
    door = short_folder / "door.sock"
    unread = asyncio.Event()

    async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await unread.wait()  # closing with something unread resets the connection, as a killed process does
        writer.transport.abort()

    async with await asyncio.start_unix_server(die, str(door), limit=1), forwarding(door) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"x" * 1_000_000)
        await asyncio.sleep(0.2)
        unread.set()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert await reader.read() == b""
        writer.close()
