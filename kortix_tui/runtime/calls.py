"""Brokered calls of one term of leadership: who waits for which, what was approved meanwhile, what became of each.

All waiting is by the store: a decision that any process writes is seen within the host's poll.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kortix_tui.base.errors import InvalidInput, KortixError, NotFound
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import CallState
from kortix_tui.broker.services import LONGEST_HOLD_S, CallReport, CallWish
from kortix_tui.runtime import call_keys, call_ledger
from kortix_tui.runtime.call_carrying import Carrying, Run
from kortix_tui.runtime.call_making import Caller, CallMaking
from kortix_tui.runtime.call_records import OperatorCall
from kortix_tui.runtime.call_reports import note_of, report_of
from kortix_tui.runtime.call_sweep import CallSweep
from kortix_tui.runtime.governing import Governing
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.outputs import Outputs
from kortix_tui.runtime.sending import Sending
from kortix_tui.store.models import Call

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.mcp_programs import Programs
    from kortix_tui.runtime.catalogues import Catalogues
    from kortix_tui.runtime.context import Context
    from kortix_tui.runtime.custody import Custody
    from kortix_tui.runtime.host_credentials import HostCredentials
    from kortix_tui.runtime.preparing import Preparing
    from kortix_tui.store.audit import Actor
    from kortix_tui.store.models import Request

CLOSE_S: Final = 3.0
SHORT_S: Final = 2.0
"""However little a caller waits, a call that takes no longer than that is answered at once."""
MOST_NOTES: Final = 100
log = logging.getLogger(__name__)


class Calls:
    """Takes calls of all sessions, and the operator's own.

    Args:
        context: The host's.
        ledger: Where everything is written, fenced by the term's epoch.
        preparing: Knows plans.
        catalogues: Knows what connectors can do.
        custody: Has the vault.
        credentials: Knows what a connection adds to a request.
        programs: Runs tool servers over stdio; without it, they are refused.
    """

    def __init__(
        self,
        context: Context,
        ledger: Ledger,
        preparing: Preparing,
        catalogues: Catalogues,
        custody: Custody,
        credentials: Callable[[], HostCredentials],
        programs: Programs | None = None,
    ) -> None:
        settings = context.settings
        self.making = CallMaking(ledger, preparing, Governing(ledger, preparing), catalogues)
        self._ledger = ledger
        self._outputs = Outputs(context.home)
        self._sending = Sending(settings.connectors, programs)
        self._carrying = Carrying(
            ledger, self.making, custody, credentials, self._sending, self._outputs,
            expire=timedelta(hours=settings.approvals.expire_hours), waits=self._waits,
        )  # fmt: skip
        self._sweep = CallSweep(
            ledger, self.making, self._outputs, idle=self._idle, under_way=self._under_way, over=self._over
        )
        self._executing = set[str]()
        self._began = time.monotonic()
        self._asked: dict[str, float] = {}
        self._runs: dict[tuple[str | None, str], Run] = {}
        self._waiting: dict[str, set[asyncio.Event]] = defaultdict(set)
        self._not_before: dict[str, float] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._notes: dict[str, list[str]] = defaultdict(list)
        self._note_to: dict[str, Callable[[str], None]] = {}

    # Life

    async def recover(self) -> None:
        """What an earlier host left under way may have run, and is never sent again. Comes before everything else."""
        for call in await self._ledger.write(call_ledger.lose_executing):
            self._note(call)

    async def run(self) -> None:
        """Expire, supersede and tell, until cancelled."""
        await self._sweep.run()

    def look(self) -> None:
        """The store changed: send what was approved, and let whoever waits look again."""
        for call_id in self._waiting:
            self._wake(call_id)
        now = time.monotonic()
        for (call_id,) in self._ledger.store.all("SELECT id FROM calls WHERE state = 'approved'"):
            if self._not_before.get(call_id, 0.0) <= now:
                self._not_before[call_id] = float("inf")
                self._spawn(self._execute(call_id), f"call {call_id}")

    async def close(self) -> None:
        """Give what is under way a moment to end; what does not is called `unknown` by the next host."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(KortixError):
            await self._carrying.late.flush()
        await self._sending.close()

    def notes_to(self, session_id: str, note: Callable[[str], None] | None) -> None:
        """Where lines for a session's record go while it is open; those that came before are written now."""
        if note is None:
            self._note_to.pop(session_id, None)
            return
        self._note_to[session_id] = note
        for text in self._notes.pop(session_id, []):
            note(text)

    # Coming in

    async def call(self, caller: Caller, wish: CallWish) -> CallReport:
        """Take a call, or join the one of the same key, and wait for what becomes of it.

        Raises:
            InvalidInput: The key was used for another call.
            KortixError: Nothing could be written down.
        """
        key = (caller.session_id, wish.key)
        run = self._runs.get(key)
        if run is None:
            known = call_keys.find(self._ledger.store, *key)
            if known is not None:
                return await self._again(caller, wish, known)
            run = self._runs[key] = Run(new_id("cal"), caller, wish, self._ledger.store.clock.now())
            self._spawn(self._take(run), f"call {run.id}")
        return await self._follow(run, min(wish.wait, LONGEST_HOLD_S))

    async def _again(self, caller: Caller, wish: CallWish, call: Call) -> CallReport:
        if (call.connector, call.action) != (wish.connector, wish.action):
            raise InvalidInput("This key was used for another call.", hint="Make a new key for each call.")
        return await self.report(caller.session_id, call.id, wish.wait, leave=False)

    async def _follow(self, run: Run, hold_s: float) -> CallReport:
        until = time.monotonic() + hold_s
        run.waiters += 1
        try:
            try:
                async with asyncio.timeout(max(hold_s, SHORT_S)):
                    await run.done.wait()
            except TimeoutError:
                await run.recorded.wait()
        finally:
            run.waiters -= 1
        if run.error is not None:
            raise run.error
        if run.call is None:
            raise KortixError("The call could not be made.", hint="Try again in a moment.")
        if run.call.state.final:
            return report_of(run.call, run.body)
        return await self.report(run.caller.session_id, run.call.id, until - time.monotonic(), leave=False)

    async def _take(self, run: Run) -> None:
        try:
            await self._carrying.take(run)
        except KortixError as error:
            run.error = error
        finally:
            del self._runs[run.caller.session_id, run.wish.key]
            run.recorded.set()
            run.done.set()
        if run.call is not None:
            self._over(run.call)

    async def operate(self, request: Request, actor: Actor) -> CallReport:
        """The operator's own call, as a request to the host: the same request is the same call, also after a death."""
        wanted = OperatorCall.model_validate_json(request.payload)
        caller = self.making.operator(wanted.project_id, actor, attended=wanted.attended)
        wish = CallWish(
            key=request.id.removeprefix("req_"), connector=wanted.connector, action=wanted.action,
            arguments=wanted.arguments, account=wanted.account, reason=wanted.reason, wait=LONGEST_HOLD_S,
        )  # fmt: skip
        report = await self.call(caller, wish)
        while not report.state.final:
            report = await self.report(None, report.id, LONGEST_HOLD_S, leave=False)
        return report

    # What became of it

    async def report(self, session_id: str | None, call_id: str, wait: float, *, leave: bool) -> CallReport:
        """What became of a call of a session; held until it is final or `wait` seconds are over.

        Raises:
            NotFound: The session made no such call.
        """
        call = await self.settled(session_id, call_id)
        self._asked[call_id] = time.monotonic()
        if leave and not call.state.final:
            await self._ledger.write(partial(call_ledger.leave, call_id=call_id))
            return report_of(self.find(session_id, call_id), None)
        if not call.state.final and call.left_at is not None:
            await self._ledger.write(partial(call_ledger.come_back, call_id=call_id))
        call = await self._until_final(session_id, call_id, min(wait, LONGEST_HOLD_S))
        self._asked[call_id] = time.monotonic()
        if not call.state.final:
            return report_of(call, None)
        if call.collected_at is None and call.told_at is None:
            await self._ledger.write(partial(call_ledger.collect, call_id=call_id))
        return report_of(call, await self.output(call))

    async def output(self, call: Call) -> bytes | None:
        """The whole stored answer; `None` where there is none, or it had to go."""
        if call.output is None:
            return None
        return await asyncio.to_thread(self._outputs.read, call.session_id, call.output)

    async def settled(self, session_id: str | None, call_id: str) -> Call:
        """The row of a session's call, once everything that is known of it is written.

        Raises:
            NotFound: It made no such call.
        """
        await self._carrying.late.settle(call_id)
        return self.find(session_id, call_id)

    def find(self, session_id: str | None, call_id: str) -> Call:
        """The row of a session's call.

        Raises:
            NotFound: It made no such call.
        """
        row = self._ledger.store.one(
            f"SELECT {Call.columns()} FROM calls WHERE id = ? AND session_id IS ?", (call_id, session_id)
        )
        if row is None:
            raise NotFound("This session made no such call.", hint="kortix connectors call CONNECTOR.ACTION JSON")
        return Call.of(row)

    async def lost(self, call_id: str) -> None:
        """A final answer was sent, and its caller was not there any more: the session is told by a prompt."""
        await self._carrying.late.settle(call_id)
        await self._ledger.write(partial(call_ledger.uncollect, call_id=call_id))

    async def _until_final(self, session_id: str | None, call_id: str, wait: float) -> Call:
        event = asyncio.Event()
        self._waiting[call_id].add(event)
        try:
            async with asyncio.timeout(max(0.0, wait)):
                while not (call := self.find(session_id, call_id)).state.final:
                    await event.wait()
                    event.clear()
                return call
        except TimeoutError:
            return self.find(session_id, call_id)
        finally:
            waiting = self._waiting[call_id]
            waiting.discard(event)
            if not waiting:
                del self._waiting[call_id]

    def _waits(self, call_id: str) -> bool:
        return bool(self._waiting.get(call_id))

    def _wake(self, call_id: str) -> None:
        for event in self._waiting.get(call_id, ()):
            event.set()

    def _idle(self, call_id: str) -> float | None:
        """Seconds since somebody asked for a call; `None` while somebody waits for it."""
        return None if self._waits(call_id) else time.monotonic() - self._asked.get(call_id, self._began)

    # Approved calls

    async def _execute(self, call_id: str) -> None:
        row = self._ledger.store.one(f"SELECT {Call.columns()} FROM calls WHERE id = ?", (call_id,))
        call = Call.of(row) if row else None
        if call is None or call.session_id is None or call.state is not CallState.APPROVED:
            return
        self._executing.add(call_id)
        try:
            retry = await self._carrying.execute_approved(self.making.caller(call.session_id), call)
        except KortixError as error:  # the store is busy, the disk is full: nothing was sent, or its row says so
            log.warning("the approved call %s could not be carried out: %s", call_id, error)
            retry = SHORT_S
        finally:
            self._executing.discard(call_id)
        if retry is not None:
            self._not_before[call_id] = time.monotonic() + retry
            return
        self._not_before.pop(call_id, None)
        self._over(self.find(call.session_id, call_id))

    # Inside

    def _under_way(self, call_id: str) -> bool:
        """Whether this host carries a call, or is about to write its end."""
        carried = call_id in self._executing or call_id in self._carrying.late
        return carried or any(run.id == call_id for run in self._runs.values())

    def _over(self, call: Call) -> None:
        self._note(call)
        self._wake(call.id)

    def _note(self, call: Call) -> None:
        if call.session_id is None:
            return
        text = note_of(call)
        if (note := self._note_to.get(call.session_id)) is not None:
            note(text)
            return
        kept = self._notes[call.session_id]
        kept.append(text)
        del kept[:-MOST_NOTES]

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s failed", task.get_name(), exc_info=error)
