"""One request out and one answer back: exactly what was shown, with the credential, and the truth about its effect."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from tls import LOOPBACK, Answer, LocalCa, RawServer, Received, TlsServer

from kortix_tui import __version__
from kortix_tui.broker.connectors.model import HttpCall, Reply
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import FetchFailed, MaybeSent, NotSent, canonical, fetch, send
from kortix_tui.broker.network.resolving import AddressRefused

CANARY = "canary-7f3a"


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest_asyncio.fixture
async def client(ca: LocalCa) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))) as made:
        yield made


async def _send(
    client: httpx.AsyncClient,
    url: str,
    method: str = "POST",
    headers: tuple[tuple[str, str], ...] = (),
    body: bytes | None = None,
    **given: Any,
) -> Reply:
    credential: dict[str, Any] = {"credential_headers": {}, "credential_query": {}, "credential_cookies": {}}
    return await send(client, HttpCall(method=method, url=url, headers=headers, body=body), **credential | given)


async def test_a_call_leaves_exactly_as_it_was_shown(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(ca=ca) as server:
        reply = await _send(
            client,
            server.url("/a%2Fb/%2e%2e?q=x%26y&q=%00+z"),
            headers=(("x-one", "1"), ("X-One", "2"), ("content-type", "application/json")),
            body=b'{"a": 1}',
        )
        assert server.received[0].head.decode() == (
            f"POST /a%2Fb/%2e%2e?q=x%26y&q=%00+z HTTP/1.1\r\n"
            f"Host: localhost:{server.port}\r\n"
            "Accept: */*\r\nConnection: keep-alive\r\n"
            f"user-agent: kortix-tui/{__version__}\r\naccept-encoding: gzip, deflate\r\n"
            "x-one: 1\r\nX-One: 2\r\ncontent-type: application/json\r\nContent-Length: 8\r\n\r\n"
        )
        assert server.received[0].body == b'{"a": 1}'
    assert reply == Reply(
        status=200, headers=(("content-type", "application/json"),), body=b"{}", truncated=False, size=2
    )


async def test_credentials_go_where_they_belong(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(ca=ca) as server:
        await _send(
            client,
            server.url("/x?y=1"),
            headers=(("cookie", "mine=1"),),
            credential_headers={"authorization": "Bearer word", "x-schlussel": "grün"},
            credential_query={"api_key": "a b&c=d/ü"},
            credential_cookies={"session": "word"},
        )
        got = server.received[0]
    assert got.target == "/x?y=1&api_key=a%20b%26c%3Dd%2F%C3%BC"
    assert got.header("authorization") == "Bearer word"
    assert got.header("x-schlussel") == "grün".encode().decode("latin-1")
    assert got.header("cookie") == "mine=1; session=word"


async def test_a_query_begins_where_there_was_none(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(ca=ca) as server:
        await _send(client, server.url("/x"), credential_query={"k": "v"})
        assert server.received[0].target == "/x?k=v"


@pytest.mark.parametrize(
    "given",
    [
        {"headers": (("x-a", "1\r\nx-b: 2"),)},
        {"headers": (("x-a\r\nx-b", "1"),)},
        {"headers": (("x-a", "\x00"),)},
        {"headers": (("x a", "1"),)},
        {"headers": (("host", "inner.example"),)},
        {"headers": (("Content-Length", "0"),)},
        {"headers": (("transfer-encoding", "chunked"),)},
        {"headers": (("Authorization", "Bearer shown"),), "credential_headers": {"authorization": CANARY}},
        {"credential_headers": {"authorization": f"Bearer {CANARY}\n"}},
        {"credential_cookies": {"session": f"{CANARY}\r"}},
        {"method": "GET /other HTTP/1.1\r\n"},
    ],
)
async def test_what_no_request_can_carry_is_not_sent(
    ca: LocalCa, client: httpx.AsyncClient, given: dict[str, Any]
) -> None:
    with TlsServer(ca=ca) as server:
        with pytest.raises(NotSent) as caught:
            await _send(client, server.url(), **given)
        assert caught.value.reason == "invalid"
        assert CANARY not in str(caught.value)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert server.received == []


@pytest.mark.parametrize("path", ["/a/../b", "/a b", "/ü", "/./a", "/#x", "/a\\b c", '/"'])
async def test_a_url_that_would_change_is_not_sent(ca: LocalCa, client: httpx.AsyncClient, path: str) -> None:
    with TlsServer(ca=ca) as server:
        with pytest.raises(NotSent):
            await _send(client, server.url(path))
        assert server.accepted == 0


def test_the_canonical_spelling_stays() -> None:
    for url in ("HTTPS://API.Example:443/a/../b c?x=ü#f", "https://api.example", "http://[::1]:80/x"):
        assert canonical(canonical(url)) == canonical(url)
    with pytest.raises(NotSent):
        canonical("https://localhost:none/")


async def test_a_refused_address_is_not_sent(ca: LocalCa) -> None:
    with TlsServer(ca=ca) as server:
        async with open_client(Reach(ca_certificates=(str(ca.file),))) as client:
            with pytest.raises(NotSent) as caught:
                await _send(client, server.url(), credential_query={"k": CANARY})
        assert server.accepted == 0
    assert caught.value.reason == "address_refused"
    assert caught.value.hint
    assert CANARY not in str(caught.value)


async def test_nothing_listening_is_not_sent(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(ca=ca) as server:
        url = server.url()
    with pytest.raises(NotSent) as caught:
        await _send(client, url)
    assert caught.value.reason == "unreachable"


async def test_a_certificate_that_is_not_accepted_is_not_sent(client: httpx.AsyncClient, tmp_path: Path) -> None:
    with TlsServer(ca=LocalCa(tmp_path / "stranger")) as server:
        with pytest.raises(NotSent, match="certificate of localhost") as caught:
            await _send(client, server.url(), credential_headers={"x-key": CANARY})
        assert server.received == []
    assert caught.value.reason == "tls"
    assert "ca_certificates" in (caught.value.hint or "")


async def test_a_handshake_without_an_end_is_not_sent(ca: LocalCa, client: httpx.AsyncClient) -> None:
    silent: list[RawServer] = []

    def wait(connection: socket.socket) -> None:
        silent[0].closing.wait(60)

    with RawServer(wait) as server:
        silent.append(server)
        with pytest.raises(NotSent) as caught:
            await _send(client, f"https://localhost:{server.port}/", deadline_s=0.2)
    assert caught.value.reason == "timeout"


async def test_an_answer_that_never_comes_may_have_run(ca: LocalCa, client: httpx.AsyncClient) -> None:
    release = threading.Event()

    def wait(request: Received) -> Answer:
        release.wait(60)
        return Answer()

    with TlsServer(wait, ca=ca) as server:
        try:
            with pytest.raises(MaybeSent) as caught:
                await _send(client, server.url(), deadline_s=0.5, body=b"x")
        finally:
            release.set()
        assert len(server.received) == 1
    assert caught.value.reason == "timeout"
    assert caught.value.status is None
    assert caught.value.__cause__ is caught.value.__context__ is None


async def test_an_answer_that_breaks_off_names_its_status(ca: LocalCa, client: httpx.AsyncClient) -> None:
    half = b"HTTP/1.1 201 Made\r\ncontent-length: 100\r\n\r\nhalf"
    with TlsServer(lambda request: half, ca=ca) as server:
        with pytest.raises(MaybeSent, match="201") as caught:
            await _send(client, server.url())
        assert len(server.received) == 1
    assert (caught.value.reason, caught.value.status) == ("broken", 201)


async def test_a_connection_closed_without_an_answer_may_have_run(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(lambda request: b"", ca=ca) as server:
        with pytest.raises(MaybeSent):
            await _send(client, server.url())
        assert len(server.received) == 1, "a call is never sent again by itself"


async def test_an_idle_connection_that_the_server_closed_is_replaced(ca: LocalCa, client: httpx.AsyncClient) -> None:
    closed = threading.Event()

    def once(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(Answer().packed())
        connection.shutdown(socket.SHUT_RDWR)
        connection.close()
        closed.set()

    with RawServer(once, ca=ca) as server:
        for _ in range(3):
            closed.clear()
            assert (await _send(client, server.url())).status == 200
            assert await asyncio.to_thread(closed.wait, 30)
        assert server.accepted == 3


async def test_an_error_answered_before_the_body_was_read_is_an_answer(ca: LocalCa, client: httpx.AsyncClient) -> None:
    def refuse(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(b"HTTP/1.1 413 Too large\r\ncontent-length: 2\r\n\r\nno")
        while connection.recv(65536):
            pass

    with RawServer(refuse, ca=ca) as server:
        reply = await _send(client, server.url(), body=b"x" * 4_000_000)
    assert (reply.status, reply.body) == (413, b"no")


async def test_a_cancelled_call_leaves_nothing_behind(ca: LocalCa, client: httpx.AsyncClient) -> None:
    release, came = threading.Event(), threading.Event()

    def wait(request: Received) -> Answer:
        came.set()
        if request.target == "/wait":
            release.wait(60)
        return Answer()

    with TlsServer(wait, ca=ca) as server:
        before = asyncio.all_tasks()
        call = asyncio.create_task(_send(client, server.url("/wait")))
        assert await asyncio.to_thread(came.wait, 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        release.set()
        assert asyncio.all_tasks() == before
        assert (await _send(client, server.url("/"))).status == 200


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "raw deflate", "identity", ""])
async def test_encoded_answers_are_decoded(ca: LocalCa, client: httpx.AsyncClient, encoding: str) -> None:
    body = b"some text, " * 40_000
    squeeze = zlib.compressobj(wbits=-15)
    packed = {
        "deflate": zlib.compress(body),
        "raw deflate": squeeze.compress(body) + squeeze.flush(),
        "identity": body,
        "": body,
    }.get(encoding, gzip.compress(body))
    headers = (("content-encoding", encoding.split()[-1]),) if encoding else ()
    with TlsServer(lambda request: Answer(body=packed, headers=headers), ca=ca) as server:
        reply = await _send(client, server.url(), method="GET")
        assert reply.body == body
        assert not reply.truncated
        if encoding:
            head = await _send(client, server.url(), method="HEAD")
            assert (head.status, head.body) == (200, b"")


async def test_a_redirect_is_an_answer_without_credentials(ca: LocalCa, client: httpx.AsyncClient) -> None:
    where = f"https://user:{CANARY}@127.0.0.1/latest?a=1&api%20key={CANARY}&b=2"
    answer = Answer(302, headers=(("Location", where), ("link", f'<{where}>; rel="next"')))
    with TlsServer(lambda request: answer, ca=ca) as server:
        reply = await _send(client, server.url(), credential_query={"api key": CANARY})
        assert len(server.received) == 1
    cleaned = "https://127.0.0.1/latest?a=1&api%20key=[redacted]&b=2"
    assert reply.status == 302
    assert reply.headers == (("location", cleaned), ("link", f'<{cleaned}>; rel="next"'))


async def test_only_listed_headers_come_back(ca: LocalCa, client: httpx.AsyncClient) -> None:
    listed = {
        "content-type": "text/plain",
        "content-language": "de",
        "retry-after": "3",
        "x-request-id": "r1",
        "etag": '"1"',
        "last-modified": "Thu, 01 Jan 1970 00:00:00 GMT",
    }
    kept_back = ("set-cookie", "authorization", "www-authenticate", "server", "x-api-key", "content-encoding")
    headers = (*listed.items(), *((name, "identity") for name in kept_back))
    with TlsServer(lambda request: Answer(headers=headers), ca=ca) as server:
        reply = await _send(client, server.url())
    assert dict(reply.headers) == listed


async def test_a_document_is_fetched_whole(ca: LocalCa, client: httpx.AsyncClient) -> None:
    body = b"openapi: 3.1.0\n" * 1000
    with TlsServer(lambda request: Answer(body=body), ca=ca) as server:
        assert await fetch(client, server.url("/openapi.yaml"), limit_bytes=len(body)) == body
        with pytest.raises(FetchFailed, match="longer than"):
            await fetch(client, server.url("/openapi.yaml"), limit_bytes=len(body) - 1)


async def test_a_document_is_followed_within_its_server_only(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(ca=ca) as other, TlsServer() as plain:
        steps = {
            "/0": "/1",
            "/1": "2",
            "/2": "/3",
            "/3": "/4",
            "/port": other.url("/x?k=" + CANARY),
            "/scheme": plain.url("/x"),
            "/host": f"https://127.0.0.1:{other.port}/x",
            "/metadata": "http://169.254.169.254/latest",
            "/file": "file:///etc/passwd",
            "/user": "//user:word@localhost/x",
        }

        def answer(request: Received) -> Answer:
            step = steps.get(request.target)
            return Answer(body=b"end") if step is None else Answer(302, headers=(("location", step),))

        with TlsServer(answer, ca=ca) as server:
            assert await fetch(client, server.url("/1"), limit_bytes=10) == b"end"
            with pytest.raises(FetchFailed, match="redirects more than"):
                await fetch(client, server.url("/0"), limit_bytes=10)
            for path in ("/port", "/scheme", "/host", "/metadata", "/file", "/user"):
                with pytest.raises(AddressRefused) as refused:
                    await fetch(client, server.url(path), limit_bytes=10)
                assert CANARY not in str(refused.value)
        assert other.accepted == plain.accepted == 0


async def test_a_document_that_is_not_there_says_so(ca: LocalCa, client: httpx.AsyncClient) -> None:
    with TlsServer(lambda request: Answer(404), ca=ca) as server:
        url = server.url(f"/openapi.json?token={CANARY}")
        with pytest.raises(FetchFailed, match=r"/openapi\.json answered with status 404") as failed:
            await fetch(client, url, limit_bytes=10)
        assert CANARY not in str(failed.value)
    with pytest.raises(FetchFailed, match="cannot be reached") as failed:
        await fetch(client, url, limit_bytes=10)
    assert CANARY not in str(failed.value)
    with pytest.raises(FetchFailed, match="not a URL"):
        await fetch(client, "https://localhost:none/", limit_bytes=10)
