"""Servers that mean ill: whatever they answer, the host keeps its time, its memory and its credentials."""

from __future__ import annotations

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from tls import LOOPBACK, Answer, LocalCa, RawServer, TlsServer

from kortix_tui.broker.connectors.model import HttpCall, Reply
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import LONGEST_ANSWER, FetchFailed, MaybeSent, fetch, send
from kortix_tui.broker.network.transport import AnswerRefused

Handler = Callable[[socket.socket], None]


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest_asyncio.fixture
async def client(ca: LocalCa) -> AsyncIterator[httpx.AsyncClient]:
    before = asyncio.all_tasks()
    async with open_client(Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))) as made:
        yield made
    assert not asyncio.all_tasks() - before - {asyncio.current_task()}


async def _send(client: httpx.AsyncClient, url: str, deadline_s: float = 60.0) -> Reply:
    return await send(
        client,
        HttpCall(method="GET", url=url),
        credential_headers={"authorization": "Bearer canary"},
        credential_query={},
        credential_cookies={},
        deadline_s=deadline_s,
    )


def _endless(connection: socket.socket, head: bytes, piece: bytes) -> None:
    """Answers for as long as the client listens."""
    connection.recv(65536)
    connection.sendall(head)
    while True:
        connection.sendall(piece)


def _chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


@pytest.mark.parametrize("chunked", [True, False])
async def test_an_endless_answer_is_cut(ca: LocalCa, client: httpx.AsyncClient, chunked: bool) -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" if chunked else b"HTTP/1.1 200 OK\r\n\r\n"
    piece = _chunk(b"x" * 65536) if chunked else b"x" * 65536
    with RawServer(lambda connection: _endless(connection, head, piece), ca=ca) as server:
        reply = await _send(client, server.url())
        with pytest.raises(FetchFailed, match="longer than"):
            await fetch(client, server.url(), limit_bytes=1 << 20)
    assert reply.truncated
    assert len(reply.body) == LONGEST_ANSWER < reply.size


async def test_an_answer_of_just_the_limit_is_whole(ca: LocalCa, client: httpx.AsyncClient) -> None:
    body = b"x" * LONGEST_ANSWER
    with TlsServer(lambda request: Answer(body=body), ca=ca) as server:
        reply = await _send(client, server.url())
    assert (reply.truncated, reply.size, len(reply.body)) == (False, LONGEST_ANSWER, LONGEST_ANSWER)


async def test_an_announced_gigabyte_is_not_believed(ca: LocalCa, client: httpx.AsyncClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n"
    with RawServer(lambda connection: _endless(connection, head, b"x" * 65536), ca=ca) as server:
        tracemalloc.start()
        try:
            reply = await _send(client, server.url())
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert reply.truncated
    assert peak < 6 * LONGEST_ANSWER


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_not_inflated(ca: LocalCa, client: httpx.AsyncClient, encoding: str) -> None:
    squeeze = zlib.compressobj(9, wbits=31 if encoding == "gzip" else 15)
    bomb = b"".join(squeeze.compress(bytes(1 << 20)) for _ in range(48)) + squeeze.flush()
    with TlsServer(lambda request: Answer(body=bomb, headers=(("content-encoding", encoding),)), ca=ca) as server:
        tracemalloc.start()
        try:
            with pytest.raises(MaybeSent, match="100 times") as caught:
                await _send(client, server.url())
            with pytest.raises(FetchFailed, match="100 times"):
                await fetch(client, server.url(), limit_bytes=1 << 30)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert (caught.value.reason, caught.value.status) == ("answer_refused", 200)
    assert peak < 64 << 20


async def test_a_bomb_is_refused_for_every_user_of_the_client(ca: LocalCa, client: httpx.AsyncClient) -> None:
    """Tool servers and token services are read by other libraries through the same client."""
    bomb = gzip.compress(bytes(64 << 20), 9)
    answer = Answer(body=bomb, headers=(("Content-Encoding", "GZIP"),))
    with TlsServer(lambda request: answer, ca=ca) as server, pytest.raises(AnswerRefused, match="100 times"):
        await client.get(server.url())


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"whatever"),
        ("zstd", b"whatever"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x"))),
        ("gzip", b"not compressed at all"),
        ("gzip", gzip.compress(b"cut off" * 1000)[:-9]),
        ("\x1b[31m", b"x"),
    ],
    ids=["br", "zstd", "twice", "not compressed", "cut off", "control"],
)
async def test_an_encoding_that_is_not_taken_is_refused(
    ca: LocalCa, client: httpx.AsyncClient, encoding: str, body: bytes
) -> None:
    answer = Answer(body=body, headers=(("content-encoding", encoding),))
    with TlsServer(lambda request: answer, ca=ca) as server, pytest.raises(MaybeSent) as caught:
        await _send(client, server.url())
    assert caught.value.reason in ("answer_refused", "broken")
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(
    "drip",
    [
        b"H",  # never gets to the end of its status line
        b"HTTP/1.1 100 Continue\r\n\r\n",  # never gets to its answer
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n",  # never ends
    ],
    ids=["status line", "interim answers", "body"],
)
async def test_a_slow_server_ends_at_the_deadline(ca: LocalCa, client: httpx.AsyncClient, drip: bytes) -> None:
    def slow(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(drip)
        while not server.closing.wait(0.02):
            connection.sendall(drip[-1:] if drip == b"H" else (b"1\r\nx\r\n" if b"200" in drip else drip))

    server = RawServer(slow, ca=ca)
    with server, pytest.raises(MaybeSent) as caught:
        await _send(client, server.url(), deadline_s=0.6)
    assert caught.value.reason == "timeout" or drip == b"H"
    assert len(caught.value.message) < 300


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: y\r\n" % at for at in range(20_000)) + b"\r\n",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 500_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 " + b"y" * 500_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffffffffff\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\nx\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1;" + b"e" * 500_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"a: b\r\n" * 100_000,
        b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nname with space: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: a\x00b\r\n\r\n",
        b"<html>no http at all</html>",
        b"\x00" * 1000,
        b"SSH-2.0-OpenSSH_9.9\r\n",
    ],
    ids=range(14),
)
async def test_an_answer_that_is_not_http_is_refused(ca: LocalCa, client: httpx.AsyncClient, answer: bytes) -> None:
    with TlsServer(lambda request: answer, ca=ca) as server:
        with pytest.raises(MaybeSent) as caught:
            await _send(client, server.url(), deadline_s=20)
        assert len(server.received) == 1
    assert caught.value.reason == "broken"
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 300


async def test_control_characters_in_headers_become_visible(ca: LocalCa, client: httpx.AsyncClient) -> None:
    headers = b"content-length: 0\r\ncontent-type: text/\x1b[2Jplain\x9b\x07\r\netag: \xe2\x80\xaex\r\n"
    raw = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n"
    with TlsServer(lambda request: raw, ca=ca) as server:
        reply = await _send(client, server.url())
    assert [name for name, _ in reply.headers] == ["content-type", "etag"]
    assert all(value.isprintable() for _, value in reply.headers), reply.headers


async def test_a_flood_of_listed_headers_is_cut(ca: LocalCa, client: httpx.AsyncClient) -> None:
    headers = (*((("link"), f"<https://a.example/{at}>") for at in range(900)), ("etag", "x" * 30_000))
    with TlsServer(lambda request: Answer(headers=headers), ca=ca) as server:
        reply = await _send(client, server.url())
        assert len(reply.headers) <= 32
    with TlsServer(lambda request: Answer(headers=headers[-1:]), ca=ca) as server:
        reply = await _send(client, server.url())
        assert len(reply.headers[0][1]) <= 4096


@pytest.mark.parametrize(
    "where",
    ["http://127.0.0.1:{port}/", "http://169.254.169.254/latest/meta-data", "//localhost:{port}/", "file:///etc"],
)
async def test_a_redirect_takes_nobody_anywhere(ca: LocalCa, client: httpx.AsyncClient, where: str) -> None:
    with TlsServer() as inner:
        target = where.format(port=inner.port)
        with TlsServer(lambda request: Answer(307, headers=(("location", target),)), ca=ca) as server:
            reply = await _send(client, server.url())
            assert len(server.received) == 1
        assert (reply.status, dict(reply.headers)["location"]) == (307, target)
        assert inner.accepted == 0


async def test_a_switch_of_protocols_is_no_answer(ca: LocalCa, client: httpx.AsyncClient) -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nhello"
    with TlsServer(lambda request: raw, ca=ca) as server, pytest.raises(MaybeSent):
        await _send(client, server.url(), deadline_s=5)


async def test_what_an_echo_returns_is_the_caller_s_to_redact(ca: LocalCa, client: httpx.AsyncClient) -> None:
    """The body is not touched here, but headers beyond the list, which could hold it, never come back."""
    with TlsServer(
        lambda request: Answer(body=request.head, headers=(("x-echo", request.header("authorization") or ""),)), ca=ca
    ) as server:
        reply = await _send(client, server.url())
    assert b"Bearer canary" in reply.body
    assert reply.headers == ()
