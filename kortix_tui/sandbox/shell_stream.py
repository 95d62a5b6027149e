"""The host's end of one shell in a sandbox.

The sandbox may be ahead of the reader by a window only, so that a shell that prints without end, or a person on a
slow line, delays neither records nor answers on the same channel.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from kortix_tui.guest.wire import SHELL_WINDOW, pieces

Send = Callable[[dict[str, Any], bytes], Awaitable[None]]
_GRANT = SHELL_WINDOW // 4


class ShellStream:
    """Bytes of a terminal, both ways. What comes out is hostile until it went through the shell filter.

    Args:
        shell_id: Its name on the channel.
        send: The channel's way to send a frame.
    """

    def __init__(self, shell_id: str, send: Send) -> None:
        self.shell_id = shell_id
        self.exit_code: int | None = None
        """Known after the end; `None` when the channel ended before the shell."""
        self._send = send
        self._pieces: deque[bytes] = deque()
        self._outstanding = 0
        self._consumed = 0
        self._ended = False
        self._news = asyncio.Event()

    @property
    def ended(self) -> bool:
        """Whether nothing more comes."""
        return self._ended

    def feed(self, data: bytes) -> bool:
        """Take output from the channel; false when it is more than the window."""
        self._outstanding += len(data)
        if self._outstanding > SHELL_WINDOW:
            return False
        self._pieces.append(data)
        self._news.set()
        return True

    def end(self, exit_code: int | None) -> None:
        """Nothing more comes."""
        self.exit_code = exit_code
        self._ended = True
        self._news.set()

    async def read(self) -> bytes:
        """The next output; empty at the end."""
        while not self._pieces:
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        data = self._pieces.popleft()
        self._consumed += len(data)
        if self._consumed >= _GRANT and not self._ended:
            granted, self._consumed = self._consumed, 0
            self._outstanding -= granted
            await self._send({"type": "shell_ack", "id": self.shell_id, "bytes": granted}, b"")
        return data

    async def write(self, data: bytes) -> None:
        """Type into it."""
        for piece in pieces(data):
            await self._send({"type": "shell_data", "id": self.shell_id}, piece)

    async def resize(self, rows: int, columns: int) -> None:
        """The person's window changed."""
        await self._send({"type": "shell_resize", "id": self.shell_id, "rows": rows, "cols": columns}, b"")

    async def close(self) -> None:
        """Hang up."""
        if not self._ended:
            await self._send({"type": "shell_close", "id": self.shell_id}, b"")
