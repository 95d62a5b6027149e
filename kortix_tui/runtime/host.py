"""The host: the one process that holds the runtime lock and acts. The others stand by and take over within 2 s."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import EngineUnavailable, KortixError
from kortix_tui.base.words import Outcome, SessionStatus, Wanted
from kortix_tui.review.merging import Merging
from kortix_tui.runtime.calls import Calls as BrokeredCalls
from kortix_tui.runtime.catalogues import Catalogues
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control import Calls, ControlServer
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.places import Places
from kortix_tui.runtime.preparing import Preparing, manifest_faults
from kortix_tui.runtime.providers import open_images, open_programs, open_provider
from kortix_tui.runtime.recovery import Recovery
from kortix_tui.runtime.requests import Requests
from kortix_tui.runtime.runner import Runner
from kortix_tui.sandbox.provider import Provider
from kortix_tui.sandbox.shell_stream import ShellStream
from kortix_tui.store.database import Fenced
from kortix_tui.store.lock import HostLock

if TYPE_CHECKING:
    from kortix_tui.runtime.connecting import Connecting
    from kortix_tui.runtime.host_credentials import HostCredentials

ELECTION_S: Final = 0.5
POLL_S: Final = 0.02
BEAT_S: Final = 2.0
SWEEP_S: Final = 60.0
FAULT_S: Final = 30.0
"""Longest pause after a fault that repeats."""
log = logging.getLogger(__name__)


class Host:
    """Stands for host, and leads while it holds the lock."""

    def __init__(self, context: Context, kind: str) -> None:
        self._context = context
        self._kind = kind
        self._task: asyncio.Task[None] | None = None
        self._decided = asyncio.Event()
        self._failure: KortixError | None = None
        self.leads = False

    async def start(self) -> None:
        """Begin to stand; returns after the first attempt, leading or not.

        Raises:
            KortixError: It could not lead, and a person must know; it goes on trying.
        """
        self._task = asyncio.create_task(self._stand(), name="host")
        await self._decided.wait()
        if self._failure is not None:
            raise self._failure

    async def stop(self) -> None:
        """Give up the lock after closing doors in order; sandboxes run on."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _stand(self) -> None:
        """Lead whenever nobody else does. No fault ends this: nobody would see that it has ended."""
        pause = ELECTION_S
        while True:
            lock: HostLock | None = None
            try:
                lock = await asyncio.to_thread(HostLock.acquire, self._context.store, self._kind)
                if lock is not None:
                    self.leads = True
                    await Leading(self._context, lock, self._decided).run()
                pause = ELECTION_S
            except Fenced:
                log.warning("another process took over as host")
            except KortixError as error:
                self._failure = error
                log.warning("leading ended: %s", error)
                pause = min(pause * 2, FAULT_S)
            except Exception:
                log.exception("leading ended; standing again")
                pause = min(pause * 2, FAULT_S)
            finally:
                self.leads = False
                if lock is not None:
                    lock.release()
                self._decided.set()
            await asyncio.sleep(pause)


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
        self._places = Places(context.settings.ceilings.running_limit())
        self._runners: dict[str, Runner] = {}
        self._faults: dict[str, int] = {}
        merging = Merging(context.store, self._ledger, manifest_faults)
        self._custody = Custody(context, self._ledger, self._wake)
        self._programs = open_programs(
            self._provider, images, context, self._ledger, lambda text: self._custody.redactor.text(text)
        )
        self._catalogues = Catalogues(
            context, self._ledger, self._preparing, lambda: self._credentials, self._programs
        )  # fmt: skip
        self._brokered = BrokeredCalls(
            context, self._ledger, self._preparing, self._catalogues, self._custody, lambda: self._credentials,
            self._programs,
        )  # fmt: skip
        self._requests = Requests(
            context, self._ledger, self._preparing, merging, self._custody, self._catalogues, self._brokered
        )  # fmt: skip
        self._recovery = Recovery(context, self._ledger, self._provider, self._preparing, merging)
        self._control = ControlServer(context, self._open_shell, self._calls)

    async def run(self) -> None:
        """Lead until cancelled or fenced; a fault of one part ends that part's step, not the term."""
        try:
            async with asyncio.TaskGroup() as tasks:
                await self._control.start()
                await self._brokered.recover()
                self._decided.set()
                tasks.create_task(self._custody.run(), name="vault")
                tasks.create_task(self._beat(), name="beat")
                tasks.create_task(self._sweep(), name="sweep")
                tasks.create_task(self._brokered.run(), name="calls")
                if self._context.settings.notify.webhook is not None:
                    from kortix_tui.runtime.webhook import Webhook

                    tasks.create_task(Webhook(self._context).run(), name="webhook")
                # What an earlier host left open is settled first: a merge must not be decided anew before.
                recovered = tasks.create_task(self._settle(), name="recovery")
                await self._watch(tasks, recovered)
        except* Fenced as group:
            raise group.exceptions[0] from None
        except* KortixError as group:
            raise group.exceptions[0] from None
        finally:
            await self._control.close()
            await self._brokered.close()
            await self._close_connections()
            await self._custody.close()
            await self._provider.close()
            await self._ledger.close()

    async def _settle(self) -> None:
        while True:
            try:
                await self._recovery.requests()
            except Fenced:
                raise
            except Exception:
                log.exception("recovery failed; trying again")
                await asyncio.sleep(FAULT_S)
            else:
                return

    async def _watch(self, tasks: asyncio.TaskGroup, recovered: asyncio.Task[None]) -> None:
        """Look for work whenever the store changed, and twice a second in any case."""
        store, version, idle = self._context.store, -1, 0
        while True:
            try:
                now = store.data_version()
                if now != version or idle * POLL_S >= 0.5:
                    version, idle = now, 0
                    self._look(tasks)
                    if recovered.done():
                        self._requests.look(tasks)
            except (KortixError, sqlite3.Error):
                log.exception("the store cannot be read")
                await asyncio.sleep(1.0)
            idle += 1
            await asyncio.sleep(POLL_S)

    def _wake(self) -> None:
        for runner in self._runners.values():
            runner.changed.set()

    def _look(self, tasks: asyncio.TaskGroup) -> None:
        self._wake()
        self._brokered.look()
        rows = self._context.store.all(
            "SELECT id, status, wanted FROM sessions WHERE removed_at IS NULL"
            " AND (wanted != 'stopped' OR status IN ('provisioning', 'running')) ORDER BY active_at, rowid"
        )
        for session_id, status, wanted in rows:
            if session_id not in self._runners:
                if status == SessionStatus.RUNNING:
                    self._places.hold(session_id)
                elif wanted == Wanted.RUNNING:
                    self._places.join(session_id)
                runner = Runner(
                    session_id, self._context, self._ledger, self._provider, self._preparing, self._places,
                    self._custody, self._brokered,
                )  # fmt: skip
                self._runners[session_id] = runner
                tasks.create_task(self._keep(runner), name=f"runner {session_id}")

    async def _keep(self, runner: Runner) -> None:
        try:
            await runner.run()
            self._faults.pop(runner.session_id, None)
        except (Fenced, asyncio.CancelledError):
            raise
        except Exception as error:
            # One session's fault must not end the others; after a pause the next look starts a fresh runner.
            log.exception("the runner of session %s failed", runner.session_id)
            self._places.leave(runner.session_id)
            await self._pause(runner.session_id, error)
        finally:
            self._runners.pop(runner.session_id, None)
            self._places.leave(runner.session_id)
            for other in self._runners.values():
                other.changed.set()  # one of them may wait for this place

    async def _pause(self, session_id: str, error: Exception) -> None:
        """Say in the session's row that it is stuck, and wait longer each time."""
        count = self._faults[session_id] = self._faults.get(session_id, 0) + 1
        text = (
            str(error) if isinstance(error, KortixError) else f"The host failed ({type(error).__name__}); see its log."
        )
        try:
            session = self._ledger.session(session_id)
            if session is not None and session.reason_text != text:
                code = error.code if isinstance(error, KortixError) else "internal"
                await self._ledger.move(session, "session.runner.fail", reason=code, text=text, outcome=Outcome.FAILURE)
        except (KortixError, sqlite3.Error):
            log.info("not even that could be stored")
        await asyncio.sleep(min(2.0 ** (count - 1), FAULT_S))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            try:
                await asyncio.to_thread(self._lock.beat)
            except Fenced:
                raise
            except KortixError as error:  # a busy or full disk: viewers show a silent host
                log.warning("the host could not say that it is alive: %s", error)

    async def _sweep(self) -> None:
        while True:
            try:
                await self._recovery.sandboxes(self._runners)
                if self._programs is not None:
                    await self._recovery.tool_servers(self._programs)
                await self._recovery.merges()
            except Fenced:
                raise
            except EngineUnavailable:
                log.info("no engine to reconcile with")
            except Exception:
                log.exception("reconciling failed")
            await asyncio.sleep(SWEEP_S)

    def _calls(self) -> Calls:
        # Few terms are called for anything: the ciphers are loaded when one is.
        from kortix_tui.runtime.vault_service import VaultService

        return VaultService(self._custody, self._connecting)

    @cached_property
    def _credentials(self) -> HostCredentials:
        from kortix_tui.runtime.host_credentials import HostCredentials

        return HostCredentials(self._custody)

    @cached_property
    def _connecting(self) -> Connecting:
        from kortix_tui.runtime.connecting import Connecting

        return Connecting(self._custody, self._preparing, self._credentials)

    async def _close_connections(self) -> None:
        """End what was made of them in this term; most terms have made nothing."""
        made = vars(self)
        if "_connecting" in made:
            await self._connecting.close()
        if "_credentials" in made:
            await self._credentials.close()

    async def _open_shell(self, session_id: str, rows: int, columns: int, term: str) -> ShellStream:
        runner = self._runners.get(session_id)
        if runner is None or not runner.link.alive:
            raise KortixError(
                f"Session {session_id} is not running.", hint=f"Wake it: kortix sessions resume {session_id}"
            )
        return await runner.open_shell(rows, columns, term)
