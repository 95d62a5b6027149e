"""What a sandbox's shell may say to the operator's terminal (invariant I10): an allow-list, for any chunking.

A terminal obeys whatever is printed: sequences retitle windows, write the clipboard, answer questions into the input
line, print on paper. So the shell's output is parsed, and only complete sequences of the list below are written; a
sequence that is cut, unknown or too long never reaches the terminal in part.
"""

from __future__ import annotations

import codecs
import re
from enum import Enum, auto
from typing import Final

MAX_SEQUENCE: Final = 256
"""Characters that a control sequence may have; a longer one is swallowed to its end."""
MAX_STRING: Final = 1 << 20
"""Characters of an OSC, DCS, APC, PM or SOS string that are swallowed before it is taken as never closed."""
MAX_NUMBER: Final = 9999
"""Largest parameter: no screen is larger, and some terminals loop or overflow on huge counts."""

ALTERNATE_SCREEN: Final = frozenset({47, 1047, 1049})
MOUSE: Final = frozenset({9, 1000, 1002, 1003, 1005, 1006, 1015, 1016})
CURSOR_KEYS, CURSOR_VISIBLE, SAVED_CURSOR, BRACKETED_PASTE = 1, 25, 1048, 2004
MODES: Final = ALTERNATE_SCREEN | MOUSE | {CURSOR_KEYS, CURSOR_VISIBLE, SAVED_CURSOR, BRACKETED_PASTE}

# Cursor moves, tabs, erase, insert, delete, scroll, repeat; each with how many parameters it may have.
_PLAIN_FINALS: Final = {
    **dict.fromkeys("ABCDEFGIZ`ade", 1),
    **dict.fromkeys("LM@PXSTb", 1),
    **dict.fromkeys("Hfr", 2),
    "s": 0,
    "u": 0,
}
_ESCAPES: Final = frozenset("78DEM")  # save and restore cursor, index, next line, reverse index
_EXECUTED: Final = frozenset("\r\n\t\b\a")
_STRINGS: Final = frozenset("]PX^_")

# Bidirectional and line controls and tag characters draw nothing and deceive; joiners and variation selectors are
# parts of letters and stay.
_DECEIVING: Final = "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\U000e0000-\U000e007f"
_PRINTABLE: Final = re.compile(f"[^\x00-\x1f\x7f-\x9f{_DECEIVING}]+")
_SWALLOWED: Final = re.compile("[^\x07\x18\x1a\x1b]+")
_SGR: Final = re.compile(r"(?:[0-9]{0,4}[;:])*[0-9]{0,4}\Z")
_NUMBERS: Final = re.compile(r"(?:[0-9]{0,5}(?:;[0-9]{0,5})*)\Z")

# Programs that draw lines with the terminal's second alphabet (`ESC ( 0`) get the same lines as Unicode.
_LINES: Final = str.maketrans("`afgjklmnopqrstuvwxyz{|}~", "◆▒°±┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·")


class _State(Enum):
    GROUND = auto()
    ESCAPE = auto()
    INTERMEDIATE = auto()
    CONTROL = auto()
    TOO_LONG = auto()
    STRING = auto()


class TerminalFilter:
    """Filters one shell's output. Feed it every byte once, in order; write what it returns, then `reset`."""

    def __init__(self, *, utf8: bool = True) -> None:
        """Start with nothing set.

        Args:
            utf8: Whether the terminal reads UTF-8. Where it does not, bytes of a character could be taken as 8-bit
                controls, so that everything but ASCII is written as `?`.
        """
        self._encoding = "utf-8" if utf8 else "ascii"
        self._start()

    def _start(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._state = _State.GROUND
        self._held = ""
        self._swallowed = 0
        self._lines = False
        self._modes: set[int] = set()
        self._region = False
        self._moved = False

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held back before, the terminal may see."""
        text = self._decoder.decode(data)
        out: list[str] = []
        at, end = 0, len(text)
        while at < end:
            if self._state is _State.GROUND and (run := _PRINTABLE.match(text, at)):
                out.append(run[0].translate(_LINES) if self._lines else run[0])
                at = run.end()
            elif self._state is _State.STRING and (run := _SWALLOWED.match(text, at)):
                at = run.end()
                self._swallow(len(run[0]))
            else:
                self._step(text[at], out)
                at += 1
        self._moved = self._moved or bool(out)
        return "".join(out).encode(self._encoding, "replace")

    def reset(self) -> bytes:
        """Undo what the shell left behind in the terminal: screen, modes, scroll region and colours."""
        out = [f"\x1b[?{mode}l" for mode in sorted(self._modes - {CURSOR_VISIBLE, SAVED_CURSOR})]
        if CURSOR_VISIBLE in self._modes:
            out.append("\x1b[?25h")
        if self._region:
            out.append("\x1b7\x1b[r\x1b8")  # resetting the region moves the cursor: keep its place
        if self._moved:
            out.append("\x1b[0m")
        self._start()
        return "".join(out).encode("ascii")

    def _step(self, character: str, out: list[str]) -> None:
        """Take one character that no run covers."""
        if character == "\x1b":
            self._enter(_State.ESCAPE)
        elif character in "\x18\x1a":
            self._enter(_State.GROUND)
        elif self._state is _State.STRING:
            self._enter(_State.GROUND)  # BEL ends a string
        elif character in _EXECUTED:
            out.append(character)  # also in the middle of a sequence, as terminals do
        elif character < " " or "\x7f" <= character <= "\x9f":
            return
        elif self._state is not _State.GROUND:
            self._sequence(character, out)

    def _sequence(self, character: str, out: list[str]) -> None:
        if character > "\x7f":
            self._enter(_State.GROUND)
        elif self._state is _State.ESCAPE:
            self._escape(character, out)
        elif self._state is _State.INTERMEDIATE:
            self._held += character
            if character >= "0" or len(self._held) > MAX_SEQUENCE:
                if self._held in ("(0", "(B"):
                    self._lines = self._held == "(0"
                self._enter(_State.GROUND)
        elif "@" <= character <= "~":
            if self._state is _State.CONTROL:
                out.append(self._control(self._held, character))
            self._enter(_State.GROUND)
        elif self._state is _State.CONTROL:
            self._held += character
            if len(self._held) > MAX_SEQUENCE:
                self._enter(_State.TOO_LONG)

    def _escape(self, character: str, out: list[str]) -> None:
        if character == "[":
            self._enter(_State.CONTROL)
        elif character in _STRINGS:
            self._enter(_State.STRING)
        elif character < "0":
            self._enter(_State.INTERMEDIATE)
            self._held = character
        else:
            if character in _ESCAPES:
                out.append(f"\x1b{character}")
            self._enter(_State.GROUND)

    def _enter(self, state: _State) -> None:
        self._state, self._held, self._swallowed = state, "", 0

    def _swallow(self, count: int) -> None:
        self._swallowed += count
        if self._swallowed > MAX_STRING:
            self._enter(_State.GROUND)

    def _control(self, parameters: str, final: str) -> str:
        """The control sequence as it may be written, or nothing."""
        if final == "m":
            return f"\x1b[{parameters}m" if _SGR.match(parameters) else ""
        if final in "hl" and parameters.startswith("?"):
            return self._mode(parameters[1:], final)
        if (parameters, final) in (("6", "n"), ("", "c"), ("0", "c"), (">", "c"), (">0", "c")):
            return f"\x1b[{parameters}{final}"  # cursor position, device attributes: their answers say nothing secret
        if not _NUMBERS.match(parameters):
            return ""
        numbers = [int(number or 0) for number in parameters.split(";")] if parameters else []
        if any(number > MAX_NUMBER for number in numbers):
            return ""
        if final in "JK":
            # Not 3: it would wipe the scrollback, and with it what the operator has seen.
            return f"\x1b[{parameters}{final}" if len(numbers) <= 1 and 3 not in numbers else ""
        if len(numbers) > _PLAIN_FINALS.get(final, -1):
            return ""
        self._region = self._region or final == "r"
        return f"\x1b[{parameters}{final}"

    def _mode(self, parameters: str, final: str) -> str:
        if not _NUMBERS.match(parameters):
            return ""
        allowed = [int(number) for number in parameters.split(";") if number and int(number) in MODES]
        for mode in allowed:
            # The cursor is visible at first; every other mode is off.
            if (final == "h") is not (mode == CURSOR_VISIBLE):
                self._modes.add(mode)
            else:
                self._modes -= ALTERNATE_SCREEN if mode in ALTERNATE_SCREEN else {mode}
        return f"\x1b[?{';'.join(map(str, allowed))}{final}" if allowed else ""


class DetachKey:
    """Finds `ctrl-]` followed by `q` in what the operator types; `ctrl-]` twice types it once."""

    PREFIX: Final = b"\x1d"

    def __init__(self) -> None:
        self._armed = False

    def feed(self, data: bytes) -> tuple[bytes, bool]:
        """What the shell gets of these keys, and whether the operator wants out; nothing after that counts."""
        out = bytearray()
        for value in data:
            key = bytes((value,))
            if self._armed:
                self._armed = False
                if key in (b"q", b"Q"):
                    return bytes(out), True
                out += key if key == self.PREFIX else self.PREFIX + key
            elif key == self.PREFIX:
                self._armed = True
            else:
                out += key
        return bytes(out), False
