"""Approved calls in a home that nobody hosts, and hosts that die over them."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from brokered import Outside, Scene, open_scene
from desk import wait_for

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.models import Call

HERE = Path(__file__).parent


class Deaths:
    """A home with calls that wait for a person, and nobody who hosts it."""

    def __init__(self, scene: Scene, session_id: str) -> None:
        self.outside: Outside = scene.outside
        self.session_id = session_id
        self.runtime: Runtime = scene.runtime
        self.home: Home = scene.home
        self.runtime.context.ensure_host = lambda: None

    def host(self, where: str) -> subprocess.Popen[bytes]:
        """Start a host; it dies at `where`."""
        return subprocess.Popen([sys.executable, str(HERE / "doomed_caller.py"), where], env=self._environment())

    def deciders(self, *verdicts: str) -> list[subprocess.Popen[str]]:
        """Start processes that decide everything."""
        count = str(len(self.calls()))
        return [
            subprocess.Popen(
                [sys.executable, str(HERE / "racing_decider.py"), verdict, count], env=self._environment(),
                stdout=subprocess.PIPE, text=True,
            )
            for verdict in verdicts
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "KORTIX_HOME": str(self.home.path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def die(self, where: str) -> None:
        """A host comes, and dies there."""
        process = self.host(where)
        try:
            wait_for(lambda: process.poll() is not None, 60)
        finally:
            process.kill()
            process.wait()

    def settle(self) -> list[Call]:
        """A host comes and lives until every call is final."""
        process = self.host("never")
        try:
            wait_for(lambda: all(call.state.final for call in self.calls()), 60)
        finally:
            process.kill()
            process.wait()
        return self.calls()

    def kill_soon(self, luck: random.Random) -> None:
        """A host comes, and dies at some moment of its first work."""
        before = self._epoch()
        process = self.host("never")
        try:
            wait_for(lambda: self._epoch() != before or process.poll() is not None, 60)
            if left := self._approved():
                wait_for(lambda: self._approved() < left or process.poll() is not None, 60)
            time.sleep(luck.uniform(0.0, 0.1))
        finally:
            process.kill()
            process.wait()

    def approve_all(self) -> None:
        for view in self.runtime.approvals.pending():
            self.runtime.approvals.decide(view.id, digest=view.digest or "", approve=True, terminal=True, pinned=True)

    def calls(self) -> list[Call]:
        query = f"SELECT {Call.columns()} FROM calls ORDER BY rowid"
        return [Call.of(row) for row in self.runtime.context.store.all(query)]

    def told(self) -> list[str]:
        query = "SELECT text FROM prompts WHERE session_id = ? ORDER BY n"
        return [row[0] for row in self.runtime.context.store.all(query, (self.session_id,))][1:]

    def effects(self) -> dict[str, int]:
        """How often each call had its effect outside, by the id in its path."""
        found: dict[str, int] = {}
        for _, target, _ in self.outside.effects:
            key = target.split("/")[2]
            found[key] = found.get(key, 0) + 1
        return found

    def _approved(self) -> int:
        return sum(call.state is CallState.APPROVED for call in self.calls())

    def _epoch(self) -> str:
        row = self.runtime.context.store.one("SELECT value FROM meta WHERE key = 'epoch'")
        assert row is not None
        return str(row[0])


@asynccontextmanager
async def waiting_calls(home: Home, folder: Path, count: int) -> AsyncIterator[Deaths]:
    """So many calls that wait for a person; the host that took them is gone."""
    config = Path(os.environ["KORTIX_CONFIG_HOME"])
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.yaml").write_text(
        f"connectors: {{allow_private: [127.0.0.0/8]}}\ndocker: {{endpoint: 'unix://{home.path}/no.sock'}}\n"
    )
    async with open_scene(home, folder) as scene:
        session_id = await scene.session()
        agent = await scene.broker.agent(session_id)
        for number in range(count):
            report = await scene.pending(agent, id=f"t{number}", text="Hello")
            await agent.follow(report["id"], leave=True)
        await scene.stop_hosting()
        scene.outside.thinks_s = 0.05  # so that hosts die in the middle of a call, too
        yield Deaths(scene, session_id)


def check(deaths: Deaths, calls: list[Call]) -> None:
    """What is always true: no effect happened twice, and the record says nothing that did not happen."""
    effects = deaths.effects()
    assert all(times == 1 for times in effects.values()), effects
    for number, call in enumerate(calls):
        happened = effects.get(f"t{number}", 0)
        if call.state is CallState.DONE:
            assert happened == 1, call
        elif call.state is not CallState.UNKNOWN:
            assert happened == 0, call
    assert deaths.runtime.audit.verify().ok
