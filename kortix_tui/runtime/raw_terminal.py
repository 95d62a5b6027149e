"""The operator's terminal in raw mode, put back as it was on every way out."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import tty
from types import FrameType, TracebackType
from typing import Any, Final, Self

from kortix_tui.base.errors import Refused

_WRITE_S: Final = 10.0


class RawTerminal:
    """Keys come byte by byte and unechoed, window changes wake a reader; used as a context manager."""

    def __init__(self, keyboard: int, screen: int) -> None:
        """Check that a person is there.

        Args:
            keyboard: Descriptor to read keys from.
            screen: Descriptor to write to.

        Raises:
            Refused: One of them is no terminal.
        """
        if not (os.isatty(keyboard) and os.isatty(screen)):
            raise Refused("A shell needs a terminal.", hint="Run it from a terminal, without pipes or redirections.")
        self.keyboard = keyboard
        self._screen = screen
        self._saved: list[Any] = []
        self._old_handler: Any = None
        self.changes = -1
        """Becomes readable when the window's size has changed."""
        self._change = -1

    def __enter__(self) -> Self:
        self._saved = termios.tcgetattr(self.keyboard)
        self.changes, self._change = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._old_handler = signal.signal(signal.SIGWINCH, self._resized)
        tty.setraw(self.keyboard, termios.TCSADRAIN)  # what was typed meanwhile is for the shell
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGWINCH, self._old_handler)
        with contextlib.suppress(termios.error):  # the terminal may be gone: then there is nothing to put back
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._saved)
        os.close(self.changes)
        os.close(self._change)

    def size(self) -> tuple[int, int]:
        """Rows and columns, within what a shell takes."""
        try:
            size = os.get_terminal_size(self._screen)
        except OSError:
            return 24, 80
        return min(max(size.lines, 1), 9999), min(max(size.columns, 1), 9999)

    def changed(self) -> None:
        """Take note of the window changes so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.changes, 4096)

    def write(self, data: bytes) -> None:
        """Write all of it; a terminal that takes nothing for long is given up as gone.

        Raises:
            OSError: The terminal is gone.
        """
        view = memoryview(data)
        while view:
            if not select.select([], [self._screen], [], _WRITE_S)[1]:
                raise TimeoutError("the terminal takes nothing")
            view = view[os.write(self._screen, view) :]

    def _resized(self, number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._change, b"w")
