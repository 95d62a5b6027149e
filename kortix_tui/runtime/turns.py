"""Turns of one session: a prompt is started once, waited for, ended when it must be, and its work saved."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Final

from kortix_tui.base.errors import DiskFull, Refused, VaultFailed, VaultLocked
from kortix_tui.base.words import PromptState, Wanted
from kortix_tui.harness.command import TurnStart, command_turn
from kortix_tui.runtime.call_waits import waited_s
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.delivery import Delivery
from kortix_tui.runtime.elapsed import Elapsed
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.link import Link
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.recording import TurnEnd
from kortix_tui.runtime.saving import Saving
from kortix_tui.store.models import Prompt, Session

CANCEL_S: Final = 10.0
LONGEST_WAIT_S: Final = 3600.0


class Turns:
    """Answers prompts through a link.

    Args:
        session_id: Whose.
        context: The process's view of the home.
        ledger: Where states are written.
        preparing: Knows the plan that says how the agent is started.
        link: The way to the sandbox.
        saving: Saves the work at a turn's end.
        delivery: Knows which secrets go along.
        changed: Set whenever there may be news.
    """

    def __init__(
        self,
        session_id: str,
        context: Context,
        ledger: Ledger,
        preparing: Preparing,
        link: Link,
        saving: Saving,
        delivery: Delivery,
        changed: asyncio.Event,
    ) -> None:
        self._session_id = session_id
        self._context = context
        self._ledger = ledger
        self._preparing = preparing
        self._link = link
        self._saving = saving
        self._delivery = delivery
        self._changed = changed
        self._at_work = Elapsed(context.clock)

    async def answer(self, session: Session, prompt: Prompt) -> bool:
        """Run one prompt to its end, whatever part of it an earlier host has seen; false when it did not come there.

        Raises:
            VaultFailed: The turn gets secrets that cannot be read now; it was not begun.
        """
        runs = prompt.state is PromptState.RUNNING
        end = self._link.ended(prompt.id) if runs else None
        if end is None:
            if not (runs and self._link.runs(prompt.id)):  # what runs has what it needs, also while the vault is locked
                try:
                    order = self._order(session, prompt)
                    parcel = await self._delivery.parcel(session, self._link.note)
                except Refused as error:
                    await self._ledger.end_prompt(
                        session, prompt, PromptState.FAILED, exit_code=None, message=str(error)
                    )
                    return True
                if not runs and not await self._ledger.start_prompt(session, prompt):
                    return False
                await self._delivery.record(session, parcel, kind="turn", prompt=prompt.id)
                # Idempotent by the prompt's id: what the supervisor has started is never started again.
                await self._link.start_turn(order, parcel.environment)
            end = await self._turn_end(prompt)
        if end is None:
            return False  # the connection was lost, or something else is wanted now; the next step finds out
        await self._saving.save("turn end")
        await self.finish(session, prompt, end)
        return True

    def _order(self, session: Session, prompt: Prompt) -> TurnStart:
        plan = self._preparing.pinned(session)
        turn = command_turn(
            harness=plan.harness,
            command=plan.command,
            agent=plan.name,
            project=self._ledger.project(session.project_id).slug,
            prompt_id=prompt.id,
            prompt=prompt.text,
        )
        wait = f"{self._context.settings.approvals.wait_seconds:g}"
        return turn.model_copy(update={"environment": {**turn.environment, "KORTIX_TOOL_WAIT_SECONDS": wait}})

    async def _turn_end(self, prompt: Prompt) -> TurnEnd | None:
        """Wait for the turn's end; cancel it when a stop or removal is wanted, or when its time is over."""
        while True:
            self._changed.clear()
            if (end := self._link.ended(prompt.id)) is not None:
                return end
            session = self._session()
            if not self._link.alive or session.wanted is not Wanted.RUNNING:
                return None
            await self.say_what_is_short(session)
            left = self._time_left(prompt)
            if left <= 0:
                await self._link.cancel_turn(prompt.id)
                left = CANCEL_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, LONGEST_WAIT_S)):
                    await self._changed.wait()

    def _time_left(self, prompt: Prompt) -> float:
        """Seconds that a turn may still take; what it only waited for a person is not counted."""
        minutes = self._context.settings.sandbox.prompt_timeout_minutes
        current = self._ledger.prompt(self._session_id, PromptState.RUNNING) or prompt
        if minutes is None or current.started_at is None:
            return LONGEST_WAIT_S
        waited = waited_s(self._context.store, self._session_id, current.started_at)
        return minutes * 60 + waited - self._at_work.since(current.started_at)

    async def finish(self, session: Session, prompt: Prompt, end: TurnEnd) -> None:
        """Write down how a turn ended; its work was saved before."""
        if end.cancelled and self._session().wanted is Wanted.RUNNING and self._time_left(prompt) <= 0:
            minutes = self._context.settings.sandbox.prompt_timeout_minutes
            end = replace(end, message=f"Timed out: the turn took longer than {minutes:g} min and was ended.")
        await self._ledger.end_prompt(session, prompt, end.state, exit_code=end.exit_code, message=end.message)

    async def end_running(self, session: Session) -> None:
        """End the turn that runs, and write down how it ended if the sandbox still says so."""
        prompt = self._ledger.prompt(session.id, PromptState.RUNNING)
        if prompt is None or not self._link.alive:
            return
        end = self._link.ended(prompt.id)
        if end is None:
            await self._link.cancel_turn(prompt.id)
            end = await self._link.wait_end(prompt.id, CANCEL_S)
        if end is not None:
            await self.finish(session, prompt, end)

    async def lose_running(self, session: Session, message: str) -> None:
        """Write down that nobody knows how the turn that ran has ended."""
        if (prompt := self._ledger.prompt(session.id, PromptState.RUNNING)) is not None:
            await self._ledger.end_prompt(session, prompt, PromptState.UNKNOWN, exit_code=None, message=message)

    async def say_what_is_short(self, session: Session, waiting: VaultFailed | None = None) -> None:
        """Keep the reason that a running session shows in step with what it really lacks.

        Args:
            session: As it was read last.
            waiting: Why its next turn cannot begin.
        """
        short = self._link.shortage
        code, event, text = None, "session.trouble.over", None
        if waiting is not None:
            code, event, text = VaultLocked.code, "session.vault.wait", str(waiting)
        elif short is not None and self._delivery.custodian.holding(session.id) is not None:
            code, event = VaultLocked.code, "session.record.pause"
            text = f"Its output waits in the sandbox ({short}): it may hold values. Unlock it: kortix vault unlock."
        elif short is not None:
            code, event = DiskFull.code, "session.record.pause"
            text = f"Its output cannot be stored ({short}): it waits in the sandbox until there is space."
        if session.reason != code:
            await self._ledger.move(session, event, reason=code, text=text)

    def _session(self) -> Session:
        session = self._ledger.session(self._session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session
