"""The terminal driver: Textual's own for Linux, hardened against what real terminals and links do."""

from __future__ import annotations

import atexit
import contextlib
import os
import selectors
import sys
from codecs import getincrementaldecoder
from queue import Full
from typing import Any, Final

from textual._parser import ParseError
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.drivers.linux_driver import LinuxDriver

from kortix_tui.console.terminal import Terminal

READ_SIZE: Final = 4096
POLL_SECONDS: Final = 0.1
WRITE_RETRY_SECONDS: Final = 0.25

RESET: Final = (
    "\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l"  # every mouse mode
    "\x1b[?2004l\x1b[?1004l\x1b[?2048l"  # bracketed paste, focus reports, resize reports
    "\x1b[?7h\x1b[?25h\x1b[0m"  # line wrap, cursor, colours
)
"""Puts a terminal back into the state that a shell expects. Harmless when nothing was changed."""

_X10_START: Final = b"\x1b[M"
_X10_PAYLOAD: Final = 3


class InputDecoder:
    """Turns terminal bytes into text without ever failing.

    Old-style (X10) mouse reports are `ESC [ M` and three bytes of any value. tmux sends them after a
    re-attach, and as text they are invalid UTF-8, which ends the input thread of a stock driver
    (https://github.com/Textualize/textual/issues/6668). Their three bytes become spaces here: the parser
    knows the form and drops the report. Reports may be cut anywhere between two reads.
    """

    def __init__(self) -> None:
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._matched = 0
        self._payload = 0

    def feed(self, data: bytes, *, final: bool = False) -> str:
        """Decode one read."""
        if self._matched or self._payload or b"\x1b" in data:
            data = self._neutralise(data)
        return self._decode(data, final)

    def _neutralise(self, data: bytes) -> bytes:
        out = bytearray(data)
        for index, byte in enumerate(data):
            if self._payload:
                out[index] = 0x20
                self._payload -= 1
            elif byte == _X10_START[self._matched]:
                self._matched += 1
                if self._matched == len(_X10_START):
                    self._matched, self._payload = 0, _X10_PAYLOAD
            else:
                self._matched = int(byte == _X10_START[0])
        return bytes(out)


class ConsoleDriver(LinuxDriver):
    """What the console runs on. Give it to the app: `App(driver_class=ConsoleDriver)`."""

    def __init__(
        self, app: App[Any], *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None
    ) -> None:
        terminal = getattr(app, "terminal", None) or Terminal.detect(os.environ)
        super().__init__(app, debug=debug, mouse=mouse and terminal.mouse, size=size)
        self._size = size or self._get_terminal_size()

    def _get_terminal_size(self) -> tuple[int, int]:
        """Ask the terminal. The stock driver trusts COLUMNS and LINES, which do not follow a change of its size."""
        for number in (sys.__stderr__.fileno() if sys.__stderr__ else self.fileno, self.fileno):
            with contextlib.suppress(OSError, ValueError):
                width, height = os.get_terminal_size(number)
                if width and height:
                    return width, height
        return super()._get_terminal_size()

    @property
    def output_pending(self) -> bool:
        """Whether the terminal has not yet taken what was written: painting more would only queue up."""
        writer = self._writer_thread
        return writer is not None and not writer._queue.empty()

    def write(self, data: str) -> None:
        """Queue output. Gives up when the writer has died, as after the loss of the terminal.

        The stock driver would block the whole program for ever on its full queue.
        """
        writer = self._writer_thread
        while writer is not None and writer.is_alive():
            with contextlib.suppress(Full):
                writer._queue.put(data, timeout=WRITE_RETRY_SECONDS)
                return

    def start_application_mode(self) -> None:
        """Take the terminal over, with a promise to give it back whatever way the program ends."""
        atexit.register(self._restore_terminal)
        super().start_application_mode()  # type: ignore[no-untyped-call]

    def stop_application_mode(self) -> None:
        """Give the terminal back, every mode included, also those that another program left on."""
        super().stop_application_mode()
        self.write(RESET)
        atexit.unregister(self._restore_terminal)

    def reassert(self) -> None:
        """Set the modes again that a terminal may have lost, as after a tmux re-attach."""
        self.write("\x1b[?1049h\x1b[?25l\x1b[?1004h")
        self._enable_mouse_support()
        self._enable_bracketed_paste()
        self._disable_line_wrap()

    def close(self) -> None:
        """Stop the writer, unless it has died already."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            self._writer_thread.stop()

    def _restore_terminal(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError, ValueError):
                os.write(self._file.fileno(), ("\x1b[<u\x1b[?1049l" + RESET).encode())

    def _run_input_thread(self) -> None:
        """End the program when reading keys fails. The stock driver would show the keys that it has read."""
        try:
            self.run_input_thread()
        except Exception as error:
            self._app.call_later(self._app._handle_exception, error)

    def run_input_thread(self) -> None:
        """Read keys until told to stop. No byte sequence ends this thread."""
        selector = selectors.DefaultSelector()
        selector.register(self.fileno, selectors.EVENT_READ)
        parser = XTermParser(self._debug)
        decoder = InputDecoder()
        try:
            while not self.exit_event.is_set():
                if selector.select(POLL_SECONDS):
                    data = self._read()
                    if not data:
                        # The terminal is gone, not always with a SIGHUP. Nobody can press a key any more.
                        self._app.call_later(self._app.exit)
                        return
                    self._dispatch(parser, decoder.feed(data))
                for event in parser.tick():
                    self.process_message(event)
        finally:
            selector.close()
            with contextlib.suppress(EOFError, ParseError):
                for _ in parser.feed(""):
                    pass

    def _read(self) -> bytes:
        try:
            return os.read(self.fileno, READ_SIZE)
        except OSError:
            return b""

    def _dispatch(self, parser: XTermParser, text: str) -> None:
        if not text:
            return  # an empty feed would end the parser
        for event in parser.feed(text):
            self.process_message(event)
