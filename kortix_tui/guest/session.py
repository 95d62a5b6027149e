"""The sandbox's side of a session: what the host asks for, done, and what happened, recorded.

It owns every task. The channel comes and goes; the journal, the running turn and the workspace do not care.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from typing import Any, Callable, Coroutine

from kortix_tui.guest import turns, wire
from kortix_tui.guest.children import Children
from kortix_tui.guest.files import read_text, write_private, write_shared
from kortix_tui.guest.identity import Identity
from kortix_tui.guest.journal import Cursor, Journal
from kortix_tui.guest.link import Link, LinkFailed
from kortix_tui.guest.places import Places
from kortix_tui.guest.proxy import proxy_environment
from kortix_tui.guest.shells import Shells
from kortix_tui.guest.workspace import CloneFailed, Workspace, gitconfig

_BACKOFF_S = (0.1, 2.0)
_PRESSURE_BYTES = 16 << 20
_RECORD_RETRY_S = 1.0
_STOP_GRACE_S = 8.0
_STOP_GRACE_MAX_S = 60.0
_STOP_CHECK_S = 0.02
_FLUSH_S = 5.0
Handler = Callable[[Link, "dict[str, Any]", bytes], None]


def log(message: str) -> None:
    """Say something to whoever reads the container's log."""
    sys.stderr.write(f"kortix: {message[:2000]}\n")
    sys.stderr.flush()


def told(error: BaseException) -> str:
    """An error for the log. One about an encoding carries the whole text that failed, which may be a secret."""
    return type(error).__name__ if isinstance(error, UnicodeError) else repr(error)


class Session:
    """One sandbox's life from start to stop.

    Args:
        session_id: Its name, for the hello.
        places: Where things are.
        identity: The agent's account.
    """

    def __init__(self, session_id: str, places: Places, identity: Identity) -> None:
        self.session_id = session_id
        self.children = Children()
        self._places = places
        self._identity = identity
        self._boot = os.urandom(8).hex()
        self._journal = Journal(places.journal)
        self._book = turns.TurnBook(places.turns)
        self._workspace = Workspace(places, identity, self.children)
        self._shells = Shells(identity, self.children, self._spawn)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: Link | None = None
        self._news = asyncio.Event()
        self._flushed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._stopping = False
        self._welcome: dict[str, Any] = {}
        self._ready = asyncio.Event()
        self._preparing: asyncio.Task[None] | None = None
        self._clone_problem: str | None = None
        self._turn: turns.Turn | None = None
        self._turn_tasks: set[asyncio.Task[None]] = set()
        self._orders: dict[str, turns.Order] = {}
        self._rescuing = asyncio.Lock()
        self._handlers: dict[str, Handler] = {
            "start_turn": self._on_start_turn,
            "start_turn_more": self._on_start_turn_more,
            "cancel_turn": self._on_cancel_turn,
            "ack": self._on_ack,
            "rescue": self._on_rescue,
            "shell_open": self._on_shell_open,
            "shell_data": self._shells.write,
            "shell_resize": self._shells.resize,
            "shell_ack": self._shells.acknowledge,
            "shell_close": self._shells.close,
            "ping": self._on_ping,
            "status_request": self._on_status,
            "shutdown": self._on_shutdown,
        }

    async def run(self) -> None:
        """Serve hosts, one after the other, until a shutdown or SIGTERM."""
        self._loop.add_signal_handler(signal.SIGTERM, self._begin_stop, None, "", _STOP_GRACE_S)
        self._spawn(self._connect())
        try:
            await self._stopped.wait()
        finally:
            self._loop.remove_signal_handler(signal.SIGTERM)
            while self._tasks:  # until Python 3.12, `wait_for` can lose a cancellation to an error
                for task in self._tasks:
                    task.cancel()
                await asyncio.wait(list(self._tasks), timeout=_STOP_CHECK_S)
            self._journal.close()
            self._book.close()
            self.children.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _spawn_turn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._spawn(work)
        self._turn_tasks.add(task)
        task.add_done_callback(self._turn_tasks.discard)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log(f"a task failed: {told(error)}")

    # --- records

    def _record(self, kind: str, **fields: Any) -> None:
        """Write to the journal; what cannot be written leaves a gap that the host sees."""
        try:
            self._journal.append(kind, at=time.time(), **fields)
        except OSError as error:
            log(f"the journal cannot be written: {error}")
        self._news.set()

    async def _record_surely(self, kind: str, **fields: Any) -> None:
        """Write what must not be lost, however long the disk is full."""
        while True:
            try:
                self._journal.append(kind, at=time.time(), sync=True, **fields)
            except OSError as error:
                log(f"the journal cannot be written: {error}")
                await asyncio.sleep(_RECORD_RETRY_S)
            else:
                self._news.set()
                return

    def _pressed(self) -> bool:
        """With a host there, a fast program waits for it; with none, the ring turns instead."""
        return self._link is not None and self._journal.waiting_bytes > _PRESSURE_BYTES

    # --- the channel

    async def _connect(self) -> None:
        pause = _BACKOFF_S[0]
        problem = ""
        while True:
            serving: list[asyncio.Task[None]] = []
            try:
                link = await Link.open(self._places.door, read_text(self._places.channel_key))
                pause = _BACKOFF_S[0]
                try:
                    await self._serve(link, serving)
                finally:
                    self._link = None
                    self._orders.clear()
                    for task in serving:
                        task.cancel()
                    self._shells.close_all()
                    link.close()
            except LinkFailed as error:
                if str(error) != problem:  # once, however often it is tried
                    problem = str(error)
                    log(f"no channel: {problem}")
            except (OSError, ValueError) as error:  # a full disk, or a host that does not speak the protocol
                log(f"the channel failed: {told(error)}")
            await asyncio.sleep(pause)
            pause = min(pause * 2, _BACKOFF_S[1])

    async def _serve(self, link: Link, serving: list[asyncio.Task[None]]) -> None:
        link.post(self._hello())
        async for header, body in link.frames():
            kind = header["type"]
            if self._link is None:
                if kind != "welcome":
                    raise wire.FrameError(f"the host began with {kind!r}")
                stored = self._on_welcome(header)
                self._link = link
                serving.append(self._spawn(self._send_records(link, stored + 1)))
                continue
            handler = self._handlers.get(kind)
            if handler is None:
                log(f"unknown frame {kind!r}")
                continue
            try:
                handler(link, header, body)
            except (KeyError, TypeError, ValueError) as error:
                log(f"a bad {kind!r} frame: {told(error)}")

    def _hello(self) -> dict[str, Any]:
        return {
            "type": "hello",
            "version": wire.VERSION,
            "session_id": self.session_id,
            "boot": self._boot,
            "first_seq": self._journal.first_seq,
            "last_seq": self._journal.last_seq,
            "running": None if self._turn is None else {"turn_id": self._turn.turn_id, "pid": self._turn.pid},
            "ended": list(self._book.ended)[-100:],
            "cloned": self._workspace.is_cloned() or (self._ready.is_set() and not self._welcome.get("repository")),
            "fresh": self._journal.fresh,
        }

    async def _send_records(self, link: Link, first: int) -> None:
        cursor = Cursor(self._journal, first)
        try:
            while True:
                self._news.clear()
                frames = list(cursor.read())
                if frames:
                    await link.send(*frames)
                else:
                    self._flushed.set()
                    await self._news.wait()
                    self._flushed.clear()
        except LinkFailed as error:
            log(f"records cannot be sent: {error}")
        finally:
            link.close()  # without records there is no channel: the reading side ends too
            cursor.close()

    def _on_welcome(self, header: dict[str, Any]) -> int:
        stored = header.get("stored_seq")
        if not isinstance(stored, int) or stored < 0:
            raise wire.FrameError("the welcome has no stored_seq")
        key = header.get("channel_key")
        if isinstance(key, str):
            write_private(self._places.channel_key, key)
        self._journal.advance(stored)
        self._journal.ack(stored)
        first_of_boot = not self._welcome
        self._welcome = header
        self._write_agent_files()
        if first_of_boot:
            self._end_interrupted()
        idle = self._preparing is None or self._preparing.done()
        if idle and (not self._ready.is_set() or self._wants_clone()):
            self._ready.clear()
            self._preparing = self._spawn(self._prepare())
        return stored

    def _wants_clone(self) -> bool:
        wanted = self._welcome.get("repository") and self._welcome.get("mode") != "rescue"
        return bool(wanted) and not self._workspace.is_cloned()

    def _write_agent_files(self) -> None:
        token = str(self._welcome.get("agent_token") or "")
        config = gitconfig(token, self._welcome.get("identity") or {}, self._places.port)
        write_shared(self._identity, self._places.token, token.encode())
        write_shared(self._identity, self._places.gitconfig, config.encode("utf-8", "surrogateescape"))

    def _end_interrupted(self) -> None:
        """Say of turns that an earlier start left running that they are over.

        Not before the first welcome: only then is it known which record numbers the host has seen.
        """
        left = self._book.interrupted()
        said = self._journal.ended_turns() if left else set()
        for turn_id in left:
            if turn_id in said:  # the start ended between the record and the note of it
                self._book.end(turn_id)
            else:
                self._spawn_turn(self._end_turn(turn_id, turns.interrupted()))

    # --- the workspace

    async def _prepare(self) -> None:
        if self._wants_clone():
            self._clone_problem = None
            self._record("state", data={"name": "clone_started", "message": ""})
            try:
                await self._workspace.clone(self._welcome["repository"])
            except (CloneFailed, OSError, KeyError) as error:
                self._clone_problem = str(error)
                self._record("state", data={"name": "clone_failed", "message": str(error)})
                return
            self._record("state", data={"name": "clone_done", "message": ""})
        self._ready.set()
        self._record("state", data={"name": "ready", "message": ""})

    async def _wait_ready(self) -> str | None:
        """Return when turns can run, with what is wrong when the workspace could not be made."""
        if not self._ready.is_set() and self._preparing is not None:
            await asyncio.wait([self._preparing])
        return None if self._ready.is_set() else self._clone_problem or "the workspace could not be made"

    # --- turns

    def _on_start_turn(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        order = turns.Order(header)
        order.add_prompt(body)
        if header.get("more"):
            self._orders[order.turn_id] = order
        else:
            self._begin_turn(order)

    def _on_start_turn_more(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        order = self._orders[header["turn_id"]]
        order.add_prompt(body)
        if not header.get("more"):
            del self._orders[order.turn_id]
            self._begin_turn(order)

    def _begin_turn(self, order: turns.Order) -> None:
        if order.turn_id in self._book.started or self._stopping:
            return
        try:
            self._book.start(order.turn_id)
        except OSError as error:
            problem = f"the turn could not be noted: {error.strerror}"
            self._spawn_turn(self._record_surely("turn_ended", turn_id=order.turn_id, data=turns.not_started(problem)))
            return
        if self._turn is not None:
            self._spawn_turn(self._end_turn(order.turn_id, turns.not_started("another turn is running")))
            return
        self._turn = turns.Turn(
            order, places=self._places, identity=self._identity, record=self._record, pressed=self._pressed
        )
        self._spawn_turn(self._run_turn(self._turn))

    async def _run_turn(self, turn: turns.Turn) -> None:
        limits = self._welcome.get("limits") or {}
        environment = {**(self._welcome.get("environment") or {}), **self._common_environment()}
        environment["KORTIX_TOKEN"] = str(self._welcome.get("agent_token") or "")
        try:
            ended = await turn.run(self.children, self._wait_ready, environment, limits.get("fsize_bytes"))
        finally:
            self._turn = None
        await self._end_turn(turn.turn_id, ended)

    def _common_environment(self) -> dict[str, str]:
        repository = self._welcome.get("repository") or {}
        branch = str(repository.get("branch") or self.session_id)
        common = {"KORTIX_SESSION_ID": self.session_id, "KORTIX_BRANCH_NAME": branch}
        if self._welcome.get("proxy"):
            common.update(proxy_environment(str(self._welcome.get("agent_token") or ""), self._places.port))
        return common

    async def _end_turn(self, turn_id: str, data: dict[str, Any]) -> None:
        await self._record_surely("turn_ended", turn_id=turn_id, data=data)
        self._book.end(turn_id)

    def _on_cancel_turn(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._orders.pop(header["turn_id"], None)
        if self._turn is not None and self._turn.turn_id == header["turn_id"]:
            self._turn.cancel()

    def _on_ack(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._journal.ack(int(header["seq"]))

    # --- the rest

    def _on_rescue(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._spawn(self._rescue(link, str(header["id"]), int(header["n"])))

    async def _rescue(self, link: Link, request_id: str, number: int) -> None:
        ref = f"refs/kortix/rescue/{self.session_id}/{number}"
        from kortix_tui.guest import rescue  # not needed to start, and starting should be quick

        async with self._rescuing:
            saved = await rescue.save(self._workspace, self._welcome, self.session_id, ref)
        link.post({"type": "rescue_result", "id": request_id, "ref": ref, **saved})

    def _on_shell_open(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._shells.open(link, header, self._places.workspace, self._common_environment())

    def _on_ping(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        link.post({"type": "pong", "id": header["id"]})

    def _on_status(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._spawn(self._status(link, header["id"]))

    async def _status(self, link: Link, request_id: str) -> None:
        dirty = await self._workspace.is_dirty()
        status = {"processes": self._identity.count(), "workspace_dirty": dirty}
        link.post({"type": "status", "id": request_id, **status})

    def _on_shutdown(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._begin_stop(link, header["id"], float(header.get("grace_s", _STOP_GRACE_S)))

    def _begin_stop(self, link: Link | None, request_id: str, grace: float) -> None:
        if not self._stopping:
            self._stopping = True
            self._spawn(self._stop(link, request_id, max(0.0, min(grace, _STOP_GRACE_MAX_S))))

    async def _stop(self, link: Link | None, request_id: str, grace: float) -> None:
        """End every program of the agent, keep the record of it, and go."""
        until = self._loop.time() + grace
        if self._turn is not None:
            self._turn.cancel()
        self._identity.signal_all(signal.SIGTERM)
        while self._identity.count():
            if self._loop.time() >= until:  # again and again: a signal cannot reach what is not born yet
                self._identity.signal_all(signal.SIGKILL)
            await asyncio.sleep(_STOP_CHECK_S)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._settle(), _FLUSH_S)
        if link is not None and self._link is link:
            with contextlib.suppress(LinkFailed):
                await link.send(wire.encode({"type": "stopping", "id": request_id}))
        self._stopped.set()

    async def _settle(self) -> None:
        """Wait until the last turn's end is in the journal and, with a host there, on its way."""
        if self._turn_tasks:
            await asyncio.wait(self._turn_tasks)
        if self._link is not None:
            await self._flushed.wait()
