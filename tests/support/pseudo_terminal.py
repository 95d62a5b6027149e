"""A console program at a pseudo-terminal, and what may come out of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from codecs import getincrementaldecoder
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.cells import cell_len

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("console_program.py")

# Everything that the console may send: colours, cursor places, the modes that it owns, the shape of the mouse pointer,
# which is a word of Textual's, and titles and notices of fixed words. No other OSC, no DCS.
ALLOWED = re.compile(
    r"\x1b\[[0-9;:]*m"
    r"|\x1b\[\d+;\d+H|\x1b\[H"
    r"|\x1b\[\?(?:25|1049|1000|1002|1003|1004|1005|1006|1015|1016|2004|2026|2048|7)[hl]"
    r"|\x1b\[\?(?:2026|2048)\$p"
    r"|\x1b\[[<>=]\d*u"
    r"|\x1b\]22;[a-z-]{1,20}\x07"
    r"|\x1b\[2[23];2t|\x1b\]2;(?:kortix|! kortix: \d+ waiting)\x07"
    r"|\x1b\](?:777;notify;kortix;|9;kortix: )\d+ things? waits? for you\x07"
)
CONTROL = re.compile(
    "[\x00-\x09\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)
TOKEN = re.compile(
    r"\x1b\[(?P<place>\d+;\d+)?(?(place)H|[?<>=\d;:]*\$?[A-Za-z])|\x1b\][^\x07]*\x07|[\r\n]|[^\x1b\r\n]+"
)
LONGEST_SEQUENCE = 40


class Picture:
    """What a terminal would show of the output so far, without its colours. Knows what `ALLOWED` knows."""

    def __init__(self, rows: int, columns: int) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0
        self._rest = ""

    def feed(self, output: bytes) -> None:
        text, place = self._rest + self._decode(output), 0
        while place < len(text):
            found = TOKEN.match(text, place)
            if found is not None:
                self._take(found)
            elif len(text) - place < LONGEST_SEQUENCE:
                break  # the rest of it is not here yet
            # What is no sequence is stepped over: `strangers` tells about it.
            place = found.end() if found else place + 1
        self._rest = text[place:]

    def _take(self, found: re.Match[str]) -> None:
        token = found[0]
        if found["place"]:
            self._row, self._column = (int(part) - 1 for part in found["place"].split(";"))
        elif token == "\r":
            self._column = 0
        elif token == "\n":
            self._row += 1
        elif not token.startswith("\x1b"):
            for character in token:
                self._put(character, cell_len(character))

    def _put(self, character: str, width: int) -> None:
        row, column = self._row, self._column
        if row < len(self._cells) and width and column + width <= len(self._cells[row]):
            self._cells[row][column : column + width] = [character, *[""] * (width - 1)]
        self._column += width

    @property
    def text(self) -> str:
        return "\n".join("".join(row).rstrip() for row in self._cells)


class PseudoTerminal:
    """Runs the program; reads what it paints; types."""

    def __init__(
        self, *arguments: str, program: Path = PROGRAM, rows: int = 30, columns: int = 110, **environment: str
    ) -> None:
        self.output = b""
        self.picture = Picture(rows, columns)
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        base = {name: value for name, value in os.environ.items() if not name.startswith(("TEXTUAL", "SSH_", "TMUX"))}
        self.process = subprocess.Popen(
            [sys.executable, str(program), *arguments],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=base | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLORTERM": "truecolor"} | environment,
        )  # fmt: skip
        os.close(slave)
        os.set_blocking(self._master, False)
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self.hang_up()

    def hang_up(self) -> None:
        """Close the terminal, as a lost connection does."""
        if self._open:
            os.close(self._master)
            self._open = False

    def read(self, seconds: float = 0.05) -> bytes:
        """What came since the last read."""
        ready, _, _ = select.select([self._master], [], [], seconds)
        found = b""
        if ready:
            try:
                found = os.read(self._master, 1 << 16)
            except (BlockingIOError, OSError):
                found = b""
        self.output += found
        self.picture.feed(found)
        return found

    def until(self, text: str, seconds: float = 60.0, *, since: int = 0) -> int:
        """Wait until a text was painted after a place; gives the new place."""
        wanted, end = text.encode(), time.monotonic() + seconds
        while wanted not in self.output[since:]:
            assert time.monotonic() < end, f"{text!r} was not painted:\n{self.output[-3000:]!r}"
            assert self.read() or self.process.poll() is None, f"it ended:\n{self.output[-3000:]!r}"
        return len(self.output)

    def press(self, keys: str, shows: str = "", *, gone: str = "", seconds: float = 60.0) -> None:
        """Type, and wait until the screen shows a text, and another one no longer.

        A page that opens late would take the keys that are meant for the next one; and an esc that is read together
        with what follows it is another key.
        """
        self.type(keys)
        end = time.monotonic() + seconds
        while shows not in self.picture.text or (gone and gone in self.picture.text):
            told = f"{keys!r} did not make it show {shows!r}" + f" without {gone!r}" * bool(gone)
            assert time.monotonic() < end, f"{told}; not allowed: {self.strangers()[:3]}\n{self.picture.text}"
            assert self.read() or self.process.poll() is None, f"it ended:\n{self.output[-3000:]!r}"

    def quiet(self, seconds: float = 0.4) -> int:
        """Read until nothing came for a while; gives the place."""
        last = time.monotonic()
        while time.monotonic() - last < seconds:
            if self.read():
                last = time.monotonic()
        return len(self.output)

    def type(self, keys: bytes | str) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def ended(self, seconds: float = 20.0) -> int:
        """Wait for the end, reading on; gives the exit status."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            if self._open:
                self.read()
            else:
                time.sleep(0.02)
            assert time.monotonic() < end, "it did not end"
        if self._open:
            self.quiet(0.1)
        return self.process.returncode

    def strangers(self) -> list[str]:
        """Everything in the output that is neither text nor allowed."""
        text = self.output.decode("utf-8", "surrogateescape")
        rest = ALLOWED.sub("", text).replace("\r\n", "")
        return [rest[max(0, match.start() - 30) : match.end() + 30] for match in CONTROL.finditer(rest)]
