"""Cases from the field: repositories that are not simple, and branches that move."""

from __future__ import annotations

import re
import shutil
import subprocess
import unicodedata
from pathlib import Path

import pytest
from desk import MANIFEST, Desk, git, make_repository, wait_for

from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.words import ChangeStatus, PromptState, SessionStatus
from kortix_tui.store.models import Project

pytestmark = pytest.mark.docker

CHANGE = "echo more >> hello.txt; git commit -qam More; kortix cr open --title More"


def commit(desk: Desk, name: str, text: str, message: str = "More") -> str:
    path = desk.repository / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", message)
    return git(desk.repository, "rev-parse", "HEAD")


def added(desk: Desk, folder: Path, slug: str) -> Project:
    return desk.runtime.projects.add(str(folder), slug=slug)


def test_a_failing_hook_of_the_repository_is_not_run_by_the_clone(desk: Desk) -> None:
    """https://github.com/agent-of-empires/agent-of-empires/pull/994"""
    commit(desk, ".husky/post-checkout", "#!/bin/sh\nexit 1\n")
    _, prompt = desk.run(
        "git config core.hooksPath .husky; chmod +x .husky/*; git switch -qc x; git switch -q -; echo ok"
    )
    assert prompt.state is PromptState.FINISHED


def test_large_file_pointers_are_left_alone(desk: Desk) -> None:
    """https://github.com/max-sixty/worktrunk/issues/2426"""
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 30000000000\n"
    commit(desk, ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    commit(desk, "big.bin", pointer)
    session, prompt = desk.run("cat big.bin; echo x > hello.txt; git commit -qam X; kortix cr open --title X")
    assert prompt.state is PromptState.FINISHED, desk.text(session)
    assert "size 30000000000" in desk.text(session)
    desk.runtime.changes.show(desk.project, 1)
    assert desk.runtime.changes.merge(desk.project, 1).merge_commit


def test_submodules_are_neither_fetched_nor_lost(desk: Desk, short_folder: Path) -> None:
    """https://github.com/agentcage/agentcage/issues/170: nothing of a submodule's address is followed on the host."""
    inner = make_repository(short_folder / "inner")
    git(desk.repository, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "vendor")
    git(desk.repository, "commit", "-qm", "Submodule")
    session, prompt = desk.run("ls -A vendor | wc -l; git submodule status; " + CHANGE)
    assert prompt.state is PromptState.FINISHED, desk.text(session)
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    assert "vendor" in git(desk.repository, "ls-tree", "HEAD", "vendor")
    desk.gone(session)


def test_a_repository_with_sha256_names(desk: Desk, short_folder: Path) -> None:
    folder = short_folder / "wide"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main", "--object-format=sha256")
    (folder / "kortix.yaml").write_text(MANIFEST)
    shutil.copytree(desk.repository / "agents", folder / "agents")
    (folder / "hello.txt").write_text("hello\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "First")
    project = added(desk, folder, "wide")
    session = desk.runtime.sessions.new(CHANGE + "; echo precious > new.txt", project=project)
    assert desk.settle(session).state is PromptState.FINISHED, desk.text(session)
    desk.runtime.changes.show(project, 1)
    result = desk.runtime.changes.merge(project, 1)
    assert len(result.merge_commit) == 64 == len(git(folder, "rev-parse", "main"))
    assert desk.runtime.sessions.show(session.id).rescues
    assert desk.runtime.audit.verify().anchors == 2


def test_five_thousand_files(desk: Desk) -> None:
    """https://github.com/Kilo-Org/kilocode/pull/6945"""
    for number in range(5000):
        path = desk.repository / f"d{number % 50}" / f"f{number}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{number}\n")
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", "Many")
    session, prompt = desk.run(
        "for f in d*/*.txt; do echo x >> $f; done; git commit -qam All; kortix cr open --title All"
    )
    assert prompt.state is PromptState.FINISHED, desk.text(session)
    assert session.files == 5000
    assert len(desk.runtime.changes.show(desk.project, 1).summary.files) == 5000
    assert desk.runtime.changes.merge(desk.project, 1).merge_commit
    assert (desk.repository / "d0" / "f0.txt").read_text() == "0\nx\n"


def test_a_base_branch_that_was_rewritten_under_a_session(desk: Desk) -> None:
    """The session keeps the base that it started from; its change meets the new one."""
    commit(desk, "old.txt", "old\n")
    session, _ = desk.run(CHANGE)
    git(desk.repository, "reset", "-q", "--hard", "HEAD~1")
    commit(desk, "new.txt", "new\n")
    assert desk.say(session, "git fetch -q; git log --oneline -1; echo again").state is PromptState.FINISHED
    detail = desk.runtime.changes.show(desk.project, 1)
    assert detail.preview is not None
    desk.runtime.changes.merge(desk.project, 1)
    assert (desk.repository / "hello.txt").read_text() == "hello\nmore\n"
    assert (desk.repository / "new.txt").exists()


def test_a_branch_that_a_person_switched_inside_hides_no_change(desk: Desk) -> None:
    """https://github.com/BloopAI/vibe-kanban/issues/2655"""
    session, _ = desk.run(CHANGE)
    desk.shell(session, "cd /workspace && git switch -qc other && echo precious > elsewhere.txt")
    assert [file.path for file in desk.runtime.changes.show(desk.project, 1).summary.files] == ["hello.txt"]
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    ref = desk.runtime.sessions.show(session.id).rescues[-1].ref
    assert git(desk.home.mirror(desk.project.id), "show", f"{ref}:elsewhere.txt") == "precious"


def test_a_change_that_was_squashed_elsewhere_does_not_hold_its_session(desk: Desk) -> None:
    """https://github.com/anthropics/claude-code/issues/88239"""
    session, _ = desk.run(CHANGE)
    commit(desk, "hello.txt", "hello\nmore\n", "Squashed by hand")
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.close(desk.project, 1)
    desk.gone(session)
    mirror = desk.home.mirror(desk.project.id)
    assert git(mirror, "for-each-ref", f"refs/heads/{session.id}") == ""
    assert session.head_commit and git(mirror, "cat-file", "-t", session.head_commit) == "commit"


def test_the_change_follows_its_branch_through_a_rewrite(desk: Desk) -> None:
    session, _ = desk.run(CHANGE)
    first = desk.runtime.changes.find(desk.project, 1).head_commit
    desk.say(session, "git commit -q --amend -m Better; git push -q --force")
    second = desk.runtime.changes.find(desk.project, 1).head_commit
    assert first != second == desk.view(session).head_commit
    mirror = desk.home.mirror(desk.project.id)
    kept = git(mirror, "for-each-ref", "--format=%(objectname)", f"refs/kortix/heads/{session.id}").split()
    assert {first, second} <= set(kept)


def test_numbers_are_never_used_again_and_a_removed_sessions_change_can_be_reopened_and_merged(desk: Desk) -> None:
    first, _ = desk.run(CHANGE)
    desk.runtime.changes.close(desk.project, 1)
    desk.gone(first)
    second, _ = desk.run("echo other > other.txt; git add -A; git commit -qm O; kortix cr open --title Other")
    assert [change.number for change in desk.runtime.changes.list()] == [1, 2]
    assert desk.runtime.changes.reopen(desk.project, 1).status is ChangeStatus.OPEN
    desk.runtime.changes.show(desk.project, 1)
    assert desk.runtime.changes.merge(desk.project, 1).merge_commit
    desk.runtime.changes.show(desk.project, 2)
    assert desk.runtime.changes.merge(desk.project, 2).merge_commit
    with pytest.raises(Refused):
        desk.runtime.changes.reopen(desk.project, 1)
    desk.gone(second)


def test_a_session_id_is_no_base_branch(desk: Desk) -> None:
    session, _ = desk.run("echo secret > s.txt; git add s.txt; git commit -qm S; git push -q")
    # The operator brought the session's branch into the source, under its own name.
    git(desk.repository, "fetch", "-q", str(desk.home.mirror(desk.project.id)), f"{session.id}:{session.id}")
    other = desk.start("git log --all --oneline", base_branch=session.id)
    view = desk.until(other, SessionStatus.FAILED)
    assert "session id" in (view.reason_text or "")
    assert desk.view(session).head_commit == git(desk.home.mirror(desk.project.id), "rev-parse", session.id)


def test_the_sandbox_has_a_clone_of_its_own_and_git_trusts_it_for_everybody(desk: Desk) -> None:
    """https://github.com/agent-of-empires/agent-of-empires/issues/356, …/pull/1458 and mattolson/agent-sandbox#73"""
    session, _ = desk.run("test -d .git && echo folder; git rev-parse --git-common-dir; cat .git/config; pwd")
    text = desk.text(session)
    assert "folder" in text and str(desk.home.path) not in text and str(desk.repository) not in text
    assert desk.shell(session, "cd /workspace && git status --short", user="0") == ""


def test_a_project_with_sessions_is_not_removed(desk: Desk) -> None:
    session, _ = desk.run("true")
    with pytest.raises(Refused, match="1 session"):
        desk.runtime.projects.remove(desk.project.slug)
    desk.gone(session)
    desk.runtime.projects.remove(desk.project.slug)
    assert desk.runtime.projects.list() == []


def test_an_agent_that_claims_rescue_refs_for_itself_is_refused(desk: Desk) -> None:
    """Neither numbers nor names of saved work are an agent's to take."""
    session, _ = desk.run(
        "for n in 1 2 999999999; do git push origin HEAD:refs/kortix/rescue/$KORTIX_SESSION_ID/$n || echo refused;"
        "done;"
        "echo precious > new.txt"
    )
    assert desk.text(session).count("refused\n") == 3
    rescues = desk.runtime.sessions.show(session.id).rescues
    assert [rescue.n for rescue in rescues] == [1]
    desk.gone(session)


HOSTILE = (
    "\x1b]52;c;cm0gLXJm\x07\x1b[2J\x9b2J",
    "[@click=app.quit]x[/] [/ $primary {x} %s",
    "\u202eevil\u2066 \u200b\u2028 \U000e0041",
    "\u4f60\u597d \u26a0 \U0001f468\u200d\U0001f469\u200d\U0001f467 e\u0301",
    "-n --help; $(touch /tmp/x) `id` 'q\" \\",
    "a\rb\x08\x7f\x00".replace("\x00", ""),
)


@pytest.mark.parametrize("words", HOSTILE)
def test_hostile_words_travel_the_whole_path_as_text(desk: Desk, words: str) -> None:
    """Prompts, titles, commit messages and change titles (invariant I10)."""
    quoted = "'" + words.replace("'", "'\\''") + "'"
    script = f"""\
W={quoted}
echo "$W"; echo "$W" > f; git add f; git commit -qm "m $W"; kortix cr open --title "t $W"
"""
    session = desk.start(script, title=f"t {words}")
    assert desk.settle(session).state is PromptState.FINISHED, desk.text(session)
    (change,) = desk.runtime.changes.list()
    for text in (desk.view(session).title, change.title):
        assert text.startswith("t ") and "\n" not in text and not controls(text), text
    assert not controls(re.sub(r"\x1b\[[0-9;:]*m", "", desk.text(session)).replace("\n", "").replace("\t", ""))
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    assert not controls(git(desk.repository, "log", "-1", "--format=%s"))


def controls(text: str) -> list[str]:
    return [character for character in text if unicodedata.category(character) in ("Cc", "Cf")]


@pytest.mark.parametrize("name", ["-x", "a..b", "a b", "a~1", "refs/heads/main", "\x1b[31m", "x" * 300, "a\nb", "@{1}"])
def test_a_base_branch_of_a_hostile_name_is_refused_in_words(desk: Desk, name: str) -> None:
    try:
        session = desk.start("true", base_branch=name)
    except KortixError:
        return
    wait_for(lambda: desk.view(session).status is SessionStatus.FAILED)
    reason = desk.view(session).reason_text or ""
    assert reason and "\x1b" not in reason and "Traceback" not in reason
    subprocess.run(["git", "fsck"], cwd=desk.home.mirror(desk.project.id), check=True, capture_output=True)
