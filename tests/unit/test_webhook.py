"""The webhook is told once of what starts to wait, and of nothing that could be secret."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime import webhook
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.webhook import Webhook


class Ear:
    """A real HTTP server that keeps what it is sent."""

    def __init__(self, *statuses: int) -> None:
        self.heard: list[dict[str, object]] = []
        self._statuses = list(statuses)
        self.url = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/notice"
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:")[1].split("\r\n")[0])
        self.heard.append(json.loads(await reader.readexactly(length)))
        status = self._statuses.pop(0) if self._statuses else 204
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(30):
            while len(self.heard) < count:
                await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "POLL_S", 0.02)
    monkeypatch.setattr(webhook, "PAUSE_S", 0.02)


async def test_it_is_told_once_and_again_after_a_fault(home: Home) -> None:
    seeded, ear = Seeded(home), Ear(503)
    seeded.project()
    session = seeded.session()
    seeded.change(session, 1, title="before")
    async with ear.listening():
        settings = Settings.model_validate({"notify": {"webhook": ear.url}})
        with Runtime(home, settings, operator_actor("serve"), kind="serve") as runtime:
            hook = Webhook(runtime.context)
            task = asyncio.create_task(hook.run())
            async with asyncio.timeout(30):
                while not hook._known:
                    await asyncio.sleep(0.01)
            other = seeded.session()
            seeded.change(other, 2, title="Greet everybody")
            await ear.until(2)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    seeded.close()
    wanted = {
        "kind": "change request", "reference": "acme#2", "project": "acme", "session": other,
        "title": "Greet everybody",
    }  # fmt: skip
    assert ear.heard == [wanted, wanted]


async def test_without_an_address_it_ends_at_once(home: Home) -> None:
    with Runtime(home, Settings(), operator_actor("serve"), kind="serve") as runtime:
        async with asyncio.timeout(30):
            await Webhook(runtime.context).run()
