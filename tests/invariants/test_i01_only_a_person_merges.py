"""I1: only a person merges, approves, or widens a grant."""

from __future__ import annotations

import pytest
from desk import Desk, git

from kortix_tui.base.errors import Refused
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import ChangeStatus, Outcome, PromptState
from kortix_tui.runtime.decisions import check_decision

ALLOWED = Settings.model_validate({"decisions": {"unattended": "allow"}})


def decide(**changes: object) -> None:
    given: dict[str, object] = {"settings": Settings(), "terminal": True, "pinned": False, "environment": {}}
    check_decision("merge", **(given | changes))  # type: ignore[arg-type]


def test_a_person_at_a_terminal_may_decide() -> None:
    decide()


@pytest.mark.parametrize("name", ["CLAUDECODE", "CODEX_SANDBOX", "CODEX_ANYTHING", "GEMINI_CLI", "KORTIX_SESSION_ID"])
def test_an_agents_shell_may_never_decide(name: str) -> None:
    with pytest.raises(Refused, match=name):
        decide(environment={name: "1"}, settings=ALLOWED, pinned=True)


def test_without_a_terminal_it_takes_the_exact_commit_and_the_operators_setting() -> None:
    with pytest.raises(Refused, match="--at"):
        decide(terminal=False, settings=ALLOWED)
    with pytest.raises(Refused, match="unattended"):
        decide(terminal=False, pinned=True)
    decide(terminal=False, pinned=True, settings=ALLOWED)


@pytest.mark.docker
def test_an_agent_can_neither_merge_nor_push_to_the_base(desk: Desk) -> None:
    before = git(desk.repository, "rev-parse", "main")
    session, prompt = desk.run(
        "echo evil >> hello.txt; git commit -qam Evil; kortix cr open --title Evil;"
        "kortix cr merge; echo merge=$?; kortix cr merge 1 --at HEAD; kortix review approve;"
        "git push origin HEAD:main; echo push=$?; git push -f origin HEAD:refs/heads/main;"
        "git push origin HEAD:refs/kortix/source/main; git push origin HEAD:refs/tags/v1;"
        "git push origin :$KORTIX_SESSION_ID;"
        "for verb in merge approve close; do curl -s --unix-socket /run/kortix/door.sock -X POST"
        ' -H "Authorization: Bearer $KORTIX_TOKEN" http://d/v1/agent/cr/1/$verb; done; true'
    )
    assert prompt.state is PromptState.FINISHED
    text = desk.text(session)
    assert "merge is default-deny for agents" in text
    assert "merge=1" in text and "push=1" in text
    assert git(desk.repository, "rev-parse", "main") == before
    mirror = desk.home.mirror(desk.project.id)
    assert git(mirror, "rev-parse", "refs/heads/main", "refs/kortix/source/main").split() == [before, before]
    assert git(mirror, "for-each-ref", "refs/tags") == ""
    assert git(mirror, "rev-parse", f"refs/heads/{session.id}") == session.head_commit
    assert [change.status for change in desk.runtime.changes.list()] == [ChangeStatus.OPEN]
    denied = [event.event for event in desk.runtime.audit.list(limit=500) if event.outcome is Outcome.DENIED]
    assert "change_request.merge" in denied
    assert denied.count("session.git.push") >= 4
