"""DiffView and its model: nothing lost, nothing hidden, big patches open at once."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kortix_tui.console.widgets.diff_view import DiffView, differing_part
from kortix_tui.console.widgets.patch import PatchModel
from kortix_tui.console.widgets.source_colours import PIECE_ROWS, SourceColours


def git(folder: Path, *arguments: str) -> str:
    command = [
        "git",
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
        "-c",
        "init.defaultBranch=main",
        *arguments,
    ]
    done = subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "surrogateescape")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "a.py").write_text("one\ntwo\nthree\n")
    (tmp_path / "gone.txt").write_text("bye\n-- dashes\n++ pluses\n")
    (tmp_path / "moved.txt").write_text("same\n" * 20)
    (tmp_path / "späce name\t.txt").write_text("x\n")
    (tmp_path / "run.sh").write_text("echo\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def test_reads_what_git_prints(repository: Path) -> None:
    (repository / "a.py").write_text("one\n2\nthree\nfour")
    (repository / "gone.txt").unlink()
    (repository / "moved.txt").rename(repository / "to.txt")
    (repository / "späce name\t.txt").write_text("y\n")
    (repository / "run.sh").chmod(0o755)
    (repository / "link").symlink_to("/etc/passwd")
    (repository / "bin").write_bytes(bytes(range(256)))
    (repository / "-- b").write_text("--- a/x\n+++ b/x\n@@ -1 +1 @@\n")
    git(repository, "add", "-A")
    model = PatchModel.parse(git(repository, "diff", "--cached", "-M"))
    files = {file.path: file for file in model.files}
    assert set(files) == {"a.py", "gone.txt", "to.txt", "späce name .txt", "run.sh", "link", "bin", "-- b"}
    assert (files["a.py"].additions, files["a.py"].deletions) == (2, 1)
    assert (files["gone.txt"].status, files["gone.txt"].deletions) == ("deleted", 3)
    assert (files["to.txt"].status, files["to.txt"].old_path) == ("renamed", "moved.txt")
    assert files["run.sh"].notes == ("was a plain file", "now executable")
    assert files["link"].notes == ("a symbolic link",)
    assert files["bin"].binary
    assert files["-- b"].additions == 3, "content that looks like a patch is content"
    stat = git(repository, "diff", "--cached", "-M", "--numstat").splitlines()
    added = sum(int(line.split("\t")[0]) for line in stat if line[0] != "-")
    assert model.additions == added


def test_nothing_of_a_broken_patch_is_dropped() -> None:
    model = PatchModel.parse("diff --git a/x b/x\n@@ -1,2 +1,2 @@\n a\n?what\n+++\nmystery\n")
    texts = [model.raw(row) for row in range(len(model))]
    assert "?what" in texts
    assert "mystery" in texts
    assert len(PatchModel.parse("")) == 0
    assert PatchModel.parse("garbage\n@@ -1 +1 @@\n").files == []


def test_hidden_characters_are_counted() -> None:
    model = PatchModel.parse("diff --git a/x b/x\n@@ -0,0 +1,2 @@\n+a\u202eb\n+plain\n")
    assert model.hidden == 1


async def test_hidden_characters_are_seen(widget_app: Callable[..., Any]) -> None:
    text = "diff --git a/x.py b/x.py\n@@ -0,0 +1,3 @@\n+if a\u200b == '\u2066x':\n+\tesc \x1b[31m\n+tag \U000e0041\r\n"
    app = widget_app(DiffView(PatchModel.parse(text)))
    async with app.run_test(size=(80, 10)) as pilot:
        await pilot.pause()
        shown = app.screen_text()
    assert "‹U+200B›" in shown
    assert "‹U+2066›" in shown
    assert "‹U+E0041›" in shown
    assert "␛[31m" in shown
    assert "␍" in shown
    assert shown.count("⚠") == 3, "two lines and their file"


def big_patch(lines: int) -> str:
    parts = []
    for number in range(lines // 500):
        parts.append(
            f"diff --git a/src/f{number}.py b/src/f{number}.py\n--- a/src/f{number}.py\n+++ b/src/f{number}.py\n"
        )
        for hunk in range(10):
            parts.append(f"@@ -{hunk * 60 + 1},24 +{hunk * 60 + 1},25 @@ class A{hunk}\n")
            parts.extend(f" def keep_{row}(self): return '{row}'\n" for row in range(23))
            parts.append("-    old = 1\n+    new = 1\n+    more = 2\n")
    return "".join(parts)


async def test_a_big_patch_opens_and_is_walked(widget_app: Callable[..., Any]) -> None:
    model = PatchModel.parse(big_patch(20_000))
    view = DiffView(model)
    app = widget_app(view)
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.press("tab", "n")
        assert model.hunk_at(view._top) == 0
        await pilot.press("n", "n", "N")
        assert model.hunk_at(view._top) == 1
        await pilot.press("]")
        assert view.file_index == 1
        await pilot.press("j", "[")
        assert view.file_index == 1
        await pilot.press("[")
        assert view.file_index == 0
        await pilot.press("G")
        assert view._top == len(model) - 30
        assert "100%" in view.position
        assert len(view._colours._known) < 20 * PIECE_ROWS, "only what was looked at is lexed"
        view.search("more = 2")
        assert view._hit is not None


def test_colours_follow_the_hunk_and_give_up_on_what_is_slow() -> None:
    text = 'diff --git a/x.py b/x.py\n@@ -1,3 +1,3 @@\n """doc\n-old\n+new\n end"""\n'
    model = PatchModel.parse(text)
    colours = SourceColours(model)
    assert colours.spans(3) == [(0, 3, "syntax.comment")], "inside the string that began above"
    assert colours.spans(4) == [(0, 3, "syntax.comment")]
    assert colours.spans(0) == []
    ticks = iter(range(100))
    slow = SourceColours(PatchModel.parse(big_patch(500)), clock=lambda: float(next(ticks)))
    assert slow.spans(3)
    assert slow.spans(300) == []


def test_colours_survive_any_content() -> None:
    body = "\x00\ud800'''\"\"\"${{{(([[%%%" + "a" * 3000
    model = PatchModel.parse(f"diff --git a/x.py b/x.py\n@@ -0,0 +1,2 @@\n+{body}\n+x = 1\n")
    assert SourceColours(model).spans(3)


@pytest.mark.parametrize(
    ("text", "other", "expected"),
    [
        ("charge(amount, currency)", "charge(amount)", (13, 23)),
        ("same", "same", None),
        ("abc", "xyz", None),
        ("a", "aa", None),
        ("aab", "ab", (1, 2)),
        ("", "x", None),
    ],
)
def test_what_differs_within_a_line(text: str, other: str, expected: tuple[int, int] | None) -> None:
    assert differing_part(text, other) == expected
