"""A command at a real terminal: a process on a pseudo-terminal of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class AtTerminal:
    """Runs `kortix …` with a person at the keyboard. Use as a context manager."""

    def __init__(self, *arguments: str, rows: int = 24, columns: int = 80, **environment: str) -> None:
        self.screen = b""
        self._master, slave = pty.openpty()
        self.slave_name = os.ttyname(slave)
        self.resize(rows, columns)
        self.before = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kortix_tui.cli.main", *arguments],
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment,
        )  # fmt: skip
        self._slave = slave

    def __enter__(self) -> AtTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        os.close(self._master)
        os.close(self._slave)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def changed_size(self, rows: int, columns: int) -> None:
        """Resize, and tell the process as a terminal driver would."""
        self.resize(rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    @property
    def settings_now(self) -> list[object]:
        return termios.tcgetattr(self._slave)

    def type(self, keys: bytes | str) -> None:
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def see(self, text: bytes | str, seconds: float = 60.0) -> bytes:
        """Wait until the text is on the screen; what came before it is returned and forgotten."""
        wanted = text.encode() if isinstance(text, str) else text
        end = time.monotonic() + seconds
        while wanted not in self.screen:
            if not self._read() and self.process.poll() is not None and not self._read():
                break
            assert time.monotonic() < end, f"{wanted!r} did not come; the screen has {self.screen!r}"
        before, found, self.screen = self.screen.partition(wanted)
        assert found, f"{wanted!r} did not come before the end; the screen had {before!r}"
        return before

    def end(self, seconds: float = 60.0) -> int:
        """Wait for the process's end, taking all that it prints."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            self._read()
            assert time.monotonic() < end, f"it goes on; the screen has {self.screen!r}"
        while self._read():
            pass
        return self.process.returncode

    def _read(self) -> bool:
        if not select.select([self._master], [], [], 0.1)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.screen += data
        return bool(data)
