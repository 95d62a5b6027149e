"""`kortix connectors` and `kortix mcp` inside a sandbox, against a real door; MCP by the protocol's own client."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from kortix_tui.base.words import CallState
from kortix_tui.broker.services import CallReport
from kortix_tui.guest import cli, mcp
from tests.support.door import SmallHost, open_door
from tests.support.small_connectors import SmallConnectors

DONE = CallReport(id="-", connector="billing", action="get_customer", state=CallState.DONE, status=200, body='{"a":1}')


@dataclass
class Agent:
    host: SmallHost
    connectors: SmallConnectors
    environment: dict[str, str]
    folder: Path

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", cli.__file__, *arguments, env=self.environment, cwd=self.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    async def run(self, *arguments: str, text: str = "") -> tuple[int, str, str]:
        process = await self.start(*arguments)
        async with asyncio.timeout(60):
            out, err = await process.communicate(text.encode())
        return process.returncode or 0, out.decode(), err.decode()


@pytest.fixture
async def agent(short_folder: Path) -> AsyncIterator[Agent]:
    connectors = SmallConnectors()
    host = SmallHost("kaaaaaaaaaaa", agent_token="tok", connectors=connectors)
    environment = {
        "PATH": os.environ["PATH"], "KORTIX_DOOR": str(short_folder / "d" / "door.sock"), "KORTIX_TOKEN": "tok",
        "KORTIX_PATIENCE": "1",
    }  # fmt: skip
    async with open_door(short_folder / "d", host):
        yield Agent(host, connectors, environment, short_folder)


async def test_what_there_is(agent: Agent) -> None:
    status, out, _ = await agent.run("connectors", "ls")
    assert status == 0 and out == "billing  openapi  2 actions\n"
    status, out, _ = await agent.run("connectors", "show", "billing")
    assert status == 0 and "billing.get_customer" in out and "asks" in out
    status, out, _ = await agent.run("connectors", "show", "billing.get_customer")
    assert status == 0 and '"required"' in out
    for name in ("other", "billing.nothing"):
        status, _, err = await agent.run("connectors", "show", name)
        assert status == 1 and name.split(".")[-1] in err


async def test_a_call_that_runs_prints_the_answer(agent: Agent) -> None:
    agent.connectors.answers["get_customer"] = DONE
    (agent.folder / "args.json").write_text('{"id": "8"}')
    for given, text, wanted in (
        ('{"id": "7"}', "", '{"id": "7"}'),
        ("@args.json", "", '{"id": "8"}'),
        ("-", '{"id": "9"}', '{"id": "9"}'),
    ):
        status, out, err = await agent.run(
            "connectors", "call", "billing.get_customer", given, "--reason", "why", text=text
        )
        assert (status, out, err) == (0, '{"a":1}\n', "")
        assert agent.connectors.wishes[-1].arguments == wanted and agent.connectors.wishes[-1].reason == "why"
    status, out, _ = await agent.run("connectors", "call", "billing.get_customer", "--json")
    assert status == 0 and json.loads(out)["state"] == "done"


async def test_an_answer_can_be_written_to_a_file_whole(agent: Agent) -> None:
    agent.connectors.whole = b"\x00\x01" * 10
    agent.connectors.answers["get_customer"] = DONE.model_copy(
        update={"body": base64.b64encode(b"\x00\x01").decode(), "binary": True, "truncated": True, "bytes": 20}
    )
    status, out, _ = await agent.run("connectors", "call", "billing.get_customer", "--out", "answer.bin")
    assert status == 0 and out.split() == [str(agent.folder / "answer.bin"), "20", "bytes", "binary"]
    assert (agent.folder / "answer.bin").read_bytes() == agent.connectors.whole
    status, out, _ = await agent.run("connectors", "call", "billing.get_customer")
    assert "use --out FILE" in out and "cut: 20 bytes" in out
    status, _, err = await agent.run("connectors", "call", "billing.get_customer", "--out", "no/such/folder")
    assert status == 1 and "do not repeat" in err


async def test_a_call_waits_for_a_person_and_goes_on(agent: Agent) -> None:
    process = await agent.start("connectors", "call", "billing.create_refund", '{"id": "1"}')
    call_id = await agent.connectors.asked()
    await asyncio.sleep(agent.connectors.hold_s * 2)  # asked again more than once meanwhile
    assert process.returncode is None
    await agent.connectors.decide(call_id, state=CallState.DONE, status=201, body="made", message=None)
    async with asyncio.timeout(30):
        out, _ = await process.communicate()
    assert process.returncode == 0 and out == b"made\n"
    assert len(agent.connectors.wishes) == 1 and agent.connectors.left == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ({"state": CallState.DENIED, "code": "denied", "note": "not this one"}, "not this one"),
        ({"state": CallState.EXPIRED, "message": "Nobody answered."}, "Nobody answered."),
        ({"state": CallState.UNKNOWN, "message": "It may have run."}, "may have run"),
        ({"state": CallState.REFUSED, "code": "policy_block", "message": "Final."}, "policy_block"),
        ({"state": CallState.DONE, "status": 404, "body": "none"}, "answered 404"),
    ],
)
async def test_what_was_not_done_is_status_one(agent: Agent, outcome: dict[str, object], words: str) -> None:
    agent.connectors.answers["create_refund"] = DONE.model_copy(
        update={"action": "create_refund", "status": None, "body": None, **outcome}
    )
    status, out, err = await agent.run("connectors", "call", "billing.create_refund")
    assert status == 1 and words in out + err


@pytest.mark.parametrize("waiting", [("--no-wait",), ("--timeout", "0.2")])
async def test_who_stops_waiting_says_so_and_ends_with_status_three(agent: Agent, waiting: tuple[str, ...]) -> None:
    status, out, _ = await agent.run("connectors", "call", "billing.create_refund", *waiting)
    assert status == 3 and "pending_approval" in out and "End your turn" in out
    assert agent.connectors.left == [next(iter(agent.connectors.known))]


@pytest.mark.parametrize("words", [("connectors", "call", "billing"), ("connectors", "call", "b.c", "@nothing")])
async def test_wrong_use_calls_nothing(agent: Agent, words: tuple[str, ...]) -> None:
    status, _, err = await agent.run(*words)
    assert status == 1 and err
    assert agent.connectors.wishes == []


# ---- MCP ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def session(agent: Agent, **environment: str) -> AsyncIterator[ClientSession]:
    server = StdioServerParameters(
        command=sys.executable, args=["-I", "-S", cli.__file__, "mcp"], env={**agent.environment, **environment}
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        await client.initialize()
        yield client


async def test_tools_are_the_actions(agent: Agent) -> None:
    async with session(agent) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {"billing__get_customer", "billing__create_refund", mcp.RESULT_TOOL}
    refund = tools["billing__create_refund"]
    assert refund.annotations is not None and refund.annotations.readOnlyHint is False
    assert "A person is asked" in (refund.description or "")
    assert set(refund.inputSchema["properties"]) == {"id", mcp.REASON}


async def test_a_tool_calls_the_action(agent: Agent) -> None:
    agent.connectors.answers["get_customer"] = DONE
    async with session(agent) as client:
        result = await client.call_tool("billing__get_customer", {"id": "1", mcp.REASON: "to know"})
    assert not result.isError and result.content[0].text == '{"a":1}'  # type: ignore[union-attr]
    wish = agent.connectors.wishes[0]
    assert (json.loads(wish.arguments), wish.reason) == ({"id": "1"}, "to know")


async def test_a_tool_waits_then_answers_pending_and_the_result_can_be_asked_for(agent: Agent) -> None:
    async with session(agent, KORTIX_WAIT_SECONDS="0.2") as client:
        result = await client.call_tool("billing__create_refund", {"id": "1"})
        call_id = next(iter(agent.connectors.known))
        assert "pending_approval" in result.content[0].text and call_id in result.content[0].text  # type: ignore[union-attr]
        assert agent.connectors.left == [call_id]
        await agent.connectors.decide(call_id, state=CallState.DONE, status=200, body="later")
        result = await client.call_tool(mcp.RESULT_TOOL, {"call_id": call_id})
        assert result.content[0].text == "later"  # type: ignore[union-attr]


async def test_a_waiting_tool_does_not_stop_the_others(agent: Agent) -> None:
    agent.connectors.answers["get_customer"] = DONE
    async with session(agent) as client:
        waiting = asyncio.create_task(client.call_tool("billing__create_refund", {"id": "1"}))
        call_id = await agent.connectors.asked()
        assert not (await client.call_tool("billing__get_customer", {"id": "2"})).isError
        await client.send_ping()
        assert not waiting.done()
        await agent.connectors.decide(call_id, state=CallState.DENIED, note="no")
        result = await waiting
    assert result.isError and "no" in result.content[0].text  # type: ignore[union-attr]


async def test_a_client_that_goes_leaves_its_calls(agent: Agent) -> None:
    process = await agent.start("mcp")
    assert process.stdin is not None
    request = {"method": "tools/call", "params": {"name": "billing__create_refund", "arguments": {"id": "1"}}}
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, **request}).encode() + b"\n")
    await process.stdin.drain()
    call_id = await agent.connectors.asked()
    process.stdin.close()
    async with asyncio.timeout(30):
        assert await process.wait() == 0
    assert agent.connectors.left == [call_id]


async def test_what_is_no_request_is_answered_with_an_error(agent: Agent) -> None:
    lines = ["nonsense", "[]", "7", '{"jsonrpc":"2.0","id":1,"method":"nothing"}', '{"id":{},"method":"ping"}',
             '{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"other"}}',
             '{"jsonrpc":"2.0","id":3,"method":"ping"}']  # fmt: skip
    status, out, _ = await agent.run("mcp", text="\n".join(lines) + "\n")
    answers = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert [one["error"]["code"] for one in answers if "error" in one and one["id"] != 2] == [
        -32700, -32600, -32601, -32600,
    ]  # fmt: skip
    assert {"jsonrpc": "2.0", "id": 3, "result": {}} in answers


@pytest.mark.parametrize("full", ["billing.get_customer", "a.b.c", "a__b.c", "x" * 60 + "." + "y" * 60, "a.ä"])
def test_names_of_tools_are_short_and_tell_actions_apart(full: str) -> None:
    name = mcp.tool_name(full)
    assert len(name) <= 64 and name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    assert name != mcp.tool_name(full + "z")
    assert mcp.tool_name("a.b__c") != mcp.tool_name("a__b.c")
