"""Child processes on the loop: waiting for their end, and short commands with their output."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import Callable, Mapping, Protocol, Sequence

from kortix_tui.guest.identity import Identity, signal_group

_OUTPUT_LIMIT = 32 << 20
_HELD_OPEN_S = 0.5


class Finished:
    """A command that ended.

    Args:
        status: Its exit status; negative is the signal that ended it; `None` when the deadline did.
        stdout: The beginning of what it wrote, up to 32 MiB.
        stderr: The same of its errors.
    """

    def __init__(self, status: int | None, stdout: bytes, stderr: bytes) -> None:
        self.status = status
        self.stdout = stdout
        self.stderr = stderr

    @property
    def text(self) -> str:
        """Standard output without the last line end; undecodable bytes survive a round trip."""
        return os.fsdecode(self.stdout).rstrip("\n")

    @property
    def complaint(self) -> str:
        """The end of what it wrote to standard error, for a message."""
        if self.status is None:
            return "it did not end in time"
        lines = self.stderr.decode("utf-8", "replace").strip()
        return lines[-2000:] or f"it ended with status {self.status}"


class Process(Protocol):
    """A child that can be asked whether it has ended."""

    pid: int

    def poll(self) -> int | None:
        """Its exit status once it has ended, negative for a signal."""
        ...


class Children:
    """The processes started here whose end somebody waits for."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Process, asyncio.Future[int]]] = {}
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._collect)

    def close(self) -> None:
        """Stop watching."""
        asyncio.get_running_loop().remove_signal_handler(signal.SIGCHLD)

    def _collect(self) -> None:
        for pid, (process, ended) in list(self._waiting.items()):
            status = process.poll()
            if status is not None:
                del self._waiting[pid]
                if not ended.done():
                    ended.set_result(status)

    async def wait(self, process: Process) -> int:
        """The exit status of a child, negative for a signal."""
        entry = self._waiting.get(process.pid)
        if entry is None:
            entry = process, asyncio.get_running_loop().create_future()
            self._waiting[process.pid] = entry
            self._collect()  # it may have ended before we began to look
        return await asyncio.shield(entry[1])

    async def run(
        self,
        identity: Identity,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        deadline: float,
    ) -> Finished:
        """Run a command to its end and take its output.

        Args:
            identity: Who runs it.
            command: Program and arguments.
            environment: All of its environment.
            folder: Where it starts.
            deadline: Seconds until it is killed.

        Raises:
            OSError: It could not be started.
        """
        process = identity.start(
            command, environment=environment, folder=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None and process.stderr is not None
        output, errors = Collected(), Collected()
        readers = [PipeReader(process.stdout.fileno(), output.add), PipeReader(process.stderr.fileno(), errors.add)]
        status: int | None = None
        try:
            status = await asyncio.wait_for(self.wait(process), deadline)
            await asyncio.wait([reader.ended for reader in readers], timeout=_HELD_OPEN_S)
        except asyncio.TimeoutError:
            pass
        finally:
            if status is None:
                signal_group(process, signal.SIGKILL)
            for reader in readers:
                reader.close()
            process.stdout.close()
            process.stderr.close()
        return Finished(status, bytes(output.data), bytes(errors.data))


class Collected:
    """Output of a command, up to a limit."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, piece: bytes) -> None:
        """Keep a piece as far as there is room."""
        self.data += piece[: max(0, _OUTPUT_LIMIT - len(self.data))]


class PipeReader:
    """Hands on what arrives in a pipe or terminal, at once.

    Args:
        descriptor: The read end; stays the caller's to close, after `close` of this, unless it is forsaken.
        take: Called with each piece.
    """

    def __init__(self, descriptor: int, take: Callable[[bytes], None]) -> None:
        self._descriptor = descriptor
        self._take = take
        self._forsaken = False
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        os.set_blocking(descriptor, False)
        self._loop.add_reader(descriptor, self._ready)

    def _ready(self) -> None:
        try:
            piece = os.read(self._descriptor, 65536)
        except BlockingIOError:
            return
        except OSError:  # a terminal whose last program is gone answers EIO
            piece = b""
        if piece:
            self._take(piece)
        else:
            self.close()

    def pause(self) -> None:
        """Leave what arrives in the pipe, which stops its writer in the end."""
        self._loop.remove_reader(self._descriptor)

    def resume(self) -> None:
        """Go on after `pause`."""
        if not self.ended.done():
            self._loop.add_reader(self._descriptor, self._ready)

    def forsake(self) -> None:
        """Throw away what still comes, and close the descriptor at the end.

        Programs that go on in the background may write to it: without a reader that would kill them.
        """
        self._take = _ignore
        self._forsaken = True
        if self.ended.done():
            os.close(self._descriptor)
        else:
            self.resume()

    def drain(self, limit: int = 1 << 20) -> None:
        """Take what is in the pipe now, about `limit` bytes at most."""
        while limit > 0 and not self.ended.done():
            with contextlib.suppress(OSError):
                piece = os.read(self._descriptor, 65536)
                if piece:
                    self._take(piece)
                    limit -= len(piece)
                    continue
            return

    def close(self) -> None:
        """Stop reading."""
        if not self.ended.done():
            self._loop.remove_reader(self._descriptor)
            self.ended.set_result(None)
            if self._forsaken:
                os.close(self._descriptor)


def _ignore(piece: bytes) -> None:
    pass
