"""The proxy behind a door: tunnels and plain requests between real sockets, and clients and servers that misbehave."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.client
import os
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tls import LocalCa

from kortix_tui.base.errors import DeadlineExceeded, InvalidInput, KortixError, Refused
from kortix_tui.broker.door import Door
from kortix_tui.broker.egress import EgressProxy, PassageLimits, is_proxied, read_target
from kortix_tui.broker.http import Peer, Request
from kortix_tui.broker.listener import DoorListener
from kortix_tui.broker.services import Passage
from kortix_tui.guest import forward
from tests.support.door import SmallHost

TOKEN = "agent-token"
AUTH = b"Proxy-Authorization: Basic " + base64.b64encode(b"kortix:" + TOKEN.encode()) + b"\r\n"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Ended:
    sent: int
    received: int
    code: str | None


@dataclass
class OpenPassage:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    ends: list[Ended]

    async def close(self, sent: int, received: int, /, *, code: str | None = None) -> None:
        self.writer.close()
        self.ends.append(Ended(sent, received, code))


@dataclass
class ToServer:
    """A way out that leads every host to one server of the test, and refuses what it is told to."""

    port: int = 0
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    ends: list[Ended] = field(default_factory=list)
    refusal: KortixError | None = None

    async def open(self, method: str, host: str, port: int, /) -> Passage:
        self.asked.append((method, host, port))
        if self.refusal is not None:
            raise self.refusal
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        return OpenPassage(reader, writer, self.ends)

    async def ended(self, count: int = 1) -> Ended:
        async with asyncio.timeout(20):
            while len(self.ends) < count:
                await asyncio.sleep(0.01)
        return self.ends[-1]


@dataclass
class Scene:
    """The door, and what stands behind it."""

    path: Path
    service: ToServer
    listener: DoorListener

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.path))

    async def talk(self, *pieces: bytes) -> bytes:
        """Send, end our half, and read until the other side closes."""
        reader, writer = await self.connect()
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            async with asyncio.timeout(20):
                return await reader.read(-1)
        except ConnectionError as error:
            return repr(error).encode()
        finally:
            writer.close()

    async def tunnel(self, host: str = "api.example.com:443") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await self.connect()
        writer.write(b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n" % (host.encode(), host.encode(), AUTH))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 "), head
        return reader, writer


@contextlib.asynccontextmanager
async def scene(folder: Path, serve: Serve, **limits: float) -> AsyncIterator[Scene]:
    running = set[asyncio.Task[None]]()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await serve(reader, writer)
        except (OSError, asyncio.CancelledError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()
            running.discard(task)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    service = ToServer(server.sockets[0].getsockname()[1])
    proxy = EgressProxy(service, TOKEN, PassageLimits(**limits))
    listener = DoorListener(folder / "d", proxy.handle)
    await listener.open()
    try:
        yield Scene(folder / "d" / "door.sock", service, listener)
    finally:
        await listener.close()
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write(b"<end>")


async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


# Targets


async def nothing() -> AsyncIterator[bytes]:
    return
    yield b""


def request(method: str, target: str) -> Request:
    path, _, query = target.partition("?")
    return Request(method, path, query, (), Peer(1, 1000, 1000), nothing())


@pytest.mark.parametrize(
    ("method", "text", "host", "port", "path"),
    [
        ("CONNECT", "api.example.com:443", "api.example.com", 443, "/"),
        ("CONNECT", "API.Example.COM:8443", "api.example.com", 8443, "/"),
        ("CONNECT", "10.0.0.1:22", "10.0.0.1", 22, "/"),
        ("CONNECT", "[fd00:ec2::254]:80", "fd00:ec2::254", 80, "/"),
        ("GET", "http://deb.example.com", "deb.example.com", 80, "/"),
        ("GET", "http://deb.example.com:8080/a//b/../c;d?e=f&g=%20", "deb.example.com", 8080, "/a//b/../c;d?e=f&g=%20"),
        ("POST", "http://[::1]/x", "::1", 80, "/x"),
        ("GET", "HTTP://h.example/?a?b", "h.example", 80, "/?a?b"),
    ],
)
def test_targets_are_read(method: str, text: str, host: str, port: int, path: str) -> None:
    asked = request(method, text)
    assert is_proxied(asked)
    found = read_target(asked)
    assert (found.host, found.port, found.path) == (host, port, path)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("CONNECT", "api.example.com"),
        ("CONNECT", "api.example.com:"),
        ("CONNECT", "api.example.com:99999"),
        ("CONNECT", "api.example.com:x"),
        ("CONNECT", ":443"),
        ("CONNECT", "user@api.example.com:443"),
        ("CONNECT", "http://api.example.com:443/"),
        ("CONNECT", "api.example.com:443/x"),
        ("CONNECT", "api.example.com:443?x"),
        ("CONNECT", "[::1:443"),
        ("GET", "https://api.example.com/"),
        ("GET", "ftp://api.example.com/"),
        ("GET", "http:///x"),
        ("GET", "http://a@b.example/"),
        ("GET", "http://b.example:0x50/"),
    ],
)
def test_targets_that_are_none(method: str, text: str) -> None:
    asked = request(method, text)
    assert is_proxied(asked)
    with pytest.raises(InvalidInput):
        read_target(asked)


@pytest.mark.parametrize("path", ["/v1/agent/session", "/", "*", "/http://a/", ""])
def test_what_is_for_the_door_itself(path: str) -> None:
    assert not is_proxied(request("GET", path))


# Who may, and what may not


@pytest.mark.parametrize(
    "header",
    [
        b"", b"Proxy-Authorization: Basic !!!\r\n", b"Authorization: Bearer agent-token\r\n",
        b"Proxy-Authorization: Bearer agent-token\r\n",
        b"Proxy-Authorization: Basic " + base64.b64encode(b"kortix:wrong") + b"\r\n",
        b"Proxy-Authorization: Basic " + base64.b64encode(b"agent-token") + b"\r\n",
        b"Proxy-Authorization: Basic " + base64.b64encode(b"kortix:") + b"\r\n",
        b"Proxy-Authorization: Basic " + base64.b64encode(b"\xff:x") + b"\r\n",
    ],
)  # fmt: skip
async def test_without_the_token_nothing_is_even_asked(short_folder: Path, header: bytes) -> None:
    async with scene(short_folder, echo) as made:
        for line in (b"CONNECT a.example:443", b"GET http://a.example/"):
            answer = await made.talk(line + b" HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n" + header + b"\r\n")
            assert answer.startswith(b"HTTP/1.1 407 ") and b'proxy-authenticate: Basic realm="kortix"' in answer
        assert made.service.asked == []


async def test_an_empty_token_is_nobodys(short_folder: Path) -> None:
    handle = EgressProxy(ToServer(), "").handle
    asked = Request(
        "CONNECT", "a.example:443", "", (("proxy-authorization", "Basic " + base64.b64encode(b"k:").decode()),),
        Peer(1, 1, 1), nothing(),
    )  # fmt: skip
    answer = await handle(asked)
    assert getattr(answer, "status", None) == 407


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("Not allowed.", hint="Ask."), b"403 Refused by kortix: refused"),
        (DeadlineExceeded("Slow."), b"504 "),
        (KortixError("Gone."), b"502 Bad Gateway: failed"),
    ],
)
async def test_a_refusal_says_why_and_the_connection_goes_on(
    short_folder: Path, error: KortixError, status: bytes
) -> None:
    async with scene(short_folder, echo) as made:
        made.service.refusal = error
        one = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n" + AUTH + b"\r\n"
        last = b"GET http://b.example/ HTTP/1.1\r\nHost: b.example\r\nConnection: close\r\n" + AUTH + b"\r\n"
        answer = await made.talk(one + one, last)
        assert answer.count(b"HTTP/1.1 " + status) == 3, answer
        assert error.message.encode() in answer
        assert made.service.asked == [("CONNECT", "a.example", 443)] * 2 + [("GET", "b.example", 80)]
        assert made.service.ends == []


async def test_a_door_without_a_way_out_refuses(short_folder: Path) -> None:
    host = SmallHost("kaaaaaaaaaaa", agent_token=TOKEN)
    listener = DoorListener(short_folder / "d", Door(host).handle)
    await listener.open()
    try:
        made = Scene(short_folder / "d" / "door.sock", ToServer(), listener)
        answer = await made.talk(
            b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n" + AUTH + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 403 ")
    finally:
        await listener.close()


# Tunnels


async def test_megabytes_go_both_ways_and_halves_close_alone(short_folder: Path) -> None:
    data = os.urandom(3_000_000)
    data = b"x" + data  # no TLS
    async with scene(short_folder, echo) as made:
        reader, writer = await made.tunnel()

        async def send() -> None:
            writer.write(data)
            writer.write_eof()
            await writer.drain()

        _, found = await asyncio.gather(send(), reader.read(-1))
        assert found == data + b"<end>"
        writer.close()
        assert await made.service.ended() == Ended(len(data), len(data) + 5, None)


async def test_bytes_behind_the_request_are_not_lost(short_folder: Path) -> None:
    async with scene(short_folder, echo) as made:
        reader, writer = await made.connect()
        writer.write(b"CONNECT a.example:22 HTTP/1.1\r\nHost: a.example\r\n" + AUTH + b"\r\nSSH-2.0-x\r\n")
        writer.write_eof()
        answer = await reader.read(-1)
        assert answer.endswith(b"\r\n\r\nSSH-2.0-x\r\n<end>")
        writer.close()


async def test_a_server_that_speaks_first(short_folder: Path) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.read(-1)

    async with scene(short_folder, greet) as made:
        reader, writer = await made.tunnel("mail.example.com:25")
        assert await reader.readline() == b"220 hello\r\n"
        writer.close()
        assert (await made.service.ended()).received == 11


async def test_python_reaches_a_tls_server_through_the_loopback_port(short_folder: Path) -> None:
    """As programs in a sandbox do it: HTTP/1.0 CONNECT over the forwarder, then TLS with the name of the host."""
    ca = LocalCa(short_folder / "ca")
    context = ca.server_context("api.example.com")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await writer.start_tls(context)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"proxy-authorization" not in head.lower()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()

    def ask(port: int, tls_name: str) -> bytes:
        client = http.client.HTTPSConnection(
            "127.0.0.1", port, timeout=20, context=ssl.create_default_context(cafile=str(ca.file))
        )
        client.set_tunnel(
            tls_name, 443, {"Proxy-Authorization": "Basic " + base64.b64encode(f"k:{TOKEN}".encode()).decode()}
        )
        try:
            client.request("GET", "/")
            return client.getresponse().read()
        finally:
            client.close()

    async with scene(short_folder, answer) as made:
        port = forward.listen(0)
        forwarding = asyncio.create_task(forward.serve(port, str(made.path)))
        try:
            assert await asyncio.to_thread(ask, port.getsockname()[1], "api.example.com") == b"hello"
            assert made.service.asked == [("CONNECT", "api.example.com", 443)]
        finally:
            forwarding.cancel()
            await asyncio.gather(forwarding, return_exceptions=True)
            port.close()


def client_hello(name: str) -> bytes:
    out = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


async def test_a_tls_client_that_asks_for_another_host_gets_nothing_through(short_folder: Path) -> None:
    seen = bytearray()

    async def collect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            seen.extend(data)

    async with scene(short_folder, collect) as made:
        for at in (1, 5, 100):
            reader, writer = await made.tunnel()
            hello = client_hello("other.example.com")
            writer.write(hello[:at])
            await writer.drain()
            writer.write(hello[at:])
            with contextlib.suppress(ConnectionError):
                assert await reader.read(-1) == b""
            writer.close()
        assert await made.service.ended(3) == Ended(0, 0, "sni_mismatch")
        assert seen == b""
        reader, writer = await made.tunnel()
        hello = client_hello("API.example.com")
        writer.write(hello)
        writer.write_eof()
        assert await reader.read(-1) == b""
        writer.close()
        await made.service.ended(4)
        assert seen == hello


async def test_a_silent_tunnel_ends_and_a_busy_one_too_after_all(short_folder: Path) -> None:
    async with scene(short_folder, hang, idle_s=0.2) as made:
        reader, writer = await made.tunnel()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert await reader.read(-1) == b""
        assert (await made.service.ended()).code == "timeout"
        writer.close()

    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with scene(short_folder, chatter, idle_s=10, total_s=0.4) as made:
        reader, writer = await made.tunnel()
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                await reader.read(-1)
        ended = await made.service.ended()
        assert ended.code == "timeout" and ended.received > 0
        writer.close()


async def test_traffic_keeps_a_tunnel_beyond_its_idle_time(short_folder: Path) -> None:
    async with scene(short_folder, echo, idle_s=1.0) as made:
        reader, writer = await made.tunnel()
        for _ in range(8):
            await asyncio.sleep(0.2)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
        writer.close()


async def test_a_client_that_takes_nothing_does_not_hold_a_tunnel_for_ever(short_folder: Path) -> None:
    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()

    async with scene(short_folder, flood, idle_s=0.3) as made:
        _, writer = await made.tunnel()
        assert (await made.service.ended()).code == "timeout"
        writer.close()


async def test_a_reset_at_either_end_reaches_the_other(short_folder: Path) -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    async with scene(short_folder, reset) as made:
        reader, writer = await made.tunnel()
        writer.write(b"x")
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(20):
                assert await reader.read(-1) == b""
        assert (await made.service.ended()).code == "broken_off"
        writer.close()

    gone = asyncio.Event()

    async def watch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while await reader.read(65536):
                writer.write(b"x" * 65536)
        gone.set()

    async with scene(short_folder, watch) as made:
        _, writer = await made.tunnel()
        writer.write(b"x")
        await writer.drain()
        writer.transport.abort()
        async with asyncio.timeout(20):
            await gone.wait()
        await made.service.ended()


async def test_the_end_of_a_door_ends_its_tunnels_and_records_them(short_folder: Path) -> None:
    async with scene(short_folder, echo) as made:
        reader, writer = await made.tunnel()
        writer.write(b"abc")
        assert await reader.readexactly(3) == b"abc"
        await made.listener.close()
        assert made.service.ends == [Ended(3, 3, None)]
        with contextlib.suppress(ConnectionError):
            assert await reader.read(-1) == b""
        writer.close()


async def test_a_client_that_leaves_before_its_answer_leaves_no_connection_behind(short_folder: Path) -> None:
    async with scene(short_folder, echo) as made:
        for _ in range(20):
            _, writer = await made.connect()
            writer.write(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n" + AUTH + b"\r\n")
            writer.transport.abort()
        await asyncio.sleep(0.2)
        await made.listener.close()
        assert len(made.service.ends) == len(made.service.asked)


async def test_a_connect_with_a_body_is_broken_off(short_folder: Path) -> None:
    async with scene(short_folder, echo) as made:
        answer = await made.talk(
            b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 3\r\n" + AUTH + b"\r\nabc"
        )
        assert b"200" not in answer
        assert (await made.service.ended()).sent == 0


# Plain HTTP


def reply(
    raw: bytes, seen: list[bytes], *, body: bool = False
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A server that answers one request with these bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readuntil(b"\r\n\r\n")
        while body and not data.endswith((b"0\r\n\r\n", b"<end>")):
            data += await reader.read(65536)
        seen.append(data)
        writer.write(raw)
        await writer.drain()

    return serve


async def test_a_plain_request_goes_out_as_the_servers_own(short_folder: Path) -> None:
    seen = list[bytes]()
    raw = (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-A: \xe4\r\nConnection: X-B, close\r\nX-B: 1\r\n"
        b"Proxy-Authenticate: Basic\r\n\r\nhi"
    )
    async with scene(short_folder, reply(raw, seen)) as made:
        answer = await made.talk(
            b"GET http://deb.example.com:80/a?b=c HTTP/1.1\r\nHost: deb.example.com\r\nAccept: */*\r\nTE: trailers\r\n"
            b"Connection: close, X-Hop\r\nX-Hop: 1\r\nProxy-Connection: keep-alive\r\nExpect: 100-continue\r\n"
            + AUTH
            + b"Authorization: Basic dXNlcg==\r\n\r\n"
        )
    assert b"HTTP/1.1 100 \r\n\r\nHTTP/1.1 200 " in answer and answer.endswith(b"\r\n\r\nhi")
    assert b"X-A: \xe4".lower() in answer.lower()
    assert b"x-b" not in answer.lower() and b"proxy-auth" not in answer.lower()
    (head,) = seen
    assert head.startswith(b"GET /a?b=c HTTP/1.1\r\n")
    lines = {line.lower() for line in head.split(b"\r\n")[1:] if line}
    assert lines == {
        b"host: deb.example.com:80", b"accept: */*", b"authorization: basic dxnlcg==", b"connection: close"
    }  # fmt: skip
    assert made.service.asked == [("GET", "deb.example.com", 80)]
    assert made.service.ends == [Ended(len(head), len(raw), None)]


@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_go_both_ways_and_the_connection_goes_on(short_folder: Path, chunked: bool) -> None:
    seen = list[bytes]()
    raw = b"HTTP/1.1 201 Made\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with scene(short_folder, reply(raw, seen, body=True)) as made:
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 6"
        body = b"1\r\nx\r\n5\r\n<end>\r\n0\r\n\r\n" if chunked else b"x<end>"
        head = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + framing + b"\r\n" + AUTH
        answer = await made.talk(head + b"\r\n" + body, head + b"Connection: close\r\n\r\n" + body)
    assert answer.count(b"HTTP/1.1 201 ") == 2 and answer.count(b"abc") == 2
    assert len(seen) == 2 and b"x" in seen[0].partition(b"\r\n\r\n")[2] and b"<end>" in seen[0]
    assert [end.code for end in made.service.ends] == [None, None]


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 50\r\n\r\n"),
        ("GET", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 None\r\n\r\n"),
        ("GET", b"HTTP/1.0 200 OK\r\n\r\n"),
    ],
)
async def test_answers_without_a_body(short_folder: Path, method: str, raw: bytes) -> None:
    async with scene(short_folder, reply(raw, [])) as made:
        answer = await made.talk(
            f"{method} http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n".encode() + AUTH + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 " + raw[raw.rindex(b"HTTP/1.") + 9 :][:3])
        assert made.service.ends[0].code is None


@pytest.mark.parametrize("host", [b"other.example", b"a.example:8080", b"a.example.evil.example"])
async def test_another_host_in_the_headers_is_refused_before_anything_is_sent(short_folder: Path, host: bytes) -> None:
    seen = list[bytes]()
    async with scene(short_folder, reply(b"HTTP/1.1 200 OK\r\n\r\n", seen)) as made:
        answer = await made.talk(
            b"GET http://a.example/ HTTP/1.1\r\nConnection: close\r\nHost: " + host + b"\r\n" + AUTH + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 400 ") and b"different hosts" in answer
        assert made.service.ends == [Ended(0, 0, "invalid")]
    assert seen == []


@pytest.mark.parametrize(
    "raw", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, b"HTTP/1.1 abc\r\n\r\n"]
)
async def test_servers_that_do_not_answer_in_http(short_folder: Path, raw: bytes) -> None:
    async with scene(short_folder, reply(raw, [])) as made:
        answer = await made.talk(
            b"GET http://a.example/ HTTP/1.1\r\nConnection: close\r\nHost: a.example\r\n" + AUTH + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 502 Bad Gateway: relay_failed"), answer
        assert made.service.ends[0].code == "relay_failed"


async def test_an_answer_that_is_cut_short_is_not_taken_for_whole(short_folder: Path) -> None:
    async with scene(short_folder, reply(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", [])) as made:
        answer = await made.talk(b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + AUTH + b"\r\n")
        assert b"half" not in answer or b"content-length: 50" in answer.lower()
        assert (await made.service.ended()).code == "broken_off"


async def test_a_server_that_never_answers(short_folder: Path) -> None:
    async with scene(short_folder, hang, idle_s=0.2) as made:
        answer = await made.talk(
            b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n" + AUTH + b"\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 504 ")
        assert made.service.ends[0].code == "timeout"


async def test_an_answer_before_the_body_has_gone_is_handed_back(short_folder: Path) -> None:
    async def early(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
        await writer.drain()
        while await reader.read(65536):
            pass

    async with scene(short_folder, early) as made:
        size = 2_000_000
        head = (
            b"PUT http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\nContent-Length: %d\r\n" % size
        )
        assert (await made.talk(head + AUTH + b"\r\n", b"x" * size)).startswith(b"HTTP/1.1 413 ")


async def test_a_client_that_leaves_in_the_middle_of_its_body(short_folder: Path) -> None:
    async with scene(short_folder, hang) as made:
        _, writer = await made.connect()
        writer.write(
            b"PUT http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 50\r\n" + AUTH + b"\r\nhalf"
        )
        await writer.drain()
        writer.close()
        assert (await made.service.ended()).code == "broken_off"
