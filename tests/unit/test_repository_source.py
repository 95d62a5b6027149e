"""The operator's own repository in all its states, and making the mirror from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kortix_tui.base.errors import GitFailed, InvalidInput, NotFound, Refused
from kortix_tui.repository.errors import DetachedHead, EmptyRepository, MissingBranch, SourceMissing
from kortix_tui.repository.merge import Identity
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.names import ObjectFormat, check_branch
from kortix_tui.repository.remote import check_source, look_at
from kortix_tui.repository.source import first_commit, inspect_source, is_url, locate_checkout
from tests.support.git_door import git, make_source


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_source(tmp_path / "source")


def test_a_plain_checkout(source: Path) -> None:
    git(source, "remote", "add", "origin", "https://olive:hunter2@example.invalid/x.git")
    git(source, "config", "user.name", "Olive")
    git(source, "config", "user.email", "olive@example.invalid")
    git(source, "branch", "other")
    state = inspect_source(source)
    assert (state.root, state.bare, state.linked_worktree, state.empty) == (source, False, False, False)
    assert (state.branch, state.branches, state.head) == ("main", ("main", "other"), git(source, "rev-parse", "HEAD"))
    assert (state.dirty, state.untracked, state.in_progress, state.shallow) == (False, 0, None, False)
    assert state.remotes == {"origin": "https://***@example.invalid/x.git"}
    assert state.identity == Identity(name="Olive", email="olive@example.invalid")
    assert state.model_dump(mode="json")["root"] == str(source)


def test_dirty_untracked_and_merging(source: Path) -> None:
    (source / "app.py").write_text("changed\n")
    (source / "extra.txt").write_text("new\n")
    (source / ".git/MERGE_HEAD").write_text(git(source, "rev-parse", "HEAD") + "\n")
    state = inspect_source(source / ".")
    assert (state.dirty, state.untracked, state.in_progress) == (True, 1, "a merge")


def test_detached_bare_empty_and_linked(source: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(source, "worktree", "add", "-q", str(linked), "-b", "side")
    state = inspect_source(linked)
    assert state.linked_worktree and state.root == linked and state.main_worktree == source and state.branch == "side"
    git(source, "switch", "-q", "--detach")
    assert inspect_source(source).detached
    git(tmp_path, "init", "-q", "-b", "main", "empty")
    empty = inspect_source(tmp_path / "empty")
    assert empty.empty and empty.head is None and empty.branch == "main" and empty.branches == ()
    git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
    bare = inspect_source(tmp_path / "bare.git")
    assert bare.bare and not bare.dirty and bare.root == tmp_path / "bare.git"


def test_what_is_no_repository(source: Path, tmp_path: Path) -> None:
    with pytest.raises(SourceMissing) as caught:
        inspect_source(tmp_path / "gone")
    assert caught.value.hint
    (tmp_path / "plain").mkdir()
    with pytest.raises(NotFound, match="not in a git repository"):
        inspect_source(tmp_path / "plain")
    linked = tmp_path / "linked"
    git(source, "worktree", "add", "-q", str(linked), "-b", "side")
    shutil.move(source, tmp_path / "moved")
    with pytest.raises(NotFound, match="can be read") as caught_linked:
        inspect_source(linked)
    assert "worktree repair" in (caught_linked.value.hint or "")


def test_locating_and_addresses(source: Path, tmp_path: Path) -> None:
    (source / "a/b").mkdir(parents=True)
    assert locate_checkout(source / "a/b") == source
    assert locate_checkout(tmp_path) is None
    assert is_url("https://example.invalid/x.git") and is_url("git@example.invalid:x.git") and is_url("ssh://h/x")
    assert not is_url("/srv/x.git") and not is_url("./a:b") and not is_url("x.git")
    for hostile in ("ext::sh -c id", "--upload-pack=id", "-x", "https://h/\nx", "fd::3"):
        with pytest.raises(InvalidInput):
            check_source(hostile)


def test_first_commit(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new/README.md").write_text("hello\n")
    commit = first_commit(
        tmp_path / "new", message="Begin", identity=Identity(name="Olive", email="olive@example.invalid")
    )
    assert git(tmp_path / "new", "log", "--format=%H %an %s") == f"{commit} Olive Begin"


# ---- the mirror -------------------------------------------------------------------------------------------------


async def test_mirror_of_branches_only(source: Path, tmp_path: Path) -> None:
    git(source, "branch", "team/feature")
    git(source, "tag", "v1")
    mirror, refs = await Mirror.create_from(tmp_path / "m.git", str(source))
    assert refs.base(None) == "main" and refs.base("team/feature") == "team/feature"
    commit = await mirror.copy_base("main")
    assert await mirror.refs() == {
        "refs/heads/main": commit,
        "refs/kortix/source/main": commit,
        "refs/kortix/source/team/feature": commit,
    }
    assert not (tmp_path / "m.git/hooks").exists() and (tmp_path / "m.git/info/attributes").read_bytes() == b""
    git(source, "branch", "-D", "team/feature")
    git(source, "branch", "team")  # a name that the old one stood in the way of
    await mirror.fetch(str(source))
    assert set(await mirror.branches()) == {"main", "team"}


async def test_object_format_follows_the_source(tmp_path: Path) -> None:
    source = make_source(tmp_path / "source", object_format="sha256")
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    commit = await mirror.copy_base("main")
    assert len(commit) == 64 and mirror.object_format is ObjectFormat.SHA256
    assert (await Mirror.open(tmp_path / "m.git")).object_format is ObjectFormat.SHA256


async def test_empty_detached_and_missing_base_say_what_to_do(source: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "empty")
    with pytest.raises(EmptyRepository) as empty:
        await Mirror.create_from(tmp_path / "m.git", str(tmp_path / "empty"))
    git(source, "switch", "-q", "--detach")
    refs = await look_at(str(source))
    with pytest.raises(DetachedHead) as detached:
        refs.base(None)
    with pytest.raises(MissingBranch) as missing:
        refs.base("develop")
    assert refs.base("main") == "main"
    assert all(caught.value.hint for caught in (empty, detached, missing))
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    with pytest.raises(MissingBranch):
        await mirror.fetch(str(source), base="develop")
    with pytest.raises(SourceMissing):
        await mirror.fetch(str(tmp_path / "gone"))


async def test_unreachable_sources_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(GitFailed) as refused:
        await look_at("http://127.0.0.1:9/x.git")
    assert refused.value.hint is not None and "network" in refused.value.hint
    (tmp_path / "plain").mkdir()
    with pytest.raises(GitFailed) as no_repository:
        await look_at(str(tmp_path / "plain"))
    assert no_repository.value.hint is not None and "must be a git repository" in no_repository.value.hint


async def test_a_rewritten_source_branch_is_followed_and_sessions_keep_their_base(source: Path, tmp_path: Path) -> None:
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    old = await mirror.copy_base("main")
    session = "kbbbbbbbbbbb"
    assert await mirror.create_session_branch(session, old) == old
    git(source, "commit", "-q", "--amend", "-m", "Rewritten")
    await mirror.fetch(str(source), base="main")
    assert await mirror.resolve("refs/heads/main") == git(source, "rev-parse", "main") != old
    assert await mirror.create_session_branch(session, git(source, "rev-parse", "main")) == old
    assert [(kept.n, kept.commit) for kept in await mirror.heads(session)] == [(1, old)]


async def test_forgetting_a_session_keeps_its_heads_and_rescues(source: Path, tmp_path: Path) -> None:
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    base = await mirror.copy_base("main")
    session = "kbbbbbbbbbbb"
    await mirror.create_session_branch(session, base)
    await mirror.git.run("update-ref", f"refs/kortix/rescue/{session}/1", base)
    await mirror.forget(session)
    await mirror.forget(session)
    assert await mirror.head(session) is None
    assert [kept.n for kept in await mirror.heads(session)] == [1]
    assert [kept.n for kept in await mirror.rescues(session)] == [1]


async def test_reading_files_never_follows_links(tmp_path: Path) -> None:
    source = make_source(tmp_path / "s", files={"kortix.yaml": "x", "agents/a.md": "A", "agents/sub/b.md": "B"})
    (source / "agents/link.md").symlink_to("../kortix.yaml")
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "Link")
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    commit = await mirror.copy_base("main")
    assert await mirror.read(commit, "kortix.yaml") == b"x"
    assert (
        await mirror.tree(commit, "agents")
        == await mirror.tree(commit, "agents/")
        == ["agents/a.md", "agents/sub/b.md"]
    )
    for absent in ("agents/link.md", "agents", "nothing", "../kortix.yaml", "*.yaml", ":kortix.yaml"):
        assert await mirror.read(commit, absent) is None
    with pytest.raises(Refused, match="too large"):
        await mirror.read(commit, "agents/a.md", limit=0)


async def test_settings_that_somebody_wrote_into_the_mirror_are_undone(source: Path, tmp_path: Path) -> None:
    await Mirror.create(tmp_path / "m.git")
    git(tmp_path / "m.git", "config", "core.hooksPath", "/tmp/evil")
    (tmp_path / "m.git/info/attributes").write_text("* merge=union\n")
    await Mirror.open(tmp_path / "m.git")
    assert git(tmp_path / "m.git", "config", "core.hooksPath") == "/dev/null"
    assert (tmp_path / "m.git/info/attributes").read_text() == ""


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-x",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "/a",
        "a/",
        "a//b",
        "@",
        "HEAD",
        "a.lock",
        "a\\b",
        "a@{1}",
        "a/.b",
        "b.",
        "a\nb",
    ],
)
def test_branch_names_that_are_expressions_or_options_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_branch(name)


async def test_a_hostile_source_is_not_taken_in(source: Path, tmp_path: Path) -> None:
    (source / ".gitmodules").write_text('[submodule "../../x"]\n\tpath = p\n\turl = https://example.invalid/x\n')
    git(source, "add", "-A")
    git(source, "commit", "-q", "-m", "Hostile")
    with pytest.raises(GitFailed) as caught:
        await Mirror.create_from(tmp_path / "m.git", str(source))
    assert "git fsck" in (caught.value.hint or "")
    assert await (await Mirror.open(tmp_path / "m.git")).refs() == {}
