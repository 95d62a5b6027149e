"""I3: a session runs under the manifest of the base commit that it started from."""

from __future__ import annotations

import pytest
from desk import Desk, git, wait_for

from kortix_tui.base.words import PromptState, SessionStatus

pytestmark = pytest.mark.docker

WIDEN = """\
cat > agents/script.md <<'END'
---
harness: command
command: [sh, -c, "echo I am the widened agent"]
---
END
cat > kortix.yaml <<'END'
kortix_version: 2
default_agent: script
agents:
  script: {kortix_permissions: all, connectors: all}
END
git commit -qam Widen
kortix cr open --title Widen
"""


def test_an_agents_own_edits_change_nothing_until_a_person_merges_them(desk: Desk) -> None:
    session, _ = desk.run(WIDEN)
    desk.say(session, "echo still a shell")
    assert "still a shell" in desk.text(session) and "widened" not in desk.text(session)
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    desk.say(session, "echo a shell after resume")
    assert "a shell after resume" in desk.text(session)
    other, _ = desk.run("echo another shell")
    assert "another shell" in desk.text(other)

    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    assert "widened" in git(desk.repository, "show", "main:agents/script.md")
    desk.say(session, "echo the old session keeps its plan")
    assert "the old session keeps its plan" in desk.text(session)
    new, _ = desk.run("ignored")
    assert "I am the widened agent" in desk.text(new)


def test_a_dirty_manifest_in_the_operators_checkout_governs_nothing(desk: Desk) -> None:
    (desk.repository / "agents" / "script.md").write_text("---\nharness: command\ncommand: ['false']\n---\n")
    _, prompt = desk.run("true")
    assert prompt.state is PromptState.FINISHED


def test_a_broken_manifest_on_the_base_is_named_and_the_prompt_kept(desk: Desk) -> None:
    (desk.repository / "kortix.yaml").write_text("kortix_version: 2\ndefault_agent: nobody\nagents:\n  script: {}\n")
    git(desk.repository, "commit", "-qam", "Break it")
    session = desk.start("echo hello")
    wait_for(lambda: desk.view(session).status is SessionStatus.FAILED)
    assert "nobody" in (desk.view(session).reason_text or "")
    assert desk.last(session).state is PromptState.QUEUED
    git(desk.repository, "revert", "--no-edit", "HEAD")
    desk.runtime.sessions.resume(session.id)
    assert desk.settle(session).state is PromptState.FINISHED


def test_an_agent_without_the_grant_can_neither_push_nor_propose_and_its_work_is_saved(desk: Desk) -> None:
    session, _ = desk.run(
        "echo mine >> hello.txt; git commit -qam Mine; git push; echo push=$?; kortix cr open --title Mine; echo cr=$?;"
        'curl -s --unix-socket /run/kortix/door.sock -H "Authorization: Bearer $KORTIX_TOKEN" -X POST'
        ' -d "{\\"title\\":\\"x\\",\\"head_commit\\":\\"$(git rev-parse HEAD)\\"}" http://d/v1/agent/cr',
        agent="reader",
    )
    text = desk.text(session)
    assert "push=1" in text and "cr=1" in text and "agent_scope_insufficient" in text
    assert session.head_commit == session.base_commit and desk.runtime.changes.list() == []
    rescue = desk.runtime.sessions.show(session.id).rescues[0]
    assert git(desk.home.mirror(desk.project.id), "show", f"{rescue.ref}:hello.txt") == "hello\nmine"
