"""What time does to calls: nobody decides, nobody waits any more, what was asked for is no longer the same."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import KortixError
from kortix_tui.base.words import CallState
from kortix_tui.runtime import call_ledger
from kortix_tui.runtime.call_making import CallMaking
from kortix_tui.runtime.call_reports import prompt_of
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.outputs import Outputs
from kortix_tui.store.database import Fenced
from kortix_tui.store.models import Call

SWEEP_S: Final = 1.0
CHECK_S: Final = 5.0
SILENT_S: Final = 40.0
"""Callers ask again within 25 s; whoever has not asked for so long is gone."""
log = logging.getLogger(__name__)
_FINAL: Final = ", ".join(f"'{state}'" for state in CallState if state.final and state is not CallState.REFUSED)


class CallSweep:
    """Ends and tells calls, whatever any process did or did not do meanwhile.

    Args:
        ledger: Where it is written.
        making: Knows whether a call could still be made.
        outputs: Where answers are.
        idle: Seconds since somebody asked for a call; `None` while somebody waits for it.
        under_way: Whether this host carries a call at this moment.
        over: Is told of calls that ended other than by being sent: left without an end, denied, expired, superseded.
    """

    def __init__(
        self,
        ledger: Ledger,
        making: CallMaking,
        outputs: Outputs,
        *,
        idle: Callable[[str], float | None],
        under_way: Callable[[str], bool],
        over: Callable[[Call], None],
    ) -> None:
        self._ledger = ledger
        self._making = making
        self._outputs = outputs
        self._idle = idle
        self._under_way = under_way
        self._over = over
        self._checked_at = 0.0
        self._told_until = to_text(ledger.store.clock.now())

    async def run(self) -> None:
        """Sweep until cancelled; a fault of one sweep does not end the next."""
        while True:
            try:
                await self.once()
            except Fenced:
                raise
            except KortixError as error:
                log.warning("calls could not be swept: %s", error)
            except Exception:
                log.exception("sweeping calls failed")
            await asyncio.sleep(SWEEP_S)

    async def once(self) -> None:
        """One sweep."""
        await self._expire()
        await self._lose()
        await self._leave()
        await self._supersede()
        self._say_what_ended()
        await self._tell()
        await asyncio.to_thread(self._ledger.store.note_head)

    async def _expire(self) -> None:
        now = to_text(self._ledger.store.clock.now())
        for call in self._calls("state IN ('pending', 'approved') AND expires_at <= ?", now):
            message = "Nobody decided in time." if call.state is CallState.PENDING else "It could not be sent in time."
            change = partial(
                call_ledger.close, call=call, state=CallState.EXPIRED, code="expired", message=message
            )  # fmt: skip
            await self._ledger.write(change)

    async def _lose(self) -> None:
        """What nobody carries any more has no end in the store, because that could not be written."""
        left = frozenset(call.id for call in self._calls("state = 'executing'") if not self._under_way(call.id))
        if left:
            for call in await self._ledger.write(partial(call_ledger.lose_executing, only=left)):
                self._over(call)

    async def _leave(self) -> None:
        """Whoever has not asked for long is gone, though nobody said so."""
        for call in self._calls("state IN ('pending', 'approved', 'executing') AND left_at IS NULL"):
            if call.session_id is not None and self._is_silent(call):
                await self._ledger.write(partial(call_ledger.leave, call_id=call.id))

    async def _supersede(self) -> None:
        """What could not be sent any more is not left for a person to decide about."""
        now = self._ledger.store.clock.monotonic()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        for call in self._calls("state = 'pending'"):
            if call.session_id is None:
                continue
            refusal = await self._making.why_not(self._making.caller(call.session_id), call)
            if refusal is not None and refusal.word != "base_unreadable":
                change = partial(
                    call_ledger.close, call=call, state=CallState.SUPERSEDED, code=refusal.word, message=str(refusal)
                )  # fmt: skip
                await self._ledger.write(change)

    def _say_what_ended(self) -> None:
        """Any process may have decided; this one keeps the session's record."""
        ended = self._calls("state IN ('denied', 'expired', 'superseded') AND ended_at > ?", self._told_until)
        for call in ended:
            self._over(call)
        self._told_until = max([self._told_until, *(to_text(call.ended_at) for call in ended if call.ended_at)])

    async def _tell(self) -> None:
        """Queue one prompt for each final answer that nobody got."""
        rows = self._calls(
            f"state IN ({_FINAL}) AND collected_at IS NULL AND told_at IS NULL AND session_id IN"
            " (SELECT id FROM sessions WHERE removed_at IS NULL AND wanted != 'removed')"
        )
        for call in rows:
            if call.left_at is None and not self._is_silent(call):
                continue
            body = None
            if call.output is not None:
                body = await asyncio.to_thread(self._outputs.read, call.session_id, call.output)
            # A person has acted: the session is to hear of it. What only time did waits until it runs again.
            change = partial(
                call_ledger.tell, call=call, text=prompt_of(call, body), wake=call.decided_by is not None
            )  # fmt: skip
            await self._ledger.write(change)

    def _is_silent(self, call: Call) -> bool:
        idle = self._idle(call.id)
        return idle is not None and idle > SILENT_S

    def _calls(self, clause: str, *values: str) -> list[Call]:
        query = f"SELECT {Call.columns()} FROM calls WHERE {clause} ORDER BY created_at"
        return [Call.of(row) for row in self._ledger.store.all(query, values)]
