"""Frames on the channel between a host and its supervisor; both sides use this module.

`u32 n` (bytes that follow) + `u32 h` (header length) + `h` bytes of a UTF-8 JSON object + `n - 4 - h` bytes of raw
body, integers big-endian. Nothing here trusts what it reads: a length that does not fit is an error before any
memory is taken for it.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Iterator

MAX_FRAME = 1 << 20
"""Largest `n`: a sender splits what is longer."""
PIECE = 64 * 1024
"""Largest body that we send in one frame; small, so that an answer never waits long behind output."""
SHELL_WINDOW = 256 * 1024
"""How far a shell's output may be ahead of its reader."""
VERSION = 1
_LENGTHS = struct.Struct(">II")


class FrameError(ValueError):
    """The bytes are not a frame. The connection cannot be used any more."""


def pack(header: bytes, body: bytes = b"") -> bytes:
    """One frame from a header that is JSON already."""
    size = 4 + len(header) + len(body)
    if size > MAX_FRAME:
        raise FrameError(f"A frame of {size} bytes is larger than {MAX_FRAME}.")
    return _LENGTHS.pack(size, len(header)) + header + body


def encode(header: dict[str, Any], body: bytes = b"") -> bytes:
    """One frame. `ensure_ascii` keeps lone surrogates of undecodable file names transportable."""
    return pack(json.dumps(header, separators=(",", ":")).encode("ascii"), body)


def parse_header(raw: bytes) -> dict[str, Any]:
    """The header as a JSON object with a `type`."""
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise FrameError("A frame's header is not JSON.") from error
    if not isinstance(header, dict) or not isinstance(header.get("type"), str):
        raise FrameError("A frame's header is not an object with a type.")
    return header


class Decoder:
    """Cuts a byte stream into frames, however the bytes arrive."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Take more bytes and yield each frame that they complete, as (header, body).

        Raises:
            FrameError: A length is impossible.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= 8:
                size, head = _LENGTHS.unpack_from(buffer, start)
                if size > MAX_FRAME or head > size - 4:
                    raise FrameError("A frame's lengths are impossible.")
                end = start + 4 + size
                if len(buffer) < end:
                    break
                middle = start + 8 + head
                frame = bytes(buffer[start + 8 : middle]), bytes(buffer[middle:end])
                start = end
                yield frame
        finally:
            del buffer[:start]


def pieces(data: bytes) -> Iterator[bytes]:
    """Split a body so that each part fits one frame."""
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]
