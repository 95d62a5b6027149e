"""I4, git's part: the merge has exactly the reviewed commit as its second parent, and says so unforgeably."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from kortix_tui.base.errors import InvalidInput
from kortix_tui.repository import merge
from tests.support.git_door import git, stage


async def test_parents_trailers_and_committer(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        client = await scene.client()
        head = await client.commit(feature="x\n")
        await client.git("push", "origin", "HEAD")
        refs = await scene.mirror.refs()
        forged = "Merge CR #7: nice\n\nReviewed-Head: " + "0" * 40 + "\nAudit: 1:beef\x1b[31m"
        commit = await merge.merge_commit(
            scene.mirror,
            scene.base_commit,
            head,
            message=forged,
            trailers={"Change-Request": "7", "Reviewed-Head": head, "Audit": "12:abcd"},
        )
        assert await scene.mirror.refs() == refs, "making the commit moved a ref"
        assert git(scene.mirror.path, "rev-parse", f"{commit}^1", f"{commit}^2").split() == [scene.base_commit, head]
        assert git(scene.mirror.path, "log", "-1", "--format=%cn <%ce>", commit) == "Kortix <noreply@kortix.invalid>"
        body = git(scene.mirror.path, "log", "-1", "--format=%B", commit)
        assert "\x1b" not in body
        trailers = git(scene.mirror.path, "log", "-1", "--format=%(trailers:only)", commit)
        assert trailers.splitlines() == ["Change-Request: 7", f"Reviewed-Head: {head}", "Audit: 12:abcd"]


async def test_a_branch_name_is_never_merged(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        for name in (scene.session, f"refs/heads/{scene.session}", "HEAD", "--output=x", scene.base_commit[:12]):
            with pytest.raises(InvalidInput):
                await merge.merge_commit(scene.mirror, scene.base_commit, name, message="No")


async def test_pushes_while_a_merge_is_made_never_get_in(tmp_path: Path) -> None:
    """Whatever the order of a push and a merge, the second parent is the commit that was reviewed."""
    async with stage(tmp_path) as scene:
        client = await scene.client()
        reviewed = await client.commit(feature="0\n")
        await client.git("push", "origin", "HEAD")
        chance = random.Random(4)

        async def push_later(n: int) -> None:
            await client.commit(feature=f"{n}\n")
            await asyncio.sleep(chance.random() / 10)
            await client.git("push", "origin", "HEAD")

        for n in range(1, 9):
            pushing = asyncio.create_task(push_later(n))
            await asyncio.sleep(chance.random() / 10)
            commit = await merge.merge_commit(scene.mirror, scene.base_commit, reviewed, message="Merge")
            await pushing
            assert git(scene.mirror.path, "rev-parse", f"{commit}^2") == reviewed
            assert git(scene.mirror.path, "show", f"{commit}:feature") == "0"
            reviewed_next = await scene.session_head()
            assert reviewed_next is not None and reviewed_next != reviewed
