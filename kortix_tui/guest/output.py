"""A turn's output on its way into the journal: at once when quiet, in larger pieces when it floods."""

from __future__ import annotations

import asyncio
from typing import Callable

from kortix_tui.guest.children import PipeReader
from kortix_tui.guest.wire import PIECE

INTERVAL_S = 0.05
_PRESSURE_CHECK_S = 0.02


class Output:
    """Gathers pieces of several streams, in the order of their arrival.

    Args:
        emit: Called with the stream's name and at most 64 KiB.
        pressed: Whether the reader should wait, because who takes the output is behind.
    """

    def __init__(self, emit: Callable[[str, bytes], None], pressed: Callable[[], bool]) -> None:
        self._emit = emit
        self._pressed = pressed
        self._loop = asyncio.get_running_loop()
        self._readers: list[PipeReader] = []
        self._held: list[tuple[str, bytearray]] = []
        self._held_bytes = 0
        self._quiet_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._paused: asyncio.TimerHandle | None = None

    def follow(self, name: str, descriptor: int) -> None:
        """Take what arrives at a pipe's read end, which is ours from now on, as the stream `name`."""
        self._readers.append(PipeReader(descriptor, lambda piece: self._take(name, piece)))

    def _take(self, name: str, piece: bytes) -> None:
        if self._held and self._held[-1][0] == name:
            self._held[-1][1].extend(piece)
        else:
            self._held.append((name, bytearray(piece)))
        self._held_bytes += len(piece)
        now = self._loop.time()
        if self._held_bytes >= PIECE or now >= self._quiet_until:
            self._flush()
            if self._paused is None and self._pressed():
                for reader in self._readers:
                    reader.pause()
                self._paused = self._loop.call_later(_PRESSURE_CHECK_S, self._look_again)
        elif self._timer is None:
            self._timer = self._loop.call_at(self._quiet_until, self._flush)

    def _look_again(self) -> None:
        if self._pressed():
            self._paused = self._loop.call_later(_PRESSURE_CHECK_S, self._look_again)
            return
        self._paused = None
        for reader in self._readers:
            reader.resume()

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held, self._held_bytes = self._held, [], 0
        self._quiet_until = self._loop.time() + INTERVAL_S
        for name, data in held:
            for start in range(0, len(data), PIECE):
                self._emit(name, bytes(data[start : start + PIECE]))

    async def end(self, grace: float) -> None:
        """The program ended: take the rest, and wait `grace` seconds at most for pipes that others hold open."""
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
            for reader in self._readers:
                reader.resume()
        self._pressed = lambda: False  # what is left fits in the pipes
        waiting = [reader.ended for reader in self._readers if not reader.ended.done()]
        if waiting:
            await asyncio.wait(waiting, timeout=grace)
        self.close()

    def close(self) -> None:
        """Hand on what there is; what comes later is nobody's."""
        for reader in self._readers:
            reader.drain()
            reader.forsake()
        self._readers.clear()
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        self._flush()
