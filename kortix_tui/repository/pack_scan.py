"""Looking at a pack while it streams by: a bomb is refused at its first bytes, before git unpacks it.

A pack says of each object how large it will be. What it says is checked against the caps at once, and what it then
unpacks to against what it said. The admission hook looks again at what git made of it.
"""

from __future__ import annotations

import zlib

from kortix_tui.base.errors import Refused
from kortix_tui.repository.admission import AdmissionCaps

_PIECE = 1 << 16
_OFFSET_DELTA = 6
_REFERENCE_DELTA = 7
_LONGEST_HEAD = 64
_LONGEST_NUMBER = 10
_LARGE = "a file is larger than {} bytes"
_TOGETHER = "the new objects are larger than {} bytes together"
_MALFORMED = "the pack is malformed"


class PackRefused(Refused):
    """The pack breaks a cap, or is none. The message is in fixed words."""


class PackScan:
    """Follows one pack. Give it the bytes in order with `feed`.

    Args:
        caps: What a push may bring.
        id_bytes: 20, or 32 where objects are named by SHA-256.
    """

    def __init__(self, caps: AdmissionCaps, id_bytes: int) -> None:
        self._caps = caps
        self._id_bytes = id_bytes
        self._pending = b""
        self._left: int | None = None
        self._unpacker: zlib._Decompress | None = None
        self._said = 0
        self._made = 0
        self._delta: bytearray | None = None
        self._total = 0

    def feed(self, data: bytes) -> None:
        """Look at the next bytes.

        Raises:
            PackRefused: Nothing more of it should be taken.
        """
        self._pending += data
        while self._pending:
            if self._left is None:
                if len(self._pending) < 12:
                    return
                self._begin()
            elif self._unpacker is not None:
                self._unpack()
            elif self._left == 0:
                self._pending = b""  # the trailing checksum, which git verifies
            elif not self._head():
                return

    def _begin(self) -> None:
        if self._pending[:4] != b"PACK":
            raise PackRefused(_MALFORMED)
        self._left = int.from_bytes(self._pending[8:12], "big")
        self._pending = self._pending[12:]
        if self._left > self._caps.objects:
            raise PackRefused(f"more than {self._caps.objects} new objects")

    def _head(self) -> bool:
        """Take an object's head; false when it has not come whole."""
        found = self._parse_head()
        if found is None:
            if len(self._pending) > _LONGEST_HEAD:
                raise PackRefused(_MALFORMED)
            return False
        kind, self._said, at = found
        self._check(self._said)
        self._pending = self._pending[at:]
        self._unpacker = zlib.decompressobj()
        self._made = 0
        self._delta = bytearray() if kind in (_OFFSET_DELTA, _REFERENCE_DELTA) else None
        return True

    def _parse_head(self) -> tuple[int, int, int] | None:
        data = self._pending
        kind, size, shift, at = data[0] >> 4 & 7, data[0] & 15, 4, 1
        while data[at - 1] & 0x80:
            if at > _LONGEST_NUMBER:
                raise PackRefused(_MALFORMED)
            if at >= len(data):
                return None
            size |= (data[at] & 0x7F) << shift
            shift += 7
            at += 1
        if kind == _OFFSET_DELTA:
            while at < len(data) and data[at] & 0x80:
                at += 1
            at += 1
        elif kind == _REFERENCE_DELTA:
            at += self._id_bytes
        elif kind in (0, 5):
            raise PackRefused(_MALFORMED)
        return (kind, size, at) if at <= len(data) else None

    def _unpack(self) -> None:
        unpacker = self._unpacker
        if unpacker is None or self._left is None:
            return
        try:
            piece = unpacker.decompress(self._pending, _PIECE)
        except zlib.error as error:
            raise PackRefused(_MALFORMED) from error
        self._made += len(piece)
        if self._made > self._said:
            raise PackRefused(_MALFORMED)
        if self._delta is not None and len(self._delta) < _LONGEST_HEAD:
            self._delta += piece[:_LONGEST_HEAD]
        if not unpacker.eof:
            self._pending = unpacker.unconsumed_tail
            return
        self._pending = unpacker.unused_data
        self._unpacker = None
        self._left -= 1
        size = self._said if self._delta is None else _result_size(bytes(self._delta))
        self._check(size)
        self._total += size
        if self._total > self._caps.new_bytes:
            raise PackRefused(_TOGETHER.format(self._caps.new_bytes))

    def _check(self, size: int) -> None:
        if size > self._caps.object_bytes:
            raise PackRefused(_LARGE.format(self._caps.object_bytes))


def _result_size(delta: bytes) -> int:
    """What a delta says that its result will be: the second of the two sizes that it begins with."""
    at = 0
    size = 0
    for _ in range(2):
        size = shift = 0
        while True:
            if at >= len(delta):
                raise PackRefused(_MALFORMED)
            byte = delta[at]
            size |= (byte & 0x7F) << shift
            shift += 7
            at += 1
            if not byte & 0x80:
                break
    return size
