"""One session's keeper: compares what is wanted with what is, and acts on the difference.

Level-triggered: it remembers nothing that the store, the engine or git cannot tell it again, so the process may die at
any line and the next host's runner goes on from the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from enum import Enum, auto
from typing import Any, Final, TypeVar

from kortix_tui.base.errors import (
    DeadlineExceeded,
    EngineUnavailable,
    KortixError,
    StoreFailed,
    VaultFailed,
    VaultLocked,
)
from kortix_tui.base.words import Activity, Outcome, PromptState, SessionStatus, Wanted
from kortix_tui.manifest.plan import AgentPlan
from kortix_tui.runtime.calls import Calls
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.delivery import Custodian, Delivery, Parcel
from kortix_tui.runtime.elapsed import Elapsed
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.link import CloneFailed, Link
from kortix_tui.runtime.places import Places
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.saving import Saving
from kortix_tui.runtime.turns import CANCEL_S, Turns
from kortix_tui.sandbox.channel import ChannelClosed, ProtocolViolation
from kortix_tui.sandbox.provider import Provider, SandboxSpec
from kortix_tui.sandbox.shell_stream import ShellStream
from kortix_tui.store.database import Fenced
from kortix_tui.store.models import Session

CONNECT_S: Final = 60.0
LOOK_S: Final = 3.0
READY_S: Final = 600.0
LOST_GRACE_S: Final = 6.0
"""The supervisor comes back within two seconds when only the connection was lost."""
RETRY_S: Final = 2.0
TROUBLES: Final = 5
"""So often a fault is met with another try before a person is asked."""
CLONES: Final = 2
TROUBLE_S: Final = (1.0, 30.0)
GIB: Final = 1 << 30
T = TypeVar("T")


class Next(Enum):
    """What the loop does after a step."""

    AGAIN = auto()
    WAIT = auto()
    DONE = auto()


class SandboxDied(KortixError):
    """The sandbox ended without being asked to."""

    code = "sandbox_died"


class Superseded(Exception):
    """Something else is wanted of the session now."""


class Runner:
    """Brings one session to what is wanted of it and keeps it there."""

    def __init__(
        self,
        session_id: str,
        context: Context,
        ledger: Ledger,
        provider: Provider,
        preparing: Preparing,
        places: Places,
        custodian: Custodian,
        calls: Calls,
    ) -> None:
        self.session_id = session_id
        self._context = context
        self._ledger = ledger
        self._provider = provider
        self._preparing = preparing
        self._places = places
        self.changed = asyncio.Event()
        self._delivery = Delivery(ledger, preparing, custodian)
        self.link = Link(session_id, context, ledger, preparing, self._delivery, self.changed, calls)
        self._saving = Saving(session_id, ledger, self.link)
        self._idle = Elapsed(context.clock)
        self._turns = Turns(
            session_id, context, ledger, preparing, self.link, self._saving, self._delivery, self.changed
        )
        self._troubles = 0

    # The loop

    async def run(self) -> None:
        """Work until the session is as wanted and needs nobody; errors end in a stored reason."""
        try:
            await self.link.open_record()
            while True:
                self.changed.clear()
                session = self._session()
                if session.removed_at is not None:
                    return
                try:
                    match await self._step(session):
                        case Next.DONE:
                            return
                        case Next.WAIT:
                            self._troubles = 0
                            with contextlib.suppress(TimeoutError):
                                async with asyncio.timeout(self._pause()):
                                    await self.changed.wait()
                except Superseded:
                    continue
                except (Fenced, EngineUnavailable, StoreFailed):
                    raise  # whoever cannot write down what it does must not do it
                except KortixError as error:
                    if not await self._bear(session, error):
                        await self._fail(session, error)
                        return
        except EngineUnavailable as error:
            await self._engine_gone(error)
        finally:
            await self.link.close()

    async def _step(self, session: Session) -> Next:
        """Do the next thing."""
        if (violation := self.link.violation) is not None:
            raise violation
        match session.wanted:
            case Wanted.REMOVED:
                await self._remove(session)
                return Next.DONE
            case Wanted.STOPPED:
                await self._stop(session)
                return Next.DONE
            case Wanted.RUNNING:
                if not self.link.alive or session.status is not SessionStatus.RUNNING:
                    return await self._bring_up(session)
                return await self._work(session)

    async def _bear(self, session: Session, error: KortixError) -> bool:
        """Whether to try again. What runs is not ended for a fault that may pass; a lost connection is none at all."""
        lost = isinstance(error, ChannelClosed)
        if session.wanted is not Wanted.RUNNING or isinstance(error, SandboxDied | ProtocolViolation):
            return lost
        runs = session.status is SessionStatus.RUNNING
        if lost and runs:
            return True  # the next step finds out whether the sandbox is still there
        self._troubles += 1
        cut = isinstance(error, CloneFailed) and self._troubles <= CLONES  # a host that died under it, perhaps
        if self._troubles > TROUBLES or not (runs or lost or cut):
            return False
        if runs:
            self.link.note(f"{error} It is tried again.")
        await asyncio.sleep(min(TROUBLE_S[0] * 2 ** (self._troubles - 1), TROUBLE_S[1]))
        return True

    def _pause(self) -> float:
        """Seconds until something may be due although nothing changed."""
        session = self._session()
        left = session.idle_minutes * 60 - self._idle.since(session.active_at)
        return min(30.0, max(0.5, left))

    def _session(self) -> Session:
        session = self._ledger.session(self.session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session

    async def _while_wanted(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something long that a stop or a removal ends at once.

        Raises:
            Superseded: It was ended.
        """
        task = asyncio.create_task(work)
        try:
            while not task.done():
                self.changed.clear()
                if self._session().wanted is not Wanted.RUNNING:
                    raise Superseded
                change = asyncio.create_task(self.changed.wait())
                try:
                    await asyncio.wait({task, change}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()
            return task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    # Up

    async def _bring_up(self, session: Session) -> Next:
        """Make the sandbox run and its supervisor answer; a lost connection is first given time to come back."""
        if session.status is SessionStatus.RUNNING:
            if await self._still_there():
                return Next.AGAIN
            state = await self._provider.inspect(session.id)
            if state is None or not state.running:
                await self._after_death(session, out_of_memory=state is not None and state.out_of_memory)
                return Next.AGAIN
            await self._start("normal")
            return Next.AGAIN
        if not await self._has_place(session):
            return Next.WAIT
        plan, image = await self._while_wanted(self._prepare(session))
        await self._start("normal", image)
        await self._while_wanted(self.link.ready(READY_S))
        await self._ledger.move(
            self._session(), "session.status.changed", status=SessionStatus.RUNNING, activity=Activity.IDLE
        )
        self.link.note(f"Sandbox ready on branch {session.id}, agent {plan.name}.")
        return Next.AGAIN

    async def _prepare(self, session: Session) -> tuple[AgentPlan, str]:
        plan = await self._preparing.plan(session, self.link.note)
        return plan, await self._preparing.image(self._session(), plan, self.link.note)

    async def _has_place(self, session: Session) -> bool:
        """Whether one more may run, and be heard; otherwise the session waits, and says why."""
        if (held := await self._delivery.held(session)) is not None:
            self._places.leave(session.id)  # nobody waits behind it
            if session.reason != VaultLocked.code:
                text = f"It had values of secrets, and {held}: it starts once you unlock it (kortix vault unlock)."
                await self._ledger.move(session, "session.vault.wait", reason=VaultLocked.code, text=text)
            return False
        free = self._places.take(session.id)
        if not free and session.reason != "capacity":
            text = f"Waits for a place: {self._places.limit} sessions run already. Stop one, or raise the ceiling."
            await self._ledger.move(session, "session.capacity.wait", reason="capacity", text=text)
        elif free and session.reason in ("capacity", VaultLocked.code):
            await self._ledger.move(session, "session.capacity.get")
        return free

    async def _still_there(self) -> bool:
        """Whether a running session's supervisor reconnects by itself."""
        await self.link.open("normal")
        with contextlib.suppress(DeadlineExceeded):
            await self.link.connected(LOST_GRACE_S)
        return self.link.alive

    async def _start(self, mode: str, image: str | None = None) -> None:
        """Container up, supervisor connected in this mode."""
        session = self._session()
        plan = self._preparing.pinned(session)
        image = image or await self._preparing.image(session, plan, self.link.note)
        if session.id not in await self._provider.owned_volumes(self._context.store.install_id):
            await self.link.forget_key()
        await self.link.open(mode)
        branch = asyncio.create_task(self._preparing.branch(session))
        try:
            await self._provider.start(self._spec(session, plan, image))
        finally:
            await branch
        await (self._while_wanted(self._arrival(session)) if mode == "normal" else self._arrival(session))

    async def _arrival(self, session: Session) -> None:
        """Wait for the supervisor of a container that was just started; not for one that is dead already."""
        words = f"did not answer within {CONNECT_S:.0f} s"
        for _ in range(round(CONNECT_S / LOOK_S)):
            with contextlib.suppress(DeadlineExceeded):
                await self.link.connected(LOOK_S)
                return
            state = await self._provider.inspect(session.id)
            if state is None or not state.running:
                words = "ended before it answered"
                break
        printed = (await self._provider.output(session.id, lines=5)).strip()
        raise SandboxDied(
            f"The sandbox's supervisor {words}. {printed}".strip(),
            hint="Run `kortix doctor`; `kortix sessions resume` tries again.",
        )

    def _spec(self, session: Session, plan: AgentPlan, image: str) -> SandboxSpec:
        return SandboxSpec(
            session_id=session.id,
            install_id=self._context.store.install_id,
            project_id=session.project_id,
            image=image,
            door=self._context.home.door(session.id),
            cpus=plan.template.cpu,
            memory_bytes=plan.template.memory_gib * GIB,
            runtime=self._context.settings.docker.runtime,
        )

    # At work

    async def _work(self, session: Session) -> Next:
        """Answer the next prompt, or stop an idle session."""
        prompt = self._ledger.prompt(session.id, PromptState.RUNNING, PromptState.QUEUED)
        if prompt is not None:
            try:
                if await self._turns.answer(session, prompt):
                    self._troubles = 0
            except VaultFailed as error:
                await self._turns.say_what_is_short(session, error)
                return Next.WAIT
            return Next.AGAIN
        await self._turns.say_what_is_short(session)
        if session.activity is Activity.WAITING:
            return Next.WAIT  # for a person: that is no idleness of the session's
        idle_for = self._idle.since(session.active_at)
        if idle_for >= session.idle_minutes * 60 and not self.link.attended:
            text = f"Stopped after {session.idle_minutes:g} min without work; a new prompt or `resume` wakes it."
            await self._ledger.fall_idle(session, text)
            return Next.AGAIN
        return Next.WAIT

    async def open_shell(self, rows: int, columns: int, term: str) -> ShellStream:
        """A terminal for a person, with the secrets that a turn would get; without them while the vault is locked.

        Raises:
            ChannelClosed: The sandbox is not connected.
            Refused: The secrets are more than a sandbox takes.
        """
        session, parcel = self._session(), Parcel()
        try:
            parcel = await self._delivery.parcel(session, self.link.note)
            await self._delivery.record(session, parcel, kind="shell")
        except VaultFailed as error:
            self.link.note(f"A shell is opened without secrets: {error.message}")
            parcel = Parcel()
        return await self.link.open_shell(rows, columns, term, parcel.environment)

    # Down

    async def _stop(self, session: Session) -> None:
        """Save the work, then end the processes; the disk stays."""
        if session.status in (SessionStatus.STOPPED, SessionStatus.FAILED):
            await self._provider.stop(session.id)
            return
        if session.status is SessionStatus.RUNNING and not self.link.alive:
            await self._still_there()  # this host came a moment ago; the work is still to be saved
        reason, text = ("idle", session.reason_text) if session.reason == "idle" else ("stopped", None)
        await self._turns.end_running(session)
        if self.link.alive:
            if (lost := await self._saving.save("stop")) is not None:
                text = f"{text or 'Stopped.'} Not saved yet: {lost} Its disk is kept."
            await self.link.shutdown()
        await self._provider.stop(session.id)
        await self._turns.lose_running(session, "The session was stopped during this turn; it may have had effects.")
        await self._ledger.move(
            session, "session.status.changed", status=SessionStatus.STOPPED, reason=reason, text=text
        )

    async def _remove(self, session: Session) -> None:
        """Save the work, then take container and volumes away; both stay when saving fails."""
        has_work = session.id in await self._provider.owned_volumes(self._context.store.install_id)
        if has_work:
            if not self.link.alive:
                await self._start("rescue")
            await self._turns.end_running(session)
            if (lost := await self._saving.save("remove")) is not None:
                await self._provider.stop(session.id)
                await self._turns.lose_running(session, "The session was stopped during this turn.")
                text = f"Not removed, because its work could not be saved: {lost} The disk is kept."
                await self._ledger.move(
                    session, "session.delete", status=SessionStatus.FAILED, wanted=Wanted.STOPPED,
                    reason="rescue_failed", text=text, outcome=Outcome.FAILURE,
                )  # fmt: skip
                return
            await self.link.shutdown()
        await self._turns.lose_running(session, "The session was removed during this turn.")
        await self._provider.remove(session.id, volumes=True)
        await self._preparing.forget(session)
        await self._ledger.removed(session)

    # When things go wrong

    async def _after_death(self, session: Session, *, out_of_memory: bool) -> None:
        """The container is gone while it should run: find out how the turn ended, save the work, stop."""
        text = "The sandbox ended by itself" + (": it ran out of memory." if out_of_memory else ".")
        disk = session.id in await self._provider.owned_volumes(self._context.store.install_id)
        self.link.note(text)
        await self._start("rescue")
        prompt = self._ledger.prompt(session.id, PromptState.RUNNING)
        if prompt is not None:
            end = await self.link.wait_end(prompt.id, CANCEL_S)
            lost = await self._saving.save("sandbox died")
            if end is not None and end.certain:
                await self._turns.finish(session, prompt, end)
            else:
                await self._turns.lose_running(session, f"{text} The turn may have had effects.")
        else:
            lost = await self._saving.save("sandbox died")
        await self.link.shutdown()
        await self._provider.stop(session.id)
        kept = " Its work was saved." if disk else " Its disk is gone; what was pushed or saved before is still there."
        if lost:
            kept = f" Not saved yet: {lost} Its disk is kept."
        await self._ledger.move(
            session, "session.status.changed", status=SessionStatus.STOPPED, wanted=Wanted.STOPPED,
            reason="sandbox_died", text=f"{text}{kept} `resume` starts it again.", outcome=Outcome.FAILURE,
        )  # fmt: skip

    async def _fail(self, session: Session, error: KortixError) -> None:
        """Keep queue and disk, say why, wait for a person."""
        self.link.note(str(error))
        if session.status is SessionStatus.RUNNING and self.link.alive:
            await self._saving.save("failure")
        with contextlib.suppress(KortixError):
            await self._provider.stop(session.id)
        await self._turns.lose_running(session, error.message)
        await self._ledger.move(
            session, "session.status.changed", status=SessionStatus.FAILED, wanted=Wanted.STOPPED,
            reason=error.code, text=str(error), outcome=Outcome.FAILURE,
        )  # fmt: skip

    async def _engine_gone(self, error: EngineUnavailable) -> None:
        """No engine: a running session waits for it; one that was to start fails with what to do."""
        session = self._session()
        if session.status is SessionStatus.PROVISIONING:
            await self._fail(session, error)
        elif session.reason != error.code:
            await self._ledger.move(session, "sandbox.engine.lost", reason=error.code, text=str(error))
        await asyncio.sleep(RETRY_S)
