"""I12, git's part: hooks, monitors, filters, drivers and transports that an agent wrote never run on the host.

A sentinel program stands in each place where git could find something to run. The whole path is taken: mirror, push,
difference, merge, delivery into a checkout, and looking at that checkout. The sentinel must not have run.
"""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from kortix_tui.repository import deliver, diff, merge
from kortix_tui.repository.errors import DeliveryRefused
from kortix_tui.repository.source import inspect_source
from tests.support.git_door import Client, Stage, git, make_source, stage

HOOKS = (
    "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
    "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
    "proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc",
    "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change",
)  # fmt: skip


class Sentinel:
    """A program that leaves a mark when it is run."""

    def __init__(self, root: Path) -> None:
        self.mark = root / "it-ran"
        self.program = root / "sentinel"
        self.program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.mark}'\ncat\n")
        self.program.chmod(0o755)

    def into(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        for hook in HOOKS:
            (folder / hook).write_text(self.program.read_text())
            (folder / hook).chmod(stat.S_IRWXU)

    def never_ran(self) -> None:
        assert not self.mark.exists(), self.mark.read_text()


@pytest.fixture
def sentinel(tmp_path: Path) -> Sentinel:
    return Sentinel(tmp_path)


@pytest.fixture
def operator_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The operator's own global configuration, empty at first."""
    config = tmp_path / "gitconfig"
    config.write_text("[user]\n\tname = Olive\n\temail = olive@example.invalid\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    return config


async def whole_path(scene: Stage, client: Client) -> str:
    """Push, look, merge, deliver, look again. Returns the merge commit."""
    await client.git("add", "-A")
    await client.git("commit", "-q", "--no-verify", "-m", "Work")
    await client.git("push", "-q", "origin", "HEAD")
    head = await scene.session_head()
    assert head is not None and head != scene.base_commit
    mirror, source = scene.mirror, str(scene.source)
    await diff.summary(mirror, scene.base_commit, head)
    await diff.patch(mirror, scene.base_commit, head)
    await mirror.fetch(source, base="main")
    commit = await merge.merge_commit(mirror, scene.base_commit, head, message="Merge CR #1: work")
    await asyncio.to_thread(inspect_source, scene.source)
    await deliver.check_delivery(mirror, source, "main", scene.base_commit, commit)
    await deliver.deliver(mirror, source, "main", scene.base_commit, commit)
    await merge.advance_base(mirror, "main", commit, scene.base_commit)
    assert await deliver.delivered(mirror, source, "main", commit)
    state = await asyncio.to_thread(inspect_source, scene.source)
    assert not state.dirty and state.head == commit
    await mirror.fetch(source, base="main")
    return commit


async def test_a_husky_style_hooks_path(tmp_path: Path, sentinel: Sentinel) -> None:
    """`core.hooksPath` is a folder of the repository, as husky sets it; an agent rewrites what is in it."""
    source = make_source(tmp_path / "source")
    git(source, "config", "core.hooksPath", ".husky/_")
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        sentinel.into(client.path / ".husky/_")
        await whole_path(scene, client)
        assert os.access(source / ".husky/_/post-merge", os.X_OK), "the hooks did not even arrive"
        # And once more, now that the agent's hooks lie in the operator's checkout.
        again = await scene.mirror.resolve("refs/heads/main")
        assert again is not None
        scene.base_commit = again
        await client.git("pull", "-q", "origin", "main")
        (client.path / "second.txt").write_text("x\n")
        await whole_path(scene, client)
    sentinel.never_ran()


@pytest.mark.parametrize("checked_out", [True, False], ids=["base checked out", "another branch checked out"])
async def test_hooks_in_the_source_and_in_the_operators_configuration(
    tmp_path: Path, sentinel: Sentinel, operator_config: Path, checked_out: bool
) -> None:
    source = make_source(tmp_path / "source")
    sentinel.into(source / ".git/hooks")
    sentinel.into(tmp_path / "global-hooks")
    with operator_config.open("a") as config:
        config.write(f"[core]\n\thooksPath = {tmp_path / 'global-hooks'}\n\tfsmonitor = {sentinel.program}\n")
        config.write(f"[init]\n\ttemplateDir = {tmp_path / 'template'}\n")
    sentinel.into(tmp_path / "template/hooks")
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        (client.path / "work.txt").write_text("x\n")
        if not checked_out:
            git(source, "-c", "core.hooksPath=/dev/null", "switch", "-q", "-c", "mine")
            with pytest.raises(AssertionError):  # `whole_path` expects the checkout to be at the merge
                await whole_path(scene, client)
            assert git(source, "rev-parse", "main") != scene.base_commit
        else:
            await whole_path(scene, client)
    sentinel.never_ran()


async def test_monitors_and_drivers_in_the_sources_own_configuration(tmp_path: Path, sentinel: Sentinel) -> None:
    # https://github.com/NousResearch/hermes-agent/pull/101483
    source = make_source(tmp_path / "source")
    for key in ("core.fsmonitor", "diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver",
                "core.pager", "core.editor", "gpg.program", "uploadpack.packObjectsHook", "core.alternateRefsCommand",
                "sequence.editor"):  # fmt: skip
        git(source, "config", key, str(sentinel.program))
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        (client.path / ".gitattributes").write_text("* diff=evil merge=evil\n")
        (client.path / "app.py").write_text("one\n2\nthree\n")
        await whole_path(scene, client)
    sentinel.never_ran()


@pytest.mark.parametrize("key", ["smudge", "clean", "process"])
async def test_a_filter_that_an_agent_asks_for_is_refused(
    tmp_path: Path, sentinel: Sentinel, operator_config: Path, key: str
) -> None:
    with operator_config.open("a") as config:
        config.write(f'[filter "evil"]\n\t{key} = {sentinel.program}\n\trequired = true\n')
    source = make_source(tmp_path / "source")
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        (client.path / ".gitattributes").write_text("* filter=evil\n")
        (client.path / "app.py").write_text("changed\n")
        before = git(source, "for-each-ref"), git(source, "status", "-s")
        with pytest.raises(DeliveryRefused, match="filter evil"):
            await whole_path(scene, client)
        assert (git(source, "for-each-ref"), git(source, "status", "-s")) == before
    sentinel.never_ran()


async def test_a_filter_for_files_that_are_not_changed_does_not_run_and_does_not_block(
    tmp_path: Path, sentinel: Sentinel, operator_config: Path
) -> None:
    source = make_source(
        tmp_path / "source", files={"app.py": "x\n", "sealed.bin": "y\n", ".gitattributes": "*.bin filter=own\n"}
    )
    with operator_config.open("a") as config:
        config.write(f'[filter "own"]\n\tclean = {sentinel.program}\n\tsmudge = {sentinel.program}\n')
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        (client.path / "app.py").write_text("changed\n")
        os.utime(source / "app.py", (1, 1))  # git has to look at the content again
        await whole_path(scene, client)
    sentinel.never_ran()


async def test_large_file_storage_is_the_exception(tmp_path: Path, sentinel: Sentinel, operator_config: Path) -> None:
    """The operator's own LFS program may run: without it the files would be pointers."""
    with operator_config.open("a") as config:
        config.write('[filter "lfs"]\n\tsmudge = cat\n\tclean = cat\n\trequired = true\n')
    async with stage(tmp_path, source=make_source(tmp_path / "source")) as scene:
        client = await scene.client()
        (client.path / ".gitattributes").write_text("*.bin filter=lfs\n")
        (client.path / "big.bin").write_text("pointer\n")
        await whole_path(scene, client)
        assert (scene.source / "big.bin").read_text() == "pointer\n"
    sentinel.never_ran()


async def test_submodules_are_never_entered(tmp_path: Path, sentinel: Sentinel, operator_config: Path) -> None:
    with operator_config.open("a") as config:
        config.write(
            "[submodule]\n\trecurse = true\n[fetch]\n\trecurseSubmodules = true\n[push]\n\trecurseSubmodules = check\n"
        )
        config.write("[protocol]\n\tallow = always\n")
    source = make_source(tmp_path / "source")
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        url = f"ext::{sentinel.program} x"
        (client.path / ".gitmodules").write_text(f'[submodule "m"]\n\tpath = m\n\turl = {url}\n')
        await client.git("update-index", "--add", "--cacheinfo", f"160000,{scene.base_commit},m")
        await client.git("add", ".gitmodules")
        await client.git("commit", "-q", "-m", "A submodule")
        (client.path / "work.txt").write_text("x\n")
        (client.path / "m").mkdir(exist_ok=True)
        await whole_path(scene, client)
        assert not list((source / "m").iterdir()) if (source / "m").exists() else True
    sentinel.never_ran()
