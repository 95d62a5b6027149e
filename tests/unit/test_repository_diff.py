"""Three-dot differences: what is listed, how, and that nothing is too large to be listed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kortix_tui.repository import diff
from kortix_tui.repository.difference import FileKind, FileStatus
from kortix_tui.repository.mirror import Mirror
from tests.support.git_door import git, make_source


class Pair:
    """A base and a head made by editing a checkout."""

    def __init__(self, root: Path, files: dict[str, str]) -> None:
        self.source = make_source(root / "source", files=files)
        self.base = git(self.source, "rev-parse", "HEAD")
        self.root = root

    async def compare(self) -> tuple[Mirror, str]:
        git(self.source, "add", "-A")
        git(self.source, "commit", "-q", "-m", "Head")
        mirror, _ = await Mirror.create_from(self.root / "m.git", str(self.source))
        return mirror, git(self.source, "rev-parse", "HEAD")


async def test_every_kind_of_change(tmp_path: Path) -> None:
    text = "".join(f"line {n}\n" for n in range(40))
    pair = Pair(
        tmp_path, {"keep": "x\n", "gone": "a\nb\n", "moved": text, "tool": "x\n", "was": "x\n", "edit": "1\n2\n"}
    )
    source = pair.source
    (source / "gone").unlink()
    (source / "moved").rename(source / "here")
    (source / "tool").chmod(0o755)
    (source / "was").unlink()
    (source / "was").symlink_to("/etc/shadow")
    (source / "edit").write_text("1\n3\n4\n")
    (source / "pic.bin").write_bytes(b"\x00\x01" * 50)
    git(source, "update-index", "--add", "--cacheinfo", f"160000,{pair.base},module")
    git(source, "add", "gone", "moved", "here", "tool", "was", "edit", "pic.bin")
    git(source, "commit", "-q", "-m", "Head")
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(source))
    found = await diff.summary(mirror, pair.base, git(source, "rev-parse", "HEAD"))
    files = {file.path: file for file in found.files}

    assert set(files) == {"gone", "here", "tool", "was", "edit", "pic.bin", "module"}
    assert (files["gone"].status, files["gone"].deletions) == (FileStatus.DELETED, 2)
    assert (files["here"].status, files["here"].old_path, files["here"].additions) == (FileStatus.RENAMED, "moved", 0)
    assert files["tool"].mode_changed and files["tool"].kind is FileKind.EXECUTABLE
    assert (files["was"].status, files["was"].kind, files["was"].old_kind) == (
        FileStatus.RETYPED, FileKind.SYMLINK, FileKind.FILE,
    )  # fmt: skip
    assert (files["edit"].additions, files["edit"].deletions) == (2, 1)
    assert files["pic.bin"].binary and files["pic.bin"].additions is None and files["pic.bin"].new_size == 100
    assert files["module"].kind is FileKind.SUBMODULE
    assert found.additions == sum(file.additions or 0 for file in found.files)

    renamed = await diff.patch(mirror, pair.base, found.head, path="here")
    assert "rename from moved" in renamed and "-line" not in renamed
    assert "/etc/shadow" in await diff.patch(mirror, pair.base, found.head, path="was")


async def test_only_what_happened_since_the_branch_left(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "1\n"})
    git(pair.source, "switch", "-q", "-c", "work")
    (pair.source / "mine").write_text("x\n")
    git(pair.source, "add", "-A")
    git(pair.source, "commit", "-q", "-m", "Mine")
    head = git(pair.source, "rev-parse", "HEAD")
    git(pair.source, "switch", "-q", "main")
    (pair.source / "a").write_text("2\n")
    git(pair.source, "commit", "-q", "-am", "Theirs")
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(pair.source))
    found = await diff.summary(mirror, git(pair.source, "rev-parse", "main"), head)
    assert [file.path for file in found.files] == ["mine"] and found.merge_base == pair.base


async def test_names_that_git_would_quote_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "1\n"})
    names = ["tab\there", 'quo"te', "line\nbreak", "üñí", "bad\udcff", ":(glob)*", "esc\x1b[31m"]
    for name in names:
        Path(os.fsdecode(os.fsencode(str(pair.source) + "/" + name))).write_bytes(b"x\n\xff\xfe\n")
    mirror, head = await pair.compare()
    found = await diff.summary(mirror, pair.base, head)
    assert {file.path for file in found.files} == set(names)
    for name in names:
        text = await diff.patch(mirror, pair.base, head, path=name)
        assert text.count("diff --git") == 1 and "+\udcff\udcfe" in text
    dumped = found.model_dump_json()
    assert "\x1b" not in dumped and "\\u001b" not in dumped


async def test_attributes_and_external_programs_take_no_part(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a.py": "1\n"})
    (pair.source / ".gitattributes").write_text("*.py -diff\n*.txt diff=evil\n")
    (pair.source / "a.py").write_text("hidden change\n")
    mirror, head = await pair.compare()
    found = {file.path: file for file in (await diff.summary(mirror, pair.base, head)).files}
    assert found["a.py"].additions == 1 and not found["a.py"].binary
    assert "+hidden change" in await diff.patch(mirror, pair.base, head, path="a.py")


async def test_whitespace_at_line_ends_can_be_left_out(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "one\ntwo\nthree\n"})
    (pair.source / "a").write_bytes(b"one\r\ntwo!\r\nthree\r\n")
    mirror, head = await pair.compare()
    whole = await diff.patch(mirror, pair.base, head)
    quiet = await diff.patch(mirror, pair.base, head, ignore_space_at_eol=True)
    assert "+one\r" in whole and "+one\r" not in quiet and "+two!" in quiet


async def test_large_files_are_listed_not_compared(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "1\n"})
    (pair.source / "huge.txt").write_text("x" * 79 + "\n" + "y\n" * (2 << 20))
    mirror, head = await pair.compare()
    (file,) = (await diff.summary(mirror, pair.base, head)).files
    assert file.too_large and not file.binary and file.additions is None and file.new_size > 4 << 20
    assert len(await diff.patch(mirror, pair.base, head)) < 1000


async def test_a_long_patch_is_cut_at_a_line(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "1\n"})
    (pair.source / "many.txt").write_text("".join(f"line {n}\n" for n in range(50_000)))
    mirror, head = await pair.compare()
    text = await diff.patch(mirror, pair.base, head, max_bytes=10_000)
    assert len(text) <= 10_100 and text.endswith("\n\\ The rest is not shown.\n")
    assert (await diff.summary(mirror, pair.base, head)).additions == 50_000


async def test_thousands_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # https://github.com/Kilo-Org/kilocode/pull/6945: the summary first, contents for an opened file
    pair = Pair(tmp_path, {"a": "1\n"})
    for n in range(3_000):
        (pair.source / f"generated{n}").write_text(f"{n}\n")
    mirror, head = await pair.compare()
    found = await diff.summary(mirror, pair.base, head)
    assert len(found.files) == 3_000 and not found.truncated and found.additions == 3_000
    monkeypatch.setattr(diff, "MOST_FILES", 100)
    short = await diff.summary(mirror, pair.base, head)
    assert len(short.files) == 100 and short.truncated


async def test_nothing_in_common_shows_everything(tmp_path: Path) -> None:
    pair = Pair(tmp_path, {"a": "1\n", "b": "2\n"})
    tree = git(pair.source, "rev-parse", "HEAD^{tree}")
    island = git(pair.source, "commit-tree", tree, "-m", "Alone")
    git(pair.source, "branch", "island", island)
    mirror, _ = await Mirror.create_from(tmp_path / "m.git", str(pair.source))
    assert [file.path for file in (await diff.summary(mirror, pair.base, island)).files] == ["a", "b"]
