"""What a hostile sandbox may try at its git door: one test for each row, with real clients and a real server."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import os
import unicodedata
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.repository import merge
from kortix_tui.repository.admission import AdmissionCaps
from kortix_tui.repository.door import Access, DoorAnswer, GitDoor
from kortix_tui.repository.pktline import FLUSH, packet
from tests.support.git_door import Client, Stage, git, stage

OTHER = "kzzzzzzzzzzz"


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Stage]:
    caps = AdmissionCaps(
        object_bytes=1 << 20, new_bytes=3 << 20, paths=200, depth=16, commits=20, objects=2_000, pack_bytes=4 << 20
    )
    async with stage(tmp_path, caps=caps) as scene:
        yield scene


async def refused(scene: Stage, client: Client, *refspecs: str, why: str) -> None:
    """The push fails with these words, nothing changes, and nothing of it stays on the disk."""
    before = await scene.mirror.refs()
    packs = sorted((scene.mirror.path / "objects/pack").glob("*.pack"))
    status, out = await client.try_git("push", "--force", "origin", *refspecs)
    assert status != 0 and why in out, out
    assert await scene.mirror.refs() == before
    assert sorted((scene.mirror.path / "objects/pack").glob("*.pack")) == packs
    assert not list((scene.mirror.path / "objects").glob("*incoming-*"))
    assert scene.reports and not any(update.accepted for update in scene.reports[-1].updates)


# ---- refs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refspec", "why"),
    [
        ("HEAD:refs/heads/main", "merge is default-deny for agents"),
        (f"HEAD:refs/heads/{OTHER}", "only the session's own branch can be pushed"),
        ("HEAD:refs/heads/feature", "only the session's own branch can be pushed"),
        ("HEAD:refs/tags/v1", "only the session's own branch can be pushed"),
        ("HEAD:refs/replace/" + "1" * 40, "only the session's own branch can be pushed"),
        ("HEAD:refs/kortix/source/main", "only the session's own branch can be pushed"),
        ("HEAD:refs/kortix/heads/{sid}/9", "only the session's own branch can be pushed"),
        (f"HEAD:refs/kortix/rescue/{OTHER}/1", "only the session's own branch can be pushed"),
        ("HEAD:refs/kortix/rescue/{sid}/0", "only the session's own branch can be pushed"),
        ("HEAD:refs/kortix/rescue/{sid}/1/x", "only the session's own branch can be pushed"),
        ("HEAD:refs/heads/{sid}/x", "only the session's own branch can be pushed"),
        ("HEAD:refs/heads/{sid}x", "only the session's own branch can be pushed"),
        (":refs/heads/{sid}", "refs cannot be deleted"),
        (":refs/heads/main", "merge is default-deny for agents"),
    ],
)
async def test_only_the_exact_own_branch(scene: Stage, refspec: str, why: str) -> None:
    await scene.mirror.create_session_branch(OTHER, scene.base_commit)
    client = await scene.client()
    await client.commit(feature="x\n")
    await refused(scene, client, refspec.format(sid=scene.session), why=why)


async def test_one_bad_ref_refuses_the_whole_push(scene: Stage) -> None:
    client = await scene.client()
    await client.commit(feature="x\n")
    await refused(scene, client, "HEAD", "HEAD:refs/heads/main", why="merge is default-deny for agents")
    assert [update.reason for update in scene.reports[-1].updates] != []


async def test_rescued_work_is_created_once(scene: Stage) -> None:
    client = await scene.client()
    await client.commit(feature="x\n")
    ref = f"refs/kortix/rescue/{scene.session}/1"
    await client.git("push", "origin", f"HEAD:{ref}")
    await client.commit(feature="y\n")
    await refused(scene, client, f"HEAD:{ref}", why="rescued work is never overwritten")
    await refused(scene, client, f":{ref}", why="refs cannot be deleted")
    assert await scene.session_head() == scene.base_commit


async def test_hidden_refs_hold_even_without_our_own_rule(scene: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git's hidden refs and the admission hook are each a lock of their own."""
    monkeypatch.setattr("kortix_tui.repository.door.ref_fault", lambda *_, **__: None)
    client = await scene.client()
    await client.commit(feature="x\n")
    await refused(scene, client, "HEAD:refs/heads/main", why="deny updating a hidden ref")
    await refused(scene, client, f"HEAD:refs/kortix/rescue/{scene.session}/0", why="only the session's own branch")
    await refused(scene, client, f":refs/heads/{scene.session}", why="refs cannot be deleted")


# ---- reading what is not one's own ------------------------------------------------------------------------------


async def _hidden(scene: Stage) -> tuple[str, str]:
    """A commit of another session, and the id of a file in it."""
    await scene.mirror.create_session_branch(OTHER, scene.base_commit)
    door = GitDoor(scene.mirror, OTHER, "main")
    from tests.support.git_door import serve

    async with serve(door) as url:
        home = scene.root / "other-home"
        home.mkdir()
        other = Client(home, scene.root / "other", url)
        await other.git("clone", "-q", "-b", OTHER, url, str(other.path))
        commit = await other.commit(secret="the other session's work\n" * 20)
        await other.git("push", "origin", "HEAD")
        return commit, await other.git("rev-parse", "HEAD:secret")


async def test_only_base_and_own_branch_are_seen(scene: Stage) -> None:
    await _hidden(scene)
    client = await scene.client()
    listed = await client.git("ls-remote", "origin")
    assert {line.split("\t")[1] for line in listed.splitlines()} == {
        "HEAD", "refs/heads/main", f"refs/heads/{scene.session}",
    }  # fmt: skip


@pytest.mark.parametrize("version", ["0", "1", "2"])
async def test_a_hidden_object_cannot_be_fetched_by_its_id(scene: Stage, version: str) -> None:
    """Protocol 2 would serve any object whose id is known; it is never spoken, whatever the client asks for."""
    commit, blob = await _hidden(scene)
    client = await scene.client()
    for wanted in (commit, blob):
        status, out = await client.try_git("-c", f"protocol.version={version}", "fetch", "origin", wanted)
        assert status != 0, out
        status, _ = await client.try_git("cat-file", "-e", wanted)
        assert status != 0


async def test_a_hidden_object_cannot_be_had_by_linking_to_it(scene: Stage) -> None:
    """Whoever knows an id could make it part of the own branch and fetch it from there."""
    commit, blob = await _hidden(scene)
    client = await scene.client()
    why = "the push refers to objects that it does not bring"
    tree = await client.tree([("100644", "blob", blob, "mine")])
    # git's own client checks that it has what it sends, so the pack is made and sent by hand.
    for linked in (await client.commit_tree(tree, scene.base_commit), await _commit_with_parent(client, commit)):
        out = await _push_by_hand(scene, client, linked, without={blob, commit})
        assert scene.reports[-1].updates[0].reason == why, out
        assert await scene.session_head() == scene.base_commit


async def test_a_hidden_object_cannot_be_the_base_of_a_difference(scene: Stage) -> None:
    """A thin pack may name any object of the server as the base of a delta, and so seem to bring that object."""
    _, blob = await _hidden(scene)
    client = await scene.client()
    tree = await client.tree([("100644", "blob", blob, "mine")])
    commit = await client.commit_tree(tree, scene.base_commit)
    size = len("the other session's work\n" * 20)
    delta = _size(size) + _size(size) + bytes([0x80 | 0x10 | 0x20, size & 255, size >> 8])  # copy all of it
    objects = [_head(7, len(delta)) + bytes.fromhex(blob) + zlib.compress(delta)]
    for kind, number, object_id in (("commit", 1, commit), ("tree", 2, tree)):
        process = await asyncio.create_subprocess_exec(
            "git",
            "cat-file",
            kind,
            object_id,
            cwd=client.path,
            env=client.environment(),
            stdout=asyncio.subprocess.PIPE,
        )
        content, _ = await process.communicate()
        objects.append(_head(number, len(content)) + zlib.compress(content))
    body = b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big") + b"".join(objects)
    answer = await _send(scene, _command(scene, scene.base_commit, commit) + body + hashlib.sha1(body).digest())
    assert b"unpack ok" not in answer and await scene.session_head() == scene.base_commit
    assert "unresolved delta" in scene.reports[-1].updates[0].reason


def _head(kind: int, size: int) -> bytes:
    """The head of an object in a pack."""
    first = kind << 4 | size & 15
    rest = size >> 4
    return bytes([first | 0x80]) + _size(rest) if rest else bytes([first])


def _size(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


async def _commit_with_parent(client: Client, parent: str) -> str:
    tree = await client.git("rev-parse", "HEAD^{tree}")
    text = f"tree {tree}\nparent {parent}\nauthor A <a@b> 0 +0000\ncommitter A <a@b> 0 +0000\n\nx\n"
    return await client.git("hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=text.encode())


def _command(scene: Stage, old: str, new: str, ref: str | None = None) -> bytes:
    ref = ref or f"refs/heads/{scene.session}"
    return packet(f"{old} {new} {ref}\0 report-status".encode()) + FLUSH


async def _send(scene: Stage, body: bytes, service: str = "git-receive-pack", **headers: str) -> bytes:
    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), 50_000):
            yield body[at : at + 50_000]

    sent = {"content-type": f"application/x-{service}-request"} | headers
    answer = await scene.door.handle("POST", service, "", sent, pieces())
    content = b"".join([chunk async for chunk in answer.body])
    return content if answer.status == 200 else b"%d " % answer.status + content


async def _push_by_hand(scene: Stage, client: Client, commit: str, without: set[str]) -> str:
    tree = await client.git("rev-parse", f"{commit}^{{tree}}")
    objects = "\n".join(sorted({commit, tree} - without)) + "\n"
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--stdout", "-q", cwd=client.path, env=client.environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    pack, _ = await process.communicate(objects.encode())
    return (await _send(scene, _command(scene, scene.base_commit, commit) + pack)).decode("utf-8", "replace")


# ---- objects ----------------------------------------------------------------------------------------------------


async def _zeros(client: Client) -> None:
    (client.path / "zeros").write_bytes(bytes(64 << 20))
    await client.commit()


async def _many_files_too_large_together(client: Client) -> None:
    for n in range(5):
        (client.path / f"f{n}").write_bytes(bytes([n]) * 1_000_000)
    await client.commit()


async def _git_bomb(client: Client) -> None:
    tree = await client.tree([("100644", "blob", await client.blob(b"x"), "f")])
    for _ in range(10):
        tree = await client.tree([("040000", "tree", tree, f"d{n}") for n in range(10)])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))


async def _many_paths(client: Client) -> None:
    blob = await client.blob(b"x")
    tree = await client.tree([("100644", "blob", blob, f"f{n:05d}") for n in range(300)])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))


async def _old_tree_multiplied(client: Client) -> None:
    """New folders that repeat an old one: little is new, but every difference would list it all."""
    old = await client.git("rev-parse", "HEAD^{tree}")
    tree = await client.tree([("040000", "tree", old, f"d{n:03d}") for n in range(150)])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))


async def _deep(client: Client) -> None:
    tree = await client.tree([("100644", "blob", await client.blob(b"x"), "f")])
    for _ in range(20):
        tree = await client.tree([("040000", "tree", tree, "d")])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))


async def _many_commits(client: Client) -> None:
    for _ in range(25):
        await client.git("commit", "-q", "--allow-empty", "-m", "x")


async def _many_objects(client: Client) -> None:
    text = b"blob\nmark :1\ndata 1\nx\n"
    for n in range(2_500):
        text += f"blob\nmark :{n + 2}\ndata {len(str(n))}\n{n}\n".encode()
    text += b"commit refs/heads/big\ncommitter A <a@b> 0 +0000\ndata 0\n"
    text += b"".join(f"M 100644 :{n + 2} d{n % 20}/f{n}\n".encode() for n in range(2_500))
    await client.git("fast-import", "--quiet", stdin=text)
    await client.git("reset", "-q", "--soft", "big")


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (_zeros, "a file is larger than"),
        (_many_files_too_large_together, "larger than 3145728 bytes together"),
        (_git_bomb, "more than 200 new or changed paths"),
        (_many_paths, "more than 200 new or changed paths"),
        (_old_tree_multiplied, "more than 200 new or changed paths"),
        (_deep, "nested deeper than 16"),
        (_many_commits, "more than 20 new commits"),
        (_many_objects, "more than 2000 new objects"),
    ],
)
async def test_bombs(scene: Stage, attack: Callable[[Client], Awaitable[None]], why: str) -> None:
    client = await scene.client()
    await attack(client)
    await refused(scene, client, "HEAD", why=why)


async def test_a_bomb_is_refused_at_its_first_bytes(scene: Stage) -> None:
    """Two gigabytes of zeros are two megabytes of pack; what the pack says of them is enough."""
    commit = "1" * 40

    async def bomb() -> AsyncIterator[bytes]:
        yield _command(scene, scene.base_commit, commit)
        yield b"PACK" + (2).to_bytes(4, "big") + (1).to_bytes(4, "big") + _head(3, 2 << 30)
        packer = zlib.compressobj()
        for _ in range(512):
            yield packer.compress(bytes(1 << 20))

    headers = {"content-type": "application/x-git-receive-pack-request"}
    answer = await scene.door.handle("POST", "git-receive-pack", "", headers, bomb())
    assert b"ng" in b"".join([chunk async for chunk in answer.body])
    assert scene.reports[-1].updates[0].reason == "a file is larger than 1048576 bytes"
    assert not list((scene.mirror.path / "objects").glob("*incoming-*"))


async def test_a_pack_over_the_cap(scene: Stage) -> None:
    client = await scene.client()
    for n in range(6):
        (client.path / f"noise{n}").write_bytes(os.urandom(900_000))
    await client.commit()
    status, out = await client.try_git("push", "origin", "HEAD")
    assert status != 0, out
    assert await scene.session_head() == scene.base_commit
    assert not list((scene.mirror.path / "objects").glob("*incoming-*"))


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a\x1b[2Jb", "a file name has a control character"),
        ("bell\x07", "a file name has a control character"),
        ("new\nline", "a file name has a control character"),
        ("del\x7f", "a file name has a control character"),
        ("..\\..\\x", "a file name has a backslash"),
        (".git", "remote"),
        (".GIT", "remote"),
        ("git~1", "remote"),
        (".g\u200cit", "remote"),
        ("..", "remote"),
        ("readme.md", "two file names differ only in case or composition"),
        ("README.MD", "two file names differ only in case or composition"),
    ],
)
async def test_names(scene: Stage, name: str, why: str) -> None:
    client = await scene.client()
    blob = await client.blob(b"x")
    old = await client.git("ls-tree", "HEAD")
    entries = [("100644", "blob", line.split()[2], line.split("\t")[1]) for line in old.splitlines()]
    tree = await client.tree(sorted([*entries, ("100644", "blob", blob, name)], key=lambda entry: entry[3].encode()))
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))
    await refused(scene, client, "HEAD", why=why)


async def test_composed_and_decomposed_names_collide(scene: Stage) -> None:
    client = await scene.client()
    blob = await client.blob(b"x")
    names = sorted({unicodedata.normalize(form, "café") for form in ("NFC", "NFD")}, key=str.encode)
    tree = await client.tree([("100644", "blob", blob, name) for name in names])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))
    await refused(scene, client, "HEAD", why="differ only in case or composition")


async def test_a_collision_that_was_there_before_blocks_nobody(tmp_path: Path) -> None:
    from tests.support.git_door import make_source

    source = make_source(tmp_path / "source", files={"xt_MARK.h": "a\n", "xt_mark.h": "b\n"})
    async with stage(tmp_path, source=source) as scene:
        client = await scene.client()
        commit = await client.commit(feature="x\n")
        await client.git("push", "origin", "HEAD")
        assert await scene.session_head() == commit


@pytest.mark.parametrize(
    ("mode", "name", "content"),
    [
        ("120000", ".gitmodules", b"/etc/passwd"),
        ("120000", ".gitattributes", b"/etc/passwd"),
        ("100644", ".gitmodules", b'[submodule "../../x"]\n\tpath = p\n\turl = https://h/x\n'),
        ("100644", ".gitmodules", b'[submodule "x"]\n\tpath = p\n\turl = -uevil\n'),
    ],
)
async def test_files_that_git_itself_would_obey(scene: Stage, mode: str, name: str, content: bytes) -> None:
    client = await scene.client()
    tree = await client.tree([(mode, "blob", await client.blob(content), name)])
    await client.git("reset", "-q", "--soft", await client.commit_tree(tree, "HEAD"))
    await refused(scene, client, "HEAD", why="remote")


async def test_the_own_branch_must_point_at_a_commit(scene: Stage) -> None:
    client = await scene.client()
    blob = await client.blob(b"x")
    await refused(scene, client, f"{blob}:refs/kortix/rescue/{scene.session}/1", why="must point at a commit")


async def test_merging_the_base_in_is_no_attack(scene: Stage) -> None:
    """A merge brings back what the base has; only what differs from every parent counts as new."""
    for n in range(150):
        (scene.source / f"f{n}").write_text("x\n")
    git(scene.source, "add", "-A")
    git(scene.source, "commit", "-q", "-m", "Many")
    for n in range(150):
        (scene.source / f"g{n}").write_text("x\n")
    git(scene.source, "add", "-A")
    git(scene.source, "commit", "-q", "-m", "More")
    await scene.mirror.fetch(str(scene.source), base="main")
    client = await scene.client()
    await client.commit(feature="x\n")
    await client.git("merge", "-q", "-m", "Take the base", "origin/main")
    await client.git("push", "origin", "HEAD")
    assert await scene.session_head() == await client.git("rev-parse", "HEAD")


async def test_an_old_file_that_comes_back_is_no_attack(scene: Stage) -> None:
    """The pusher need not send what the server has; then the slow way of asking finds that it is visible."""
    client = await scene.client()
    first = await client.commit(feature="old text\n")
    await client.commit(feature="new text\n")
    await client.git("push", "origin", "HEAD")
    back = await client.commit_tree(f"{first}^{{tree}}", "HEAD")
    out = await _push_by_hand_from(scene, client, back)
    assert await scene.session_head() == back, out


async def _push_by_hand_from(scene: Stage, client: Client, commit: str) -> str:
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--stdout", "-q", cwd=client.path, env=client.environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    pack, _ = await process.communicate(f"{commit}\n".encode())
    head = await scene.session_head()
    assert head is not None
    return (await _send(scene, _command(scene, head, commit) + pack)).decode("utf-8", "replace")


async def test_union_attributes_of_an_agent_do_not_hide_a_conflict(scene: Stage) -> None:
    client = await scene.client()
    (client.path / ".gitattributes").write_text("*.py merge=union\n")
    (client.path / "app.py").write_text("one\nAGENT\nthree\n")
    head = await client.commit()
    await client.git("push", "origin", "HEAD")
    (scene.source / "app.py").write_text("one\nOWNER\nthree\n")
    git(scene.source, "commit", "-q", "-am", "Mine")
    await scene.mirror.fetch(str(scene.source), base="main")
    base = await scene.mirror.resolve("refs/heads/main")
    assert base is not None
    assert (await merge.preview(scene.mirror, base, head)).conflicts == ("app.py",)


# ---- the conversation -------------------------------------------------------------------------------------------


async def _ask(scene: Stage, method: str, tail: str, query: str = "", **headers: str) -> DoorAnswer:
    async def nothing() -> AsyncIterator[bytes]:
        return
        yield b""

    return await scene.door.handle(method, tail, query, headers, nothing())


@pytest.mark.parametrize(
    ("method", "tail", "query", "status"),
    [
        ("GET", "info/refs", "", 403),
        ("GET", "info/refs", "service=git-upload-archive", 403),
        ("GET", "info/refs", "service=upload-pack", 403),
        ("GET", "HEAD", "", 404),
        ("GET", "objects/info/packs", "", 404),
        ("GET", "../other.git/info/refs", "service=git-upload-pack", 404),
        ("PUT", "git-receive-pack", "", 404),
        ("GET", "git-receive-pack", "", 404),
        ("POST", "git-upload-pack", "", 415),
    ],
)
async def test_other_requests(scene: Stage, method: str, tail: str, query: str, status: int) -> None:
    answer = await _ask(scene, method, tail, query)
    assert answer.status == status
    await answer.body.aclose()


async def test_no_access_means_none(scene: Stage) -> None:
    scene.door.access = Access.NONE
    for service in ("git-upload-pack", "git-receive-pack"):
        answer = await _ask(scene, "GET", "info/refs", f"service={service}")
        assert answer.status == 403
        await answer.body.aclose()


@pytest.mark.parametrize(
    "body",
    [b"", b"zzzz", b"0003", b"00100000", b"0014not a ref change", b"ffff" + b"x" * 70_000, packet(b"x" * 60_000) * 3],
    ids=["empty", "no number", "too short", "flush inside", "no change", "cut off", "too long"],
)
async def test_malformed_pushes(scene: Stage, body: bytes) -> None:
    assert (await _send(scene, body)).startswith(b"400")


async def test_gzip_is_understood_and_its_bombs_are_not(scene: Stage) -> None:
    wants = packet(f"want {scene.base_commit}\n".encode()) + FLUSH + packet(b"done\n")
    answer = await _send(scene, gzip.compress(wants), "git-upload-pack", **{"content-encoding": "gzip"})
    assert b"PACK" in answer
    bomb = gzip.compress(bytes(64 << 20))
    answer = await _send(scene, bomb, "git-upload-pack", **{"content-encoding": "gzip"})
    assert answer.startswith(b"413")
    for bad in (b"no gzip", gzip.compress(wants)[:-9]):
        assert (await _send(scene, bad, "git-upload-pack", **{"content-encoding": "gzip"})).startswith(b"400")
    assert (await _send(scene, wants, "git-upload-pack", **{"content-encoding": "br"})).startswith(b"415")


async def test_a_stalled_pusher_is_cut_off_and_leaves_nothing(tmp_path: Path) -> None:
    async with stage(tmp_path, idle_s=0.3) as scene:

        async def stalls() -> AsyncIterator[bytes]:
            yield _command(scene, scene.base_commit, "1" * 40) + b"PACK\0\0\0\2\0\0\0\1"
            await asyncio.Event().wait()

        headers = {"content-type": "application/x-git-receive-pack-request"}
        with pytest.raises(DeadlineExceeded):
            await scene.door.handle("POST", "git-receive-pack", "", headers, stalls())
        assert not list((scene.mirror.path / "objects").glob("*incoming-*"))
        client = await scene.client()
        commit = await client.commit(feature="x\n")
        await client.git("push", "origin", "HEAD")
        assert await scene.session_head() == commit


async def test_a_stalled_reader_is_cut_off(tmp_path: Path) -> None:
    async with stage(tmp_path, idle_s=0.3) as scene:
        client = await scene.client()
        (client.path / "noise").write_bytes(os.urandom(4 << 20))
        commit = await client.commit()
        await client.git("push", "origin", "HEAD")

        async def wants() -> AsyncIterator[bytes]:
            yield packet(f"want {commit}\n".encode()) + FLUSH + packet(b"done\n")

        headers = {"content-type": "application/x-git-upload-pack-request"}
        answer = await scene.door.handle("POST", "git-upload-pack", "", headers, wants())
        assert await anext(answer.body)
        await asyncio.sleep(1)  # the reader does nothing; that it is longer than the limit is all that matters
        with pytest.raises(DeadlineExceeded):
            async for _ in answer.body:
                pass


async def test_a_push_through_a_hook_that_cannot_run_is_refused(scene: Stage) -> None:
    """Git silently passes over a hook that it cannot execute; the door does not."""
    client = await scene.client()
    await client.commit(feature="x\n")
    hooks = scene.mirror.path / "kortix" / "hooks"
    hooks.parent.mkdir(exist_ok=True)
    if hooks.is_dir():
        (hooks / "pre-receive").unlink()
        hooks.rmdir()
    hooks.write_text("not a folder")
    status, _ = await client.try_git("push", "origin", "HEAD")
    assert status != 0 and await scene.session_head() == scene.base_commit
