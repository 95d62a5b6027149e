"""No value of a secret comes in by a push; rescued work is told of, and let in. With real git and a real finder."""

from __future__ import annotations

import asyncio
import base64
import os
import signal
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kortix_tui.base.errors import Refused
from kortix_tui.repository import inquiry, merge
from kortix_tui.repository.admission import AdmissionCaps, HookSettings, install_hook
from kortix_tui.repository.door import Access, PushReport
from kortix_tui.repository.pktline import FLUSH, packet
from kortix_tui.repository.value_scan import ValueFinder, ValueHit, ValueScan
from kortix_tui.vault.redaction import Redactor
from tests.support.git_door import Client, Stage, stage

VALUE = "wJalrXUt/K7MDENG+bPxRfiCYz4mpl3"
OTHER = "another-value-of-9f2b"


@dataclass
class Values:
    """What the host knows, and how often it was asked to search."""

    redactor: Redactor = field(default_factory=Redactor.none)
    why: str | None = None
    searches: int = 0

    @property
    def scan(self) -> ValueScan:
        return ValueScan(finder=self.finder, barred=lambda: self.why)

    def finder(self) -> ValueFinder | None:
        return self.find if self.redactor else None

    def find(self, data: bytes) -> list[ValueHit]:
        self.searches += 1
        return [*self.redactor.hits(data)]


@pytest.fixture
def values() -> Values:
    return Values(Redactor.of([("AWS-KEY", VALUE.encode()), ("OTHER", OTHER.encode())]))


@pytest.fixture
async def scene(tmp_path: Path, values: Values) -> AsyncIterator[Stage]:
    async with stage(tmp_path, scan=values.scan) as scene:
        yield scene


async def refused(scene: Stage, client: Client, *refspecs: str, place: str) -> PushReport:
    """The push fails and says where; nothing changes and nothing of it stays."""
    before = await scene.mirror.refs()
    status, out = await client.try_git("push", "--force", "origin", *(refspecs or ("HEAD",)))
    assert status != 0
    words = f"contains the value of a secret: {place}"
    assert f"remote: kortix: refused: {words}" in out, out
    assert VALUE not in out and OTHER not in out
    assert await scene.mirror.refs() == before
    assert not list((scene.mirror.path / "objects").glob("*incoming-*"))
    report = scene.reports[-1]
    assert report.is_refused and report.values and report.updates[0].reason.startswith(words)
    return report


async def by_hand(scene: Stage, client: Client, *more: str) -> None:
    """Push the head to the branch, with more objects in the pack than git itself would send."""
    head = await client.git("rev-parse", "HEAD")
    listed = await client.git("rev-list", "--objects", head, f"^{scene.base_commit}")
    ids = [*(line.split()[0] for line in listed.splitlines()), *more]
    process = await asyncio.create_subprocess_exec(
        "git", "pack-objects", "--stdout", "-q", cwd=client.path, env=client.environment(),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    pack, _ = await process.communicate("".join(f"{name}\n" for name in ids).encode())
    ref = f"refs/heads/{scene.session}"

    async def body() -> AsyncIterator[bytes]:
        yield packet(f"{scene.base_commit} {head} {ref}\0 report-status".encode()) + FLUSH + pack

    headers = {"content-type": "application/x-git-receive-pack-request"}
    answer = await scene.door.handle("POST", "git-receive-pack", "", headers, body())
    async for _ in answer.body:
        pass


async def test_a_value_in_a_file(scene: Stage) -> None:
    client = await scene.client()
    commit = await client.commit(config=f"one\ntwo\nkey = {VALUE}\n")
    report = await refused(scene, client, place=f"AWS-KEY in config:3 (commit {commit[:12]})")
    (found,) = report.values
    assert (found.identifier, found.path, found.line, found.commit) == ("AWS-KEY", "config", 3, commit)


@pytest.mark.parametrize(
    "spelled",
    [
        base64.b64encode(f"user:{VALUE}".encode()),
        VALUE.encode().hex().encode(),
        b"\x00\xff\x01" + VALUE.encode() + b"\x00\xfe",
        VALUE.encode("utf-16-le"),
        f"{VALUE}\r\n".encode(),
    ],
    ids=["base64", "hex", "binary", "utf-16", "crlf"],
)
async def test_a_value_spelled_otherwise(scene: Stage, spelled: bytes) -> None:
    client = await scene.client()
    (client.path / "data").write_bytes(b"first\n" + spelled)
    await client.commit()
    await refused(scene, client, place="AWS-KEY in data:2")


async def test_a_value_in_a_commit_message(scene: Stage) -> None:
    client = await scene.client()
    commit = await client.commit(f"Work\n\nfor {OTHER} today", feature="x\n")
    await refused(scene, client, place=f"OTHER in the message of commit {commit[:12]}:3")


@pytest.mark.parametrize("who", ["author", "committer"])
async def test_a_value_in_a_name(scene: Stage, who: str) -> None:
    client = await scene.client()
    client.write(feature="x\n")
    await client.git("add", "-A")
    await client.git("commit", "-q", "-m", "Work", **{f"GIT_{who.upper()}_NAME": OTHER})
    commit = await client.git("rev-parse", "HEAD")
    await refused(scene, client, place=f"OTHER in the {who} of commit {commit[:12]}")


async def test_a_value_in_a_commit_whose_work_a_later_one_removes(scene: Stage) -> None:
    client = await scene.client()
    bad = await client.commit(feature=f"{VALUE}\n")
    await client.commit(feature="clean\n")
    await client.git("rm", "-q", "feature")
    await client.commit()
    await refused(scene, client, place=f"AWS-KEY in feature:1 (commit {bad[:12]})")
    await client.git("reset", "-q", "--soft", scene.base_commit)
    await client.commit(feature="clean\n")
    await client.git("push", "origin", "HEAD")


async def test_a_value_in_a_file_name(scene: Stage) -> None:
    client = await scene.client()
    (client.path / "src").mkdir()
    (client.path / "src" / f"x-{OTHER}.txt").write_text("x\n")
    await client.commit()
    report = await refused(scene, client, place="OTHER in the name of src/x-[...].txt")
    assert len(report.values) == 1


async def test_a_value_in_a_path(scene: Stage) -> None:
    """With a slash it is spread over two names."""
    client = await scene.client()
    folder, _, name = VALUE.partition("/")
    (client.path / folder).mkdir()
    (client.path / folder / name).write_text("x\n")
    await client.commit()
    await refused(scene, client, place="AWS-KEY in the name of [...]")


async def test_a_value_in_a_folder_that_is_used_twice(scene: Stage) -> None:
    """The same folder under two names is one object, which is listed under the first."""
    client = await scene.client()
    for name in ("a", f"b-{OTHER}"):
        (client.path / name).mkdir()
        (client.path / name / "file").write_text("x\n")
    await client.commit()
    await refused(scene, client, place="OTHER in the name of b-[...]")


async def test_hostile_file_names_are_shown_and_not_obeyed(scene: Stage) -> None:
    client = await scene.client()
    (client.path / "a b\u202e\u00e9.txt").write_text(VALUE)
    await client.commit()
    report = await refused(scene, client, place="AWS-KEY in a b\\u2039U+202E\\u203a\\xe9.txt:1")
    assert report.values[0].path.isascii()


async def test_a_long_path_is_shortened(scene: Stage) -> None:
    client = await scene.client()
    folder = client.path / ("d" * 100) / ("e" * 100) / ("f" * 100)
    folder.mkdir(parents=True)
    (folder / "file").write_text(VALUE)
    await client.commit()
    await refused(scene, client, place="AWS-KEY in " + "d" * 100 + "/" + "e" * 98 + "...:1")


async def test_an_annotated_tag_and_an_object_that_nothing_names(scene: Stage) -> None:
    """Tags cannot be pushed, but their objects can be slipped into a pack; and all that comes in stays."""
    client = await scene.client()
    await client.commit(feature="x\n")
    await client.git("tag", "-a", "v1", "-m", f"for {OTHER}")
    tag = await client.git("rev-parse", "v1")
    await by_hand(scene, client, tag)
    assert f"OTHER in the text of tag {tag[:12]}:1" in scene.reports[-1].updates[0].reason
    blob = await client.blob(f"x {VALUE}".encode())
    await by_hand(scene, client, blob)
    assert f"AWS-KEY in object {blob[:12]}, which no commit has" in scene.reports[-1].updates[0].reason
    await by_hand(scene, client)
    assert await scene.session_head() == await client.git("rev-parse", "HEAD")


async def test_deltas_are_searched_as_what_they_stand_for(scene: Stage) -> None:
    """The value comes in as a small difference to a large file, between two halves of itself."""
    client = await scene.client()
    rows = "".join(f"row {number} {zlib.crc32(str(number).encode())}\n" for number in range(2000))
    await client.commit(table=rows + VALUE[:20] + "|" + VALUE[20:])
    await client.git("push", "origin", "HEAD")
    await client.commit(table=rows + VALUE[:20] + VALUE[20:] + "\n")
    await client.git("repack", "-q", "-adf")
    await refused(scene, client, place="AWS-KEY in table:2001")


async def test_several_places_are_counted(scene: Stage) -> None:
    client = await scene.client()
    commit = await client.commit(a=f"{VALUE}\n{OTHER}\n", b=f"x{VALUE}\n")
    report = await refused(scene, client, place=f"AWS-KEY in a:1 (commit {commit[:12]}), and 2 more")
    assert [(found.identifier, found.place) for found in report.values] == [
        ("AWS-KEY", "a:1"), ("OTHER", "a:2"), ("AWS-KEY", "b:1"),
    ]  # fmt: skip


async def test_only_what_is_new_is_searched(tmp_path: Path, values: Values) -> None:
    """A value that becomes known after its push keeps later work out only where that holds it again."""
    known, values.redactor = values.redactor, Redactor.none()
    async with stage(tmp_path, scan=values.scan) as scene:
        client = await scene.client()
        await client.commit(feature=VALUE)
        await client.git("push", "origin", "HEAD")
        assert values.searches == 0
        values.redactor = known
        await client.commit(clean="x\n")
        await client.git("push", "origin", "HEAD")
        await client.commit(more=f"again {VALUE}")
        await refused(scene, client, place="AWS-KEY in more:1")


async def test_a_push_without_new_objects(scene: Stage) -> None:
    client = await scene.client()
    await client.commit(feature="x\n")
    await client.git("push", "origin", "HEAD")
    await client.git("push", "--force", "origin", f"{scene.base_commit}:refs/heads/{scene.session}")
    assert await scene.session_head() == scene.base_commit


async def test_no_values_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> None:
        raise AssertionError("asked")

    monkeypatch.setattr(inquiry.socket, "socketpair", never)
    empty = Values()
    async with stage(tmp_path, scan=empty.scan) as scene:
        client = await scene.client()
        await client.commit(feature=VALUE)
        await client.git("push", "origin", "HEAD")
        assert scene.reports[-1].values == () and scene.reports[-1].unsearched is None


async def test_rescued_work_is_let_in_and_told_of(scene: Stage) -> None:
    client = await scene.client()
    commit = await client.commit(feature=f"x\n{VALUE}\n")
    rescue = f"refs/kortix/rescue/{scene.session}/1"
    await client.git("push", "origin", f"HEAD:{rescue}")
    report = scene.reports[-1]
    assert not report.is_refused
    assert [(found.identifier, found.place, found.commit) for found in report.values] == [
        ("AWS-KEY", "feature:2", commit)
    ]
    # Its objects are here now, and do not come again with the branch: that must not let them in.
    await refused(scene, client, place="AWS-KEY in feature:2")
    # A second rescue tells only what is new.
    await client.commit(other="clean\n")
    await client.git("push", "origin", f"HEAD:{rescue[:-1]}2")
    assert scene.reports[-1].values == ()


async def test_both_at_once_are_refused_together(scene: Stage) -> None:
    client = await scene.client()
    await client.commit(feature=VALUE)
    await refused(scene, client, "HEAD", f"HEAD:refs/kortix/rescue/{scene.session}/1", place="AWS-KEY in feature:1")


async def test_a_locked_vault_keeps_branches_out_and_lets_rescues_in(scene: Stage, values: Values) -> None:
    client = await scene.client()
    await client.commit(feature="clean\n")
    values.why, values.redactor = "the vault is locked", Redactor.none()
    status, out = await client.try_git("push", "origin", "HEAD")
    assert status != 0 and "the vault is locked" in out
    assert scene.reports[-1].updates[0].reason == "the vault is locked"
    scene.door.access = Access.PUSH_ONLY
    await client.git("push", "origin", f"HEAD:refs/kortix/rescue/{scene.session}/1")
    assert scene.reports[-1].unsearched == "the vault is locked" and not scene.reports[-1].is_refused
    scene.door.access, values.why = Access.FULL, None
    await client.git("push", "origin", "HEAD")


async def test_a_vault_that_is_locked_during_a_push(scene: Stage, values: Values) -> None:
    client = await scene.client()
    await client.commit(feature="clean\n")
    answers = iter([None, None])
    scene.door._scan = ValueScan(finder=values.finder, barred=lambda: next(answers, "the vault is locked"))
    status, out = await client.try_git("push", "origin", "HEAD")
    assert status != 0 and "refused: the vault is locked" in out
    assert await scene.session_head() == scene.base_commit


async def test_a_search_that_fails(scene: Stage, values: Values, monkeypatch: pytest.MonkeyPatch) -> None:
    """A branch stays out, rescued work does not."""

    async def fails(*_: object, **__: object) -> None:
        raise Refused("no \u202e luck")

    monkeypatch.setattr(inquiry, "search", fails)
    client = await scene.client()
    await client.commit(feature="clean\n")
    status, out = await client.try_git("push", "origin", "HEAD")
    assert status != 0 and "the push could not be searched for values of secrets" in out
    await client.git("push", "origin", f"HEAD:refs/kortix/rescue/{scene.session}/1")
    assert "luck" in (scene.reports[-1].unsearched or "")


async def test_a_finder_that_breaks_lets_nothing_in(scene: Stage, values: Values) -> None:
    def breaks(_: bytes) -> list[ValueHit]:
        raise ZeroDivisionError

    scene.door._scan = ValueScan(finder=lambda: breaks)
    client = await scene.client()
    await client.commit(feature="clean\n")
    with pytest.raises(ZeroDivisionError):
        await by_hand(scene, client)
    assert await scene.session_head() == scene.base_commit


async def test_a_large_push(tmp_path: Path, values: Values) -> None:
    """Thousands of files and one as large as any may be; the value is at its end."""
    caps = AdmissionCaps()
    async with stage(tmp_path, scan=values.scan, caps=caps) as scene:
        client = await scene.client()
        noise = os.urandom(64 << 10)
        big = (noise * 160)[: caps.object_bytes - len(VALUE)] + VALUE.encode()
        await client.import_files({f"d{number % 100}/f{number}": b"file %d\n" % number for number in range(8000)})
        clean = await client.git("rev-parse", "HEAD")
        await client.import_files({"big": big})
        await refused(scene, client, place="AWS-KEY in big:")
        await client.git("push", "origin", f"{clean}:refs/heads/{scene.session}")
        assert await scene.session_head() == clean


async def test_a_repository_whose_path_git_would_split(tmp_path: Path, values: Values) -> None:
    root = tmp_path / 'with:colon and "quotes" \\ here'
    root.mkdir()
    async with stage(root, scan=values.scan) as scene:
        client = await scene.client()
        await client.commit(feature=VALUE)
        await refused(scene, client, place="AWS-KEY in feature:1")


HOST = """
import asyncio, sys
from pathlib import Path
sys.path.insert(0, {root!r})
from kortix_tui.repository.door import GitDoor
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.value_scan import ValueScan
from tests.support.git_door import serve

def find(data):
    print("asked", flush=True)
    import time
    time.sleep(600)

async def main():
    mirror = await Mirror.open(Path({mirror!r}))
    door = GitDoor(mirror, {session!r}, "main", scan=ValueScan(finder=lambda: find))
    async with serve(door) as url:
        print(url, flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_host_that_dies_while_the_hook_waits(scene: Stage) -> None:
    """Nobody accepts in its place: what it would have said is not known."""
    root = str(Path(__file__).parents[2])
    program = HOST.format(root=root, mirror=str(scene.mirror.path), session=scene.session)
    host = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert host.stdout is not None
        async with asyncio.timeout(60):
            url = (await host.stdout.readline()).decode().strip()
            client = await scene.client()
            await client.commit(feature="clean\n")
            push = asyncio.create_task(client.try_git("push", url, "HEAD"))
            assert (await host.stdout.readline()).strip() == b"asked"
            host.send_signal(signal.SIGKILL)
            await host.wait()
            assert (await push)[0] != 0
            # The receiving git lives on for a moment, and its hook refuses.
            while not (words := [path.read_text() for path in scene.mirror.path.glob("kortix/verdict-*")]):
                await asyncio.sleep(0.01)
            assert words == ["refused the host is gone\n"]
    finally:
        if host.returncode is None:
            host.kill()
            await host.wait()
    assert await scene.session_head() == scene.base_commit


async def test_the_hook_refuses_when_its_host_is_gone(scene: Stage, tmp_path: Path) -> None:
    hooks = await install_hook(scene.mirror.path)
    client = await scene.client()
    commit = await client.commit(feature="x\n")
    await client.git("push", "-q", str(scene.mirror.path), "HEAD:refs/kortix/rescue/" + scene.session + "/1")
    reading, writing = os.pipe()
    os.close(reading)
    settings = HookSettings(
        session_id=scene.session, base_branch="main", verdict=str(tmp_path / "verdict"), inquiry=writing,
        caps=AdmissionCaps(),
    )  # fmt: skip
    try:
        done = subprocess.run(
            [hooks / "pre-receive"],
            input=f"{scene.base_commit} {commit} refs/heads/{scene.session}\n",
            env={**client.environment(), **settings.environment(), "GIT_DIR": str(scene.mirror.path)},
            pass_fds=[writing],
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert done.returncode == 1 and "the host is gone" in done.stderr
    assert (tmp_path / "verdict").read_text() == "refused the host is gone\n"


async def test_joining_rescued_work_with_a_value(scene: Stage, values: Values) -> None:
    client = await scene.client()
    await client.commit(feature=f"{VALUE}\n")
    await client.git("push", "origin", f"HEAD:refs/kortix/rescue/{scene.session}/1")
    await client.git("reset", "-q", "--hard", scene.base_commit)
    await client.commit(clean="x\n")
    await client.git("push", "origin", f"HEAD:refs/kortix/rescue/{scene.session}/2")
    with pytest.raises(Refused, match=r"rescued work 1 contains the value of a secret: AWS-KEY in feature:1"):
        await merge.join_rescue(scene.mirror, scene.session, 1, scan=values.scan)
    values.why = "the vault is locked"
    with pytest.raises(Refused, match="the vault is locked"):
        await merge.join_rescue(scene.mirror, scene.session, 2, scan=values.scan)
    assert await scene.session_head() == scene.base_commit
    values.why = None
    joined = await merge.join_rescue(scene.mirror, scene.session, 2, scan=values.scan)
    assert await scene.session_head() == joined
