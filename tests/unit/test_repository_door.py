"""The git door with real clients: clone, push, rewrite, and what each access lets through."""

from __future__ import annotations

import os
from pathlib import Path

from kortix_tui.repository.door import Access
from tests.support.git_door import stage


async def test_clone_commit_push(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        commit = await client.commit(feature="new\n")
        out = await client.git("push", "origin", "HEAD")

        assert await scene.session_head() == commit, out
        (report,) = scene.reports
        assert [(u.ref, u.new, u.accepted) for u in report.updates] == [(f"refs/heads/{scene.session}", commit, True)]
        assert report.head_number == 2
        assert [kept.commit for kept in await scene.mirror.heads(scene.session)] == [scene.base_commit, commit]


async def test_rewriting_the_own_branch_is_allowed_and_keeps_the_old_head(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        first = await client.commit(feature="one\n")
        await client.git("push", "origin", "HEAD")
        await client.git("commit", "-q", "--amend", "-m", "Better words")
        second = await client.git("rev-parse", "HEAD")
        await client.git("push", "--force", "origin", "HEAD")

        assert await scene.session_head() == second
        assert [kept.commit for kept in await scene.mirror.heads(scene.session)] == [scene.base_commit, first, second]


async def test_push_only_takes_rescued_work_and_gives_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        commit = await client.commit(feature="unsaved\n")
        scene.door.access = Access.PUSH_ONLY

        assert scene.base_commit in await client.git("ls-remote", "origin")
        status, out = await client.try_git("clone", "-q", scene.url, str(tmp_path / "second"))
        assert status != 0 and not (tmp_path / "second").exists(), out
        status, out = await client.try_git("push", "origin", "HEAD")
        assert status != 0 and "only rescued work can be pushed now" in out
        rescue = f"refs/kortix/rescue/{scene.session}/1"
        await client.git("push", "origin", f"HEAD:{rescue}")
        assert [(kept.n, kept.commit) for kept in await scene.mirror.rescues(scene.session)] == [(1, commit)]

        scene.door.access = Access.NONE
        status, out = await client.try_git("push", "origin", f"HEAD:refs/kortix/rescue/{scene.session}/2")
        assert status != 0, out


async def test_a_large_push_in_pieces_and_a_large_negotiation(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        (client.path / "noise.bin").write_bytes(bytes(range(256)) * 8192 + os.urandom(3 << 20))
        commit = await client.commit()
        await client.git("push", "origin", "HEAD")
        assert await scene.session_head() == commit
        other = await scene.client("other")
        assert (other.path / "noise.bin").stat().st_size == (5 << 20)
