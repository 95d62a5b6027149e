"""How many calls of a session may be under way, and wait to be."""

from __future__ import annotations

import asyncio

import pytest

from kortix_tui.broker.connectors.calling import CallRefused
from kortix_tui.runtime.call_limits import IN_FLIGHT, MOST_WAITING, Limits


async def test_calls_beyond_those_that_wait_are_refused_at_once_and_places_come_back() -> None:
    limits, going = Limits(), asyncio.Event()

    async def fly() -> None:
        async with limits.flying("s", "c"):
            await going.wait()

    tasks = [asyncio.create_task(fly()) for _ in range(IN_FLIGHT + MOST_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(CallRefused, match="under way"):
        async with limits.flying("s", "c"):
            pass
    async with limits.flying("s", "other"), limits.flying("t", "c"):
        pass
    going.set()
    await asyncio.gather(*tasks)
    async with limits.flying("s", "c"):
        pass
