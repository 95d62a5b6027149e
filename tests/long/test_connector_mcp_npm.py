"""The protocol's own reference server, a program that is not ours in a language that is not ours."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from typing import Literal

import pytest

from kortix_tui.broker.connectors.arguments import check_arguments
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.mcp import ToolServers
from kortix_tui.broker.connectors.model import Materialised, McpCall, McpTool
from kortix_tui.broker.network.client import Reach
from tests.support.node_packages import node_program

pytestmark = pytest.mark.long
Transport = Literal["http", "sse"]


@pytest.fixture(params=["http", "sse"])
def place(request: pytest.FixtureRequest) -> Iterator[tuple[str, Transport]]:
    program = node_program("@modelcontextprotocol/server-everything", "2026.8.31", "mcp-server-everything")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    word = "streamableHttp" if request.param == "http" else "sse"
    process = subprocess.Popen(
        [program, word], env={**os.environ, "PORT": str(port)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    end = time.monotonic() + 60
    while True:
        assert time.monotonic() < end and process.poll() is None, "the server did not start"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield f"http://127.0.0.1:{port}/{'mcp' if request.param == 'http' else 'sse'}", request.param
    process.kill()
    process.wait(10)


@pytest.fixture
async def servers() -> AsyncIterator[ToolServers]:
    servers = ToolServers(Reach(allow_private=("127.0.0.0/8", "::1/128")))
    yield servers
    await servers.close()


async def test_the_reference_server(servers: ToolServers, place: tuple[str, Transport]) -> None:
    endpoint, transport = place
    found = await servers.discover(endpoint, transport, Attached())
    action = next(one for one in found.actions if "sum" in one.name or one.name == "add")
    assert isinstance(action.operation, McpTool)
    check_arguments(action, {"a": 20, "b": 22})
    call = McpCall(
        endpoint=endpoint, transport=transport, tool=action.operation.tool, fingerprint=action.operation.fingerprint,
        arguments='{"a":20,"b":22}',
    )  # fmt: skip
    request = Materialised(
        project_id="p", connector="c", action=action.name, definition_hash="", document_hash="", credential=None,
        credential_place=None, arguments=call.arguments, call=call,
    )  # fmt: skip
    reply = await servers.call(request, call, Attached())
    assert reply.status == 200 and b"42" in reply.body
    assert (await servers.discover(endpoint, transport, Attached())).document_hash == found.document_hash
