"""The sandbox's own record of what happened, kept until the host has stored it.

Append-only segment files, each named after the number of its first record. On disk a record is a checksum, its
number and the very frame that is sent to the host, so that sending is copying. A kill at any byte leaves at most a
torn tail, which the next start cuts off; numbers that the host has already seen are never given out again, because
the host says in its welcome how far it is (`advance`).

The whole is a ring: when it is full and the host is away, the oldest segment goes, and the reader reports the hole
as one `gap` record. Nothing here waits or knows of a loop: the callers do.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import struct
import zlib
from typing import Any, Iterator

from kortix_tui.guest import wire
from kortix_tui.guest.files import sync_folder

RING_BYTES = 64 << 20
SEGMENT_BYTES = 4 << 20
_PREFIX = struct.Struct(">IQ")  # crc32 of all that follows, number
_LENGTH = struct.Struct(">I")
_HEAD = _PREFIX.size + _LENGTH.size
_SUFFIX = ".seg"


def parse(data: bytes, start: int) -> tuple[int, bytes] | None:
    """The record at `start` as (number, frame); `None` when it is torn, damaged or not all there."""
    if len(data) - start < _HEAD:
        return None
    (size,) = _LENGTH.unpack_from(data, start + _PREFIX.size)
    end = start + _HEAD + size
    if size > wire.MAX_FRAME or len(data) < end:
        return None
    checksum, number = _PREFIX.unpack_from(data, start)
    if zlib.crc32(data[start + 4 : end]) != checksum:
        return None
    return number, data[start + _PREFIX.size : end]


class Journal:
    """Numbered records in segment files.

    Args:
        folder: Where the segments are; made when absent.
        ring_bytes: How much is kept at most while the host is away.
        segment_bytes: When the next file begins; also the grain in which old records go.
    """

    def __init__(self, folder: str, *, ring_bytes: int = RING_BYTES, segment_bytes: int = SEGMENT_BYTES) -> None:
        self.folder = folder
        self._ring_bytes = ring_bytes
        self._segment_bytes = segment_bytes
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._segments: dict[int, int] = {}  # first number → bytes, oldest first
        for name in sorted(os.listdir(folder)):
            stem = name[: -len(_SUFFIX)]
            if name.endswith(_SUFFIX) and stem.isdigit():
                self._segments[int(stem)] = os.stat(os.path.join(folder, name)).st_size
        self.fresh = not self._segments
        self.acked = 0
        self.next_seq = 1
        self._descriptor = -1
        self._offset = 0
        if self._segments:
            self._recover()
        else:
            self._begin_segment()

    def _path(self, first: int) -> str:
        return os.path.join(self.folder, f"{first:020d}{_SUFFIX}")

    def _recover(self) -> None:
        """Find the end of the newest segment and cut what was torn off it."""
        first = max(self._segments)
        self._descriptor = os.open(self._path(first), os.O_RDWR | os.O_CLOEXEC)
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        offset, self.next_seq = 0, first
        while True:
            record = parse(data, offset)
            if record is None or record[0] < self.next_seq:
                break
            offset += _PREFIX.size + len(record[1])
            self.next_seq = record[0] + 1
        os.ftruncate(self._descriptor, offset)
        self._offset = self._segments[first] = offset

    def _begin_segment(self) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(self._path(self.next_seq), flags, 0o600)
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
        self._descriptor, self._offset = descriptor, 0
        self._segments[self.next_seq] = 0
        sync_folder(self.folder)

    @property
    def first_seq(self) -> int:
        """Number of the oldest record kept; `last_seq + 1` when there is none."""
        return min(next(iter(self._segments)), self.next_seq)

    @property
    def last_seq(self) -> int:
        """Number of the newest record; 0 when there was none."""
        return self.next_seq - 1

    @property
    def waiting_bytes(self) -> int:
        """About how much the host has not stored yet, in grains of a segment."""
        firsts = list(self._segments)
        return sum(
            self._segments[first]
            for first, following in zip(firsts, [*firsts[1:], self.next_seq])
            if following - 1 > self.acked
        )

    def append(
        self,
        kind: str,
        *,
        at: float,
        turn_id: str | None = None,
        stream: str | None = None,
        data: dict[str, Any] | None = None,
        body: bytes = b"",
        sync: bool = False,
    ) -> int:
        """Add one record and return its number.

        Args:
            kind: What happened.
            at: The sandbox's wall time; the host takes it as a claim.
            turn_id: The turn that it belongs to.
            stream: `stdout` or `stderr` of output.
            data: Facts by name.
            body: Raw output.
            sync: Be on the disk before returning.

        Raises:
            OSError: It could not be written. The number is used up, so that the hole shows as a gap.
        """
        number = self.next_seq
        header = {"type": "record", "seq": number, "at": at, "kind": kind, "turn_id": turn_id, "stream": stream}
        header["data"] = data or {}
        frame = wire.encode(header, body)
        rest = struct.pack(">Q", number) + frame
        raw = struct.pack(">I", zlib.crc32(rest)) + rest
        self.next_seq = number + 1
        self._make_room(len(raw))
        try:
            written = os.pwrite(self._descriptor, raw, self._offset)
            if written != len(raw):
                raise OSError(errno.ENOSPC, "the journal's disk is full")
            if sync:
                os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._offset)
            raise
        self._offset += len(raw)
        self._segments[next(reversed(self._segments))] = self._offset
        if self._offset >= self._segment_bytes:
            with contextlib.suppress(OSError):  # no room for a new file: this one grows until there is
                self._begin_segment()
        return number

    def _make_room(self, size: int) -> None:
        """Let the oldest segments go when the ring is full; never the one being written."""
        total = sum(self._segments.values()) + size
        while total > self._ring_bytes and len(self._segments) > 1:
            total -= self._drop_oldest()

    def _drop_oldest(self) -> int:
        first = next(iter(self._segments))
        os.unlink(self._path(first))
        return self._segments.pop(first)

    def ack(self, seq: int) -> None:
        """The host has stored everything up to `seq`: segments that end there can go."""
        self.acked = max(self.acked, min(seq, self.last_seq))
        firsts = list(self._segments)
        for following in firsts[1:]:
            if following - 1 > self.acked:
                break
            self._drop_oldest()

    def advance(self, stored_seq: int) -> None:
        """Give out only numbers above `stored_seq`.

        The host can be ahead: after a loss of power that took records which were sent but not yet on the disk, or
        with a new volume.
        """
        if stored_seq >= self.next_seq:
            self.next_seq = stored_seq + 1
            self._begin_segment()

    def ended_turns(self) -> set[str]:
        """Turns whose end is among the records kept. Reads all of them."""
        found = set()
        cursor = Cursor(self, self.first_seq)
        while cursor.seq < self.next_seq:
            frames = list(cursor.read())
            if not frames:
                break
            for frame in frames:
                (length,) = _LENGTH.unpack_from(frame, _LENGTH.size)
                header = frame[2 * _LENGTH.size : 2 * _LENGTH.size + length]
                if b'"turn_ended"' in header:
                    found.add(json.loads(header)["turn_id"])
        cursor.close()
        return found

    def close(self) -> None:
        """Put everything on the disk and let go of the file."""
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def _segment_from(self, seq: int) -> int | None:
        """The segment that holds `seq`, or the first one after it."""
        found = None
        for first in self._segments:
            if found is not None and first > seq:
                break
            found = first
        return found


class Cursor:
    """Reads the journal in order from one number on, also while it grows and while its old end is dropped."""

    def __init__(self, journal: Journal, seq: int) -> None:
        self._journal = journal
        self.seq = seq
        self._first: int | None = None
        self._descriptor = -1
        self._offset = 0

    def read(self, limit: int = 256 * 1024) -> Iterator[bytes]:
        """Frames that can be sent now, about `limit` bytes of them; none at the end.

        A hole, whatever made it, comes out as one `gap` frame whose number is the last one that is missing.
        """
        while True:
            parsed = sent = False
            for number, frame in self._batch(limit):
                parsed = True
                if number < self.seq:
                    continue
                if number > self.seq:
                    yield self._gap(number - 1)
                self.seq = number + 1
                sent = True
                yield frame
            if sent or (not parsed and not self._next_segment()):
                return

    def _gap(self, last: int) -> bytes:
        data = {"from": self.seq, "to": last}
        header = {"type": "record", "seq": last, "at": 0.0, "kind": "gap", "turn_id": None, "stream": None}
        return wire.pack(json.dumps({**header, "data": data}).encode("ascii"))

    def _batch(self, limit: int) -> Iterator[tuple[int, bytes]]:
        if self._descriptor < 0:
            return
        data = os.pread(self._descriptor, limit, self._offset)
        if len(data) == limit:  # the last record may be cut: enough for the largest
            data += os.pread(self._descriptor, wire.MAX_FRAME + _HEAD, self._offset + limit)
        start = 0
        while start < limit:
            record = parse(data, start)
            if record is None:
                return
            start += _PREFIX.size + len(record[1])
            self._offset += _PREFIX.size + len(record[1])
            yield record

    def _next_segment(self) -> bool:
        """Open the segment that comes next; false when this one is the newest."""
        segments = self._journal._segments
        if self._first is None:
            following = self._journal._segment_from(self.seq)
        else:
            following = next((first for first in segments if first > self._first), None)
        if following is None:
            return False
        self.close()
        self._descriptor = os.open(self._journal._path(following), os.O_RDONLY | os.O_CLOEXEC)
        self._first, self._offset = following, 0
        return True

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
