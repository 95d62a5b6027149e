"""Canaries: values that exist nowhere else, put where secrets are, and a sweep that finds them in every spelling.

The sweep knows more spellings than redaction does, and finds pieces: 12 bytes of a value as it is, 31 of a spelling.
"""

from __future__ import annotations

import base64
import html
import json
import secrets
import sqlite3
import string
import subprocess
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, quote_plus

from ahocorasick_rs import BytesAhoCorasick, Implementation

from kortix_tui.vault.needles import needles

CHANGED = "\"'%&+/\\<>$`= é€漢"
"""Characters that encodings and shells change."""
PIECE = 12
"""Bytes of a value that betray it."""
BLOCK = 16
"""The same for a spelling, in which one character may take nine."""
_LETTERS = string.ascii_letters + string.digits
_ARMOUR = ("-----BEGIN KEY-----", "-----END KEY-----")
_OBJECTS = 4 << 20


def fresh(*, without: str = "") -> bytes:
    """A value that nobody has seen: random letters and digits, with characters between them that encodings change.

    Those are apart from each other, so that every piece of every spelling has something of its own.
    """
    changed = [char for char in CHANGED if char not in without]
    secrets.SystemRandom().shuffle(changed)
    return "".join(_random(4) + char for char in (*changed, "")).encode()


def _random(length: int) -> str:
    return "".join(secrets.choice(_LETTERS) for _ in range(length))


def fresh_key() -> bytes:
    """A value of several lines that looks like a key file."""
    lines = [base64.b64encode(secrets.token_bytes(48)).decode() for _ in range(2)]
    return "\n".join((_ARMOUR[0], *lines, _ARMOUR[1], "")).encode()


class Finding(NamedTuple):
    """A canary, and where it is."""

    place: str
    label: str


class Sweep:
    """Finds canaries.

    Args:
        canaries: Values by what they are called in findings.
    """

    def __init__(self, canaries: Mapping[str, bytes]) -> None:
        pieces = dict[bytes, str]()
        for label, value in canaries.items():
            for piece in _pieces(value):
                pieces.setdefault(piece, label)
        self._labels = tuple(pieces.values())
        self._automaton = BytesAhoCorasick(list(pieces), implementation=Implementation.DFA)

    def labels(self, *data: bytes) -> set[str]:
        """Which canaries are in these bytes."""
        return {self._labels[number] for one in data for number, _, _ in self._automaton.find_matches_as_indexes(one)}

    def at(self, place: str, data: bytes) -> Iterator[Finding]:
        """Which canaries are in the bytes of a place."""
        for label in sorted(self.labels(data)):
            yield Finding(place, label)

    def folder(self, folder: Path) -> list[Finding]:
        """Every file below a folder with its name: as it is, inflated where git deflated it, and as rows of a store."""
        found = list[Finding]()
        for path in sorted(folder.rglob("*")):
            place = str(path.relative_to(folder))
            found += self.at(f"the name {path.name!a}", bytes(path.name, "utf-8", "surrogateescape"))
            if path.is_symlink() or not path.is_file():
                continue
            data = path.read_bytes()
            found += self.at(place, data)
            if data.startswith(b"x"):
                found += self.at(f"{place} inflated", _inflated(data))
            if data.startswith(b"SQLite format 3\0"):
                found += self._rows(path, place)
        return found

    def _rows(self, path: Path, place: str) -> Iterator[Finding]:
        """Cells: what is longer than a page lies in the file in pieces."""
        store = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            for (table,) in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                for row in store.execute(f'SELECT * FROM "{table}"'):
                    cells = (cell if isinstance(cell, bytes) else str(cell).encode() for cell in row)
                    yield from self.at(f"{place} table {table}", b"\0".join(cells))
        finally:
            store.close()

    def records(self, folder: Path) -> Iterator[Finding]:
        """A session's record as a reader joins it: a value may lie in two lines of a file."""
        streams = dict[str, list[str]]()
        for path in sorted(folder.glob("*.jsonl")):
            for line in path.read_bytes().splitlines():
                record = json.loads(line)
                streams.setdefault(f"{record['kind']} {record.get('stream')}", []).append(record.get("text", ""))
                streams.setdefault("all", []).append(record.get("text", ""))
        for name, texts in streams.items():
            yield from self.at(f"{folder} {name}", "".join(texts).encode())

    def objects(self, repository: Path) -> dict[str, set[str]]:
        """Objects of a repository with canaries in them, packed and unreachable ones too: labels by object id."""
        found = dict[str, set[str]]()
        process = subprocess.Popen(
            ["git", "cat-file", "--batch-all-objects", "--batch", "--buffer", "--unordered"],
            cwd=repository, stdout=subprocess.PIPE,
        )  # fmt: skip
        with process:
            assert process.stdout is not None
            while head := process.stdout.readline().split():
                body = process.stdout.read(int(head[2]) + 1)
                if labels := self.labels(body):
                    found[head[0].decode()] = labels
        assert process.returncode == 0
        return found


def reached(repository: Path, *refs: str) -> set[str]:
    """Every object that refs of these patterns reach; of all refs without a pattern."""
    listing = subprocess.run(
        ["git", "for-each-ref", "--format=%(objectname)", *refs], cwd=repository, capture_output=True, check=True
    ).stdout
    objects = subprocess.run(
        ["git", "rev-list", "--objects", "--stdin"], cwd=repository, input=listing, capture_output=True, check=True
    ).stdout
    return {line.split()[0].decode() for line in objects.splitlines()}


def spellings(value: bytes) -> set[bytes]:
    """A value as programs print it, made without the code under test."""
    text = value.decode("utf-8", "surrogateescape")
    found = {value, value[::-1], value.hex().encode(), value.hex().upper().encode(), base64.b32encode(value)[:-8]}
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value)[4:-4]
        found |= {encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")}
    texts = {
        quote(value, safe=""), quote(value), quote_plus(value), json.dumps(text), json.dumps(text, ensure_ascii=False),
        json.dumps(json.dumps(text)), html.escape(text), repr(value), repr(text), text.replace("\n", "\r\n"),
    }  # fmt: skip
    found |= {one.encode("utf-8", "surrogateescape") for one in texts}
    return found | {text.encode("utf-16-le", "surrogatepass"), text.encode("utf-16-be", "surrogatepass")}


def _pieces(value: bytes) -> Iterator[bytes]:
    """What betrays a value: each 12 bytes of it, and for each spelling enough to meet any 31 bytes."""
    armour = {form for line in _ARMOUR for form in (*spellings(line.encode()), *needles(line.encode()))}
    for piece in _cut(value, PIECE, 1):
        # The lines around a key are the same for all keys.
        if not (value.startswith(b"-----") and b"-" in piece):
            yield piece
    for form in {*spellings(value), *needles(value)}:
        for piece in _cut(form, BLOCK, BLOCK):
            if not any(piece in other for other in armour) and not (value.startswith(b"-----") and b"-----" in piece):
                yield piece


def _cut(data: bytes, size: int, step: int) -> Iterable[bytes]:
    return (data[at : at + size] for at in range(0, len(data) - size + 1, step))


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj().decompress(data, _OBJECTS)
    except zlib.error:
        return b""
