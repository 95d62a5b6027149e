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

from kortix_tui.guest import forward, rescue, turns, wire
from kortix_tui.guest.children import Children
from kortix_tui.guest.identity import NOBODY, Identity
from kortix_tui.guest.journal import Cursor, Journal, sync_folder
from kortix_tui.guest.link import Link, LinkFailed
from kortix_tui.guest.places import Places
from kortix_tui.guest.shell import Shell
from kortix_tui.guest.workspace import CloneFailed, Workspace, gitconfig

_BACKOFF_S = (0.1, 2.0)
_PRESSURE_BYTES = 16 << 20
_RECORD_RETRY_S = 1.0
_STOP_GRACE_S = 8.0
_STOP_CHECK_S = 0.02
_SHELLS = 16
Handler = Callable[[Link, "dict[str, Any]", bytes], None]


class Session:
    """One sandbox's life from start to stop.

    Args:
        session_id: Its name, for the hello.
        places: Where things are.
        identity: The agent's account.
    """

    def __init__(self, session_id: str, places: Places, identity: Identity) -> None:
        self.session_id = session_id
        self.places = places
        self.identity = identity
        self.boot = os.urandom(8).hex()
        self.journal = Journal(places.journal)
        self.book = turns.TurnBook(places.turns)
        self.children = Children()
        self.workspace = Workspace(places, identity, self.children)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._link: Link | None = None
        self._news = asyncio.Event()
        self._stopped = asyncio.Event()
        self._welcome: dict[str, Any] | None = None
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._preparing: asyncio.Task[None] | None = None
        self._clone_problem: str | None = None
        self._turn: turns.Turn | None = None
        self._orders: dict[str, turns.Order] = {}
        self._shells: dict[str, Shell] = {}
        self._rescuing = asyncio.Lock()
        self._handlers: dict[str, Handler] = {
            "start_turn": self._on_start_turn,
            "start_turn_more": self._on_start_turn_more,
            "cancel_turn": self._on_cancel_turn,
            "ack": self._on_ack,
            "rescue": self._on_rescue,
            "shell_open": self._on_shell_open,
            "shell_data": self._on_shell_data,
            "shell_resize": self._on_shell_resize,
            "shell_ack": self._on_shell_ack,
            "shell_close": self._on_shell_close,
            "ping": self._on_ping,
            "status_request": self._on_status,
            "shutdown": self._on_shutdown,
        }

    async def run(self) -> None:
        """Serve hosts, one after the other, until a shutdown or SIGTERM."""
        self._loop.add_signal_handler(signal.SIGTERM, self._begin_stop, None, "0", _STOP_GRACE_S)
        connecting = self._spawn(self._connect())
        try:
            await self._stopped.wait()
        finally:
            connecting.cancel()
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self.journal.close()
            self.book.close()
            self.children.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log(f"a task failed: {task.exception()!r}")

    # --- records

    def record(self, kind: str, **fields: Any) -> None:
        """Write to the journal; what cannot be written leaves a gap that the host sees."""
        try:
            self.journal.append(kind, at=time.time(), **fields)
        except OSError as error:
            log(f"the journal cannot be written: {error}")
        self._news.set()

    async def _record_surely(self, kind: str, **fields: Any) -> None:
        """Write what must not be lost, however long the disk is full."""
        while True:
            try:
                self.journal.append(kind, at=time.time(), sync=True, **fields)
            except OSError as error:
                log(f"the journal cannot be written: {error}")
                await asyncio.sleep(_RECORD_RETRY_S)
            else:
                self._news.set()
                return

    def _pressed(self) -> bool:
        """With a host there, a fast program waits for it; with none, the ring turns instead."""
        return self._link is not None and self.journal.waiting_bytes > _PRESSURE_BYTES

    # --- the channel

    async def _connect(self) -> None:
        pause = _BACKOFF_S[0]
        while True:
            try:
                link = await Link.open(self.places.door, _read_text(self.places.channel_key))
            except LinkFailed:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _BACKOFF_S[1])
                continue
            pause = _BACKOFF_S[0]
            serving: list[asyncio.Task[None]] = []
            try:
                await self._serve(link, serving)
            except (LinkFailed, wire.FrameError) as error:
                log(f"the channel ended: {error}")
            finally:
                self._link = None
                for task in serving:
                    task.cancel()
                for shell in self._shells.values():
                    shell.close()
                link.close()
            await asyncio.sleep(pause)

    async def _serve(self, link: Link, serving: list[asyncio.Task[None]]) -> None:
        running = None if self._turn is None else {"turn_id": self._turn.turn_id, "pid": self._turn.pid}
        link.post(
            {
                "type": "hello",
                "version": wire.VERSION,
                "session_id": self.session_id,
                "boot": self.boot,
                "first_seq": self.journal.first_seq,
                "last_seq": self.journal.last_seq,
                "running": running,
                "ended": list(self.book.ended)[-100:],
                "cloned": self.workspace.is_cloned(),
                "fresh": self.journal.fresh,
            }
        )
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
                log(f"a bad {kind!r} frame: {error!r}")

    async def _send_records(self, link: Link, first: int) -> None:
        cursor = Cursor(self.journal, first)
        try:
            while True:
                self._news.clear()
                frames = list(cursor.read())
                if frames:
                    await link.send(*frames)
                else:
                    await self._news.wait()
        except LinkFailed:
            link.close()  # which ends the reading side too
        finally:
            cursor.close()

    def _on_welcome(self, header: dict[str, Any]) -> int:
        stored = header.get("stored_seq")
        if not isinstance(stored, int) or stored < 0:
            raise wire.FrameError("the welcome has no stored_seq")
        key = header.get("channel_key")
        if isinstance(key, str):
            _write_private(self.places.channel_key, key)
        self.journal.advance(stored)
        self.journal.ack(stored)
        first_of_boot = self._welcome is None
        self._welcome = header
        self._write_agent_files(header)
        if first_of_boot:
            # Not earlier: only now is it known which numbers the host has seen already.
            for turn_id in self.book.interrupted():
                self._spawn(self._end_turn(turn_id, turns.interrupted()))
        if not self._ready.done() and (self._preparing is None or self._preparing.done()):
            self._preparing = self._spawn(self._prepare(header))
        return stored

    def _write_agent_files(self, welcome: dict[str, Any]) -> None:
        token = str(welcome.get("agent_token") or "")
        _write_shared(self.identity, self.places.token, token)
        config = gitconfig(token, welcome.get("identity") or {}, self.places.port)
        _write_shared(self.identity, self.places.gitconfig, config)

    # --- the workspace

    async def _prepare(self, welcome: dict[str, Any]) -> None:
        repository = welcome.get("repository")
        if repository and welcome.get("mode") != "rescue" and not self.workspace.is_cloned():
            self._clone_problem = None
            self.record("state", data={"name": "clone_started", "message": ""})
            try:
                await self.workspace.clone(repository)
            except (CloneFailed, OSError) as error:
                self._clone_problem = str(error)
                self.record("state", data={"name": "clone_failed", "message": str(error)})
                return
            self.record("state", data={"name": "clone_done", "message": ""})
        self._ready.set_result(None)
        await self._record_surely("state", data={"name": "ready", "message": ""})

    async def _wait_ready(self) -> str | None:
        while not self._ready.done():
            if self._preparing is not None and self._preparing.done():
                return self._clone_problem or "the workspace could not be made"
            await asyncio.wait(
                [self._ready, *([self._preparing] if self._preparing else [])],
                return_when=asyncio.FIRST_COMPLETED,
            )
        return None

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
        if order.turn_id in self.book.started:
            return
        self.book.start(order.turn_id)
        if self._turn is not None:
            data = {"exit_code": None, "signal": None, "reason": "not_started"}
            self._spawn(self._end_turn(order.turn_id, {**data, "message": "another turn is running"}))
            return
        self._turn = turns.Turn(
            order, places=self.places, identity=self.identity, record=self.record, pressed=self._pressed
        )
        self._spawn(self._run_turn(self._turn))

    async def _run_turn(self, turn: turns.Turn) -> None:
        welcome = self._welcome or {}
        limits = welcome.get("limits") or {}
        environment = {**(welcome.get("environment") or {}), **self._common_environment()}
        environment["KORTIX_TOKEN"] = str(welcome.get("agent_token") or "")
        try:
            ended = await turn.run(self.children, self._wait_ready, environment, limits.get("fsize_bytes"))
        finally:
            self._turn = None
        await self._end_turn(turn.turn_id, ended)

    def _common_environment(self) -> dict[str, str]:
        repository = (self._welcome or {}).get("repository") or {}
        return {
            "KORTIX_SESSION_ID": self.session_id,
            "KORTIX_BRANCH_NAME": str(repository.get("branch") or self.session_id),
        }

    async def _end_turn(self, turn_id: str, data: dict[str, Any]) -> None:
        await self._record_surely("turn_ended", turn_id=turn_id, data=data)
        self.book.end(turn_id)

    def _on_cancel_turn(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._orders.pop(header["turn_id"], None)
        if self._turn is not None and self._turn.turn_id == header["turn_id"]:
            self._turn.cancel()

    def _on_ack(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self.journal.ack(int(header["seq"]))

    # --- rescue, shells, the rest

    def _on_rescue(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._spawn(self._rescue(link, str(header["id"]), int(header["n"])))

    async def _rescue(self, link: Link, request_id: str, number: int) -> None:
        ref = f"refs/kortix/rescue/{self.session_id}/{number}"
        async with self._rescuing:
            saved = await rescue.save(self.workspace, self._welcome or {}, self.session_id, ref)
        link.post({"type": "rescue_result", "id": request_id, "ref": ref, **saved})

    def _on_shell_open(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        shell_id = str(header["id"])
        if shell_id in self._shells:
            return
        shell = Shell(shell_id, self.identity, self.children)
        environment = {**self._common_environment(), "TERM": str(header.get("term") or "xterm-256color")}
        try:
            if len(self._shells) >= _SHELLS:
                raise OSError(0, "too many shells are open")
            shell.open(self.places.workspace, environment, int(header["rows"]), int(header["cols"]))
        except OSError as error:
            message = f"The shell cannot be opened: {error.strerror or error}\r\n".encode()
            link.post({"type": "shell_data", "id": shell_id}, message)
            link.post({"type": "shell_closed", "id": shell_id, "exit_code": 127})
            return
        self._shells[shell_id] = shell
        self._spawn(self._run_shell(shell, link))

    async def _run_shell(self, shell: Shell, link: Link) -> None:
        try:
            await shell.run(link)
        finally:
            del self._shells[shell.shell_id]

    def _on_shell_data(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        shell = self._shells.get(str(header["id"]))
        if shell is not None:
            shell.write(body)

    def _on_shell_resize(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        shell = self._shells.get(str(header["id"]))
        if shell is not None:
            shell.resize(int(header["rows"]), int(header["cols"]))

    def _on_shell_ack(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        shell = self._shells.get(str(header["id"]))
        if shell is not None:
            shell.grant(int(header["bytes"]))

    def _on_shell_close(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        shell = self._shells.get(str(header["id"]))
        if shell is not None:
            shell.close()

    def _on_ping(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        link.post({"type": "pong", "id": header["id"]})

    def _on_status(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._spawn(self._status(link, header["id"]))

    async def _status(self, link: Link, request_id: str) -> None:
        dirty: bool | None = None
        if self.workspace.has_repository():
            listed = await self.workspace.git("status", "--porcelain", deadline=20.0)
            dirty = bool(listed.stdout) if listed.status == 0 else None
        link.post({"type": "status", "id": request_id, "processes": self.identity.count(), "workspace_dirty": dirty})

    def _on_shutdown(self, link: Link, header: dict[str, Any], body: bytes) -> None:
        self._begin_stop(link, header["id"], float(header.get("grace_s", _STOP_GRACE_S)))

    def _begin_stop(self, link: Link | None, request_id: str, grace: float) -> None:
        self._spawn(self._stop(link, request_id, max(0.0, min(grace, 60.0))))

    async def _stop(self, link: Link | None, request_id: str, grace: float) -> None:
        """End every program of the agent, keep the record of it, and go."""
        until = self._loop.time() + grace
        if self._turn is not None:
            self._turn.cancel()
        self.identity.signal_all(signal.SIGTERM)
        while self.identity.count():
            if self._loop.time() >= until:  # again and again: a signal cannot reach what is not born yet
                self.identity.signal_all(signal.SIGKILL)
            await asyncio.sleep(_STOP_CHECK_S)
        for _ in range(100):
            if not self.book.interrupted():
                break
            await asyncio.sleep(0.05)
        if link is not None and self._link is link:
            # The turn's end goes first: the sender is given its chance to run.
            await asyncio.sleep(0.05)
            with contextlib.suppress(LinkFailed):
                await link.send(wire.encode({"type": "stopping", "id": request_id}))
        self._stopped.set()


def log(message: str) -> None:
    """Say something to whoever reads the container's log."""
    sys.stderr.write(f"kortix: {message[:2000]}\n")
    sys.stderr.flush()


def _read_text(path: str) -> str | None:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def _write_private(path: str, text: str) -> None:
    """Replace a file of the supervisor's own, durably: the host asks for the key from now on."""
    temporary = path + ".new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def _write_shared(identity: Identity, path: str, text: str) -> None:
    """Replace a file that the agent may read and not change."""
    temporary = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    identity.share(temporary, 0o440)
    os.rename(temporary, path)


async def serve(session_id: str, places: Places, identity: Identity) -> None:
    """Run a session's supervisor, its forwarder included, to its end."""
    identity.join_group()
    os.makedirs(places.prompts, mode=0o700, exist_ok=True)
    for folder in (places.run, places.prompts):
        identity.share(folder, 0o750)
    server = forward.listen(places.port)
    nobody = Identity(None if identity.uid is None else NOBODY)
    child = forward.start(server, places.door, nobody)
    try:
        await Session(session_id, places, identity).run()
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        server.close()
