"""What the door answers to whom: tokens, the supervisor's key, verbs, git (invariants I1, I11)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kortix_tui.broker.door import Door
from kortix_tui.broker.http import Answer, Peer, Request, Response, Upgrade
from kortix_tui.repository.door import DoorAnswer
from tests.support.door import SmallHost, open_door

HEAD = "a" * 40


class Recorder:
    """Stands where git would: the transport is what is tested here."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, dict[str, str], bytes]] = []

    async def handle(
        self, method: str, tail: str, query: str, headers: Any, body: AsyncIterator[bytes], /
    ) -> DoorAnswer:
        self.seen.append((method, tail, query, dict(headers), b"".join([piece async for piece in body])))

        async def pieces() -> Any:
            yield b"pack"
            yield b"ed"

        return DoorAnswer(200, (("Content-Type", "application/x-git"),), pieces())


@pytest.fixture
async def host() -> SmallHost:
    return SmallHost("kaaaaaaaaaaa", agent_token="agent-token", channel_key="c" * 64)


async def ask(
    host: SmallHost, method: str, path: str, *, token: str | None = "agent-token", body: bytes = b"", uid: int = 1000,
    headers: tuple[tuple[str, str], ...] = (),
) -> Answer:  # fmt: skip
    async def pieces() -> AsyncIterator[bytes]:
        yield body

    path, _, query = path.partition("?")
    credentials = (("authorization", f"Bearer {token}"),) if token is not None else ()
    return await Door(host).handle(Request(method, path, query, (*credentials, *headers), Peer(1, uid, uid), pieces()))


async def answer(host: SmallHost, method: str, path: str, **fields: Any) -> tuple[int, Any]:
    response = await ask(host, method, path, **fields)
    assert isinstance(response, Response) and isinstance(response.body, bytes)
    return response.status, json.loads(response.body)


async def test_an_agent_asks_for_its_session_and_proposes(host: SmallHost) -> None:
    status, session = await answer(host, "GET", "/v1/agent/session")
    assert status == 200 and session["session_id"] == host.session_id and session["base_branch"] == "main"
    body = json.dumps({"title": "One", "description": "why", "head_commit": HEAD}).encode()
    assert await answer(host, "POST", "/v1/agent/cr", body=body) == (
        201, {"number": 1, "status": "open", "title": "One", "head_commit": HEAD, "url": None},
    )  # fmt: skip
    assert (await answer(host, "GET", "/v1/agent/cr"))[1][0]["number"] == 1


@pytest.mark.parametrize("token", [None, "", "agent-tokeN", "agent-token2", "c" * 64, "é"])
@pytest.mark.parametrize("path", ["/v1/agent/session", "/v1/agent/nothing", "/v1/git/repo.git/info/refs"])
async def test_without_its_token_nobody_is_an_agent(host: SmallHost, token: str | None, path: str) -> None:
    status, body = await answer(host, "GET", path, token=token)
    assert status == 401 and body["error"]["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/"), ("GET", "/v1"), ("GET", "/v1/agent"), ("GET", "/v1/agent/"), ("DELETE", "/v1/agent/cr"),
        ("PUT", "/v1/agent/cr"), ("GET", "/v1/agent/cr/merge"), ("POST", "/v1/agent/cr/1/merge"),
        ("GET", "/v1/agent/../agent/session"), ("GET", "/v1/agent//session"), ("GET", "/v1/agent/session/"),
        ("POST", "/v1/agent/secrets"), ("POST", "/v1/agent/approvals"), ("GET", "/v1/agent/secrets/STRIPE_API_KEY"),
        ("GET", "/v1/agent/secrets/request"), ("GET", "/v1/agent/secrets/request/"),
        ("GET", "/v1/agent/secrets/request/A"), ("POST", "/v1/agent/secrets/request/srq_a"),
        ("DELETE", "/v1/agent/secrets/request/srq_a"), ("GET", "/v1/git/other.git/info/refs"),
        ("GET", "//v1/agent/session"), ("GET", "/v1/agent/sess%69on"), ("OPTIONS", "*"),
    ],
)  # fmt: skip
async def test_there_is_nothing_else(host: SmallHost, method: str, path: str) -> None:
    status, body = await answer(host, method, path)
    assert status == 404 and body["error"]["code"] == "not_found"


async def test_a_merge_is_refused_and_put_on_record(host: SmallHost) -> None:
    status, body = await answer(host, "POST", "/v1/agent/cr/merge", body=b"\xff nonsense")
    assert status == 403 and host.denied == 1
    assert body["error"]["code"] == "agent_human_only_action"
    assert body["error"]["message"] == "merge is default-deny for agents"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b'{"title": "x"}', b"\xff", b"[" * 100_000,
        json.dumps({"title": "", "head_commit": HEAD}).encode(),
        json.dumps({"title": "x" * 201, "head_commit": HEAD}).encode(),
        json.dumps({"title": "x", "head_commit": "HEAD"}).encode(),
        json.dumps({"title": "x", "head_commit": HEAD + "\n"}).encode(),
        json.dumps({"title": "x", "head_commit": HEAD, "session_id": "kbbbbbbbbbbb"}).encode(),
    ],
)  # fmt: skip
async def test_a_proposal_that_is_none_says_where(host: SmallHost, body: bytes) -> None:
    status, found = await answer(host, "POST", "/v1/agent/cr", body=body)
    assert status == 422 and found["error"]["code"] == "invalid" and found["error"]["message"]
    assert host.proposals == []


async def test_errors_of_the_services_become_answers(host: SmallHost) -> None:
    body = json.dumps({"title": "refuse me", "head_commit": HEAD}).encode()
    status, found = await answer(host, "POST", "/v1/agent/cr", body=body)
    assert status == 403
    assert found["error"] == {
        "code": "refused",
        "message": "The host has not seen that commit.",
        "hint": "Push it first.",
    }


async def test_git_goes_through_with_its_stream_and_not_without_a_repository(host: SmallHost) -> None:
    path = "/v1/git/repo.git/git-upload-pack?x=1"
    assert (await answer(host, "POST", path))[0] == 403
    host.git = git = Recorder()
    headers = (("content-type", "application/x"), ("content-type", "second"))
    response = await ask(host, "POST", path, body=b"want", headers=headers)
    assert isinstance(response, Response) and not isinstance(response.body, bytes)
    assert b"".join([piece async for piece in response.body]) == b"packed"
    method, tail, query, seen, body = git.seen[0]
    assert (method, tail, query, body) == ("POST", "git-upload-pack", "x=1", b"want")
    assert seen["content-type"] == "application/x"


UPGRADE = (("connection", "Upgrade"), ("upgrade", "kortix/1"))


@pytest.mark.parametrize(
    ("uid", "token", "key", "fits"),
    [
        (0, "c" * 64, "c" * 64, True), (0, None, None, True), (0, "anything", None, True),
        (0, None, "c" * 64, False), (0, "agent-token", "c" * 64, False), (1000, "c" * 64, "c" * 64, False),
        (65534, "c" * 64, "c" * 64, False), (1000, None, None, False), (100_000, "c" * 64, "c" * 64, False),
    ],
)  # fmt: skip
async def test_only_the_supervisor_gets_the_channel(
    host: SmallHost, uid: int, token: str | None, key: str | None, fits: bool
) -> None:
    host.channel_key = key
    response = await ask(host, "POST", "/v1/supervisor", token=token, uid=uid, headers=UPGRADE)
    assert isinstance(response, Upgrade) is fits
    if isinstance(response, Response):
        assert response.status == 403


async def test_the_root_of_a_mapped_engine_is_root(host: SmallHost) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield b""

    request = Request(
        "POST", "/v1/supervisor", "", (("authorization", "Bearer " + "c" * 64), *UPGRADE), Peer(1, 100_000, 1), pieces()
    )
    assert isinstance(await Door(host, root_uids=frozenset({100_000})).handle(request), Upgrade)


@pytest.mark.parametrize(("method", "headers"), [("GET", UPGRADE), ("POST", ()), ("POST", (("upgrade", "websocket"),))])
async def test_the_channel_must_be_asked_for(
    host: SmallHost, method: str, headers: tuple[tuple[str, str], ...]
) -> None:
    response = await ask(host, method, "/v1/supervisor", token="c" * 64, uid=0, headers=headers)
    assert isinstance(response, Response) and response.status == 426


async def test_an_agent_that_speaks_http_itself(short_folder: Path, host: SmallHost) -> None:
    async with open_door(short_folder / "d", host):
        reader, writer = await asyncio.open_unix_connection(str(short_folder / "d" / "door.sock"))
        writer.write(b"GET /v1/agent/session HTTP/1.1\r\nHost: door\r\nAuthorization: bearer agent-token\r\n\r\n")
        async with asyncio.timeout(20):
            head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200") and b"application/json" in head
        writer.close()
