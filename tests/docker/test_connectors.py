"""A real session whose agent calls an action that asks: a person decides, and the agent goes on (I1, I2, I5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokered import PRIVATE, Outside, brokered_repository, outside
from desk import Desk, git, sweep, wait_for

from kortix_tui.base.paths import Home
from kortix_tui.base.words import Activity, CallState, PromptState, SessionStatus
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
