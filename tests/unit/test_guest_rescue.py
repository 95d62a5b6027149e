"""Nothing that the agent made is lost when its sandbox goes: every shape of unsaved work, with real git (I6)."""

from __future__ import annotations

import os
import re
import stat
import subprocess
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kortix_tui.guest import rescue
from kortix_tui.guest.children import Children
from kortix_tui.guest.identity import Identity
from kortix_tui.guest.workspace import CloneFailed, Workspace
from tests.support.guest import places

SID = "kaaaaaaaaaaa"


@dataclass
class Checkout:
    """A workspace with its origin, and what a rescue put there."""

    workspace: Workspace
    origin: Path
    count: int = 0

    @property
    def path(self) -> Path:
        return Path(self.workspace.places.workspace)

    @property
    def welcome(self) -> dict[str, Any]:
        repository = {"url": str(self.origin), "branch": SID, "base_branch": "main"}
        return {"repository": repository, "identity": {"name": "Robin", "email": "robin@example.invalid"}}

    def git(self, *arguments: str, where: Path | None = None, check: bool = True) -> str:
        people = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *arguments], cwd=where or self.path, capture_output=True,
            env={"PATH": os.environ["PATH"], "HOME": self.workspace.places.home, "GIT_CONFIG_NOSYSTEM": "1", **people},
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stderr
        return done.stdout.decode("utf-8", "surrogateescape").strip("\n")

    async def rescue(self) -> dict[str, Any]:
        before = self.git("status", "--porcelain", check=False), self.git("rev-parse", "HEAD", check=False)
        self.count += 1
        result = await rescue.save(self.workspace, self.welcome, SID, f"refs/kortix/rescue/{SID}/{self.count}")
        after = self.git("status", "--porcelain", check=False), self.git("rev-parse", "HEAD", check=False)
        assert before == after  # the agent's index, files and branch are as they were
        return result

    def saved(self, name: str) -> str | None:
        """A file's content in the newest rescue ref."""
        ref = f"refs/kortix/rescue/{SID}/{self.count}:{name}"
        done = subprocess.run(["git", "show", ref], cwd=self.origin, capture_output=True)
        return done.stdout.decode() if done.returncode == 0 else None

    def holds(self, commit: str) -> bool:
        """Whether the newest rescue ref reaches a commit."""
        ref = f"refs/kortix/rescue/{SID}/{self.count}"
        return subprocess.run(["git", "merge-base", "--is-ancestor", commit, ref], cwd=self.origin).returncode == 0

    def commit(self, name: str, text: str = "x") -> str:
        (self.path / name).write_text(text)
        self.git("add", name)
        self.git("commit", "-qm", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
async def checkout(short_folder: Path) -> AsyncIterator[Checkout]:
    where = places(short_folder)
    children = Children()
    made = Checkout(Workspace(where, Identity(None, where.home), children), short_folder / "origin.git")
    seed = short_folder / "seed"
    made.git("init", "-q", "-b", "main", str(seed))
    (seed / "a.txt").write_text("a\n")
    (seed / ".gitignore").write_text("ignored\n")
    made.git("add", ".", where=seed)
    made.git("commit", "-qm", "one", where=seed)
    made.git("clone", "-q", "--bare", str(seed), str(made.origin))
    made.git("branch", SID, "main", where=made.origin)
    await made.workspace.clone(made.welcome["repository"])
    yield made
    children.close()


async def test_the_clone_is_on_its_branch_with_the_base_beside_it(checkout: Checkout) -> None:
    assert checkout.git("rev-parse", "--abbrev-ref", "HEAD") == SID
    assert checkout.git("rev-parse", "--abbrev-ref", "@{upstream}") == f"origin/{SID}"
    assert checkout.git("rev-parse", "origin/main") == checkout.git("rev-parse", "HEAD")
    assert checkout.git("status", "--porcelain") == "" and (checkout.path / "a.txt").read_text() == "a\n"
    assert sorted(entry.name for entry in checkout.path.iterdir()) == [".git", ".gitignore", "a.txt"]
    assert checkout.workspace.is_cloned() and await checkout.workspace.is_dirty() is False


async def test_a_clone_that_was_cut_off_is_done_again(short_folder: Path, checkout: Checkout) -> None:
    os.unlink(checkout.workspace.places.cloned)
    (checkout.path / "a.txt").unlink()  # after the move of .git, before the checkout
    await checkout.workspace.clone(checkout.welcome["repository"])
    assert (checkout.path / "a.txt").exists()
    os.unlink(checkout.workspace.places.cloned)
    subprocess.run(["rm", "-rf", *checkout.path.iterdir()], check=True)
    (checkout.path / ".kortix-clone" / ".git").mkdir(parents=True)  # before the move
    await checkout.workspace.clone(checkout.welcome["repository"])
    assert (checkout.path / "a.txt").exists() and not (checkout.path / ".kortix-clone").exists()


async def test_a_repository_that_is_not_there_is_said(short_folder: Path, checkout: Checkout) -> None:
    where = places(short_folder / "other")
    workspace = Workspace(where, Identity(None, where.home), checkout.workspace.children)
    with pytest.raises(CloneFailed, match="git clone"):
        await workspace.clone({"url": "/no/such/repository", "branch": SID})
    assert not workspace.is_cloned()


async def test_a_hook_of_the_repository_does_not_run(short_folder: Path, checkout: Checkout) -> None:
    hooks = short_folder / "hooks"
    hooks.mkdir()
    for name in ("post-checkout", "pre-push", "reference-transaction", "post-index-change"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {short_folder}/ran\nexit 1\n")
        (hooks / name).chmod(0o755)
    checkout.git("config", "core.hooksPath", str(hooks))
    checkout.git("config", "core.fsmonitor", str(hooks / "pre-push"))
    (checkout.path / "new").write_text("new")
    assert (await rescue.save(checkout.workspace, checkout.welcome, SID, f"refs/kortix/rescue/{SID}/1"))[
        "outcome"
    ] == "saved"
    assert not (short_folder / "ran").exists()


async def test_nothing_to_save(checkout: Checkout) -> None:
    (checkout.path / "ignored").write_text("x")
    assert (await checkout.rescue())["outcome"] == "clean"
    checkout.commit("b")
    checkout.git("push", "-q", "origin", f"HEAD:refs/heads/{SID}")
    assert (await checkout.rescue())["outcome"] == "clean"


async def test_changed_new_deleted_and_staged_files(checkout: Checkout) -> None:
    (checkout.path / "a.txt").write_text("changed\n")
    (checkout.path / "sub dir").mkdir()
    (
        checkout.path / "sub dir" / "né\nw\udcff".encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")
    ).write_text("new")
    (checkout.path / "staged").write_text("staged")
    (checkout.path / "ignored").write_text("x")
    checkout.git("add", "staged")
    (checkout.path / "link").symlink_to("/etc/passwd")
    (checkout.path / ".gitignore").unlink()
    (checkout.path / ".gitignore").symlink_to("a.txt")
    result = await checkout.rescue()
    assert result["outcome"] == "saved" and result["message"] == ""
    assert checkout.saved("a.txt") == "changed\n" and checkout.saved("staged") == "staged"
    assert checkout.saved("link") == "/etc/passwd"
    assert checkout.holds(checkout.git("rev-parse", "HEAD"))
    log = checkout.git("log", "-1", "--format=%an <%ae> %s", result["commit"])
    assert log == f"Robin <robin@example.invalid> Rescued work of session {SID}"


async def test_commits_that_were_not_pushed_are_pushed_as_they_are(checkout: Checkout) -> None:
    head = checkout.commit("b")
    result = await checkout.rescue()
    assert (result["outcome"], result["commit"], result["files"]) == ("saved", head, 0)


async def test_a_detached_head_with_dirt_on_it(checkout: Checkout) -> None:
    checkout.git("checkout", "-q", "--detach")
    head = checkout.commit("b")
    (checkout.path / "c").write_text("c")
    result = await checkout.rescue()
    assert result["outcome"] == "saved" and result["files"] == 1
    assert checkout.holds(head) and checkout.saved("c") == "c"


async def test_other_branches_and_the_stash_come_along(checkout: Checkout) -> None:
    checkout.git("checkout", "-qb", "other")
    other = checkout.commit("other")
    (checkout.path / "a.txt").write_text("stashed")
    checkout.git("stash", "-q")
    stash = checkout.git("rev-parse", "refs/stash")
    checkout.git("checkout", "-q", SID)
    result = await checkout.rescue()
    assert result["outcome"] == "saved" and result["files"] == 0
    assert checkout.holds(other) and checkout.holds(stash)


async def test_commits_that_a_rebase_replaced_are_not_unsaved_work(checkout: Checkout) -> None:
    checkout.commit("b")
    checkout.git("commit", "-q", "--amend", "-m", "better")
    checkout.git("rebase", "-q", "--force-rebase", "origin/main")
    checkout.git("push", "-q", "origin", f"HEAD:refs/heads/{SID}")
    assert (await checkout.rescue())["outcome"] == "clean"


async def test_remote_refs_that_the_agent_made_up_do_not_count(checkout: Checkout) -> None:
    head = checkout.commit("b")
    checkout.git("update-ref", f"refs/remotes/origin/{SID}", head)
    result = await checkout.rescue()
    assert result["outcome"] == "saved" and checkout.holds(head)


async def test_a_merge_in_progress_with_conflicts(checkout: Checkout) -> None:
    checkout.git("checkout", "-qb", "other")
    theirs = checkout.commit("a.txt", "theirs\n")
    checkout.git("checkout", "-q", SID)
    ours = checkout.commit("a.txt", "ours\n")
    checkout.git("merge", "other", check=False)
    assert "<<<<<<<" in (checkout.path / "a.txt").read_text()
    result = await checkout.rescue()
    assert result["outcome"] == "saved"
    assert "<<<<<<<" in (checkout.saved("a.txt") or "") and checkout.holds(ours) and checkout.holds(theirs)


async def test_a_rebase_in_progress(checkout: Checkout) -> None:
    checkout.git("checkout", "-qb", "other")
    checkout.commit("a.txt", "theirs\n")
    checkout.git("checkout", "-q", SID)
    ours = checkout.commit("a.txt", "ours\n")
    checkout.git("rebase", "other", check=False)
    assert (await checkout.rescue())["outcome"] == "saved"
    assert checkout.holds(ours)


async def test_a_branch_without_a_commit(checkout: Checkout) -> None:
    checkout.git("checkout", "-q", "--orphan", "fresh")
    (checkout.path / "new").write_text("new")
    assert (await checkout.rescue())["outcome"] == "saved"
    assert checkout.saved("new") == "new"


async def test_files_that_git_was_told_not_to_look_at(checkout: Checkout) -> None:
    checkout.git("update-index", "--assume-unchanged", "a.txt")
    checkout.git("update-index", "--skip-worktree", ".gitignore")
    (checkout.path / "a.txt").write_text("hidden\n")
    (checkout.path / ".gitignore").write_text("hidden too\n")
    assert (await checkout.rescue())["outcome"] == "saved"
    assert checkout.saved("a.txt") == "hidden\n" and checkout.saved(".gitignore") == "hidden too\n"


async def test_a_damaged_index(checkout: Checkout) -> None:
    (checkout.path / "a.txt").write_text("changed\n")
    (checkout.path / ".git" / "index").write_bytes(b"DIRC garbage")
    assert (await rescue.save(checkout.workspace, checkout.welcome, SID, f"refs/kortix/rescue/{SID}/1"))[
        "outcome"
    ] == "saved"
    checkout.count = 1
    assert checkout.saved("a.txt") == "changed\n"


async def test_a_filter_that_fails_and_one_that_is_missing(checkout: Checkout) -> None:
    (checkout.path / ".gitattributes").write_text("*.bin filter=lfs\n")
    checkout.git("config", "filter.lfs.clean", "no-such-program")
    checkout.git("config", "filter.lfs.required", "true")
    (checkout.path / "big.bin").write_text("big")
    assert (await rescue.save(checkout.workspace, checkout.welcome, SID, f"refs/kortix/rescue/{SID}/1"))[
        "outcome"
    ] == "saved"
    checkout.count = 1
    assert checkout.saved("big.bin") == "big"


async def test_repositories_inside_are_saved_as_files(checkout: Checkout) -> None:
    inner = checkout.path / "vendor" / "lib"
    inner.mkdir(parents=True)
    checkout.git("init", "-q", where=inner)
    (inner / "own.c").write_text("own")
    empty = checkout.path / "empty"
    empty.mkdir()
    checkout.git("init", "-q", where=empty)
    committed = checkout.path / "committed"
    committed.mkdir()
    checkout.git("init", "-q", where=committed)
    (committed / "in.c").write_text("in")
    checkout.git("add", ".", where=committed)
    checkout.git("commit", "-qm", "in", where=committed)
    (committed / "more.c").write_text("more")
    result = await checkout.rescue()
    assert result["outcome"] == "saved", result
    assert checkout.saved("vendor/lib/own.c") == "own"
    assert checkout.saved("committed/in.c") == "in" and checkout.saved("committed/more.c") == "more"
    assert "committed" in result["message"]


async def test_a_filter_that_breaks_is_not_used(checkout: Checkout) -> None:
    (checkout.path / ".gitattributes").write_text("bad filter=broken\n")
    checkout.git("config", "filter.broken.clean", "false")
    checkout.git("config", "filter.broken.required", "true")
    (checkout.path / "bad").write_text("bad")
    assert (await checkout.rescue())["outcome"] == "saved"
    assert checkout.saved("bad") == "bad"


async def test_what_cannot_be_saved_is_not_called_saved(checkout: Checkout) -> None:
    (checkout.path / "fine").write_text("fine")
    (checkout.path / ".gitattributes").write_text("bad filter=a=b\n")  # a name that no option can turn off
    checkout.git("config", "filter.a=b.clean", "false")
    checkout.git("config", "filter.a=b.required", "true")
    (checkout.path / "bad").write_text("bad")
    (checkout.path / "\udcff").write_text("a name that is no text")
    result = await checkout.rescue()
    assert result["outcome"] == "failed" and "bad" in result["message"]
    result["message"].encode()  # it can be sent and read as text


async def test_a_submodule_as_it_was_is_no_work_and_a_changed_one_is(checkout: Checkout) -> None:
    checkout.git("submodule", "add", "-q", str(checkout.origin), "module")
    checkout.git("commit", "-qm", "module")
    checkout.git("push", "-q", "origin", f"HEAD:refs/heads/{SID}")
    assert (await checkout.rescue())["outcome"] == "clean"
    (checkout.path / "module" / "new").write_text("new")
    result = await checkout.rescue()
    assert result["outcome"] == "saved" and "module" in result["message"]
    assert checkout.saved("module/new") == "new"


async def test_a_repository_in_a_repository_in_the_workspace(checkout: Checkout) -> None:
    deep = checkout.path / "one" / "two"
    deep.mkdir(parents=True)
    for folder in (deep.parent, deep):
        checkout.git("init", "-q", where=folder)
    (deep / "file").write_text("deep")
    assert (await checkout.rescue())["outcome"] == "saved"
    assert checkout.saved("one/two/file") == "deep"


async def test_a_workspace_whose_repository_is_gone_is_not_clean(checkout: Checkout) -> None:
    (checkout.path / ".git").rename(checkout.path / "moved")
    result = await rescue.save(checkout.workspace, checkout.welcome, SID, "refs/kortix/rescue/x/1")
    assert result["outcome"] == "failed" and ".git" in result["message"]
    subprocess.run(["rm", "-rf", *checkout.path.iterdir()], check=True)
    result = await rescue.save(checkout.workspace, checkout.welcome, SID, "refs/kortix/rescue/x/1")
    assert result["outcome"] == "clean"


async def test_a_session_without_a_repository(short_folder: Path, checkout: Checkout) -> None:
    where = places(short_folder / "other")
    workspace = Workspace(where, Identity(None, where.home), checkout.workspace.children)
    assert (await rescue.save(workspace, {}, SID, "r"))["outcome"] == "clean"


async def test_a_host_that_refuses_or_hangs(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout.path / "new").write_text("new")
    hook = checkout.origin / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho not today >&2\nexit 1\n")
    hook.chmod(0o755)
    result = await checkout.rescue()
    assert result["outcome"] == "failed" and result["commit"] is None and "git push" in result["message"]
    hook.write_text("#!/bin/sh\nsleep 3\n")
    monkeypatch.setattr(rescue, "DEADLINE_S", 0.5)
    result = await checkout.rescue()
    # Which of the two deadlines ends it, the whole rescue's or its push's, depends on how fast the machine is.
    assert result["outcome"] == "failed" and re.search("longer|did not end in time", result["message"])


async def test_nothing_is_left_in_tmp(checkout: Checkout, short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescue, "_TEMPORARY", str(short_folder / "home"))
    (checkout.path / "new").write_text("new")
    assert (await checkout.rescue())["outcome"] == "saved"
    assert list((short_folder / "home").iterdir()) == []


async def test_executable_bits_are_kept(checkout: Checkout) -> None:
    (checkout.path / "run").write_text("#!/bin/sh\n")
    (checkout.path / "run").chmod(0o755)
    result = await checkout.rescue()
    assert checkout.git("ls-tree", result["commit"], "run").startswith("100755")
    assert stat.S_IMODE((checkout.path / "run").stat().st_mode) == 0o755
