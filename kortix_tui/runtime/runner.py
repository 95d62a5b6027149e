"""One session's keeper: compares what is wanted with what is, and acts on the difference.

Level-triggered: it remembers nothing that the store, the engine or git cannot tell it again, so the process may die at
any line and the next host's runner goes on from the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from enum import Enum, auto
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, EngineUnavailable, KortixError
from kortix_tui.base.words import Activity, Outcome, PromptState, SessionStatus, Wanted
from kortix_tui.harness.command import TurnStart, command_turn
from kortix_tui.manifest.plan import AgentPlan
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.link import Link
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.recording import TurnEnd
from kortix_tui.runtime.saving import Saving
from kortix_tui.sandbox.channel import ChannelClosed
from kortix_tui.sandbox.provider import Provider, SandboxSpec
from kortix_tui.store.database import Fenced
from kortix_tui.store.models import Prompt, Session

CONNECT_S: Final = 60.0
READY_S: Final = 600.0
CANCEL_S: Final = 10.0
LOST_GRACE_S: Final = 6.0
"""The supervisor comes back within two seconds when only the connection was lost."""
RETRY_S: Final = 2.0
GIB: Final = 1 << 30


class Next(Enum):
    """What the loop does after a step."""

    AGAIN = auto()
    WAIT = auto()
    DONE = auto()


class SandboxDied(KortixError):
    """The sandbox ended without being asked to."""

    code = "sandbox_died"


class Runner:
    """Brings one session to what is wanted of it and keeps it there."""

    def __init__(
        self, session_id: str, context: Context, ledger: Ledger, provider: Provider, preparing: Preparing
    ) -> None:
        self.session_id = session_id
        self._context = context
        self._ledger = ledger
        self._provider = provider
        self._preparing = preparing
        self.changed = asyncio.Event()
        self.link = Link(session_id, context, ledger, preparing.mirror, self.changed)
        self._saving = Saving(session_id, ledger, self.link)

    # The loop

    async def run(self) -> None:
        """Work until the session is as wanted and needs nobody; errors end in a stored reason."""
        try:
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
                            with contextlib.suppress(TimeoutError):
                                async with asyncio.timeout(self._pause()):
                                    await self.changed.wait()
                except ChannelClosed:
                    continue  # the next step finds out whether the sandbox is still there
                except (Fenced, EngineUnavailable):
                    raise
                except KortixError as error:
                    await self._fail(self._session(), error)
                    return
        except EngineUnavailable as error:
            await self._engine_gone(error)
        finally:
            await self.link.close()

    async def _step(self, session: Session) -> Next:
        """Do the next thing."""
        match session.wanted:
            case Wanted.REMOVED:
                await self._remove(session)
                return Next.DONE
            case Wanted.STOPPED:
                await self._stop(session)
                return Next.DONE
            case Wanted.RUNNING:
                if not self.link.alive or session.status is not SessionStatus.RUNNING:
                    await self._bring_up(session)
                    return Next.AGAIN
                return await self._work(session)

    def _pause(self) -> float:
        """Seconds until something may be due although nothing changed."""
        session = self._session()
        idle_at = session.active_at + timedelta(minutes=session.idle_minutes)
        return min(30.0, max(0.5, (idle_at - self._context.clock.now()).total_seconds()))

    def _session(self) -> Session:
        session = self._ledger.session(self.session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session

    # Up

    async def _bring_up(self, session: Session) -> None:
        """Make the sandbox run and its supervisor answer; a lost connection is first given time to come back."""
        if session.status is SessionStatus.RUNNING and await self._still_there():
            return
        state = await self._provider.inspect(session.id) if session.status is SessionStatus.RUNNING else None
        if session.status is SessionStatus.RUNNING and (state is None or not state.running):
            await self._after_death(session, out_of_memory=state is not None and state.out_of_memory)
            return
        plan = await self._preparing.plan(session, self.link.note)
        await self._start("normal")
        await self.link.ready(READY_S)
        session = self._session()
        if session.status is not SessionStatus.RUNNING:
            await self._ledger.move(
                session, "session.status.changed", status=SessionStatus.RUNNING, activity=Activity.IDLE
            )
            self.link.note(f"Sandbox ready on branch {session.id}, agent {plan.name}.")

    async def _still_there(self) -> bool:
        """Whether a running session's supervisor reconnects by itself."""
        await self.link.open("normal")
        with contextlib.suppress(DeadlineExceeded):
            await self.link.connected(LOST_GRACE_S)
        return self.link.alive

    async def _start(self, mode: str) -> None:
        """Container up, supervisor connected in this mode."""
        session = self._session()
        plan = self._preparing.pinned(session)
        image = await self._preparing.image(session, plan, self.link.note)
        if session.id not in await self._provider.owned_volumes(self._context.store.install_id):
            await self.link.forget_key()
        await self.link.open(mode)
        branch = asyncio.create_task(self._preparing.branch(session))
        try:
            await self._provider.start(self._spec(session, plan, image))
        finally:
            await branch
        try:
            await self.link.connected(CONNECT_S)
        except DeadlineExceeded:
            printed = (await self._provider.output(session.id, lines=5)).strip()
            raise SandboxDied(
                f"The sandbox's supervisor did not answer within {CONNECT_S:.0f} s. {printed}".strip(),
                hint="Run `kortix doctor`; `kortix sessions resume` tries again.",
            ) from None

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
            await self._turn(session, prompt)
            return Next.AGAIN
        idle_at = session.active_at + timedelta(minutes=session.idle_minutes)
        if self._context.clock.now() >= idle_at and not self.link.attended:
            text = f"Stopped after {session.idle_minutes} min without work; a new prompt or `resume` wakes it."
            await self._ledger.move(session, "session.idle", wanted=Wanted.STOPPED, reason="idle", text=text)
            return Next.AGAIN
        return Next.WAIT

    async def _turn(self, session: Session, prompt: Prompt) -> None:
        """Run one prompt to its end, whatever part of it an earlier host has seen."""
        end = self.link.ended(prompt.id) if prompt.state is PromptState.RUNNING else None
        if end is None:
            if prompt.state is PromptState.QUEUED:
                await self._ledger.start_prompt(session, prompt)
            # Idempotent by the prompt's id: what the supervisor has started is never started again.
            await self.link.start_turn(self._order(session, prompt))
            end = await self._turn_end(prompt)
        if end is None:
            return  # the connection was lost, or something else is wanted now; the next step finds out
        await self._saving.save("turn end")
        await self._finish(session, prompt, end)

    def _order(self, session: Session, prompt: Prompt) -> TurnStart:
        plan = self._preparing.pinned(session)
        return command_turn(
            harness=plan.harness,
            command=plan.command,
            agent=plan.name,
            project=self._ledger.project(session.project_id).slug,
            prompt_id=prompt.id,
            prompt=prompt.text,
        )

    async def _turn_end(self, prompt: Prompt) -> TurnEnd | None:
        """Wait for the turn's end; cancel it when a stop or removal is wanted."""
        while True:
            self.changed.clear()
            if (end := self.link.ended(prompt.id)) is not None:
                return end
            if not self.link.alive:
                return None
            if self._session().wanted is not Wanted.RUNNING:
                await self.link.cancel_turn(prompt.id)
                return await self.link.wait_end(prompt.id, CANCEL_S)
            await self.changed.wait()

    async def _finish(self, session: Session, prompt: Prompt, end: TurnEnd) -> None:
        await self._ledger.end_prompt(session, prompt, end.state, exit_code=end.exit_code, message=end.message)

    # Down

    async def _stop(self, session: Session) -> None:
        """Save the work, then end the processes; the disk stays."""
        if session.status in (SessionStatus.STOPPED, SessionStatus.FAILED):
            await self._provider.stop(session.id)
            return
        reason, text = session.reason or "stopped", session.reason_text
        await self._end_running_turn(session)
        if self.link.alive:
            if (lost := await self._saving.save("stop")) is not None:
                text = f"{text or 'Stopped.'} Not saved yet: {lost} Its disk is kept."
            await self.link.shutdown()
        await self._provider.stop(session.id)
        await self._ledger.move(
            session, "session.status.changed", status=SessionStatus.STOPPED, reason=reason, text=text
        )

    async def _end_running_turn(self, session: Session) -> None:
        prompt = self._ledger.prompt(session.id, PromptState.RUNNING)
        if prompt is None or not self.link.alive:
            return
        end = self.link.ended(prompt.id)
        if end is None:
            await self.link.cancel_turn(prompt.id)
            end = await self.link.wait_end(prompt.id, CANCEL_S)
        if end is not None:
            await self._finish(session, prompt, end)

    async def _remove(self, session: Session) -> None:
        """Save the work, then take container and volumes away; both stay when saving fails."""
        has_work = session.id in await self._provider.owned_volumes(self._context.store.install_id)
        if has_work:
            if not self.link.alive:
                await self._start("rescue")
            await self._end_running_turn(session)
            if (lost := await self._saving.save("remove")) is not None:
                await self._provider.stop(session.id)
                text = f"Not removed, because its work could not be saved: {lost} The disk is kept."
                await self._ledger.move(
                    session, "session.delete", status=SessionStatus.FAILED, wanted=Wanted.STOPPED,
                    reason="rescue_failed", text=text, outcome=Outcome.FAILURE,
                )  # fmt: skip
                return
            await self.link.shutdown()
        await self._lose_running_prompt(session, "The session was removed during this turn.")
        await self._provider.remove(session.id, volumes=True)
        await self._preparing.forget(session)
        await self._ledger.removed(session)

    # When things go wrong

    async def _after_death(self, session: Session, *, out_of_memory: bool) -> None:
        """The container is gone while it should run: find out how the turn ended, save the work, stop."""
        text = "The sandbox ended by itself" + (": it ran out of memory." if out_of_memory else ".")
        self.link.note(text)
        await self._start("rescue")
        prompt = self._ledger.prompt(session.id, PromptState.RUNNING)
        if prompt is not None:
            end = await self.link.wait_end(prompt.id, CANCEL_S)
            lost = await self._saving.save("sandbox died")
            if end is not None and end.certain:
                await self._finish(session, prompt, end)
            else:
                await self._lose_running_prompt(session, f"{text} The turn may have had effects.")
        else:
            lost = await self._saving.save("sandbox died")
        await self.link.shutdown()
        await self._provider.stop(session.id)
        kept = f" Not saved yet: {lost} Its disk is kept." if lost else " Its work was saved."
        await self._ledger.move(
            session, "session.status.changed", status=SessionStatus.STOPPED, wanted=Wanted.STOPPED,
            reason="sandbox_died", text=f"{text}{kept} `resume` starts it again.", outcome=Outcome.FAILURE,
        )  # fmt: skip

    async def _lose_running_prompt(self, session: Session, message: str) -> None:
        if (prompt := self._ledger.prompt(session.id, PromptState.RUNNING)) is not None:
            await self._ledger.end_prompt(session, prompt, PromptState.UNKNOWN, exit_code=None, message=message)

    async def _fail(self, session: Session, error: KortixError) -> None:
        """Keep queue and disk, say why, wait for a person."""
        self.link.note(str(error))
        with contextlib.suppress(KortixError):
            await self._provider.stop(session.id)
        await self._lose_running_prompt(session, error.message)
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
