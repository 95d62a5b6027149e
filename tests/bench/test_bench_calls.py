"""What brokering costs: a read through the door beside the same call made directly, and how soon a decision acts."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from brokered import Scene, open_scene, rewrite, until
from prism import prism

from kortix_tui.base.paths import Home
from kortix_tui.runtime import call_limits

pytestmark = pytest.mark.timeout(300)
ROUNDS = 200
SERVER = """
import asyncio, sys
BODY = b'{"id": "7", "subject": "Printer on fire", "state": "open"}'
ANSWER = b"HTTP/1.1 200 OK\\r\\ncontent-type: application/json\\r\\ncontent-length: %d\\r\\n\\r\\n" % len(BODY) + BODY
async def talk(reader, writer):
    try:
        while True:
            await reader.readuntil(b"\\r\\n\\r\\n")
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()
async def main():
    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()
asyncio.run(main())
"""


@contextmanager
def bare(folder: Path) -> Iterator[tuple[str, str]]:
    """A server that does nothing but answer: what is left is the cost of the way."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}", "/tickets/{id}"
    finally:
        process.stdout.close()
        process.kill()
        process.wait()


@contextmanager
def mock_of_an_api(folder: Path) -> Iterator[tuple[str, str]]:
    """A server that reads requests as an API does: Prism, which checks them against a document."""
    with prism("v3.0-petstore-expanded.json", folder) as url:
        yield url, "/pets/{id}"


@pytest.mark.parametrize("serving", [bare, mock_of_an_api], ids=["bare", "prism"])
async def test_a_brokered_read_beside_a_direct_one(
    home: Home,
    short_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tell: Callable[[str], None],
    serving: Callable[[Path], AbstractContextManager[tuple[str, str]]],
) -> None:
    monkeypatch.setattr(call_limits, "A_MINUTE", ROUNDS * 10)
    monkeypatch.setattr(call_limits, "ALL_A_MINUTE", ROUNDS * 10)
    with serving(short_folder) as (server, path):
        async with open_scene(home, short_folder) as scene:
            await retarget(scene, server, path)
            await scene.broker.agent(await scene.session())
            agent = await Lean.open(short_folder / "d0" / "door.sock")
            async with httpx.AsyncClient() as direct:
                brokered_ms, direct_ms = list[float](), list[float]()
                for number in range(ROUNDS + 20):
                    begun = time.perf_counter()
                    assert (await agent(number))["state"] == "done"
                    between = time.perf_counter()
                    assert (await direct.get(server + path.replace("{id}", "7"))).status_code == 200
                    if number >= 20:
                        brokered_ms.append((between - begun) * 1000)
                        direct_ms.append((time.perf_counter() - between) * 1000)
            await agent.close()
    one, two = statistics.median(brokered_ms), statistics.median(direct_ms)
    name = serving.__name__.replace("_", " ")
    tell(
        f"brokered read of a {name}: {one:.2f} ms, direct {two:.2f} ms, p50: {one / two:.2f} times (aim 1.5, at most 2)"
    )


async def test_a_decision_to_the_first_byte(home: Home, short_folder: Path, tell: Callable[[str], None]) -> None:
    async with open_scene(home, short_folder) as scene:
        agent = await scene.broker.agent(await scene.session())
        took = list[float]()
        for number in range(15):
            report = await scene.pending(agent, id=str(number), text="x")
            view = scene.runtime.approvals.show(report["id"])
            begun = time.perf_counter()
            await asyncio.to_thread(
                scene.runtime.approvals.decide, view.id, digest=view.digest or "", approve=True, terminal=True,
                pinned=True,
            )  # fmt: skip
            await until(lambda: len(scene.outside.arrived) > number)  # noqa: B023
            took.append((scene.outside.arrived[-1] - begun) * 1000)
    tell(f"decision to first byte {statistics.median(took):.1f} ms p50, {max(took):.1f} ms at most")


class Lean:
    """An agent whose own HTTP costs next to nothing, so that what is measured is ours."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, door: Path) -> Lean:
        return cls(*await asyncio.open_unix_connection(str(door)))

    async def __call__(self, number: int) -> dict[str, Any]:
        wish = {"key": f"{number:032x}", "connector": "desk", "action": "get_ticket", "arguments": '{"id": "7"}'}
        body = json.dumps({**wish, "wait": 20}).encode()
        lines = ("POST /v1/agent/calls HTTP/1.1", "host: d", "authorization: Bearer t", f"content-length: {len(body)}")
        self.writer.write("\r\n".join((*lines, "", "")).encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        length = int(answer.partition(b"content-length: ")[2].split(b"\r\n")[0])
        report: dict[str, Any] = json.loads(await self.reader.readexactly(length))
        return report

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def retarget(scene: Scene, server: str, path: str = "/tickets/{id}") -> None:
    """Have the connector lead to another server."""
    text = (scene.repository / "kortix.yaml").read_text()
    rewrite(scene.repository, text.partition("base_url: ")[2].partition("\n")[0], server)
    if path not in text:
        rewrite(scene.repository, 'get_ticket, path: "/tickets/{id}"', f'get_ticket, path: "{path}"')
    await scene.mirror.fetch(str(scene.repository), base="main")
