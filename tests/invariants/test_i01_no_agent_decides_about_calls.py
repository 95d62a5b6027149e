"""I1: only a person approves. Behind the door there is nothing to call that decides, or names another session."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from brokered import Agent, Scene, open_scene

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.guest.cli import _parser


@pytest.fixture
async def scene(home: Home, short_folder: Path) -> AsyncIterator[Scene]:
    async with open_scene(home, short_folder) as made:
        yield made


@pytest.fixture
async def agent(scene: Scene) -> Agent:
    return await scene.broker.agent(await scene.session())


async def test_no_verb_at_the_door_decides(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    view = scene.runtime.approvals.show(report["id"])
    words = ("approve", "deny", "decide", "act", "execute", "remember", "resolve")
    paths = [
        "/approvals", f"/approvals/{view.id}", "/review", "/rules", "/policies", "/catalogues", "/connections",
        f"/calls/{view.id}", *(f"/calls/{view.id}/{word}" for word in words),
        *(f"/approvals/{view.id}/{word}" for word in words),
    ]  # fmt: skip
    body = {"id": view.id, "digest": view.digest, "approve": True, "state": "approved"}
    for path, method in itertools.product(paths, ("POST", "PUT", "PATCH", "DELETE")):
        answer = await agent.http.request(method, path, json=body)
        assert answer.status_code == 404, (method, path)
    assert scene.broker.call(view.id).state is CallState.PENDING and scene.outside.received == []


@pytest.mark.parametrize(
    "extra",
    [
        {"state": "approved"}, {"verdict": "always_run"}, {"decided_by": "op (cli)"}, {"session_id": "kaaaaaaaaaaa"},
        {"attended": True}, {"approve": True}, {"rule_id": "rul_x"}, {"project_id": "prj_other"},
    ],
    ids=lambda extra: next(iter(extra)),
)  # fmt: skip
async def test_a_wish_carries_nothing_that_decides(scene: Scene, agent: Agent, extra: dict[str, Any]) -> None:
    answer = await agent.call("desk.send_reply", {"id": "7", "text": "x"}, wait=0, **extra)
    assert answer["error"]["code"] == "invalid" and scene.broker.all_calls() == []


async def test_the_query_of_a_report_decides_nothing(scene: Scene, agent: Agent) -> None:
    report = await scene.pending(agent)
    await agent.get(f"/calls/{report['id']}", wait=0, approve=1, state="approved", decide="approve")
    assert scene.broker.call(report["id"]).state is CallState.PENDING


def test_the_command_inside_has_no_such_verb(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["review", "ls"], ["approvals", "ls"], ["connectors", "approve", "x"], ["connectors", "connect", "x"],
                  ["connectors", "policy", "set"], ["policy", "rules", "ls"], ["connections", "add"]):  # fmt: skip
        with pytest.raises(SystemExit):
            _parser().parse_args(words)
    capsys.readouterr()
