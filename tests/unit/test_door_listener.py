"""The door's HTTP side against rude clients: limits, time-outs, keep-alive, streams, upgrade, socket file (I11)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kortix_tui.broker import listener as module
from kortix_tui.broker.http import Handler, Request, Response, Upgrade, read_body
from kortix_tui.broker.listener import DoorListener, Limits

Call = Callable[[Request], Awaitable[Response | Upgrade]]


@contextlib.asynccontextmanager
async def door(folder: Path, handler: Handler, **limits: object) -> AsyncIterator[Path]:
    listener = DoorListener(folder, handler, limits=Limits(**limits))  # type: ignore[arg-type]
    await listener.open()
    try:
        yield folder / "door.sock"
    finally:
        await listener.close()


async def hello(request: Request) -> Response:
    return Response(200, f"{request.method} {request.path} {request.query}".encode())


async def talk(path: Path, *pieces: bytes, end: bool = False) -> bytes:
    """Send, and read until the other side closes."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        if end:
            writer.write_eof()
        async with asyncio.timeout(20):
            return await reader.read(-1)
    except ConnectionError as error:
        return repr(error).encode()
    finally:
        writer.close()


async def test_requests_follow_each_other_on_one_connection(short_folder: Path) -> None:
    async with door(short_folder / "d", hello) as path:
        one = b"GET /a?x=1 HTTP/1.1\r\nHost: door\r\n\r\n"
        answer = await talk(path, one, one + b"GET /b HTTP/1.1\r\nHost: door\r\nConnection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200") == 3 and answer.count(b"GET /a x=1") == 2 and b"GET /b " in answer


async def test_a_client_that_only_comes_and_goes(short_folder: Path) -> None:
    async with door(short_folder / "d", hello) as path:
        assert await talk(path, end=True) == b""


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", b"505"),
        (b"GET /\r\nX HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", b"400"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", b"501"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", b"431"),
        (b"GET /" + b"y" * 70_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", b"431"),
    ],
    ids=[
        "tls",
        "no host",
        "version",
        "line",
        "two hosts",
        "two lengths",
        "length",
        "coding",
        "header",
        "target",
        "many",
    ],
)
async def test_what_is_not_a_request_gets_an_error_and_the_end(short_folder: Path, raw: bytes, status: bytes) -> None:
    async with door(short_folder / "d", hello) as path:
        answer = await talk(path, raw)
    assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
    assert b'{"error":{"code"' in answer


async def test_a_slow_head_and_an_idle_connection_are_ended(short_folder: Path) -> None:
    async with door(short_folder / "d", hello, head_s=0.2, idle_s=0.2) as path:
        assert (await talk(path, b"GET / HTTP/1.1\r\nHo")).startswith(b"HTTP/1.1 408")
        assert (await talk(path)).startswith(b"HTTP/1.1 408")
        answer = await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200") and b"408" in answer


async def test_one_byte_at_a_time_does_not_stretch_the_head(short_folder: Path) -> None:
    async with door(short_folder / "d", hello, head_s=0.3) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))

        async def drip() -> None:
            with contextlib.suppress(ConnectionError):
                for byte in b"GET / HTTP/1.1\r\nHost: " + b"a" * 10_000:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(20):
            assert b"408" in await reader.read(100)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        writer.close()


async def test_bodies_are_limited_by_who_reads_them_and_stall_only_so_long(short_folder: Path) -> None:
    async def reading(request: Request) -> Response:
        return Response(200, str(len(await read_body(request, 1000))).encode())

    async with door(short_folder / "d", reading, body_s=0.2) as path:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
        assert (await talk(path, head + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000)).endswith(b"1000")
        assert b" 413 " in await talk(path, head + b"Content-Length: 5000000\r\n\r\n", b"x" * 2000)
        chunked = head + b"Transfer-Encoding: chunked\r\n\r\n"
        assert (await talk(path, chunked + b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")).endswith(b"5")
        assert b" 413 " in await talk(path, chunked + b"800\r\n" + b"x" * 0x800)
        assert b"200" not in await talk(path, head + b"Content-Length: 10\r\n\r\nx")
        assert b"200" not in await talk(path, head + b"Content-Length: 10\r\n\r\nx", end=True)
        assert b"200" not in await talk(path, chunked + b"zz\r\n")


async def test_a_client_that_asks_first_is_told_to_continue(short_folder: Path) -> None:
    async def reading(request: Request) -> Response:
        return Response(200, await read_body(request, 100))

    async with door(short_folder / "d", reading) as path:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\nConnection: close\r\n\r\n"
        answer = await talk(path, head, b"hi")
    assert answer.startswith(b"HTTP/1.1 100") and answer.endswith(b"hi")


async def test_a_body_that_nobody_reads_ends_the_connection_after_the_answer(short_folder: Path) -> None:
    async with door(short_folder / "d", hello) as path:
        answer = await talk(path, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3000000\r\n\r\n", b"x" * 2_000_000)
    assert answer.startswith(b"HTTP/1.1 200") and answer.count(b"HTTP/1.1") == 1


async def test_answers_are_streamed_while_the_request_still_comes(short_folder: Path) -> None:
    async def echo(request: Request) -> Response:
        return Response(200, request.body)

    async with door(short_folder / "d", echo) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        async with asyncio.timeout(20):
            assert await reader.readuntil(b"one\r\n")
            writer.write(b"3\r\ntwo\r\n0\r\n\r\n")
            assert (await reader.readuntil(b"0\r\n\r\n")).startswith(b"3\r\ntwo")
        writer.close()


async def test_a_stream_is_closed_when_its_client_leaves(short_folder: Path) -> None:
    closed = asyncio.Event()

    async def endless(request: Request) -> Response:
        async def pieces() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield b"x" * 10_000
            finally:
                closed.set()

        return Response(200, pieces())

    async with door(short_folder / "d", endless) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.read(100)
        writer.transport.abort()
        async with asyncio.timeout(20):
            await closed.wait()


async def test_a_client_that_takes_nothing_is_dropped(short_folder: Path) -> None:
    async def big(request: Request) -> Response:
        return Response(200, b"x" * 20_000_000)

    async with door(short_folder / "d", big, write_s=0.2) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.6)
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert len(await reader.read(-1)) < 20_000_000
        writer.close()


async def test_one_account_has_so_many_connections_and_no_more(short_folder: Path) -> None:
    async with door(short_folder / "d", hello, connections=4) as path:
        held = [await asyncio.open_unix_connection(str(path)) for _ in range(4)]
        for _, writer in held:  # served: their place is taken
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        for reader, _ in held:
            await reader.readuntil(b"GET /")
        assert (await talk(path)).startswith(b"HTTP/1.1 503")
        held[0][1].close()
        async with asyncio.timeout(20):
            while b"200" not in await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"):
                await asyncio.sleep(0.01)
        for _, writer in held:
            writer.close()


async def test_another_account_has_places_of_its_own(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uids = iter([1000, 1000, 1000, 0])
    real = module._peer
    monkeypatch.setattr(module, "_peer", lambda writer: type(real(writer))(1, next(uids), 1))
    async with door(short_folder / "d", hello, connections=2) as path:
        held = []
        for _ in range(2):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            await reader.readuntil(b"GET /")
            held.append(writer)
        assert (await talk(path)).startswith(b"HTTP/1.1 503")
        assert b"200" in await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        for writer in held:
            writer.close()


async def test_an_upgrade_hands_the_connection_over_with_what_was_read(short_folder: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trailing: bytes) -> None:
        writer.write(b"<" + trailing + await reader.readexactly(2) + b">")
        await writer.drain()

    async def upgrading(request: Request) -> Upgrade:
        return Upgrade("kortix/1", serve)

    async with door(short_folder / "d", upgrading) as path:
        head = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: kortix/1\r\nContent-Length: 0\r\n\r\n"
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(head + b"ab")
        async with asyncio.timeout(20):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            writer.write(b"cd")
            assert await reader.read(-1) == b"<abcd>"
        writer.close()
        assert b" 426 " in await talk(path, b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")


async def test_the_peer_is_who_connected(short_folder: Path) -> None:
    async def who(request: Request) -> Response:
        return Response(200, f"{request.peer.pid} {request.peer.uid}".encode())

    async with door(short_folder / "d", who) as path:
        answer = await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.endswith(f"{os.getpid()} {os.getuid()}".encode())


async def test_a_long_home_is_no_problem_and_modes_are_right(short_folder: Path) -> None:
    folder = short_folder / ("x" * 120) / "door"
    folder.parent.mkdir()
    mask = os.umask(0o077)
    try:
        async with door(folder, hello) as path:
            assert stat.S_IMODE(path.stat().st_mode) == 0o666 and stat.S_ISSOCK(path.stat().st_mode)
            assert stat.S_IMODE(folder.stat().st_mode) == 0o711
            assert [entry.name for entry in folder.iterdir()] == ["door.sock"]
            client = socket.socket(socket.AF_UNIX)
            descriptor = os.open(folder, os.O_RDONLY)
            client.connect(f"/proc/self/fd/{descriptor}/door.sock")
            client.close()
            os.close(descriptor)
        assert not path.exists()
    finally:
        os.umask(mask)


async def test_the_socket_of_a_dead_host_is_replaced(short_folder: Path) -> None:
    folder = short_folder / "d"
    folder.mkdir()
    dead = socket.socket(socket.AF_UNIX)
    dead.bind(str(folder / "door.sock"))
    dead.close()
    async with door(folder, hello) as path:
        assert b"200" in await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")


async def test_closing_leaves_the_socket_of_the_next_host_alone(short_folder: Path) -> None:
    async with door(short_folder / "d", hello) as path:
        old = DoorListener(short_folder / "d", hello)
        await old.open()
        new = DoorListener(short_folder / "d", hello)
        await new.open()
        await old.close()
        assert b"200" in await talk(path, b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await new.close()
        assert not path.exists()


async def test_closing_ends_requests_in_flight(short_folder: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            ended.set()
        return Response(200)

    async with door(short_folder / "d", slow) as path:
        talking = asyncio.create_task(talk(path, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
        await begun.wait()
    assert ended.is_set()
    assert b"HTTP" not in await talking
