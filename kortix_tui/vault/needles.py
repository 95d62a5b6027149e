"""What a secret's value looks like where programs print it: the byte strings that redaction searches for.

A value seldom appears as it was stored: it is part of an address, a JSON text, a header's base64 or a shell's trace.
Each function here names one family of spellings. Not covered, because no search can be: compressed, encrypted,
reversed or spelled-out values, and pieces of a value.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, quote_plus

SHORTEST: Final = 8
"""Bytes. Shorter values and spellings are not searched for: they are found in text that has nothing to do with them,
and whoever watches what is replaced could guess them one by one."""
LINE: Final = 12
"""Bytes from which a line of a value of several lines is searched for by itself."""

_SPACE: Final = b" \t\r\n"
# What each kind of program leaves as it is: everything encoded, a path, and JavaScript's two functions.
_SAFE: Final = ("", "/", "!'()*~", ";,/?:@&=+$!'()*~#")
_WRAPS: Final = (64, 76)
_ARMOUR: Final = re.compile(rb"-----(?:BEGIN|END) [A-Z0-9 ]{1,64}-----\Z")
_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")
_UNICODE: Final = re.compile(r"\\u[0-9a-f]{4}")
_ESCAPES: Final = tuple(
    re.compile(escape)
    for escape in (
        rb"\\(?:0?([0-7]{1,3})()|([abefnrtv\\c]))",  # `echo` and `printf %b` of Debian's `sh`
        rb"\\(?:0([0-7]{0,3})|x([0-9A-Fa-f]{1,2})|([abeEfnrtv\\c]))",  # `echo -e` of other shells
        rb"\\(?:0?([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|([abeEfnrtv\\c\"'?]))",  # and their `printf %b`
    )
)
_CHARACTERS: Final = {
    b"a": b"\a", b"b": b"\b", b"e": b"\x1b", b"E": b"\x1b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t",
    b"v": b"\v",
}  # fmt: skip
_BARE: Final = re.compile(r"([^A-Za-z0-9_./:@%+=,\n-])")


def needles(value: bytes) -> frozenset[bytes]:
    """Every spelling of a value; none for a value that is too short.

    White space around a value is left out: programs strip it, and what is left is inside every longer spelling.
    """
    if len(value) < SHORTEST:
        return frozenset()
    core = value.strip(_SPACE)
    if len(core) < SHORTEST:
        core = value
    echoed = tuple(_echoed(core))
    found = {*_texts(core), *_hex(core), *_base64(core), *echoed}
    for line in (line for form in (core, *echoed) for line in form.splitlines()):
        stripped = line.strip(_SPACE)
        # The first and last line of a key in PEM form are the same in everybody's key.
        if len(stripped) >= LINE and stripped != core and _ARMOUR.match(stripped) is None:
            found.update(_texts(stripped))
    return frozenset(needle for needle in found if len(needle) >= SHORTEST)


def _texts(value: bytes) -> Iterator[bytes]:
    """Spellings that depend on the value's characters."""
    yield value
    yield repr(value)[2:-1].encode("ascii")
    if b"\n" in value:
        yield value.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
        yield value.replace(b"\r\n", b"\n")
    for safe in _SAFE:
        yield from _percent(quote(value, safe=safe))
    yield from _percent(quote_plus(value))
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return
    for spelled in (*_json(text), *_markup(text), *_quoted(text)):
        yield spelled.encode("utf-8")
    yield text.encode("utf-16-le")
    yield text.encode("utf-16-be")


def _echoed(value: bytes) -> Iterator[bytes]:
    """As `echo` of some shells prints it: a backslash and what follows are one character, and `\\c` is the end."""
    if b"\\" not in value:
        return
    for escapes in _ESCAPES:
        end = next((found.start() for found in escapes.finditer(value) if found[3] == b"c"), len(value))
        form = escapes.sub(_escaped, value[:end])
        if len(form) >= LINE:
            yield form


def _escaped(found: re.Match[bytes]) -> bytes:
    octal, hexadecimal, letter = found.groups()
    if letter:
        return _CHARACTERS.get(letter, letter)
    return bytes([(int(hexadecimal, 16) if hexadecimal else int(octal or b"0", 8)) & 0xFF])


def _percent(text: str) -> Iterator[bytes]:
    yield text.encode("ascii")
    yield _PERCENT.sub(lambda match: match[0].lower(), text).encode("ascii")


def _json(text: str) -> Iterator[str]:
    """Inside a JSON string, also inside a JSON text that is itself a JSON string."""
    plain = json.dumps(text)[1:-1]
    spelled = {
        plain,
        _UNICODE.sub(lambda match: match[0][:2] + match[0][2:].upper(), plain),
        json.dumps(text, ensure_ascii=False)[1:-1],
    }
    spelled |= {form.replace("/", "\\/") for form in spelled}
    # What encoders that think of HTML do (Go's is one).
    spelled |= {form.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") for form in spelled}
    yield from spelled
    for form in spelled:
        yield json.dumps(form)[1:-1]
        yield json.dumps(form, ensure_ascii=False)[1:-1]


def _markup(text: str) -> Iterator[str]:
    plain = html.escape(text, quote=False)
    for apostrophe in ("&#x27;", "&#39;", "&apos;"):
        for quotation in ("&quot;", "&#34;"):
            yield plain.replace("'", apostrophe).replace('"', quotation)
    yield plain.replace('"', "&quot;")
    yield plain


def _quoted(text: str) -> Iterator[str]:
    """As Python and shells quote it; without the quotes around it."""
    plain = repr(text)[1:-1]
    yield plain
    yield text.replace("\\", "\\\\").replace("'", "\\'")
    yield text.replace("'", "'\"'\"'")
    yield text.replace("'", "'\\''")
    yield re.sub(r'([\\"$`])', r"\\\1", text)
    yield _BARE.sub(r"\\\1", text)


def _hex(value: bytes) -> Iterator[bytes]:
    yield value.hex().encode("ascii")
    yield value.hex().upper().encode("ascii")


def _base64(value: bytes) -> Iterator[bytes]:
    """Within longer data a value begins at one of three places of a group, and its edges depend on its neighbours.

    So `Basic` pairs and encoded files are found too. Programs that wrap lines are met where the value comes first.
    """
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + value)
        # A character stands for six bits; whole ones of ours begin after the neighbour's and end before the next's.
        inner = encoded[-(-before * 8 // 6) : (before + len(value)) * 8 // 6]
        yield inner
        yield inner.replace(b"+", b"-").replace(b"/", b"_")
        if before == 0:
            for width in _WRAPS:
                for at in range(0, len(inner), width) if len(inner) > width else ():
                    yield inner[at : at + width]
