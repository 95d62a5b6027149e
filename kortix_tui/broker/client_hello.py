"""Which host a TLS client says that it wants: read from its first message, which is not encrypted.

A tunnel to an allowed name ends at an address that many names share. Whoever asks there for another name than the
allowed one has gone around the allow list, so the two are held together. Nothing else of TLS is looked into.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

_RECORDS: Final = range(20, 25)
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
LONGEST: Final = 16 * 1024
"""Bytes that a client may need for its first message; real ones take less than four thousand."""


class Hello(Enum):
    """What was found instead of a name."""

    MORE = auto()
    """More bytes are needed."""
    NOT_TLS = auto()
    NAMELESS = auto()
    """TLS, and no name; or not well-formed, which counts as that."""


def server_name(data: bytes) -> str | Hello:
    """The host that the client names, in lower case.

    Args:
        data: All that the client has sent so far.
    """
    if not data:
        return Hello.MORE
    if data[0] not in _RECORDS or (len(data) > 1 and data[1] != 3):
        return Hello.NOT_TLS
    if data[0] != _HANDSHAKE:  # no client begins so, but some servers pass over it and take the message behind it
        return Hello.NAMELESS if len(data) > 1 else Hello.MORE
    message = _message(data)
    if message is None:
        return Hello.MORE if len(data) < LONGEST else Hello.NAMELESS
    try:
        return _name(_Fields(message)) or Hello.NAMELESS
    except (IndexError, UnicodeDecodeError):
        return Hello.NAMELESS


def _message(data: bytes) -> bytes | None:
    """The first handshake message, put together from the records that it is cut into; empty when it is none."""
    handshake = bytearray()
    at = 0
    while len(data) >= at + 5:
        if data[at] != _HANDSHAKE:
            return b""
        end = at + 5 + int.from_bytes(data[at + 3 : at + 5], "big")
        handshake += data[at + 5 : end]
        if len(handshake) >= 4:
            size = 4 + int.from_bytes(handshake[1:4], "big")
            if handshake[0] != _CLIENT_HELLO or size > LONGEST:
                return b""
            if len(handshake) >= size:
                return bytes(handshake[4:size])
        if len(data) < end:
            return None
        at = end
    return None


class _Fields:
    """Reads fields with lengths before them.

    Raises:
        IndexError: There are fewer bytes than a length says.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def left(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        end = self._at + count
        if end > len(self._data):
            raise IndexError(end)
        taken, self._at = self._data[self._at : end], end
        return taken

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def field(self, width: int) -> bytes:
        return self.take(self.number(width))


def _name(hello: _Fields) -> str | None:
    hello.take(2 + 32)  # version and random
    hello.field(1)  # session
    hello.field(2)  # ciphers
    hello.field(1)  # compressions
    extensions = _Fields(hello.field(2)) if hello.left() else _Fields(b"")
    while extensions.left():
        kind, body = extensions.number(2), extensions.field(2)
        if kind == _SERVER_NAME:
            names = _Fields(_Fields(body).field(2))
            while names.left():
                what, name = names.number(1), names.field(2)
                if what == _HOST_NAME:
                    return name.decode("ascii").lower()
    return None
