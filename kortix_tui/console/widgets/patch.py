"""A unified patch as rows, files and hunks. Reads what `git diff` prints; never fails on what it does not know.

Rows keep the raw text: making it visible costs time, and only what is on the screen needs it.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum

from kortix_tui.base.text import HIDDEN, visible_line

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@(.*)", re.DOTALL)
_KNOWN = ("index ", "similarity index ", "dissimilarity index ")
_QUOTED = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"v": b"\v", b"f": b"\f"}


class Kind(IntEnum):
    """What a row is."""

    FILE = 0
    HUNK = 1
    CONTEXT = 2
    ADD = 3
    REMOVE = 4
    NOTE = 5


@dataclass
class PatchFile:
    """One changed file. Texts are safe to show.

    Attributes:
        path: Its path after the change, or before it where it was deleted.
        old_path: Its path before, where that differs.
        status: `added`, `deleted`, `renamed`, `copied` or `modified`.
        first: Index of its heading row.
        notes: Mode changes and other facts from the patch's heading.
    """

    path: str
    first: int
    old_path: str | None = None
    status: str = "modified"
    additions: int = 0
    deletions: int = 0
    binary: bool = False
    hidden: int = 0
    notes: tuple[str, ...] = ()

    @property
    def sign(self) -> str:
        """One letter for the status."""
        return {"added": "A", "deleted": "D", "renamed": "R", "copied": "C"}.get(self.status, "M")


class PatchModel:
    """All rows of a patch in compact arrays, with an index of files and hunks."""

    def __init__(self) -> None:
        self.files: list[PatchFile] = []
        self.hunks: list[int] = []
        self._firsts = array("l")
        self._kinds = bytearray()
        self._texts: list[str] = []
        self._old = array("l")
        self._new = array("l")

    @classmethod
    def parse(cls, text: str) -> PatchModel:
        """Read a whole patch: about 50,000 lines in a tenth of a second."""
        model = cls()
        _Reader(model).read(text)
        return model

    def __len__(self) -> int:
        return len(self._kinds)

    def kind(self, row: int) -> Kind:
        """What the row is."""
        return Kind(self._kinds[row])

    def raw(self, row: int) -> str:
        """The row's text without its sign, as it came: untrusted."""
        return self._texts[row]

    def numbers(self, row: int) -> tuple[int, int]:
        """Line numbers before and after the change; 0 where there is none."""
        return self._old[row], self._new[row]

    def file_at(self, row: int) -> int | None:
        """Index of the file that a row belongs to."""
        index = bisect_right(self._firsts, row) - 1
        return index if index >= 0 else None

    def hunk_at(self, row: int) -> int | None:
        """Index of the hunk that a row belongs to or follows."""
        index = bisect_right(self.hunks, row) - 1
        return index if index >= 0 else None

    @property
    def additions(self) -> int:
        """Lines added in all files."""
        return sum(file.additions for file in self.files)

    @property
    def deletions(self) -> int:
        """Lines removed in all files."""
        return sum(file.deletions for file in self.files)

    @property
    def hidden(self) -> int:
        """Lines with characters that would not have been seen."""
        return sum(file.hidden for file in self.files)

    def add(self, kind: Kind, text: str, old: int = 0, new: int = 0) -> None:
        """Append a row."""
        if kind is Kind.FILE:
            self._firsts.append(len(self._kinds))
        elif kind is Kind.HUNK:
            self.hunks.append(len(self._kinds))
        self._kinds.append(kind)
        self._texts.append(text)
        self._old.append(old)
        self._new.append(new)


class _Reader:
    """State while a patch is read: which file, which hunk, how many lines it still has."""

    def __init__(self, model: PatchModel) -> None:
        self._model = model
        self._file: PatchFile | None = None
        self._old = self._new = 0
        self._old_left = self._new_left = 0

    def read(self, text: str) -> None:
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        for line in lines:
            # Counts decide, not the first character: a removed line `-- x` reads `--- x` in a patch.
            if self._old_left > 0 or self._new_left > 0:
                if self._body(line):
                    continue
                self._old_left = self._new_left = 0
            self._head(line)
        self._finish_heading()

    def _body(self, line: str) -> bool:
        model = self._model
        sign, text = line[:1], line[1:]
        if sign == "+" and self._new_left > 0:
            self._count_hidden(text)
            model.add(Kind.ADD, text, 0, self._new)
            self._new += 1
            self._new_left -= 1
            if self._file:
                self._file.additions += 1
        elif sign == "-" and self._old_left > 0:
            model.add(Kind.REMOVE, text, self._old, 0)
            self._old += 1
            self._old_left -= 1
            if self._file:
                self._file.deletions += 1
        elif sign in {" ", ""}:
            model.add(Kind.CONTEXT, text, self._old, self._new)
            self._old += 1
            self._new += 1
            self._old_left -= 1
            self._new_left -= 1
        elif sign == "\\":
            model.add(Kind.NOTE, text.strip())
        else:
            return False
        return True

    def _count_hidden(self, text: str) -> None:
        if self._file and not text.isascii() and HIDDEN.search(text):
            self._file.hidden += 1

    def _head(self, line: str) -> None:
        model, file = self._model, self._file
        if line.startswith("diff --git "):
            self._finish_heading()
            self._file = PatchFile(path=_both_names(line[11:]), first=len(model))
            model.files.append(self._file)
            model.add(Kind.FILE, "")
            return
        match = _HUNK.match(line) if line.startswith("@@ ") else None
        if match and file:
            self._old, self._new = int(match[1]), int(match[3])
            self._old_left = 1 if match[2] is None else int(match[2])
            self._new_left = 1 if match[4] is None else int(match[4])
            model.add(Kind.HUNK, line, self._old, self._new)
            return
        if line.startswith("\\"):
            model.add(Kind.NOTE, line[1:].strip())
            return
        if file:
            self._fact(file, line)

    def _fact(self, file: PatchFile, line: str) -> None:
        """One line of a file's heading."""
        name, _, value = line.partition(" ")
        if line.startswith("--- "):
            old = _name(line[4:])
            if old is not None and old != file.path:
                file.old_path = old
        elif line.startswith("+++ "):
            file.path = _name(line[4:]) or file.old_path or file.path
        elif line.startswith("new file mode "):
            file.status = "added"
            if value.endswith(("755", "120000", "160000")):
                file.notes += (_mode(value.rsplit(" ", 1)[-1]),)
        elif line.startswith("deleted file mode "):
            file.status = "deleted"
        elif line.startswith(("rename from ", "copy from ")):
            file.status = "renamed" if name == "rename" else "copied"
            file.old_path = _name(value.partition(" ")[2], prefixed=False)
        elif line.startswith(("rename to ", "copy to ")):
            file.path = _name(value.partition(" ")[2], prefixed=False) or file.path
        elif line.startswith("old mode "):
            file.notes += (f"was {_mode(line[9:])}",)
        elif line.startswith("new mode "):
            file.notes += (f"now {_mode(line[9:])}",)
        elif line.startswith(("Binary files ", "GIT binary patch")):
            file.binary = True
            self._model.add(Kind.NOTE, "binary file: contents are not shown")
        elif line and not line.startswith(_KNOWN):
            # Never drop what is not understood: a reviewer must see that it is there.
            self._model.add(Kind.NOTE, line)

    def _finish_heading(self) -> None:
        file = self._file
        if file and file.old_path == file.path:
            file.old_path = None


def _mode(text: str) -> str:
    return {
        "100644": "a plain file",
        "100755": "executable",
        "120000": "a symbolic link",
        "160000": "a submodule",
    }.get(text.strip(), visible_line(text))


def _both_names(text: str) -> str:
    """The name in `a/x b/x`; exact only where both are the same, which is when no other line names it."""
    if text.startswith('"'):
        return _name(text.partition('" ')[0] + '"') or "?"
    half = (len(text) - 1) // 2
    return _name(text[:half]) or "?"


def _name(text: str, *, prefixed: bool = True) -> str | None:
    """A file name from a patch: unquoted, without `a/` or `b/`, made visible; nothing for /dev/null."""
    # git ends a name that has a space with a tab; a tab inside a name is quoted.
    text = text.split("\t", 1)[0]
    if text == "/dev/null":
        return None
    if len(text) > 1 and text[0] == text[-1] == '"':
        data = text[1:-1].encode("utf-8", "surrogateescape")
        text = _QUOTED.sub(_unescape, data).decode("utf-8", "surrogateescape")
    if prefixed and text[:2] in {"a/", "b/"}:
        text = text[2:]
    return visible_line(text)


def _unescape(match: re.Match[bytes]) -> bytes:
    code = match[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return _ESCAPES.get(code, code)
