"""Sessions with a connector, a real server outside that counts, and the host's own parts around them. No engine."""

from __future__ import annotations

import asyncio
import json
import secrets
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from desk import AGENT, git
from pydantic import TypeAdapter
from seeded import Seeded
from tls import Answer, Received, TlsServer

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.broker.door import Door
from kortix_tui.broker.listener import DoorListener
from kortix_tui.broker.services import SessionInfo
from kortix_tui.manifest.plan import AgentPlan, plan_agent
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime.calls import Calls
from kortix_tui.runtime.catalogues import Catalogues
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.host_credentials import HostCredentials
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.runtime.preparing import Preparing, read_manifest
from kortix_tui.runtime.session_connectors import SessionConnectors
from kortix_tui.sandbox.images import Images
from kortix_tui.store.audit import Actor
from kortix_tui.store.models import Call

OPERATOR = Actor(kind="human", name="op", via="cli", tty="/dev/pts/1")
PRIVATE = {"connectors": {"allow_private": ["127.0.0.0/8"]}}
MANIFEST = """\
kortix_version: 2
default_agent: caller
policy:
  default_mode: risk
connectors:
  - slug: desk
    provider: http
    base_url: %s
    %s
    routes:
      - {name: get_ticket, path: "/tickets/{id}", parameters: {id: string}}
      - {name: slow_read, path: /slow}
      - name: send_reply
        method: POST
        path: "/tickets/{id}/replies"
        parameters: {id: string, text: {type: string, required: true}, cc: string}
      - {name: drop_ticket, method: DELETE, path: "/tickets/{id}", parameters: {id: string}}
      - {name: add_note, method: POST, path: /notes, parameters: {text: string}}
    policies:
      - {match: add_note, action: always_run}
      - {match: drop_*, action: block, conditions: [{arg: id, match: "0*"}]}
agents:
  caller:
    connectors: [desk]
  other: {}
"""


@dataclass
class Outside:
    """The system outside: it counts what has an effect, and answers as the test says."""

    effects: list[tuple[str, str, bytes]] = field(default_factory=list)
    reads: int = 0
    arrived: list[float] = field(default_factory=list)
    thinks_s: float = 0.0
    server: TlsServer = field(init=False)
    held: threading.Event = field(default_factory=threading.Event)
    answers: dict[str, Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.held.set()
        self.server = TlsServer(self._answer)

    def _answer(self, request: Received) -> Answer:
        self.arrived.append(time.perf_counter())
        if request.method == "GET":
            self.reads += 1
        else:
            self.effects.append((request.method, request.target, request.body))
        self.held.wait(60)
        time.sleep(self.thinks_s)
        given = self.answers.get(request.target.partition("?")[0])
        return given or Answer(body=json.dumps({"seen": request.target, "n": len(self.effects)}).encode())

    @property
    def received(self) -> list[Received]:
        return self.server.received


@contextmanager
def outside() -> Iterator[Outside]:
    made = Outside()
    with made.server:
        try:
            yield made
        finally:
            made.held.set()


def brokered_repository(folder: Path, base_url: str, extra: str = "name: Help desk") -> Path:
    """The operator's repository with the connector `desk`."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "kortix.yaml").write_text(MANIFEST % (base_url, extra))
    (folder / "agents").mkdir()
    for name in ("caller", "other"):
        (folder / "agents" / f"{name}.md").write_text(AGENT)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    return folder


def rewrite(repository: Path, old: str, new: str) -> None:
    """Commit another manifest to the base branch."""
    manifest = repository / "kortix.yaml"
    text = manifest.read_text()
    assert old in text
    manifest.write_text(text.replace(old, new))
    git(repository, "commit", "-qam", "Rewrite")


async def pinned_session(seeded: Seeded, mirror: Mirror, agent: str, **values: object) -> str:
    """A session's row, pinned to the base as it is now; nobody keeps it, so that no engine is asked for."""
    commit = await mirror.copy_base("main")
    plan = plan_agent(await read_manifest(mirror, commit), agent)
    stored = TypeAdapter(AgentPlan).dump_json(plan).decode()
    row = {"status": "stopped", "wanted": "stopped", "base_commit": commit, "plan": stored} | values
    session_id = seeded.session(agent=agent, **row)
    seeded.set("prompts", f"prm_{session_id}1", state="finished")
    return session_id


class Agent:
    """An agent's program: it speaks to its door in HTTP."""

    def __init__(self, door: Path, token: str = "t") -> None:
        transport = httpx.AsyncHTTPTransport(uds=str(door / "door.sock"))
        headers = {"authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(transport=transport, base_url="http://door/v1/agent", headers=headers, timeout=60)

    async def get(self, path: str, **query: Any) -> Any:
        response = await self.http.get(path, params=query)
        return response.json() if response.headers["content-type"] == "application/json" else response.content

    async def call(
        self, name: str, arguments: object = None, *, key: str | None = None, wait: float = 20, **fields: object
    ) -> dict[str, Any]:
        """One call; its report, or the door's error."""
        connector, _, action = name.partition(".")
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
        body = {
            "key": key or secrets.token_hex(16), "connector": connector, "action": action, "arguments": text,
            "wait": wait, **fields,
        }  # fmt: skip
        answer: dict[str, Any] = (await self.http.post("/calls", json=body)).json()
        return answer

    async def follow(self, call_id: str, wait: float = 20, *, leave: bool = False) -> dict[str, Any]:
        return dict(await self.get(f"/calls/{call_id}", wait=wait, **({"leave": "1"} if leave else {})))


class _Services:
    """Behind a test's door: the connector verbs only."""

    channel_key = "k" * 64
    git = None
    egress = None

    def __init__(self, connectors: SessionConnectors, token: str) -> None:
        self.connectors = connectors
        self.agent_token = token

    async def session(self) -> SessionInfo:
        raise AssertionError("not asked here")


class Broker:
    """One term of leadership, as far as calls go."""

    def __init__(self, seeded: Seeded, context: Context, ledger: Ledger, folder: Path) -> None:
        async def no_engine() -> None:
            raise AssertionError("no engine is needed to call")

        self.seeded, self.context, self.ledger, self.folder = seeded, context, ledger, folder
        self.preparing = Preparing(context, ledger, Images(no_engine, cache=folder))  # type: ignore[arg-type]
        self.custody = Custody(context, ledger, lambda: None)
        self.credentials = HostCredentials(self.custody)
        catalogues = Catalogues(context, ledger, self.preparing, lambda: self.credentials)
        self.calls = Calls(context, ledger, self.preparing, catalogues, self.custody, lambda: self.credentials)
        self.notes: list[str] = []
        self._doors: list[DoorListener] = []
        self._agents: list[Agent] = []

    async def agent(self, session_id: str, *, token: str = "t") -> Agent:
        """Open a session's door, and speak through it."""
        connectors = SessionConnectors(session_id, self.calls, self.notes.append)
        door = self.folder / f"d{len(self._doors)}"
        listener = DoorListener(door, Door(_Services(connectors, token)).handle)  # type: ignore[arg-type]
        await listener.open()
        self._doors.append(listener)
        self._agents.append(Agent(door, token))
        return self._agents[-1]

    async def watch(self) -> None:
        """What the host's loop does for calls."""
        version = -1
        while True:
            if (now := self.context.store.data_version()) != version:
                version = now
            self.calls.look()
            await asyncio.sleep(0.02)

    async def close(self) -> None:
        for agent in self._agents:
            await agent.http.aclose()
        for door in self._doors:
            await door.close()
        await self.calls.close()
        await self.credentials.close()
        await self.custody.close()

    def call(self, call_id: str) -> Call:
        row = self.context.store.one(f"SELECT {Call.columns()} FROM calls WHERE id = ?", (call_id,))
        assert row is not None
        return Call.of(row)

    def all_calls(self) -> list[Call]:
        return [Call.of(row) for row in self.context.store.all(f"SELECT {Call.columns()} FROM calls ORDER BY rowid")]

    def prompts(self, session_id: str) -> list[str]:
        query = "SELECT text FROM prompts WHERE session_id = ? ORDER BY n"
        return [row[0] for row in self.context.store.all(query, (session_id,))][1:]


class Scene:
    """The home, the repository, the outside, an operator's runtime that hosts nothing, and a broker."""

    def __init__(self, home: Home, repository: Path, system: Outside, settings: Settings) -> None:
        self.home, self.repository, self.outside = home, repository, system
        self.seeded = Seeded(home)
        self.seeded.lead()
        self.seeded.project(source=str(repository))
        self.runtime = Runtime(home, settings, OPERATOR)
        self.settings = settings
        self.mirror: Mirror
        self.broker: Broker
        self.tasks: list[asyncio.Task[None]] = []

    async def stop_hosting(self) -> None:
        """This term is over: another process may host. Safe to call again."""
        tasks, self.tasks = self.tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if tasks:
            await self.broker.close()
            await self.broker.ledger.close()
            self.seeded.leave()

    async def session(self, agent: str = "caller", **values: object) -> str:
        return await pinned_session(self.seeded, self.mirror, agent, **values)

    async def pending(self, agent: Agent, name: str = "desk.send_reply", **arguments: object) -> dict[str, Any]:
        """A call that waits for a person, whose caller does not."""
        report = await agent.call(name, arguments or {"id": "7", "text": "Hello"}, wait=0)
        assert report["state"] == "pending", report
        return report

    def decide(self, call_id: str, approve: bool = True, **options: Any) -> None:
        view = self.runtime.approvals.show(call_id)
        self.runtime.approvals.decide(
            call_id, digest=view.digest or "", approve=approve, terminal=True, pinned=False, **options
        )


@asynccontextmanager
async def open_scene(home: Home, folder: Path, extra: str = "name: Help desk", **settings: Any) -> AsyncIterator[Scene]:
    """Everything, with its loops running; nothing of it stays."""
    with outside() as system:
        repository = brokered_repository(folder / "repo", system.server.url("", "127.0.0.1").rstrip("/"), extra)
        scene = Scene(home, repository, system, Settings.model_validate(PRIVATE | settings))
        scene.mirror, _ = await Mirror.create_from(home.mirror("prj_acme"), str(repository))
        assert scene.seeded.lock is not None
        loop = LoopThread()
        context = Context(scene.seeded.store, scene.settings, OPERATOR, loop)
        ledger = Ledger(scene.seeded.store, scene.seeded.lock.epoch)
        scene.broker = Broker(scene.seeded, context, ledger, folder)
        scene.tasks = [asyncio.create_task(scene.broker.watch()), asyncio.create_task(scene.broker.calls.run())]
        try:
            yield scene
        finally:
            await scene.stop_hosting()
            await asyncio.to_thread(scene.runtime.close)
            scene.seeded.close()
            loop.close()


async def until(what: Any, seconds: float = 30.0) -> Any:
    """Wait for a condition, never for a time."""
    async with asyncio.timeout(seconds):
        while not (found := what()):
            await asyncio.sleep(0.01)
    return found
