"""Decisions about calls: by a person, once, about exactly what was shown; and what becomes of those nobody decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from brokered import Agent, Scene, open_scene, rewrite, until

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import Ambiguous, Conflict, InvalidInput, NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Activity, CallState, PromptState
from kortix_tui.runtime import call_carrying, call_ledger, call_sweep
from kortix_tui.runtime.call_memory import Remember
from kortix_tui.runtime.inbox import ItemKind


@pytest.fixture
async def scene(home: Home, short_folder: Path) -> AsyncIterator[Scene]:
    async with open_scene(home, short_folder) as made:
        yield made


@pytest.fixture
async def session_id(scene: Scene) -> str:
    return await scene.session()


@pytest.fixture
async def agent(scene: Scene, session_id: str) -> Agent:
    return await scene.broker.agent(session_id)


def age(scene: Scene, call_id: str, **columns: timedelta) -> None:
    """Move moments of a call into the past."""
    now = scene.broker.context.clock.now()
    scene.seeded.set("calls", call_id, **{name: to_text(now - delta) for name, delta in columns.items()})


async def test_a_decision_is_taken_once(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    await asyncio.to_thread(scene.decide, report["id"], approve=False)
    with pytest.raises(Conflict, match="denied already by op"):
        await asyncio.to_thread(scene.decide, report["id"])
    assert scene.outside.received == []


async def test_another_digest_decides_nothing(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    with pytest.raises(Conflict, match="not what you were shown"):
        scene.runtime.approvals.decide(report["id"], digest="0" * 64, approve=True, terminal=True, pinned=True)
    assert scene.broker.call(report["id"]).state is CallState.PENDING


async def test_references(scene: Scene, agent: Agent) -> None:
    first = await scene.pending(agent)
    second = await scene.pending(agent, id="8", text="x")
    approvals = scene.runtime.approvals
    assert approvals.show(first["id"]).id == first["id"]
    with pytest.raises(Ambiguous):
        approvals.show("cal_")
    for wrong in ("", "cal_nothing", "\x1b[2J"):
        with pytest.raises(NotFound):
            approvals.show(wrong)
    assert approvals.show(second["id"][:-1]).id == second["id"]


@pytest.mark.parametrize("approve", [True, False])
async def test_no_program_decides(scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch, approve: bool) -> None:
    report = await scene.pending(agent)
    digest = scene.runtime.approvals.show(report["id"]).digest or ""
    decide = scene.runtime.approvals.decide
    with pytest.raises(Refused, match="the exact digest with --digest"):
        decide(report["id"], digest=digest, approve=approve, terminal=False, pinned=False)
    with pytest.raises(Refused, match="without a terminal is off"):
        decide(report["id"], digest=digest, approve=approve, terminal=False, pinned=True)
    monkeypatch.setenv("CLAUDECODE", "1")
    with pytest.raises(Refused, match="is for people"):
        decide(report["id"], digest=digest, approve=approve, terminal=True, pinned=True)
    with pytest.raises(Refused, match="is for people"):
        scene.runtime.approvals.decide_identical(digest, approve=approve, terminal=True)
    assert scene.broker.call(report["id"]).state is CallState.PENDING
    denied = scene.runtime.audit.list(event="connector.approval.", limit=10)
    assert len([one for one in denied if one.outcome == "denied"]) == 4


async def test_the_riskiest_comes_first_then_the_oldest(scene: Scene, agent: Agent) -> None:
    write = await scene.pending(agent)
    destructive = await scene.pending(agent, "desk.drop_ticket", id="9")
    later = await scene.pending(agent, id="8", text="x")
    order = [destructive["id"], write["id"], later["id"]]
    assert [view.id for view in scene.runtime.approvals.pending()] == order
    items = scene.runtime.inbox.list()
    assert [item.reference for item in items if item.kind is ItemKind.APPROVAL] == order
    assert items[0].title == 'desk.drop_ticket (id: "9")'
    elsewhere = scene.seeded.project("other", "/nowhere/other")
    assert scene.runtime.approvals.pending(scene.runtime.projects.find(elsewhere)) == []


async def test_identical_calls_of_sessions_are_decided_together(scene: Scene, agent: Agent) -> None:
    other = await scene.broker.agent(await scene.session())
    first, second = await scene.pending(agent), await scene.pending(other)
    third = await scene.pending(other, id="8", text="Hello")
    view = scene.runtime.approvals.show(first["id"])
    assert view.identical == (second["id"],)
    done = await asyncio.to_thread(
        scene.runtime.approvals.decide_identical, view.digest or "", approve=True, terminal=True
    )
    assert {one.id for one in done} == {first["id"], second["id"]}
    await until(lambda: len(scene.outside.effects) == 2)
    assert scene.broker.call(third["id"]).state is CallState.PENDING
    with pytest.raises(NotFound):
        scene.runtime.approvals.decide_identical(view.digest or "", approve=True, terminal=True)


async def test_the_last_approved_call_of_the_action_is_shown(scene: Scene, agent: Agent) -> None:
    first = await scene.pending(agent)
    assert scene.runtime.approvals.show(first["id"]).last_approved is None
    await asyncio.to_thread(scene.decide, first["id"])
    await until(lambda: scene.broker.call(first["id"]).state.final)
    second = await scene.pending(agent, id="8", text="Other")
    assert scene.runtime.approvals.show(second["id"]).last_approved == '{"id":"7","text":"Hello"}'


# ---- what nobody decides -----------------------------------------------------------------------------------------


async def test_what_nobody_decides_expires_and_is_told_without_waking(
    scene: Scene, agent: Agent, session_id: str
) -> None:
    report = await scene.pending(agent)
    await agent.follow(report["id"], leave=True)
    digest = scene.runtime.approvals.show(report["id"]).digest or ""
    age(scene, report["id"], expires_at=timedelta(seconds=1))
    await until(lambda: scene.broker.call(report["id"]).state is CallState.EXPIRED)
    prompts = await until(lambda: scene.broker.prompts(session_id))
    assert "Nobody decided in time" in prompts[0]
    assert scene.seeded.one("SELECT wanted FROM sessions")[0] == "stopped"
    with pytest.raises(Conflict):
        scene.runtime.approvals.decide(report["id"], digest=digest, approve=True, terminal=True, pinned=False)
    assert scene.outside.received == []


async def test_an_expired_call_cannot_be_approved_before_the_sweep_sees_it(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    view = scene.runtime.approvals.show(report["id"])
    with scene.seeded.store.write() as tx:  # both in one moment, so that no sweep comes between
        tx.execute("UPDATE calls SET expires_at = ? WHERE id = ?", (tx.now_text, view.id))
        tx.audit("test.change", scope="call", actor=scene.broker.context.actor)
        with pytest.raises(Conflict, match="expired"):
            call_ledger.decide(tx, view.id, view.digest or "", approve=True, actor=scene.broker.context.actor, note="")


async def test_a_caller_that_is_silent_is_gone(scene: Scene, agent: Agent, session_id: str) -> None:
    report = await scene.pending(agent)
    await asyncio.to_thread(scene.decide, report["id"])
    await until(lambda: scene.broker.call(report["id"]).state.final)
    assert scene.broker.prompts(session_id) == []
    scene.broker.calls._asked[report["id"]] -= 41
    assert report["id"] in (await until(lambda: scene.broker.prompts(session_id)))[0]


async def test_what_leads_elsewhere_now_is_superseded(
    scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_sweep, "CHECK_S", 0.0)
    report = await scene.pending(agent)
    rewrite(scene.repository, "provider: http\n", "provider: http\n    headers: {x-new: '1'}\n")
    call = await until(lambda: (now := scene.broker.call(report["id"])).state.final and now)
    assert (call.state, call.code) == (CallState.SUPERSEDED, "connector_changed")


async def test_what_was_approved_and_is_blocked_meanwhile_is_not_sent(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    rewrite(scene.repository, "    policies:\n", "    policies:\n      - {match: send_*, action: block}\n")
    await asyncio.to_thread(scene.decide, report["id"])
    call = await until(lambda: (now := scene.broker.call(report["id"])).state.final and now)
    assert (call.state, call.code) == (CallState.SUPERSEDED, "policy_block") and scene.outside.received == []


async def test_the_calls_of_a_removed_session_are_over(scene: Scene, agent: Agent, session_id: str) -> None:
    report = await scene.pending(agent)
    session = scene.broker.ledger.session(session_id)
    assert session is not None
    scene.seeded.set("sessions", session_id, wanted="removed")
    with pytest.raises(Refused, match="removed"):
        await asyncio.to_thread(scene.decide, report["id"])
    await scene.broker.ledger.removed(session)
    assert scene.broker.call(report["id"]).state is CallState.SUPERSEDED


async def test_a_session_asks_for_so_many_at_a_time(
    scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_carrying, "MOST_PENDING", 2)
    for n in range(2):
        await scene.pending(agent, id=str(n), text="x")
    report = await agent.call("desk.send_reply", {"id": "3", "text": "x"}, wait=0)
    assert (report["state"], report["code"]) == ("refused", "too_many_pending")
    again = await agent.call("desk.send_reply", {"id": "1", "text": "x"}, wait=0)
    assert again["state"] == "pending", "an identical one joins"


# ---- activity ----------------------------------------------------------------------------------------------------


async def test_a_session_that_only_waits_for_a_person_is_not_idle(scene: Scene) -> None:
    session_id = await scene.session(status="running", wanted="running", idle_minutes=0)
    agent, ledger = await scene.broker.agent(session_id), scene.broker.ledger

    def seen() -> Activity:
        session = ledger.session(session_id)
        assert session is not None
        return session.activity

    prompt_id = scene.seeded.prompt(session_id, "work")
    session, prompt = ledger.session(session_id), ledger.prompt(session_id, PromptState.QUEUED)
    assert session is not None and prompt is not None and prompt.id == prompt_id
    await ledger.start_prompt(session, prompt)
    assert seen() is Activity.WORKING
    asking = asyncio.create_task(agent.call("desk.send_reply", {"id": "7", "text": "x"}, wait=20))
    view = (await until(scene.runtime.approvals.pending))[0]
    assert seen() is Activity.WAITING
    await agent.follow(view.id, leave=True)
    assert seen() is Activity.WORKING, "its turn goes on with something else"
    await ledger.end_prompt(session, prompt, PromptState.FINISHED, exit_code=0, message=None)
    assert seen() is Activity.WAITING
    now = ledger.session(session_id)
    assert now is not None and not await ledger.fall_idle(now, "idle")
    await asyncio.to_thread(scene.decide, view.id)
    await asking
    assert seen() is Activity.IDLE


# ---- memory ------------------------------------------------------------------------------------------------------


async def approve_and_remember(scene: Scene, agent: Agent, wish: Remember, **arguments: str) -> None:
    report = await scene.pending(agent, **arguments)
    await asyncio.to_thread(scene.decide, report["id"], remember=wish)
    await until(lambda: scene.broker.call(report["id"]).state.final)


async def test_a_remembered_shape_runs_so_often(scene: Scene, agent: Agent) -> None:
    await approve_and_remember(scene, agent, Remember(arguments=("id",), most=2), id="7", text="One")
    for text in ("Two", "Three"):
        report = await agent.call("desk.send_reply", {"id": "7", "text": text})
        assert report["state"] == "done"
        assert "remembered" in scene.runtime.calls.show(report["id"]).rule_says
    assert (await agent.call("desk.send_reply", {"id": "7", "text": "Four"}, wait=0))["state"] == "pending"
    rule = scene.runtime.approvals.rules()[0]
    assert (rule.used, rule.most, rule.active) == (2, 2, False)


@pytest.mark.parametrize(
    "arguments", [{"id": "8", "text": "x"}, {"id": "7", "text": "x", "cc": "boss"}], ids=["value", "shape"]
)
async def test_another_value_or_another_shape_asks(scene: Scene, agent: Agent, arguments: dict[str, object]) -> None:
    await approve_and_remember(scene, agent, Remember(arguments=("id",)), id="7", text="One")
    assert (await agent.call("desk.send_reply", arguments, wait=0))["state"] == "pending"


async def test_memory_is_the_sessions_own_unless_it_is_said_otherwise(scene: Scene, agent: Agent) -> None:
    other = await scene.broker.agent(await scene.session())
    await approve_and_remember(scene, agent, Remember(arguments=("id",)), id="7", text="One")
    assert (await other.call("desk.send_reply", {"id": "7", "text": "x"}, wait=0))["state"] == "pending"
    await approve_and_remember(scene, agent, Remember(arguments=("id",), this_session=False), id="8", text="One")
    assert (await other.call("desk.send_reply", {"id": "8", "text": "x"}))["state"] == "done"


async def test_what_is_revoked_or_over_asks(scene: Scene, agent: Agent) -> None:
    await approve_and_remember(scene, agent, Remember(arguments=("id",)), id="7", text="One")
    rule = scene.runtime.approvals.rules()[0]
    assert not scene.runtime.approvals.revoke_rule(rule.id).active
    assert (await agent.call("desk.send_reply", {"id": "7", "text": "x"}, wait=0))["state"] == "pending"
    await approve_and_remember(scene, agent, Remember(arguments=("id",)), id="8", text="One")
    newer = scene.runtime.approvals.rules()[0]
    scene.seeded.set("call_rules", newer.id, expires_at=to_text(scene.broker.context.clock.now()))
    assert (await agent.call("desk.send_reply", {"id": "8", "text": "x"}, wait=0))["state"] == "pending"
    with pytest.raises(NotFound):
        scene.runtime.approvals.revoke_rule("rul_nothing")


async def test_a_block_stands_above_memory(scene: Scene, agent: Agent) -> None:
    await approve_and_remember(scene, agent, Remember(arguments=("id",)), id="7", text="One")
    rewrite(scene.repository, "    policies:\n", "    policies:\n      - {match: send_*, action: block}\n")
    assert (await agent.call("desk.send_reply", {"id": "7", "text": "x"}))["code"] == "policy_block"


@pytest.mark.parametrize("arguments", [(), ("nothing",)])
async def test_memory_binds_at_least_one_argument_of_the_call(
    scene: Scene, agent: Agent, arguments: tuple[str, ...]
) -> None:
    report = await scene.pending(agent)
    with pytest.raises(InvalidInput):
        await asyncio.to_thread(scene.decide, report["id"], remember=Remember(arguments=arguments))
    assert scene.broker.call(report["id"]).state is CallState.PENDING, "neither happens"
    with pytest.raises(InvalidInput, match="Only an approval"):
        await asyncio.to_thread(scene.decide, report["id"], approve=False, remember=Remember(arguments=("id",)))
