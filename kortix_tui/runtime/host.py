"""The host: the one process that holds the runtime lock and acts. The others stand by and take over within 2 s."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from kortix_tui.base.errors import EngineUnavailable, KortixError
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control import ControlServer
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.providers import open_images, open_provider
from kortix_tui.runtime.recovery import Recovery
from kortix_tui.runtime.requests import Requests
from kortix_tui.runtime.runner import Runner
from kortix_tui.sandbox.provider import Provider
from kortix_tui.sandbox.shell_stream import ShellStream
from kortix_tui.store.database import Fenced
from kortix_tui.store.lock import HostLock

ELECTION_S: Final = 0.5
POLL_S: Final = 0.02
BEAT_S: Final = 2.0
SWEEP_S: Final = 60.0
log = logging.getLogger(__name__)


class Host:
    """Stands for host, and leads while it holds the lock."""

    def __init__(self, context: Context, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._task: asyncio.Task[None] | None = None
        self._decided = asyncio.Event()
        self.leads = False

    async def start(self) -> None:
        """Begin to stand; returns after the first attempt, leading or not."""
        self._task = asyncio.create_task(self._stand(), name="host")
        await self._decided.wait()

    async def stop(self) -> None:
        """Give up the lock after closing doors in order; sandboxes run on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def _stand(self) -> None:
        while True:
            lock: HostLock | None = None
            try:
                lock = await asyncio.to_thread(HostLock.acquire, self._context.store, self._kind)
                if lock is not None:
                    self.leads = True
                    await Leading(self._context, lock, self._decided).run()
            except Fenced:
                log.warning("another process took over as host")
            except KortixError:
                log.exception("leading ended; standing again")
            finally:
                self.leads = False
                if lock is not None:
                    lock.release()
                self._decided.set()
            await asyncio.sleep(ELECTION_S)


class Leading:
    """One term of leadership: owns runners, provider, control socket and their tasks."""

    def __init__(self, context: Context, lock: HostLock, decided: asyncio.Event) -> None:
        self._context = context
        self._lock = lock
        self._decided = decided
        self._ledger = Ledger(context.store, lock.epoch)
        self._provider: Provider = open_provider(context.settings)
        images = open_images(self._provider, context.settings)
        self._preparing = Preparing(context, self._ledger, images)
        self._runners: dict[str, Runner] = {}
        self._requests = Requests(context, self._ledger, self._preparing)
        self._recovery = Recovery(context, self._ledger, self._provider, self._preparing)
        self._control = ControlServer(context, self._open_shell)

    async def run(self) -> None:
        """Lead until cancelled or fenced."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._recovery.requests()
                await self._control.start()
                self._decided.set()
                tasks.create_task(self._beat(), name="beat")
                tasks.create_task(self._sweep(), name="sweep")
                await self._watch(tasks)
        except* Fenced as group:
            raise group.exceptions[0] from None
        finally:
            await self._control.close()
            await self._provider.close()
            self._ledger.close()

    async def _watch(self, tasks: asyncio.TaskGroup) -> None:
        """Look for work whenever the store changed, and twice a second in any case."""
        store, version, idle = self._context.store, -1, 0
        while True:
            now = store.data_version()
            if now != version or idle * POLL_S >= 0.5:
                version, idle = now, 0
                self._look(tasks)
            idle += 1
            await asyncio.sleep(POLL_S)

    def _look(self, tasks: asyncio.TaskGroup) -> None:
        for runner in self._runners.values():
            runner.changed.set()
        rows = self._context.store.all(
            "SELECT id FROM sessions WHERE removed_at IS NULL"
            " AND (wanted != 'stopped' OR status IN ('provisioning', 'running'))"
        )
        for (session_id,) in rows:
            if session_id not in self._runners:
                runner = Runner(session_id, self._context, self._ledger, self._provider, self._preparing)
                self._runners[session_id] = runner
                tasks.create_task(self._keep(runner), name=f"runner {session_id}")
        self._requests.look(tasks)

    async def _keep(self, runner: Runner) -> None:
        try:
            await runner.run()
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception:
            # One session's fault must not end the others; the next look starts a fresh runner.
            log.exception("the runner of session %s failed", runner.session_id)
            await asyncio.sleep(1.0)
        finally:
            self._runners.pop(runner.session_id, None)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            await asyncio.to_thread(self._lock.beat)

    async def _sweep(self) -> None:
        while True:
            try:
                await self._recovery.sandboxes()
            except EngineUnavailable:
                log.info("no engine to reconcile with")
            except KortixError:
                log.exception("reconciling sandboxes failed")
            await asyncio.sleep(SWEEP_S)

    async def _open_shell(self, session_id: str, rows: int, columns: int, term: str) -> ShellStream:
        runner = self._runners.get(session_id)
        if runner is None or not runner.link.alive:
            raise KortixError(
                f"Session {session_id} is not running.", hint=f"Wake it: kortix sessions resume {session_id}"
            )
        return await runner.link.open_shell(rows, columns, term)
