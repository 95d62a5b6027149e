"""The git door with real clients: clone, push, rewrite, and what each access lets through."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from kortix_tui.repository.door import Access, GitDoor
from kortix_tui.repository.mirror import Mirror
from tests.support.git_door import Client, git, make_source, serve, stage


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
        assert status != 0 and "this session may not push its branch" in out
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


async def test_a_repository_with_sha256_names(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", object_format="sha256")
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        commit = await client.commit(feature="x\n")
        await client.git("push", "origin", "HEAD")
        assert len(commit) == 64 and await scene.session_head() == commit


async def test_a_shallow_source_and_a_shallow_clone(tmp_path: Path) -> None:
    full = make_source(tmp_path / "full")
    for n in range(5):
        git(full, "commit", "-q", "--allow-empty", "-m", f"{n}")
    git(tmp_path, "clone", "-q", "--depth", "2", f"file://{full}", str(tmp_path / "source"))
    async with stage(tmp_path, source=tmp_path / "source") as scene:
        for name, options in (("whole", ()), ("flat", ("--depth", "1"))):
            client = await scene.client(name, *options)
            commit = await client.commit(**{name: "x\n"})
            await client.git("push", "origin", "HEAD")
            assert await scene.session_head() == commit


async def test_pushing_the_same_again_changes_nothing(tmp_path: Path) -> None:
    """It is no error, makes no new head and no report."""
    async with stage(tmp_path) as scene:
        client = await scene.client()
        await client.commit(feature="x\n")
        for _ in range(2):
            await client.git("push", "origin", "HEAD")
        assert len(scene.reports) == 1 and len(await scene.mirror.heads(scene.session)) == 2


async def test_moving_back_to_an_older_head_needs_no_objects(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        commit = await client.commit(feature="x\n")
        await client.git("push", "origin", "HEAD")
        await client.git("push", "--force", "origin", f"{scene.base_commit}:refs/heads/{scene.session}")
        assert await scene.session_head() == scene.base_commit
        await client.git("push", "origin", "HEAD")
        assert await scene.session_head() == commit
        assert [report.head_number for report in scene.reports] == [2, 1, 2]


async def test_two_sessions_push_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        second = "kcccccccccca"
        await scene.mirror.create_session_branch(second, scene.base_commit)
        async with serve(GitDoor(scene.mirror, second, "main")) as url:
            one = await scene.client("one")
            (tmp_path / "home-two").mkdir()
            two = Client(tmp_path / "home-two", tmp_path / "two", url)
            await two.git("clone", "-q", "-b", second, url, str(two.path))

            async def work(client: Client) -> str:
                for n in range(4):
                    commit = await client.commit(**{f"file{n}": f"{client.path.name}\n"})
                    await client.git("push", "-q", "origin", "HEAD")
                return commit

            heads = await asyncio.gather(work(one), work(two))
        assert [await scene.mirror.head(scene.session), await scene.mirror.head(second)] == heads
        assert not any("two" in line for line in (await one.git("ls-remote", "origin")).splitlines())
        for session in (scene.session, second):
            assert len(await scene.mirror.heads(session)) == 5


async def test_many_clones_at_once(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        clients = await asyncio.gather(*(scene.client(f"c{n}") for n in range(10)))
        assert all((client.path / "app.py").is_file() for client in clients)


async def test_leftovers_of_killed_pushes_are_swept_when_old(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        old, new = (scene.mirror.path / "objects" / f"tmp_objdir-incoming-{name}" for name in ("old", "new"))
        for leftover in (old, new):
            (leftover / "pack").mkdir(parents=True)
        os.utime(old, (1, 1))
        await Mirror.open(scene.mirror.path)
        assert not old.exists() and new.exists()
        new.joinpath("pack").rmdir()
        new.rmdir()
