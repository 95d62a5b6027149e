"""Merging in the bare mirror: previews, the merge commit, the base's compare-and-swap, joining rescued work."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from kortix_tui.base.errors import Conflict, NotFound, Refused
from kortix_tui.repository import merge
from kortix_tui.repository.errors import MergeConflict
from kortix_tui.repository.mirror import Mirror
from tests.support.git_door import git, make_source

SESSION = "kaaaaaaaaaaa"


class Place:
    """A source with a `work` branch, mirrored; commits are made in the source and fetched."""

    def __init__(self, root: Path) -> None:
        self.source = make_source(root / "source")
        self.path = root / "mirror.git"
        self.base = git(self.source, "rev-parse", "main")
        git(self.source, "switch", "-q", "-c", "work")
        self.mirror: Mirror

    def commit(self, branch: str, **files: str | None) -> str:
        git(self.source, "switch", "-q", branch)
        for name, text in files.items():
            path = self.source / name.replace("_dot_", ".")
            if text is None:
                path.unlink()
            else:
                path.write_text(text)
        git(self.source, "add", "-A")
        git(self.source, "commit", "-q", "-m", f"Change {', '.join(files)}")
        return git(self.source, "rev-parse", "HEAD")

    async def fetch(self) -> Mirror:
        self.mirror, _ = await Mirror.create_from(self.path, str(self.source))
        await self.mirror.copy_base("main")
        return self.mirror


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_preview_of_a_branch_that_is_ahead(place: Place) -> None:
    head = place.commit("work", new_dot_txt="x\n")
    mirror = await place.fetch()
    found = await merge.preview(mirror, place.base, head)
    assert (found.can_merge, found.fast_forward, found.up_to_date, found.conflicts) == (True, True, False, ())
    assert found.merge_base == place.base


async def test_diverged_without_overlap_merges_in_one_step(place: Place) -> None:
    # https://github.com/BloopAI/vibe-kanban/pull/2374: no forced rebase where there is no conflict
    head = place.commit("work", new_dot_txt="x\n")
    base = place.commit("main", other_dot_txt="y\n")
    mirror = await place.fetch()
    found = await merge.preview(mirror, base, head)
    assert found.can_merge and not found.fast_forward
    commit = await merge.merge_commit(mirror, base, head, message="Merge CR #1: x")
    assert await mirror.tree(commit) == ["README.md", "app.py", "new.txt", "other.txt"]


async def test_conflicts_are_listed_by_path(place: Place) -> None:
    head = place.commit("work", app_dot_py="one\nTWO\nthree\n", README_dot_md="mine\n")
    base = place.commit("main", app_dot_py="one\n2\nthree\n")
    mirror = await place.fetch()
    found = await merge.preview(mirror, base, head)
    assert found.conflicts == ("app.py",) and not found.can_merge
    with pytest.raises(MergeConflict) as caught:
        await merge.merge_commit(mirror, base, head, message="No")
    assert caught.value.paths == ("app.py",)


@pytest.mark.parametrize("where", ["work", "main", "both"])
async def test_merge_attributes_are_not_honoured(place: Place, where: str) -> None:
    """`merge=union` would make every conflict vanish; an agent may write it, so nobody's is read."""
    rule = {"_dot_gitattributes": "*.py merge=union\n"}
    head = place.commit("work", app_dot_py="one\nTWO\nthree\n", **(rule if where != "main" else {}))
    base = place.commit("main", app_dot_py="one\n2\nthree\n", **(rule if where != "work" else {}))
    mirror = await place.fetch()
    assert (await merge.preview(mirror, base, head)).conflicts == ("app.py",)


async def test_up_to_date_and_unrelated(place: Place) -> None:
    tree = git(place.source, "rev-parse", "main^{tree}")
    island = git(place.source, "commit-tree", tree, "-m", "Alone")
    git(place.source, "branch", "island", island)
    mirror = await place.fetch()
    same = await merge.preview(mirror, place.base, place.base)
    assert same.up_to_date and not same.can_merge
    apart = await merge.preview(mirror, place.base, island)
    assert apart.merge_base is None and not apart.can_merge
    for head in (place.base, island):
        with pytest.raises(Refused):
            await merge.merge_commit(mirror, place.base, head, message="No")
    with pytest.raises(NotFound):
        await merge.preview(mirror, place.base, "1" * 40)


async def test_the_base_moves_by_compare_and_swap_only(place: Place) -> None:
    head = place.commit("work", new_dot_txt="x\n")
    mirror = await place.fetch()
    commit = await merge.merge_commit(mirror, place.base, head, message="Merge CR #1: x")
    await merge.advance_base(mirror, "main", commit, place.base)
    await merge.advance_base(mirror, "main", commit, place.base)  # after a crash: no change, no error
    assert await mirror.resolve("refs/heads/main") == commit
    assert (await mirror.branches())["main"] == commit
    other = await merge.merge_commit(mirror, place.base, head, message="Another merge of the same base")
    with pytest.raises(Conflict):
        await merge.advance_base(mirror, "main", other, place.base)
    assert await mirror.resolve("refs/heads/main") == commit


async def test_rescued_work_joins_the_branch_only_when_asked(place: Place) -> None:
    ahead = place.commit("work", new_dot_txt="x\n")
    aside = place.commit("main", other_dot_txt="y\n")
    mirror = await place.fetch()
    await mirror.create_session_branch(SESSION, place.base)
    for n, commit in ((1, ahead), (2, aside)):
        await mirror.git.run("update-ref", f"refs/kortix/rescue/{SESSION}/{n}", commit)
    assert await mirror.head(SESSION) == place.base

    assert await merge.join_rescue(mirror, SESSION, 1) == ahead
    joined = await merge.join_rescue(mirror, SESSION, 2)
    assert await mirror.head(SESSION) == joined
    assert await mirror.tree(joined) == ["README.md", "app.py", "new.txt", "other.txt"]
    assert [kept.commit for kept in await mirror.heads(SESSION)] == [place.base, ahead, joined]
    with pytest.raises(Refused):
        await merge.join_rescue(mirror, SESSION, 2)
    with pytest.raises(NotFound):
        await merge.join_rescue(mirror, SESSION, 3)


async def test_same_arguments_same_commit(place: Place) -> None:
    head = place.commit("work", new_dot_txt="x\n")
    mirror = await place.fetch()
    at = datetime(2026, 1, 2, tzinfo=UTC)
    made = {await merge.merge_commit(mirror, place.base, head, message="Merge", at=at) for _ in range(2)}
    assert len(made) == 1
