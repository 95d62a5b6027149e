"""I5: an approved call runs at most once, exactly as it was shown; a crash in the middle is told, never repeated."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from brokered import Scene, open_scene, until
from call_deaths import Deaths, check, waiting_calls
from desk import wait_for

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.broker.connectors.model import HttpCall, Materialised
from kortix_tui.runtime import call_ledger
from kortix_tui.store.database import Store

pytestmark = pytest.mark.timeout(300)
KILLS = int(os.environ.get("CALL_KILLS", "6"))

POINTS = {
    "seen": ("before:call_carrying:Carrying.execute_approved", CallState.DONE),
    "checked": ("after:call_making:CallMaking.why_not", CallState.DONE),
    "not yet committed": ("before:call_ledger:begin_approved", CallState.DONE),
    "used, not sent": ("before:sending:Sending.send", CallState.UNKNOWN),
    "sent, not written": ("after:sending:Sending.send", CallState.UNKNOWN),
    "kept, not written": ("after:outputs:Outputs.write", CallState.UNKNOWN),
    "ending": ("before:call_ledger:finish", CallState.UNKNOWN),
    "ended, not told": ("before:call_ledger:tell", CallState.DONE),
    "told, not committed": ("after:call_ledger:tell", CallState.DONE),
}
"""Where the host dies, and what becomes of the call."""


@pytest.fixture
async def one(home: Home, short_folder: Path) -> AsyncIterator[Deaths]:
    async with waiting_calls(home, short_folder, 1) as made:
        yield made


@pytest.mark.parametrize("point", POINTS)
async def test_a_host_that_dies_between_approval_and_answer(one: Deaths, point: str) -> None:
    where, becomes = POINTS[point]

    def work() -> None:
        one.approve_all()
        one.die(where)
        call = one.settle()[0]
        assert call.state is becomes, call
        check(one, [call])
        assert sum(one.effects().values()) == (0 if point == "used, not sent" else 1)
        one.kill_soon(random.Random(1))  # later hosts find nothing to do again
        one.settle()
        check(one, one.calls())

    await asyncio.to_thread(work)


async def test_what_became_of_it_is_told_once_across_deaths(one: Deaths) -> None:
    def work() -> None:
        one.approve_all()
        one.die("before:sending:Sending.send")
        process = one.host("never")
        try:
            wait_for(one.told)
        finally:
            process.kill()
            process.wait()
        one.kill_soon(random.Random(1))
        assert len(one.told()) == 1 and "nobody knows whether it has run" in one.told()[0]

    await asyncio.to_thread(work)


async def test_hosts_that_die_at_random_moments(home: Home, short_folder: Path) -> None:
    async with waiting_calls(home, short_folder, 12) as deaths:
        seed = random.randrange(2**32)

        def work() -> None:
            luck = random.Random(seed)
            deaths.approve_all()
            for _ in range(KILLS):
                deaths.kill_soon(luck)
            check(deaths, deaths.settle())

        print(f"seed {seed}")
        await asyncio.to_thread(work)


async def test_four_racing_deciders_decide_each_call_once(home: Home, short_folder: Path) -> None:
    async with waiting_calls(home, short_folder, 16) as deaths:

        def work() -> None:
            hosts = [deaths.host("never") for _ in range(2)]
            deciders = deaths.deciders("approve", "deny", "approve", "deny")
            try:
                decided = [line for one in deciders for line in one.communicate(timeout=120)[0].split()]
                assert all(one.returncode == 0 for one in deciders)
                calls = deaths.settle()
            finally:
                for host in hosts:
                    host.kill()
                    host.wait()
                for decider in deciders:
                    decider.kill()
                    decider.wait()
            assert sorted(decided) == sorted(call.id for call in calls), "each by exactly one of them"
            states = {call.state for call in calls}
            assert states <= {CallState.DONE, CallState.DENIED}
            check(deaths, calls)
            assert len(deaths.effects()) == sum(call.state is CallState.DONE for call in calls)

        await asyncio.to_thread(work)


@pytest.fixture
async def scene(home: Home, short_folder: Path) -> AsyncIterator[Scene]:
    async with open_scene(home, short_folder) as made:
        yield made


async def test_four_racing_executors_use_each_approval_once(scene: Scene) -> None:
    agent = await scene.broker.agent(await scene.session())
    monopoly = scene.tasks.pop(0)  # nobody else executes
    monopoly.cancel()
    ids = [(await scene.pending(agent, id=str(n), text="x"))["id"] for n in range(12)]
    digests = {}
    for identity in ids:
        await asyncio.to_thread(scene.decide, identity)
        digests[identity] = scene.broker.call(identity).digest or ""

    def execute(number: int) -> list[str]:
        store, won = Store(scene.home), list[str]()
        for identity in ids[number:] + ids[:number]:
            with store.write() as tx:
                if call_ledger.begin_approved(tx, identity, digests[identity]) is not None:
                    won.append(identity)
        store.close()
        return won

    with ThreadPoolExecutor(4) as pool:
        won = [identity for found in pool.map(execute, range(4)) for identity in found]
    assert sorted(won) == sorted(ids)


async def test_what_is_sent_is_what_was_shown(scene: Scene) -> None:
    """Byte for byte, whatever the base branch says by then of texts that do not change where it leads."""
    agent = await scene.broker.agent(await scene.session())
    report = await scene.pending(agent, id="a b/ü", text='quote " and \n line', cc="x&y=z")
    view = scene.runtime.approvals.show(report["id"])
    stored = Materialised.model_validate_json(view.request or "")
    assert isinstance(stored.call, HttpCall) and stored.digest() == view.digest
    await asyncio.to_thread(scene.decide, report["id"])
    await until(lambda: scene.outside.received)
    sent = scene.outside.received[0]
    assert f"http://{sent.header('host')}{sent.target}" == stored.call.url == view.url
    assert sent.body == stored.call.body and sent.method == stored.call.method == view.method
    assert json.loads(view.body or "") == {"cc": "x&y=z", "text": 'quote " and \n line'}


@pytest.mark.parametrize("column", ["request", "arguments", "digest"])
async def test_a_request_that_was_changed_after_it_was_shown_is_not_sent(scene: Scene, column: str) -> None:
    agent = await scene.broker.agent(await scene.session())
    report = await scene.pending(agent)
    call = scene.broker.call(report["id"])
    changed = {
        "request": (call.request or "").replace("/tickets/7/", "/tickets/8/"), "arguments": '{"id":"8","text":"Hello"}',
        "digest": "0" * 64,
    }  # fmt: skip
    monopoly = scene.tasks.pop(0)
    monopoly.cancel()
    await asyncio.to_thread(scene.decide, report["id"])
    scene.seeded.set("calls", call.id, **{column: changed[column]})
    scene.tasks.append(asyncio.create_task(scene.broker.watch()))
    after = await until(lambda: (now := scene.broker.call(call.id)).state.final and now)
    if column == "arguments":  # only shown; what is sent is the request
        assert after.state is CallState.DONE and scene.outside.effects[0][1] == "/tickets/7/replies"
    else:
        assert after.state is CallState.SUPERSEDED and scene.outside.received == []
