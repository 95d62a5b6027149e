"""Delivering a merge to the source: safe fast-forward, refusal before anything changed, and the truth after a crash."""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kortix_tui.base.errors import Conflict, DeadlineExceeded
from kortix_tui.repository import deliver, merge
from kortix_tui.repository.errors import DeliveryRefused, SourceMissing
from kortix_tui.repository.mirror import Mirror
from tests.support.git_door import git, make_source


class Case:
    """A source with `main` checked out, and a merge for it that lies in the mirror only."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.source = make_source(
            root / "source", files={"app.py": "one\n", "old.txt": "old\n", "sub/deep.txt": "deep\n"}
        )
        self.base = git(self.source, "rev-parse", "HEAD")
        self.mirror: Mirror
        self.commit = ""

    async def prepare(self, bare: bool = False) -> Case:
        work = self.root / "work"
        git(self.root, "clone", "-q", str(self.source), str(work))
        (work / "app.py").write_text("one\ntwo\n")
        (work / "new.txt").write_text("new\n")
        (work / "old.txt").unlink()
        (work / "dir").mkdir()
        (work / "dir/inner.txt").write_text("inner\n")
        (work / "link").symlink_to("app.py")
        git(work, "add", "-A")
        git(work, "commit", "-q", "-m", "Work")
        if bare:
            git(self.root, "clone", "-q", "--bare", str(self.source), str(self.root / "bare.git"))
            self.source = self.root / "bare.git"
        self.mirror, _ = await Mirror.create_from(self.root / "mirror.git", str(self.source))
        await self.mirror.copy_base("main")
        head = git(work, "rev-parse", "HEAD")
        git(work, "push", "-q", str(self.mirror.path), "HEAD:refs/heads/kaaaaaaaaaaa")
        self.commit = await merge.merge_commit(self.mirror, self.base, head, message="Merge CR #1: work")
        return self

    async def check(self) -> None:
        await deliver.check_delivery(self.mirror, str(self.source), "main", self.base, self.commit)

    async def deliver(self) -> None:
        await deliver.deliver(self.mirror, str(self.source), "main", self.base, self.commit)

    async def delivered(self) -> bool:
        return await deliver.delivered(self.mirror, str(self.source), "main", self.commit)

    async def settle(self) -> bool:
        return await deliver.settle(self.mirror, str(self.source), "main", self.base, self.commit)

    def state(self) -> dict[str, object]:
        """All that a refusal must leave alone."""
        files = {
            str(path.relative_to(self.source)): path.read_bytes()
            for path in sorted(self.source.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }
        return {"refs": git(self.source, "for-each-ref"), "files": files, "status": git(self.source, "status", "-s")}


@pytest.fixture
async def case(tmp_path: Path) -> Case:
    return await Case(tmp_path).prepare()


async def test_a_clean_checkout_of_the_base_moves_with_its_files(case: Case) -> None:
    (case.source / "unrelated.txt").write_text("not tracked, not in the way\n")
    before = case.state()
    await case.check()
    assert case.state() == before, "a check changed something"
    assert not await case.delivered()

    await case.deliver()
    assert git(case.source, "rev-parse", "main", "HEAD").split() == [case.commit, case.commit]
    assert git(case.source, "status", "-s") == "?? unrelated.txt"
    assert (case.source / "app.py").read_text() == "one\ntwo\n" and (case.source / "link").is_symlink()
    assert not (case.source / "old.txt").exists()
    assert git(case.source, "for-each-ref", "refs/kortix") == ""
    assert "kortix: merge" in git(case.source, "reflog", "-1", "main")
    assert await case.delivered()
    await case.deliver()  # again, as after a crash: no change


async def test_a_bare_source_and_another_branch_checked_out_are_pushed_to(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    bare = await Case(tmp_path / "a").prepare(bare=True)
    await bare.check()
    await bare.deliver()
    assert git(bare.source, "rev-parse", "main") == bare.commit

    (tmp_path / "b").mkdir()
    case = await Case(tmp_path / "b").prepare()
    git(case.source, "switch", "-q", "-c", "mine")
    (case.source / "app.py").write_text("my own half-done work\n")
    await case.check()
    await case.deliver()
    assert git(case.source, "rev-parse", "main") == case.commit
    assert (case.source / "app.py").read_text() == "my own half-done work\n"


async def test_detached_head_is_left_alone(case: Case) -> None:
    git(case.source, "switch", "-q", "--detach")
    await case.check()
    await case.deliver()
    assert git(case.source, "rev-parse", "main") == case.commit
    assert git(case.source, "rev-parse", "HEAD") == case.base


async def test_the_base_in_a_linked_worktree_moves_there(case: Case, tmp_path: Path) -> None:
    git(case.source, "switch", "-q", "-c", "mine")
    other = tmp_path / "linked"
    git(case.source, "worktree", "add", "-q", str(other), "main")
    (other / "app.py").write_text("dirty\n")
    with pytest.raises(DeliveryRefused, match=r"not committed: app\.py"):
        await case.check()
    git(other, "checkout", "-q", "app.py")
    await case.deliver()
    assert git(other, "status", "-s") == "" and git(other, "rev-parse", "HEAD") == case.commit


async def test_the_source_may_itself_be_a_linked_worktree(case: Case, tmp_path: Path) -> None:
    git(case.source, "switch", "-q", "-c", "mine")
    other = tmp_path / "linked"
    git(case.source, "worktree", "add", "-q", str(other), "main")
    case.source = other
    assert (await case.mirror.fetch(str(other))).base("main") == "main"
    await case.check()
    await case.deliver()
    assert git(other, "status", "-s") == "" and git(other, "rev-parse", "HEAD") == case.commit


def _modified(source: Path) -> None:
    (source / "sub/deep.txt").write_text("changed\n")


def _staged(source: Path) -> None:
    (source / "staged.txt").write_text("x\n")
    git(source, "add", "staged.txt")


def _untracked_in_the_way(source: Path) -> None:
    (source / "new.txt").write_text("precious\n")


def _ignored_in_the_way(source: Path) -> None:
    (source / ".git/info/exclude").write_text("new.txt\n")
    (source / "new.txt").write_text("precious\n")


def _file_where_a_folder_comes(source: Path) -> None:
    (source / ".git/info/exclude").write_text("dir\n")
    (source / "dir").write_text("precious\n")


def _merge_in_progress(source: Path) -> None:
    (source / ".git/MERGE_HEAD").write_text(git(source, "rev-parse", "HEAD") + "\n")


def _rebase_in_progress(source: Path) -> None:
    git(source, "commit", "-q", "--allow-empty", "-m", "x")
    git(source, "reset", "-q", "--hard", "HEAD^")
    git(source, "switch", "-q", "--detach")
    (source / ".git/rebase-merge").mkdir()
    (source / ".git/rebase-merge/head-name").write_text("refs/heads/main\n")


def _git_running(source: Path) -> None:
    (source / ".git/index.lock").touch()


def _filtered(source: Path) -> None:
    git(source, "config", "filter.shout.smudge", "tr a-z A-Z")
    (source / ".git/info/attributes").write_text("*.txt filter=shout\n")


def _worktree_gone(source: Path) -> None:
    git(source, "switch", "-q", "-c", "mine")
    other = source.parent / "linked"
    git(source, "worktree", "add", "-q", str(other), "main")
    shutil.rmtree(other)


@pytest.mark.parametrize(
    ("disturb", "reason"),
    [
        (_modified, "not committed: sub/deep.txt"),
        (_staged, "not committed: staged.txt"),
        (_untracked_in_the_way, "new.txt"),
        (_ignored_in_the_way, "new.txt"),
        (_file_where_a_folder_comes, "dir"),
        (_merge_in_progress, "A merge is in progress"),
        (_rebase_in_progress, "being rebased"),
        (_git_running, "Another git command"),
        (_filtered, "The filter shout"),
        (_worktree_gone, "which is gone"),
    ],
    ids=lambda value: value.__name__.strip("_") if callable(value) else "",
)
async def test_refused_with_reason_and_way_out_before_anything_changed(
    case: Case, disturb: Callable[[Path], None], reason: str
) -> None:
    # https://github.com/dagger/container-use/issues/28: never a bare exit status, never a stash behind one's back
    disturb(case.source)
    before = case.state()
    for act in (case.check, case.deliver):
        with pytest.raises(DeliveryRefused, match=reason) as caught:
            await act()
        assert caught.value.hint
        assert case.state() == before
    assert not await case.delivered()


async def test_a_source_that_moved_on_keeps_its_commit(case: Case) -> None:
    git(case.source, "commit", "-q", "--allow-empty", "-m", "Meanwhile")
    mine = git(case.source, "rev-parse", "HEAD")
    await case.check()  # not a fault of the source: a fetch and a new merge are the way
    with pytest.raises(Conflict):
        await case.deliver()
    assert git(case.source, "rev-parse", "main") == mine and git(case.source, "status", "-s") == ""
    git(case.source, "switch", "-q", "-c", "mine")
    with pytest.raises(Conflict):
        await case.deliver()
    assert git(case.source, "rev-parse", "main") == mine
    assert not await case.delivered()


async def test_delivered_is_true_also_when_the_source_went_on(case: Case) -> None:
    await case.deliver()
    git(case.source, "commit", "-q", "--allow-empty", "-m", "Next")
    assert await case.delivered()
    git(case.source, "reset", "-q", "--hard", case.base)
    assert not await case.delivered()


async def test_the_servers_refusal_is_told(tmp_path: Path) -> None:
    case = await Case(tmp_path).prepare(bare=True)
    git(case.source, "config", "receive.maxInputSize", "1")
    with pytest.raises(DeliveryRefused, match="unpacker error"):
        await case.deliver()


async def test_a_folder_that_moved_is_named(case: Case) -> None:
    case.source.rename(case.root / "elsewhere")
    for act in (case.check, case.deliver):
        with pytest.raises(SourceMissing):
            await act()
    with pytest.raises(SourceMissing):
        await case.delivered()


# ---- crash truth: a fast-forward that was cut off at each of its steps ------------------------------------------


def _objects_only(case: Case) -> None:
    """Killed after the objects came in."""


def _some_files_written(case: Case) -> None:
    (case.source / "app.py").write_text("one\ntwo\n")
    (case.source / "new.txt").write_text("new\n")


def _only_new_files_written(case: Case) -> None:
    (case.source / "new.txt").write_text("new\n")
    (case.source / "link").symlink_to("app.py")


def _index_and_files_written(case: Case) -> None:
    git(case.source, "read-tree", "-m", "-u", case.base, case.commit)


def _branch_moved(case: Case) -> None:
    git(case.source, "read-tree", "-m", "-u", case.base, case.commit)
    git(case.source, "update-ref", "refs/heads/main", case.commit, case.base)


@pytest.mark.parametrize(
    "cut", [_objects_only, _some_files_written, _only_new_files_written, _index_and_files_written, _branch_moved]
)
@pytest.mark.parametrize("act", ["settle", "deliver"])
async def test_a_cut_off_fast_forward_is_completed(case: Case, cut: Callable[[Case], None], act: str) -> None:
    git(case.mirror.path, "push", "-q", str(case.source), f"{case.commit}:refs/kortix/incoming")
    cut(case)
    if act == "settle":
        assert await case.settle()
    else:
        await case.deliver()
    assert await case.delivered()
    assert git(case.source, "status", "-s") == ""
    assert (case.source / "app.py").read_text() == "one\ntwo\n" and not (case.source / "old.txt").exists()


async def test_a_cut_off_fast_forward_with_own_edits_since_is_left_alone(case: Case) -> None:
    git(case.mirror.path, "push", "-q", str(case.source), f"{case.commit}:refs/kortix/incoming")
    _index_and_files_written(case)
    (case.source / "app.py").write_text("my own edit on top\n")
    before = case.state()
    for act in (case.settle, case.deliver):
        with pytest.raises(DeliveryRefused) as caught:
            await act()
        assert caught.value.hint and case.state() == before
    git(case.source, "stash", "-q")
    assert await case.settle()
    assert git(case.source, "rev-parse", "main") == case.commit and git(case.source, "status", "-s") == ""


async def test_a_cut_off_fast_forward_is_dropped_when_the_branch_went_on(case: Case) -> None:
    git(case.mirror.path, "push", "-q", str(case.source), f"{case.commit}:refs/kortix/incoming")
    git(case.source, "commit", "-q", "--allow-empty", "-m", "Meanwhile")
    before = case.state()
    assert not await case.settle()
    assert case.state() == before


async def test_nothing_is_settled_that_was_not_begun(case: Case) -> None:
    before = case.state()
    assert not await case.settle()
    assert case.state() == before


_DELIVER = """
import asyncio, sys
from pathlib import Path
from kortix_tui.repository import deliver
from kortix_tui.repository.mirror import Mirror

async def main(mirror, source, base, commit):
    await deliver.deliver(await Mirror.open(Path(mirror)), source, "main", base, commit)

print("begun", flush=True)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("bare", [False, True], ids=["checkout", "bare"])
async def test_kill_at_any_instant(tmp_path: Path, bare: bool) -> None:
    """However the process died, asking settles it: delivered as a whole, or not at all."""
    case = await Case(tmp_path).prepare(bare=bare)
    chance = random.Random(7)
    outcomes = set()
    for _ in range(12):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", _DELIVER, str(case.mirror.path), str(case.source), case.base, case.commit,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert process.stdout is not None and await process.stdout.readline()
        await asyncio.sleep(chance.random() / 4)
        if process.returncode is None:
            process.kill()
        await process.wait()
        outcome = await case.settle()
        outcomes.add(outcome)
        assert outcome == await case.delivered()
        assert git(case.source, "rev-parse", "main") == (case.commit if outcome else case.base)
        if not bare:
            assert git(case.source, "status", "-s") == ""
            git(case.source, "reset", "-q", "--hard", case.base)
        git(case.source, "update-ref", "refs/heads/main", case.base)
    assert outcomes, "nothing was tried"


async def test_a_git_that_outlives_its_process_is_waited_for(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deliver, "SETTLE_S", 0.2)
    holder = os.open(case.mirror.path / "delivery.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    try:
        with pytest.raises(DeadlineExceeded):
            await case.settle()
    finally:
        os.close(holder)
    assert not await case.settle()
