"""Git's packet lines, as far as the door has to read and write them."""

from __future__ import annotations

from dataclasses import dataclass

FLUSH = b"0000"
_SIDEBAND = 60_000


class BadPacket(ValueError):
    """The bytes are not packet lines."""


@dataclass(frozen=True, slots=True)
class RefCommand:
    """One change of a ref that a push asks for."""

    old: str
    new: str
    ref: str


def packet(data: bytes) -> bytes:
    """One packet line."""
    return b"%04x" % (len(data) + 4) + data


def take(buffer: bytes | bytearray, at: int) -> tuple[bytes | None, int] | None:
    """The packet at an offset and the offset after it; the packet is `None` for a flush.

    Returns `None` when more bytes are needed.

    Raises:
        BadPacket: No packet can begin like this.
    """
    head = bytes(buffer[at : at + 4])
    if len(head) < 4:
        return None
    try:
        length = int(head, 16)
    except ValueError as error:
        raise BadPacket("a packet's length is not a number") from error
    if length == 0:
        return None, at + 4
    if length < 4 or length > 65520:
        raise BadPacket("a packet has an impossible length")
    if len(buffer) < at + length:
        return None
    return bytes(buffer[at + 4 : at + length]), at + length


def parse_command(line: bytes) -> tuple[RefCommand, frozenset[str]]:
    """One line of a push: the change, and the capabilities after the first one's NUL.

    Raises:
        BadPacket: It is not such a line.
    """
    text, _, capabilities = line.rstrip(b"\n").partition(b"\0")
    parts = text.decode("utf-8", "surrogateescape").split(" ", 2)
    if len(parts) != 3 or not parts[2] or not all(_is_id(part) for part in parts[:2]):
        raise BadPacket("a ref change is malformed")
    return RefCommand(*parts), frozenset(capabilities.decode("ascii", "replace").split())


def _is_id(text: str) -> bool:
    return len(text) in (40, 64) and not text.strip("0123456789abcdef")


def refusal(faults: list[tuple[str, str]], capabilities: frozenset[str]) -> bytes:
    """The answer to a push that refuses each ref with its reason, as git's own server would say it."""
    if not capabilities & {"report-status", "report-status-v2"}:
        return FLUSH
    report = packet(b"unpack ok\n")
    for ref, reason in faults:
        report += packet(b"ng %b %b\n" % (ref.encode("utf-8", "surrogateescape"), reason.encode("ascii")))
    report += FLUSH
    if "side-band-64k" not in capabilities:
        return report
    pieces = [report[at : at + _SIDEBAND] for at in range(0, len(report), _SIDEBAND)]
    return b"".join(packet(b"\x01" + piece) for piece in pieces) + FLUSH


def with_capability(advertisement: bytes, capability: bytes) -> bytes:
    """Add a capability to the first line of a ref advertisement of protocol 0."""
    found = take(advertisement, 0)
    if found is None or found[0] is None or b"\0" not in found[0]:
        raise BadPacket("an advertisement has no capabilities")
    return packet(found[0].rstrip(b"\n") + b" " + capability + b"\n") + advertisement[found[1] :]
