"""A person's shell in the sandbox: a terminal of its own, the agent's account, none of its start-up files."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import subprocess
import termios
from typing import Mapping

from kortix_tui.guest import wire
from kortix_tui.guest.children import Children
from kortix_tui.guest.identity import Identity, signal_group
from kortix_tui.guest.link import Link, LinkFailed

_CHUNK = 16 * 1024
_PENDING_LIMIT = 1 << 20
_HANG_UP_TO_KILL_S = 2.0


def command() -> list[str]:
    """Bash without any start-up file where there is one, else a plain shell."""
    for path in ("/bin/bash", "/usr/bin/bash"):
        if os.access(path, os.X_OK):
            return [path, "--noprofile", "--norc", "-i"]
    return ["/bin/sh", "-i"]


class Shell:
    """One open shell.

    Args:
        shell_id: The host's name for it.
        identity: Who runs it.
        children: Who waits for processes.
    """

    def __init__(self, shell_id: str, identity: Identity, children: Children) -> None:
        self.shell_id = shell_id
        self._identity = identity
        self._children = children
        self._loop = asyncio.get_running_loop()
        self._input = bytearray()
        self._window = wire.SHELL_WINDOW
        self._granted = asyncio.Event()
        self._master = -1
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, folder: str, environment: Mapping[str, str], rows: int, columns: int) -> None:
        """Start it.

        Raises:
            OSError: There is no terminal or no shell.
        """
        with self._identity.assumed():  # the terminal belongs to who uses it
            self._master, slave = os.openpty()
        try:
            self.resize(rows, columns)
            self._process = self._identity.start(
                command(),
                environment={**self._identity.environment(), **environment},
                folder=folder,
                stdin=slave,
                stdout=slave,
                stderr=slave,
                terminal=True,
            )
        except OSError:
            self._close_terminal()
            raise
        finally:
            os.close(slave)
        os.set_blocking(self._master, False)

    def resize(self, rows: int, columns: int) -> None:
        """Tell the programs in it the size of their terminal."""
        size = struct.pack("HHHH", max(1, min(rows, 9999)), max(1, min(columns, 9999)), 0, 0)
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def grant(self, count: int) -> None:
        """The person's end has taken `count` bytes: as many more may be sent."""
        self._window += max(0, count)
        self._granted.set()

    def write(self, data: bytes) -> None:
        """Type into it. What nobody reads is dropped beyond a mebibyte."""
        if self._master < 0 or len(self._input) + len(data) > _PENDING_LIMIT:
            return
        self._input += data
        self._flush()

    def _flush(self) -> None:
        try:
            while self._input:
                del self._input[: os.write(self._master, self._input[:_CHUNK])]
        except BlockingIOError:
            self._loop.add_writer(self._master, self._flush)
            return
        except OSError:
            self._input.clear()
        self._loop.remove_writer(self._master)

    async def run(self, link: Link) -> None:
        """Send what it prints until it ends or the link does; then it is gone."""
        assert self._process is not None
        status: int | None = None
        try:
            while True:
                while self._window <= 0:
                    self._granted.clear()
                    await self._granted.wait()
                data = await self._read()
                if not data:
                    break
                self._window -= len(data)
                await link.send(wire.encode({"type": "shell_data", "id": self.shell_id}, data))
            status = await asyncio.wait_for(self._children.wait(self._process), _HANG_UP_TO_KILL_S)
        except (LinkFailed, asyncio.TimeoutError):
            pass
        finally:
            self.close()
        if status is None:
            status = await self._children.wait(self._process)
        link.post({"type": "shell_closed", "id": self.shell_id, "exit_code": status if status >= 0 else 128 - status})

    async def _read(self) -> bytes:
        while self._master >= 0:
            try:
                return os.read(self._master, min(_CHUNK, self._window))
            except BlockingIOError:
                pass
            except OSError:  # EIO: the last program in it has ended
                return b""
            readable = self._loop.create_future()
            self._loop.add_reader(self._master, _wake, readable)
            try:
                await readable
            finally:
                if self._master >= 0:
                    self._loop.remove_reader(self._master)
        return b""

    def close(self) -> None:
        """Hang up, and end what does not listen to that."""
        self._close_terminal()
        self.grant(1)  # who waits for the window sees the end
        if self._process is not None and self._process.returncode is None:
            signal_group(self._process, signal.SIGHUP)
            self._loop.call_later(_HANG_UP_TO_KILL_S, self._kill)

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            signal_group(self._process, signal.SIGKILL)

    def _close_terminal(self) -> None:
        if self._master >= 0:
            self._loop.remove_reader(self._master)
            self._loop.remove_writer(self._master)
            os.close(self._master)
            self._master = -1


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)
