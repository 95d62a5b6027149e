"""I6: before a sandbox is stopped, removed, timed out or found dead, its commits and dirty tree are saved outside."""

from __future__ import annotations

import subprocess

import pytest
from desk import Desk, git, wait_for

from kortix_tui.base.errors import NotFound, Refused
from kortix_tui.base.words import SessionStatus
from kortix_tui.runtime.views import SessionView

pytestmark = pytest.mark.docker

UNSAVED = {
    "changed": "echo precious >> hello.txt",
    "staged": "echo precious >> hello.txt; git add hello.txt",
    "untracked": "echo precious > new.txt",
    "in a folder": "mkdir -p a/b; echo precious > 'a/b/a name with spaces'",
    "committed, not pushed": "echo precious >> hello.txt; git commit -qam Mine",
    "on a detached head": "git checkout -q --detach; echo precious >> hello.txt; git commit -qam Mine",
    "on another branch": "git switch -qc mine; echo precious >> hello.txt; git commit -qam Mine; echo precious > more",
    "in a merge with a conflict": (
        "git switch -qc other; echo precious >> hello.txt; git commit -qam Other; git switch -q -;"
        "echo precious too >> hello.txt; git commit -qam This; git merge other; true"
    ),
    "with hooks and filters that would spoil it": (
        "git config core.hooksPath hooks; mkdir hooks; printf '#!/bin/sh\\nexit 1\\n' > hooks/pre-push;"
        "chmod +x hooks/*;"
        "git config filter.x.clean 'echo spoilt'; echo '*.txt filter=x' > .gitattributes; echo precious > new.txt"
    ),
}


def rescued_text(desk: Desk, session: SessionView) -> str:
    """Every line that the session's rescues and branch hold beyond the base."""
    mirror = desk.home.mirror(desk.project.id)
    refs = git(mirror, "for-each-ref", "--format=%(refname)", f"refs/kortix/rescue/{session.id}").split()
    refs.append(f"refs/kortix/heads/{session.id}")
    kept = git(mirror, "for-each-ref", "--format=%(objectname)", *refs).split()
    return "\n".join(git(mirror, "grep", "-h", "-e", "precious", commit) for commit in kept if has(desk, commit))


def has(desk: Desk, commit: str) -> bool:
    mirror = desk.home.mirror(desk.project.id)
    found = subprocess.run(["git", "grep", "-q", "precious", commit], cwd=mirror, capture_output=True)
    return found.returncode == 0


@pytest.mark.parametrize("how", UNSAVED)
def test_work_is_saved_at_the_turns_end_and_survives_removal(desk: Desk, how: str) -> None:
    session, _ = desk.run(UNSAVED[how])
    assert "precious" in rescued_text(desk, session)
    assert desk.runtime.sessions.show(session.id).rescues
    assert session.head_commit == session.base_commit, "rescued work joined the branch by itself"
    desk.gone(session)
    assert "precious" in rescued_text(desk, session)


def test_work_done_behind_our_back_is_saved_before_a_stop(desk: Desk) -> None:
    session, _ = desk.run("true")
    write = "echo precious > /workspace/late.txt"
    subprocess.run(["docker", "exec", "-u", "1000", f"kortix-{session.id}", "sh", "-c", write], check=True)
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    assert "precious" in rescued_text(desk, session)


@pytest.mark.parametrize("death", [["kill"], ["stop", "-t", "1"], ["rm", "-f"]])
def test_a_sandbox_that_was_taken_away_is_rescued_from_its_volumes(desk: Desk, death: list[str]) -> None:
    session, _ = desk.run("true")
    write = "echo precious > /workspace/late.txt"
    subprocess.run(["docker", "exec", "-u", "1000", f"kortix-{session.id}", "sh", "-c", write], check=True)
    subprocess.run(["docker", *death, f"kortix-{session.id}"], check=True, capture_output=True)
    stopped = desk.until(session, SessionStatus.STOPPED)
    assert stopped.reason == "sandbox_died"
    assert "precious" in rescued_text(desk, session)


def test_what_cannot_be_saved_keeps_its_disk(desk: Desk) -> None:
    session, _ = desk.run("head -c 300000000 /dev/urandom > huge.bin")
    desk.runtime.sessions.remove(session.id)
    wait_for(lambda: desk.view(session).reason == "rescue_failed", 120)
    assert desk.view(session).removed_at is None
    assert "disk is kept" in (desk.view(session).reason_text or "")
    mark = f"label=kortix.session={session.id}"
    volumes = subprocess.run(["docker", "volume", "ls", "-q", "--filter", mark], capture_output=True, text=True)
    assert f"kortix-{session.id}-workspace" in volumes.stdout
    desk.say(session, "rm huge.bin")
    desk.gone(session)


def test_a_session_whose_work_was_merged_can_be_removed(desk: Desk) -> None:
    session, _ = desk.run("echo more >> hello.txt; git commit -qam More; kortix cr open --title More")
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    desk.gone(session)


def test_rescued_work_joins_the_branch_when_a_person_asks(desk: Desk) -> None:
    session, _ = desk.run("echo precious > new.txt")
    joined = desk.runtime.sessions.join_rescue(session.id, 1)
    assert desk.view(session).head_commit == joined.head_commit
    assert git(desk.home.mirror(desk.project.id), "show", f"{session.id}:new.txt") == "precious"
    with pytest.raises(Refused, match="already"):
        desk.runtime.sessions.join_rescue(session.id, 1)
    with pytest.raises(NotFound):
        desk.runtime.sessions.join_rescue(session.id, 9)
