"""Untrusted text made safe to show (invariant I10).

One function, used at every door: control characters, escape sequences, bidirectional controls and
invisible characters become visible stand-ins. Colour (SGR) may be kept for logs; nothing else of a
terminal's language survives.
"""

from __future__ import annotations

import re

_SGR = r"\x1b\[[0-9;]{0,64}m"
# Format controls (category Cf), fillers that draw nothing, line separators, surrogates, private use.
_HIDDEN = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff\ue000-\uf8ff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
)
_UNSAFE = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}]")
_UNSAFE_OR_SGR = re.compile(f"({_SGR})|[\x00-\x08\x0b-\x1f\x7f-\x9f{_HIDDEN}]")
_UNSAFE_LINE = re.compile(f"[\x00-\x08\x0a-\x1f\x7f-\x9f{_HIDDEN}]")
_SGR_ONLY = re.compile(_SGR)
HIDDEN = re.compile(f"[{_HIDDEN}]")
"""Characters that a reviewer must be shown: they can hide or reorder text."""


def _stand_in(match: re.Match[str]) -> str:
    if match.re.groups and match.group(1) is not None:
        return match.group(1)
    code = ord(match.group(0)[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"‹U+{code:04X}›"


def visible(text: str, *, sgr: bool = False) -> str:
    """Make untrusted text safe for a terminal, keeping newline and tab.

    Args:
        text: Anything, also lone surrogates from undecodable bytes.
        sgr: Keep well-formed colour sequences (`ESC [ … m`), for logs.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    return (_UNSAFE_OR_SGR if sgr else _UNSAFE).sub(_stand_in, text)


def visible_line(text: str) -> str:
    """Make untrusted text safe and one line: titles, names, table cells."""
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE_LINE.sub(_stand_in, text).replace("\t", " ")


def without_sgr(text: str) -> str:
    """Drop the colour sequences that `visible(…, sgr=True)` kept."""
    return _SGR_ONLY.sub("", text) if "\x1b" in text else text


def shorten(text: str, width: int) -> str:
    """Cut one line of safe text to `width` characters, with an ellipsis when something is lost."""
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"
