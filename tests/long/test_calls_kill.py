"""`kill -9` of hosts at random moments over many approved calls: never two effects (the short form is I5's own)."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import pytest
from call_deaths import check, waiting_calls

from kortix_tui.base.paths import Home
from kortix_tui.runtime import call_carrying, call_limits

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
KILLS = int(os.environ.get("CALL_KILLS_LONG", "40"))
CALLS = 60


async def test_nothing_happens_twice(home: Home, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ((call_limits, "A_MINUTE"), (call_limits, "ALL_A_MINUTE"), (call_carrying, "MOST_PENDING")):
        monkeypatch.setattr(name, value, CALLS + 1)
    async with waiting_calls(home, short_folder, CALLS) as deaths:
        seed = random.randrange(2**32)
        print(f"seed {seed}")

        def work() -> None:
            luck = random.Random(seed)
            for _ in range(KILLS):
                # A few at a time, so that every host finds some to carry out.
                for view in deaths.runtime.approvals.pending()[: luck.randint(0, 4)]:
                    deaths.runtime.approvals.decide(
                        view.id, digest=view.digest or "", approve=True, terminal=True, pinned=True
                    )
                deaths.kill_soon(luck)
            deaths.approve_all()
            calls = deaths.settle()
            check(deaths, calls)
            done = sum(call.state.value == "done" for call in calls)
            print(f"{done} done, {len(calls) - done} unknown, {len(deaths.effects())} effects")

        await asyncio.to_thread(work)
