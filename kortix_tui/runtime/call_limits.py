"""How often and how many at a time one session may call. Kept in memory: a new host starts to count anew."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import ClassVar, Final

from kortix_tui.base.errors import Refused
from kortix_tui.broker.connectors.calling import CallRefused

IN_FLIGHT: Final = 4
A_MINUTE: Final = 60
"""For each session and connector."""
ALL_A_MINUTE: Final = 300
"""For a session, whatever it names: what is refused is on record too, and must not fill it."""
MOST_WAITING: Final = 16
"""For a place, beside those under way: each holds its arguments in memory."""
PATIENCE_S: Final = 20.0
_MINUTE_S: Final = 60.0
_Key = tuple[str | None, str]


class TooManyCalls(Refused):
    """The session calls so often that its calls are not even put on record one by one."""

    code: ClassVar[str] = "rate_limited"


class Limits:
    """Counts calls by session and connector."""

    def __init__(self) -> None:
        self._past: dict[_Key, deque[float]] = defaultdict(deque)
        self._flying = defaultdict[_Key, asyncio.Semaphore](lambda: asyncio.Semaphore(IN_FLIGHT))
        self._waiting = defaultdict[_Key, int](int)

    def count(self, session_id: str | None, connector: str) -> None:
        """Count one call.

        Raises:
            TooManyCalls: The session makes far too many; nothing is written down.
            CallRefused: Too many in this minute of this connector.
        """
        if session_id is None:
            return
        left = self._add((session_id, ""), ALL_A_MINUTE)
        if left is not None:
            raise TooManyCalls("This session makes too many calls.", hint=f"Wait {left:.0f} s, then call less often.")
        left = self._add((session_id, connector), A_MINUTE)
        if left is not None:
            raise CallRefused(
                "rate_limited", f"More than {A_MINUTE} calls of this connector in a minute.",
                hint=f"Wait {left:.0f} s.",
            )  # fmt: skip

    def _add(self, key: _Key, most: int) -> float | None:
        """Seconds until the next one is let through; `None` when this one is."""
        now, past = time.monotonic(), self._past[key]
        while past and now - past[0] >= _MINUTE_S:
            past.popleft()
        if len(past) >= most:
            return _MINUTE_S - (now - past[0])
        past.append(now)
        return None

    @asynccontextmanager
    async def flying(self, session_id: str | None, connector: str) -> AsyncIterator[None]:
        """Hold one of the places for calls under way.

        Raises:
            CallRefused: Too many wait for one, or none became free in time.
        """
        key = (session_id, connector)
        places = self._flying[key]
        full = CallRefused(
            "rate_limited", f"{IN_FLIGHT} calls of this connector are under way already.", hint="Wait for them."
        )
        if self._waiting[key] >= MOST_WAITING:
            raise full
        self._waiting[key] += 1
        try:
            async with asyncio.timeout(PATIENCE_S):
                await places.acquire()
        except TimeoutError:
            raise full from None
        finally:
            self._waiting[key] -= 1
        try:
            yield
        finally:
            places.release()
