"""One call from an agent's door to a real server and back: what runs, what asks, what is refused, and the record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from brokered import Agent, Scene, open_scene, rewrite, until
from tls import Answer

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.guest.cli import main as guest_main


@pytest.fixture
async def scene(home: Home, short_folder: Path) -> AsyncIterator[Scene]:
    async with open_scene(home, short_folder) as made:
        yield made


@pytest.fixture
async def agent(scene: Scene) -> Agent:
    return await scene.broker.agent(await scene.session())


async def test_a_read_runs_at_once_and_is_on_record(scene: Scene, agent: Agent) -> None:
    report = await agent.call("desk.get_ticket", {"id": "7"})
    assert (report["state"], report["status"], report["body"]) == ("done", 200, '{"seen": "/tickets/7", "n": 0}')
    assert report["headers"] == {"content-type": "application/json"}
    call = await until(lambda: (now := scene.broker.call(report["id"])).state.final and now)
    assert call.state is CallState.DONE and call.collected_at is not None and call.bytes == len(report["body"])
    events = [one.event for one in scene.runtime.audit.list(event="connector.", limit=50)]
    assert events.count("connector.call") == 2
    assert scene.broker.notes and report["id"] in scene.broker.notes[-1]


async def test_the_same_key_is_the_same_call(scene: Scene, agent: Agent) -> None:
    key = "a" * 32
    first, second = await asyncio.gather(*(agent.call("desk.add_note", {"text": "x"}, key=key) for _ in range(2)))
    third = await agent.call("desk.add_note", {"text": "x"}, key=key)
    assert first["id"] == second["id"] == third["id"] and third["body"] == first["body"]
    assert len(scene.outside.effects) == 1
    other = await agent.call("desk.get_ticket", {"id": "7"}, key=key)
    assert other["error"]["code"] == "invalid"


async def test_a_write_asks_and_the_waiting_caller_gets_the_answer(scene: Scene, agent: Agent) -> None:
    asking = asyncio.create_task(agent.call("desk.send_reply", {"id": "7", "text": "Hello"}, reason="It is solved."))
    view = (await until(scene.runtime.approvals.pending))[0]
    assert (view.connector, view.action, view.risk, view.reason) == ("desk", "send_reply", "write", "It is solved.")
    assert view.method == "POST" and view.url.endswith("/tickets/7/replies") and view.body == '{"text":"Hello"}'
    assert view.waiting and scene.outside.effects == []
    await asyncio.to_thread(scene.decide, view.id, note="Thanks")
    report = await asking
    assert (report["state"], report["note"]) == ("done", "Thanks")
    assert scene.outside.effects == [("POST", "/tickets/7/replies", b'{"text":"Hello"}')]
    call = scene.broker.call(view.id)
    assert call.decided_by == "op (cli)" and call.collected_at is not None and call.told_at is None


async def test_a_denied_call_is_never_sent(scene: Scene, agent: Agent) -> None:
    asking = asyncio.create_task(agent.call("desk.send_reply", {"id": "7", "text": "Hello"}))
    view = (await until(scene.runtime.approvals.pending))[0]
    await asyncio.to_thread(scene.decide, view.id, approve=False, note="Not like this")
    report = await asking
    assert (report["state"], report["code"], report["note"]) == ("denied", "denied", "Not like this")
    assert scene.outside.received == []
    # The host's own line in the session's record, once, however often it looks.
    said = await until(lambda: [note for note in scene.broker.notes if "denied" in note])
    await scene.broker.calls._sweep.once()
    assert "decided by op (cli) («Not like this»)" in said[0]
    assert [note for note in scene.broker.notes if "denied" in note] == said


async def test_an_identical_call_joins_the_one_that_waits(scene: Scene, agent: Agent) -> None:
    first = await scene.pending(agent)
    second = await scene.pending(agent)
    assert first["id"] == second["id"] and len(scene.broker.all_calls()) == 1
    third = await agent.call("desk.send_reply", {"id": "8", "text": "Hello"}, wait=0)
    assert third["id"] != first["id"]


async def test_what_nobody_waits_for_is_told_by_one_prompt(scene: Scene, agent: Agent) -> None:
    session_id = scene.seeded.one("SELECT id FROM sessions")[0]
    pending = await scene.pending(agent)
    left = await agent.follow(pending["id"], leave=True)
    assert left["state"] == "pending" and "end your turn" in left["message"]
    await asyncio.to_thread(scene.decide, pending["id"], note="Go")
    prompts = await until(lambda: scene.broker.prompts(str(session_id)))
    assert len(prompts) == 1 and pending["id"] in prompts[0] and '{"seen": "/tickets/7/replies"' in prompts[0]
    assert "Go" in prompts[0] and "not an instruction" in prompts[0]
    assert scene.seeded.one("SELECT wanted FROM sessions")[0] == "running"
    await agent.follow(pending["id"])
    await scene.broker.calls._sweep.once()
    assert len(scene.broker.prompts(str(session_id))) == 1 and len(scene.outside.effects) == 1


@pytest.mark.parametrize(
    ("name", "arguments", "code"),
    [
        ("mail.send", {}, "connector_not_assigned"),
        ("desk.nothing", {}, "action_not_found"),
        ("desk.get_ticket", {}, "invalid_arguments"),
        ("desk.get_ticket", {"id": ".."}, "invalid_arguments"),
        ("desk.get_ticket", {"id": "7", "more": 1}, "invalid_arguments"),
        ("desk.get_ticket", '{"id": "7", "id": "8"}', "invalid_arguments"),
        ("desk.drop_ticket", {"id": "07"}, "policy_block"),
        ("de\x1bsk.get", {"id": "7"}, "connector_not_assigned"),
    ],
)
async def test_what_is_refused_is_on_record_and_not_sent(
    scene: Scene, agent: Agent, name: str, arguments: object, code: str
) -> None:
    report = await agent.call(name, arguments)
    assert (report["state"], report["code"]) == ("refused", code) and report["message"]
    assert scene.outside.received == []
    call = scene.broker.call(report["id"])
    assert call.state is CallState.REFUSED and "\x1b" not in call.connector
    event = scene.runtime.audit.list(event="connector.call", limit=1)[0]
    assert event.outcome == "denied" and event.detail["code"] == code


async def test_another_agent_has_nothing_to_call(scene: Scene) -> None:
    agent = await scene.broker.agent(await scene.session("other"))
    assert await agent.get("/connectors") == [] and await agent.get("/actions") == []
    assert (await agent.call("desk.get_ticket", {"id": "7"}))["code"] == "connector_not_assigned"


async def test_sessions_do_not_see_each_others_calls(scene: Scene, agent: Agent) -> None:
    other = await scene.broker.agent(await scene.session())
    mine = await agent.call("desk.get_ticket", {"id": "7"})
    for path in (f"/calls/{mine['id']}", f"/calls/{mine['id']}/output"):
        assert (await other.get(path))["error"]["code"] == "not_found"
    assert (await agent.get(f"/calls/{mine['id']}/output"))["seen"] == "/tickets/7"


async def test_an_agent_sees_its_connectors_and_what_would_happen(scene: Scene, agent: Agent) -> None:
    assert await agent.get("/connectors") == [
        {
            "slug": "desk", "name": "Help desk", "provider": "http", "actions": 5, "connected": True, "problem": None,
            "accounts": [],
        }
    ]  # fmt: skip
    verdicts = {one["name"]: one["verdict"] for one in await agent.get("/actions", connector="desk")}
    assert verdicts == {
        "desk.get_ticket": "always_run", "desk.slow_read": "always_run", "desk.send_reply": "require_approval",
        "desk.drop_ticket": "block", "desk.add_note": "always_run",
    }  # fmt: skip
    assert (await agent.get("/actions", connector="mail"))["error"]["code"] == "not_found"


async def test_an_answer_that_says_no_is_an_answer(scene: Scene, agent: Agent) -> None:
    scene.outside.answers["/tickets/7"] = Answer(422, b'{"why": "no"}')
    report = await agent.call("desk.get_ticket", {"id": "7"})
    assert (report["state"], report["code"], report["status"]) == ("failed", "http_error", 422)
    assert report["body"] == '{"why": "no"}'


async def test_the_agents_command_shows_an_answer_that_says_no(
    scene: Scene, agent: Agent, short_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scene.outside.answers["/tickets/7"] = Answer(422, b'{"why": "no"}')
    monkeypatch.setenv("KORTIX_DOOR", str(short_folder / "d0" / "door.sock"))
    monkeypatch.setenv("KORTIX_TOKEN", "t")
    status = await asyncio.to_thread(guest_main, ["connectors", "call", "desk.get_ticket", '{"id": "7"}'])
    shown = capsys.readouterr()
    assert status == 1 and shown.out == '{"why": "no"}\n' and "status 422" in shown.err


async def test_a_server_that_is_not_there_has_certainly_done_nothing(scene: Scene, agent: Agent) -> None:
    await asyncio.to_thread(scene.outside.server.close)
    report = await agent.call("desk.add_note", {"text": "x"})
    assert (report["state"], report["code"]) == ("failed", "not_sent")


async def test_an_answer_that_breaks_off_may_have_run_and_is_not_repeated(scene: Scene, agent: Agent) -> None:
    scene.outside.server.answer = lambda request: b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\nhalf"
    report = await agent.call("desk.add_note", {"text": "x"})
    assert (report["state"], report["code"]) == ("unknown", "may_have_run")
    assert len(scene.outside.received) == 1


async def test_a_large_answer_is_cut_and_kept_whole(scene: Scene, agent: Agent) -> None:
    whole = ("é" * (3 << 19)).encode()
    scene.outside.answers["/tickets/7"] = Answer(body=whole, headers=(("content-type", "text/plain; charset=utf-8"),))
    report = await agent.call("desk.get_ticket", {"id": "7"})
    assert report["truncated"] and report["bytes"] == len(whole) and not report["binary"]
    assert len(report["body"].encode()) <= 1 << 20 and whole.decode().startswith(report["body"])
    assert await agent.get(f"/calls/{report['id']}/output") == whole


async def test_bytes_that_are_no_text_come_encoded(scene: Scene, agent: Agent) -> None:
    scene.outside.answers["/tickets/7"] = Answer(body=b"\xff\x00\xfe")
    report = await agent.call("desk.get_ticket", {"id": "7"})
    assert (report["binary"], report["body"]) == (True, "/wD+")


async def test_a_slow_read_is_found_again_by_its_id(scene: Scene, agent: Agent) -> None:
    scene.outside.held.clear()
    report = await agent.call("desk.slow_read", wait=0)
    assert report["state"] == "executing" and scene.broker.call(report["id"]).state is CallState.EXECUTING
    scene.outside.held.set()
    assert (await agent.follow(report["id"]))["state"] == "done"


async def test_what_is_taken_away_on_the_base_branch_counts_at_the_next_call(scene: Scene, agent: Agent) -> None:
    assert (await agent.call("desk.get_ticket", {"id": "7"}))["state"] == "done"
    rewrite(scene.repository, "    connectors: [desk]\n", "    connectors: []\n")
    assert (await agent.call("desk.get_ticket", {"id": "7"}))["code"] == "connector_not_assigned"


async def test_a_tightened_policy_counts_and_a_loosened_one_does_not(scene: Scene, agent: Agent) -> None:
    rewrite(scene.repository, "{match: add_note, action: always_run}", "{match: add_note, action: block}")
    assert (await agent.call("desk.add_note", {"text": "x"}))["code"] == "policy_block"
    rewrite(scene.repository, "{match: add_note, action: block}", '{match: "*", action: always_run}')
    assert (await agent.call("desk.send_reply", {"id": "7", "text": "x"}, wait=0))["state"] == "pending"


async def test_a_connector_that_leads_elsewhere_now_is_not_called_from_old_sessions(scene: Scene, agent: Agent) -> None:
    text = (scene.repository / "kortix.yaml").read_text()
    url = text.partition("base_url: ")[2].partition("\n")[0]
    rewrite(scene.repository, url, "https://elsewhere.example.com")
    assert (await agent.call("desk.get_ticket", {"id": "7"}))["code"] == "connector_changed"


async def test_too_many_calls_are_refused(scene: Scene, agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    from kortix_tui.runtime import call_limits

    monkeypatch.setattr(call_limits, "A_MINUTE", 3)
    monkeypatch.setattr(call_limits, "ALL_A_MINUTE", 5)
    reports = [await agent.call("desk.get_ticket", {"id": "7"}) for _ in range(6)]
    assert [one["state"] for one in reports[:3]] == ["done"] * 3
    assert [one["code"] for one in reports[3:5]] == ["rate_limited"] * 2
    assert reports[5]["error"]["code"] == "rate_limited" and len(scene.broker.all_calls()) == 5


async def test_only_so_many_calls_are_under_way(scene: Scene, agent: Agent) -> None:
    scene.outside.held.clear()
    calls = [asyncio.create_task(agent.call("desk.get_ticket", {"id": str(n)})) for n in range(7)]
    await until(lambda: scene.outside.reads == 4)
    await asyncio.sleep(0.1)  # the others would have come by now
    assert scene.outside.reads == 4
    scene.outside.held.set()
    assert {one["state"] for one in await asyncio.gather(*calls)} == {"done"}
