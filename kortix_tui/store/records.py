"""What a session printed and went through: append-only segments on disk, written by the host only.

A segment is a file of JSON lines named after the first line's ordinal; the names are the sparse index, and segments
stay near `SEGMENT_BYTES`, so any line is found by reading one of them. Any process follows the files by offset: a
viewer needs no host, and a log of gigabytes opens at once. The writer finds out from the files what it has stored, so
a crash between two writes neither repeats nor loses a record.
"""

from __future__ import annotations

import codecs
import errno
import os
import re
import threading
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from kortix_tui.base.text import visible

SEGMENT_BYTES: Final = 4 * 1024 * 1024
MAX_SEGMENTS: Final = 256
"""A session keeps at most this many segments (1 GiB); the oldest go, and whoever reads over the hole gets a `gap`."""

_TAIL = re.compile(r"\x1b(?:\[[0-9;]{0,64})?\Z")


class Record(BaseModel):
    """One line of a session's record. `source` keeps what the host saw apart from what the sandbox claims."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    n: int
    at: datetime
    source: str
    kind: str
    seq: int | None = None
    turn: str | None = None
    stream: str | None = None
    text: str = ""
    data: dict[str, Any] = {}


class Cleaner:
    """Turns one stream's bytes into safe text, across any chunking.

    An escape sequence or a character that is cut by the end of a chunk waits for the next one.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._held = ""

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Safe text for this chunk; colour is kept, every other control is made visible."""
        text = self._held + self._decoder.decode(data, final)
        self._held = ""
        if not final:
            if cut := _TAIL.search(text):
                self._held, text = cut[0], text[: cut.start()]
            elif text.endswith("\r"):
                self._held, text = "\r", text[:-1]
        # A lone carriage return redraws a line (progress bars): each state becomes a line of its own.
        return visible(text.replace("\r\n", "\n").replace("\r", "\n"), sgr=True)


def _segments(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == ".jsonl")
    except FileNotFoundError:
        return []


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


class RecordWriter:
    """Appends to a session's record. One writer a session: the host. Safe to share between threads.

    What cannot be written leaves the file as it was, so that the same record can be tried again later.

    Attributes:
        stored_seq: The newest sandbox record that is in the file.
        synced_seq: The newest one that survives a power cut; only that may be acknowledged.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._guard = threading.RLock()
        self._next = 1
        self.stored_seq = 0
        self._file: int | None = None
        self._size = 0
        self._closed = False
        self._recover()
        self.synced_seq = self.stored_seq

    def _recover(self) -> None:
        segments = _segments(self._folder)
        for path in reversed(segments):
            good = 0
            for line in _lines(path):
                try:
                    record = Record.model_validate_json(line)
                except ValidationError:
                    break  # a line torn by a crash: everything after it was never acknowledged
                if not line.endswith(b"\n"):
                    break
                good += len(line)
                self._next = max(self._next, record.n + 1)
                self.stored_seq = max(self.stored_seq, record.seq or 0)
            if path is segments[-1] and good != path.stat().st_size:
                os.truncate(path, good)
            if self.stored_seq:
                break
        if segments:
            self._open(segments[-1])

    def _open(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._size = os.fstat(descriptor).st_size
            self._sync_folder()
        except OSError:
            os.close(descriptor)
            raise
        if self._file is not None:
            os.fdatasync(self._file)
            os.close(self._file)
        self._file = descriptor

    def _sync_folder(self) -> None:
        """Without this a power cut can take a new file together with what was acknowledged from it."""
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def append(
        self,
        *,
        at: datetime,
        source: str,
        kind: str,
        text: str = "",
        seq: int | None = None,
        turn: str | None = None,
        stream: str | None = None,
        data: dict[str, Any] | None = None,
    ) -> Record | None:
        """Write one record; `None` when this sandbox record is stored already.

        Raises:
            OSError: The disk does not take it; nothing of it is in the file. Or the writer was closed.
        """
        with self._guard:
            if seq is not None and seq <= self.stored_seq:
                return None
            record = Record(
                n=self._next, at=at, source=source, kind=kind, seq=seq, turn=turn, stream=stream, text=text,
                data=data or {},
            )  # fmt: skip
            self._write(record.model_dump_json(exclude_defaults=True).encode() + b"\n")
            self._next += 1
            if seq is not None:
                self.stored_seq = seq
            return record

    def _write(self, line: bytes) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the record is closed")
        if self._file is None or self._size + len(line) > SEGMENT_BYTES:
            self._rotate()
        assert self._file is not None  # noqa: S101 - _rotate opens one
        try:
            if os.write(self._file, line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._file, self._size)  # what comes next must not continue half a line
            raise
        self._size += len(line)

    def _rotate(self) -> None:
        self._open(self._folder / f"{self._next:012d}.jsonl")
        segments = _segments(self._folder)
        for old in segments[: max(0, len(segments) - MAX_SEGMENTS)]:
            old.unlink()

    def sync(self) -> None:
        """Make everything appended survive a power cut; only then may the sandbox be told that it is stored."""
        with self._guard:
            if self._file is not None:
                os.fdatasync(self._file)
            self.synced_seq = self.stored_seq

    def close(self) -> None:
        """Sync and let go of the file."""
        with self._guard:
            self._closed = True
            descriptor, self._file = self._file, None
            if descriptor is not None:
                try:
                    os.fdatasync(descriptor)
                finally:
                    os.close(descriptor)


class RecordReader:
    """Follows a session's record from any process, without the host."""

    def __init__(self, folder: Path, *, start: int = 1) -> None:
        self._folder = folder
        self._path: Path | None = None
        self._offset = 0
        self.next = start

    @classmethod
    def tail(cls, folder: Path, count: int) -> RecordReader:
        """A reader that starts about `count` records before the end."""
        newest = last_ordinal(folder)
        return cls(folder, start=max(1, newest - count + 1))

    def read(self, limit: int = 2000) -> list[Record]:
        """The next records, about `limit` at most; empty when there are none yet."""
        found: list[Record] = []
        while len(found) < limit:
            segments = _segments(self._folder)
            if self._path is None:
                if not segments:
                    break
                earlier = [path for path in segments if int(path.stem) <= self.next]
                self._path, self._offset = (earlier[-1] if earlier else segments[0]), 0
            lines = self._unread(self._path)
            for line in lines[: limit - len(found)]:
                self._offset += len(line)
                record = _parse(line)
                if record is not None and record.n >= self.next:
                    if record.n > self.next:
                        found.append(_hole(self.next, record))
                    self.next = record.n + 1
                    found.append(record)
            if lines:
                continue
            # Listed before the empty read: the writer had left this segment for good by then.
            later = [path for path in segments if path.name > self._path.name]
            if not later:
                break
            self._path, self._offset = later[0], 0
        return found

    def _unread(self, path: Path) -> list[bytes]:
        try:
            with path.open("rb") as file:
                file.seek(self._offset)
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return []  # dropped as the oldest; the next segment goes on
        if lines and not lines[-1].endswith(b"\n"):
            lines.pop()
        return lines


def _hole(first: int, following: Record) -> Record:
    """What a reader is told when the oldest segments were dropped before it came to them."""
    data = {"first": first, "last": following.n - 1}
    return Record(n=following.n - 1, at=following.at, source="host", kind="gap", data=data)


def _parse(line: bytes) -> Record | None:
    try:
        return Record.model_validate_json(line)
    except ValidationError:
        return None


def last_ordinal(folder: Path) -> int:
    """The newest record's ordinal, 0 when there is none."""
    for path in reversed(_segments(folder)):
        for line in reversed(_lines(path)):
            record = _parse(line) if line.endswith(b"\n") else None
            if record is not None:
                return record.n
    return 0


def newest(folder: Path, turn: str, *kinds: str) -> Record | None:
    """The newest record of one of the kinds that belongs to a turn; reads backwards, one segment at a time."""
    marks = [f'"kind":"{kind}"'.encode() for kind in kinds]
    for path in reversed(_segments(folder)):
        for line in reversed(_lines(path)):
            record = _parse(line) if any(mark in line for mark in marks) else None
            if record is not None and record.kind in kinds and record.turn == turn:
                return record
    return None
