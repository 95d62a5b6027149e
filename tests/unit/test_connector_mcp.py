"""Tool servers over HTTP, as the protocol's own server package serves them."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.mcp import ToolServers
from kortix_tui.broker.connectors.model import Catalogue, Materialised, McpCall, McpTool
from kortix_tui.broker.network.client import Reach
from kortix_tui.broker.network.exchange import MaybeSent, NotSent

SERVER = '''
import os, sys
from mcp.server.fastmcp import FastMCP
from mcp.types import ToolAnnotations
from starlette.responses import Response

port, transport, log = int(sys.argv[1]), sys.argv[2], sys.argv[3]
server = FastMCP("desk", host="127.0.0.1", port=port)
count = 0

@server.tool(annotations=ToolAnnotations(readOnlyHint=True))
def getTicket(id: int) -> str:
    """One ticket."""
    return f"ticket {id}"

@server.tool(annotations=ToolAnnotations(destructiveHint=True))
def drop(id: int) -> str:
    os._exit(1)

@server.tool()
def add(text: str) -> dict:
    global count
    count += 1
    with open(log, "a") as file:
        file.write(text + "\\n")
    return {"count": count, "text": text}

@server.tool()
def change() -> str:
    server._tool_manager._tools["getTicket"].description = "Another thing."
    return "changed"

@server.tool()
def fail() -> str:
    raise ValueError("no such luck")

app = server.streamable_http_app() if transport == "http" else server.sse_app()

async def guarded(scope, receive, send):
    if scope["type"] == "http":
        headers = dict(scope["headers"])
        if headers.get(b"authorization") != b"Bearer key":
            await Response("no", status_code=401)(scope, receive, send)
            return
    await app(scope, receive, send)

import uvicorn
uvicorn.run(guarded, host="127.0.0.1", port=port, log_level="error")
'''
KEY = Attached(headers={"authorization": "Bearer key"})


@pytest.fixture(params=["http", "sse"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str, Path]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path / "log"
    log.touch()
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port), request.param, str(log)])
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end and process.poll() is None, "the server did not start"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/{'mcp' if request.param == 'http' else 'sse'}", request.param, log
    process.kill()
    process.wait(10)


@pytest.fixture
async def servers() -> AsyncIterator[ToolServers]:
    servers = ToolServers(Reach(allow_private=("127.0.0.0/8",)))
    yield servers
    await servers.close()


async def call(
    servers: ToolServers, place: tuple[str, str, Path], found: Catalogue, name: str, arguments: str, key: Attached = KEY
) -> tuple[int, bytes]:
    action = found.action(name)
    assert action is not None and isinstance(action.operation, McpTool)
    wish = McpCall(
        endpoint=place[0], transport=place[1], tool=action.operation.tool,  # type: ignore[arg-type]
        fingerprint=action.operation.fingerprint, arguments=arguments,
    )  # fmt: skip
    request = Materialised(
        project_id="p", connector="desk", action=name, definition_hash="", document_hash="", credential=None,
        credential_place=None, arguments=arguments, call=wish,
    )  # fmt: skip
    reply = await servers.call(request, wish, key)
    return reply.status, reply.body


async def test_tools_are_actions_and_are_called(servers: ToolServers, place: tuple[str, str, Path]) -> None:
    found = await servers.discover(place[0], place[1], KEY)
    assert {action.name: action.risk for action in found.actions} == {
        "get_ticket": Risk.READ, "drop": Risk.DESTRUCTIVE, "add": Risk.WRITE, "change": Risk.WRITE, "fail": Risk.WRITE,
    }  # fmt: skip
    status, body = await call(servers, place, found, "get_ticket", '{"id":7}')
    assert status == 200 and b"ticket 7" in body
    for number in (1, 2):  # one session, and the server's state in it, for both
        status, body = await call(servers, place, found, "add", '{"text":"x"}')
        assert status == 200 and f'"count":{number}'.encode() in body.replace(b" ", b"")
    status, body = await call(servers, place, found, "fail", "{}")
    assert status == 500 and b"no such luck" in body


async def test_a_tool_that_changed_is_not_called(servers: ToolServers, place: tuple[str, str, Path]) -> None:
    found = await servers.discover(place[0], place[1], KEY)
    await call(servers, place, found, "change", "{}")
    await servers.close()
    with pytest.raises(NotSent) as caught:
        await call(servers, place, found, "get_ticket", '{"id":7}')
    assert caught.value.reason == "tool_changed"
    again = await servers.discover(place[0], place[1], KEY)
    assert again.document_hash != found.document_hash
    assert (await call(servers, place, again, "get_ticket", '{"id":7}'))[0] == 200


async def test_a_server_that_dies_in_a_call_may_have_run_it(servers: ToolServers, place: tuple[str, str, Path]) -> None:
    found = await servers.discover(place[0], place[1], KEY)
    with pytest.raises(MaybeSent):
        await call(servers, place, found, "drop", '{"id":7}')
    with pytest.raises(NotSent):
        await call(servers, place, found, "add", '{"text":"never"}')
    assert place[2].read_text() == ""


async def test_a_wrong_key_reaches_nothing(servers: ToolServers, place: tuple[str, str, Path]) -> None:
    found = await servers.discover(place[0], place[1], KEY)
    wrong = Attached(headers={"authorization": "Bearer secret-wrong-key"})
    with pytest.raises(NotSent) as caught:
        await servers.discover(place[0], place[1], wrong)
    assert "secret-wrong-key" not in str(caught.value) and "401" in str(caught.value)
    with pytest.raises(NotSent):
        await call(servers, place, found, "add", '{"text":"never"}', wrong)
    assert place[2].read_text() == ""


async def test_a_closed_address_is_not_asked(place: tuple[str, str, Path]) -> None:
    servers = ToolServers(Reach())
    with pytest.raises(NotSent):
        await servers.discover(place[0], place[1], KEY)
