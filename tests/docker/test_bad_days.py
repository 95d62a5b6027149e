"""Bad input and bad days: a clear message and a sound state, nothing lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, git, make_repository, wait_for

from kortix_tui.base.errors import Ambiguous, Conflict, KortixError, NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import ChangeStatus, PromptState, SessionStatus
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime

pytestmark = pytest.mark.docker

CHANGE = "echo more >> hello.txt; git commit -qam More; kortix cr open --title More"


@pytest.fixture
def lonely(home: Home) -> Iterator[Runtime]:
    """A runtime whose engine does not exist."""
    settings = Settings.model_validate({"docker": {"endpoint": f"unix://{home.path}/no-such.sock"}})
    runtime = Runtime(home, settings, operator_actor("cli"))
    runtime.start_hosting()
    yield runtime
    runtime.close()


def failed(desk: Desk, script: str = "true", **options: object) -> str:
    session = desk.start(script, **options)
    view = desk.until(session, SessionStatus.FAILED)
    assert desk.last(session).state is PromptState.QUEUED, "the prompt was lost"
    return view.reason_text or ""


def test_without_an_engine_the_prompt_is_kept_and_the_way_out_named(lonely: Runtime, repository: Path) -> None:
    project = lonely.projects.add(str(repository))
    session = lonely.sessions.new("echo hello", project=project)
    wait_for(lambda: lonely.sessions.find(session.id).status is SessionStatus.FAILED)
    view = lonely.sessions.find(session.id)
    assert view.reason == "engine_unavailable" and "kortix setup" in (view.reason_text or "")
    assert lonely.sessions.prompts(session.id)[0].state is PromptState.QUEUED


def test_a_missing_image_is_built_again(desk: Desk) -> None:
    session, _ = desk.run("true")
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    subprocess.run(["docker", "rm", "-f", f"kortix-{session.id}"], check=True, capture_output=True)
    subprocess.run(["docker", "rmi", "-f", str(session.image)], check=True, capture_output=True)
    assert desk.say(session, "echo back").state is PromptState.FINISHED


def test_a_repository_without_a_manifest(desk: Desk) -> None:
    git(desk.repository, "rm", "-q", "kortix.yaml")
    git(desk.repository, "commit", "-qm", "Remove it")
    assert "kortix init" in failed(desk)


def test_an_empty_repository(lonely: Runtime, short_folder: Path) -> None:
    empty = short_folder / "empty"
    empty.mkdir()
    git(empty, "init", "-q")
    with pytest.raises(Refused, match="no commit"):
        lonely.projects.add(str(empty))
    assert lonely.projects.list() == []
    assert list(lonely.context.home.repositories.iterdir()) == []


def test_no_repository_at_all(lonely: Runtime, short_folder: Path) -> None:
    for place in (short_folder, short_folder / "nothing"):
        with pytest.raises(NotFound):
            lonely.projects.add(str(place))
    with pytest.raises(KortixError):
        lonely.projects.add("https://127.0.0.1:1/nothing.git")


def test_a_detached_head_needs_a_named_base(lonely: Runtime, repository: Path) -> None:
    git(repository, "checkout", "-q", "--detach")
    with pytest.raises(Refused, match="--base"):
        lonely.projects.add(str(repository))
    assert lonely.projects.add(str(repository), base_branch="main").base_branch == "main"


def test_a_base_branch_that_does_not_exist(desk: Desk) -> None:
    assert "main" in failed(desk, base_branch="release")


def test_a_base_branch_that_was_deleted_later(desk: Desk) -> None:
    git(desk.repository, "branch", "-m", "main", "trunk")
    assert "trunk" in failed(desk)


def test_a_project_path_that_moved(desk: Desk) -> None:
    desk.run(CHANGE)
    new = desk.repository.with_name("elsewhere")
    desk.repository.rename(new)
    assert str(desk.repository) in failed(desk)
    detail = desk.runtime.projects.show(desk.project.slug)
    assert detail.problem is not None and "kortix projects move" in detail.problem
    desk.runtime.changes.show(desk.project, 1, preview=False)
    with pytest.raises(NotFound):
        desk.runtime.changes.merge(desk.project, 1)
    desk.project = desk.runtime.projects.move(desk.project.slug, str(new))
    assert desk.runtime.changes.merge(desk.project, 1).merge_commit == git(new, "rev-parse", "main")


def test_a_linked_worktree_as_source(desk: Desk, short_folder: Path) -> None:
    linked = short_folder / "linked"
    git(desk.repository, "worktree", "add", "-q", "-b", "topic", str(linked))
    project = desk.runtime.projects.add(str(linked), slug="linked")
    session = desk.runtime.sessions.new(CHANGE, project=project)
    desk.settle(session)
    desk.runtime.changes.show(project, 1)
    result = desk.runtime.changes.merge(project, 1)
    assert git(linked, "rev-parse", "HEAD") == result.merge_commit
    assert (linked / "hello.txt").read_text() == "hello\nmore\n"
    assert git(linked, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: (folder / "hello.txt").write_text("mine\n"),
        lambda folder: (folder / "new.txt").write_text("mine, untracked, in the way\n"),
    ],
)
def test_a_dirty_source_refuses_the_merge_before_anything_changed(desk: Desk, spoil: object) -> None:
    desk.run(
        "echo more >> hello.txt; echo theirs > new.txt; git add -A; git commit -qm More; kortix cr open --title More"
    )
    spoil(desk.repository)  # type: ignore[operator]
    before, status = git(desk.repository, "rev-parse", "main"), git(desk.repository, "status", "--porcelain")
    detail = desk.runtime.changes.show(desk.project, 1)
    assert detail.preview is not None and detail.preview.refusal
    with pytest.raises(Refused):
        desk.runtime.changes.merge(desk.project, 1)
    assert git(desk.repository, "rev-parse", "main") == before
    assert git(desk.repository, "status", "--porcelain") == status
    assert desk.runtime.changes.find(desk.project, 1).status is ChangeStatus.OPEN
    git(desk.repository, "stash", "-u", "-q")
    assert desk.runtime.changes.merge(desk.project, 1).merge_commit


def test_a_base_that_moved_on_merges_in_one_step(desk: Desk) -> None:
    desk.run(CHANGE)
    (desk.repository / "other.txt").write_text("other\n")
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", "Other")
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    assert (desk.repository / "hello.txt").read_text() == "hello\nmore\n"
    assert (desk.repository / "other.txt").exists()


def test_conflicts_are_listed_by_path_and_change_nothing(desk: Desk) -> None:
    desk.run(CHANGE)
    (desk.repository / "hello.txt").write_text("hello\nmine\n")
    git(desk.repository, "commit", "-qam", "Mine")
    before = git(desk.repository, "rev-parse", "main")
    desk.runtime.changes.show(desk.project, 1)
    with pytest.raises(Refused, match=r"hello\.txt"):
        desk.runtime.changes.merge(desk.project, 1)
    assert git(desk.repository, "rev-parse", "main") == before


def test_a_merge_that_breaks_the_manifest_is_refused(desk: Desk) -> None:
    desk.run("echo 'nonsense: [' >> kortix.yaml; git commit -qam Break; kortix cr open --title Break")
    desk.runtime.changes.show(desk.project, 1)
    with pytest.raises(Refused, match=r"kortix\.yaml"):
        desk.runtime.changes.merge(desk.project, 1)


def test_a_head_that_moved_after_the_review_needs_a_new_look(desk: Desk) -> None:
    session, _ = desk.run(CHANGE)
    desk.runtime.changes.show(desk.project, 1)
    desk.say(session, "echo sneaky >> hello.txt; git commit -qam Sneaky; git push -q")
    with pytest.raises(Conflict, match="moved"):
        desk.runtime.changes.merge(desk.project, 1)
    assert git(desk.repository, "rev-list", "--count", "main") == "1"
    detail = desk.runtime.changes.show(desk.project, 1)
    result = desk.runtime.changes.merge(desk.project, 1, at=detail.head_commit[:12])
    assert result.reviewed_head == detail.head_commit


def test_two_sessions_never_see_each_others_work(desk: Desk) -> None:
    first, _ = desk.run("echo secret-of-one > one.txt; git add -A; git commit -qm One; git push -q")
    second, _ = desk.run(
        "git fetch -q origin '+refs/*:refs/all/*'; git for-each-ref --format='%(refname)';"
        f"git fetch origin {first.head_commit if first.head_commit else ''} || echo hidden; git log --all --oneline"
    )
    text = desk.text(second)
    assert first.id not in text and "One" not in text and "hidden" in text


def test_no_project_and_too_many_projects(desk: Desk, short_folder: Path) -> None:
    with pytest.raises(NotFound, match="Known: repo"):
        desk.runtime.projects.resolve("nothing", environment={})
    assert desk.runtime.projects.resolve(folder=short_folder, environment={}).slug == "repo"
    other = make_repository(short_folder / "other")
    desk.runtime.projects.add(str(other))
    with pytest.raises(Ambiguous, match="other, repo"):
        desk.runtime.projects.resolve(folder=short_folder, environment={})
    assert desk.runtime.projects.resolve(folder=other / "agents", environment={}).slug == "other"
    assert desk.runtime.projects.resolve(folder=other, environment={"KORTIX_PROJECT_ID": "repo"}).slug == "repo"


def test_a_nearly_full_disk_starts_nothing_and_says_so(repository: Path, short_folder: Path, desk: Desk) -> None:
    small = short_folder / "small"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=0700", "none", str(small)], check=True)
    try:
        runtime = Runtime(Home(small), Settings(), operator_actor("cli"))
        runtime.start_hosting()
        try:
            project = runtime.projects.add(str(repository))
            session = runtime.sessions.new("true", project=project)
            wait_for(lambda: runtime.sessions.find(session.id).status is SessionStatus.FAILED)
            view = runtime.sessions.find(session.id)
            assert view.reason == "disk_full" and "free" in (view.reason_text or "")
        finally:
            runtime.close()
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_an_agent_that_does_not_exist_in_the_image(desk: Desk) -> None:
    (desk.repository / "agents" / "script.md").write_text("---\nharness: command\ncommand: [no-such-program]\n---\n")
    git(desk.repository, "commit", "-qam", "Point to nothing")
    _, prompt = desk.run("true")
    assert prompt.state is PromptState.FAILED and "no-such-program" in (prompt.message or "")


def test_two_processes_share_one_home(desk: Desk) -> None:
    environment = {**os.environ, "KORTIX_HOME": str(desk.home.path)}
    command = [sys.executable, "-m", "kortix_tui.cli.main", "sessions", "new", "-p", "echo from another", "--wait"]
    done = subprocess.run(
        [*command, "--project", "repo", "--json"], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    session = desk.runtime.sessions.list()[0]
    assert session.id in done.stdout
    assert "from another" in desk.text(session)
    assert (here := desk.runtime.host()).here and here.host is not None and here.host.pid == os.getpid()


def test_a_mirror_that_is_gone(desk: Desk) -> None:
    shutil.rmtree(desk.home.mirror(desk.project.id))
    desk.restart()
    assert "mirror" in failed(desk)
