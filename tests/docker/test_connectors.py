"""A real session whose agent calls an action that asks: a person decides, and the agent goes on (I1, I2, I5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from brokered import PRIVATE, Outside, brokered_repository, outside
from desk import Desk, git, sweep, wait_for
from textual.pilot import Pilot

from kortix_tui.base.paths import Home
from kortix_tui.base.words import Activity, CallState, PromptState, SessionStatus
from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.screens.approval import ApprovalScreen
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.dialog import GUARD_SECONDS
from kortix_tui.runtime.connector_views import ApprovalView

pytestmark = pytest.mark.docker
PROGRAM = """\
import os, subprocess, sys
print("TOOLS WAIT:", os.environ["KORTIX_TOOL_WAIT_SECONDS"])
prompt = sys.stdin.read()
if prompt.startswith("Your call"):
    print("TOLD:", prompt, flush=True)
    sys.exit(0)
call = ["kortix", "connectors", "call", "desk.send_reply", '{"id": "7", "text": "Hello"}', "--reason", "It is solved."]
done = subprocess.run(call + prompt.split(), capture_output=True, text=True)
print("ENDED:", done.returncode, done.stdout, done.stderr, flush=True)
"""


@pytest.fixture
def system() -> Iterator[Outside]:
    with outside() as made:
        yield made


@pytest.fixture
def desk(home: Home, short_folder: Path, system: Outside) -> Iterator[Desk]:
    repository = brokered_repository(short_folder / "repo", system.server.url("", "127.0.0.1").rstrip("/"))
    (repository / "program.py").write_text(PROGRAM)
    agent = repository / "agents" / "caller.md"
    agent.write_text(agent.read_text().replace("[sh, -s]", "[python3, /workspace/program.py]"))
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "Program")
    made = Desk(home, repository, **PRIVATE)
    yield made
    install = made.runtime.context.store.install_id
    made.runtime.close()
    sweep(install)


def waiting(desk: Desk) -> ApprovalView:
    return wait_for(lambda: desk.runtime.approvals.pending())[0]  # type: ignore[index,no-any-return]


def decide(desk: Desk, view: ApprovalView, *, approve: bool = True, note: str | None = None) -> None:
    desk.runtime.approvals.decide(
        view.id, digest=view.digest or "", approve=approve, note=note, terminal=True, pinned=False
    )


def test_the_agent_waits_for_a_person_and_goes_on(desk: Desk, system: Outside) -> None:
    session = desk.start("--wait")
    view = waiting(desk)
    assert (view.agent, view.session_id, view.reason) == ("caller", session.id, "It is solved.")
    assert desk.view(session).activity is Activity.WAITING and system.effects == []
    decide(desk, view, note="Fine")
    assert desk.settle(session).state is PromptState.FINISHED
    assert system.effects == [("POST", "/tickets/7/replies", b'{"text":"Hello"}')]
    text = desk.text(session)
    assert "ENDED: 0" in text and '"seen": "/tickets/7/replies"' in text
    assert f"Call {view.id} of desk.send_reply: done" in text and "decided by" in text
    assert len(desk.runtime.sessions.prompts(session.id)) == 1, "the agent was there: no prompt tells it"


async def until(pilot: Pilot[Any], condition: Callable[[], object]) -> None:
    async with asyncio.timeout(150):
        while not condition():
            await asyncio.sleep(0.05)
    await pilot.pause()


async def test_a_person_decides_by_the_consoles_keys_and_the_agent_goes_on(desk: Desk, system: Outside) -> None:
    bridge = Bridge(desk.runtime)
    app = KortixApp(bridge, terminal=Terminal.detect({}))
    try:
        async with app.run_test(size=(80, 24)) as pilot:
            session = await asyncio.to_thread(desk.start, "--wait")
            await until(pilot, lambda: len(app.facts.inbox) == 1)
            await pilot.press("3")
            await asyncio.sleep(GUARD_SECONDS)
            await pilot.press("enter")
            await until(pilot, lambda: isinstance(app.screen, ApprovalScreen))
            assert system.effects == []
            await asyncio.sleep(GUARD_SECONDS)
            await pilot.press("a")
            await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
            await pilot.press("y")  # typed ahead: nobody can have read the question yet
            await asyncio.sleep(GUARD_SECONDS)
            assert isinstance(app.screen, ConfirmDialog) and system.effects == []
            await pilot.press("y")
            await until(pilot, lambda: system.effects)
            assert (await asyncio.to_thread(desk.settle, session)).state is PromptState.FINISHED
            await until(pilot, lambda: not app.facts.inbox)
    finally:
        bridge.stop()
    assert system.effects == [("POST", "/tickets/7/replies", b'{"text":"Hello"}')]
    text = desk.text(session)
    assert "ENDED: 0" in text and "decided by" in text


def test_an_agent_that_is_denied_is_told_why(desk: Desk, system: Outside) -> None:
    session = desk.start("--wait")
    decide(desk, waiting(desk), approve=False, note="Ask them first")
    desk.settle(session)
    text = desk.text(session)
    assert "ENDED: 1" in text and "Ask them first" in text and system.received == []


def test_who_has_left_is_told_by_a_prompt_also_across_a_stop(desk: Desk, system: Outside) -> None:
    session = desk.start("--no-wait")
    desk.settle(session)
    assert "ENDED: 3" in desk.text(session) and "pending_approval" in desk.text(session)
    view = waiting(desk)
    assert desk.view(session).activity is Activity.WAITING
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    desk.restart()
    decide(desk, view)
    wait_for(lambda: len(desk.runtime.sessions.prompts(session.id)) == 2)
    assert desk.settle(session, 120).state is PromptState.FINISHED
    text = desk.text(session)
    assert "TOLD: Your call" in text and '"seen": "/tickets/7/replies"' in text
    assert len(system.effects) == 1 and desk.runtime.calls.show(view.id).state is CallState.DONE


def test_a_call_that_is_held_survives_its_host(desk: Desk, system: Outside) -> None:
    session = desk.start("--wait")
    view = waiting(desk)
    desk.restart()
    decide(desk, view)
    assert desk.settle(session, 120).state is PromptState.FINISHED
    assert "ENDED: 0" in desk.text(session) and len(system.effects) == 1


def test_an_agents_tools_wait_as_long_as_the_operator_says(desk: Desk) -> None:
    with desk.ruled(**PRIVATE, approvals={"wait_seconds": 7}):
        session = desk.start("--help")
        desk.settle(session)
        assert "TOOLS WAIT: 7" in desk.text(session)
