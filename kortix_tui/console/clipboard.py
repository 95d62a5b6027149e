"""Copying text to where the operator can paste it, and saying honestly which way it went.

Order: a native tool when the console runs on the operator's own desktop; tmux's buffer inside tmux (raw OSC 52
is dropped there by default); OSC 52 through the terminal; a private file when the text is too long for that.
Secrets must not come here: tmux keeps what it is given.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.console.terminal import Terminal

OSC52_LIMIT = 74_994
"""Bytes of base64 that terminals are known to accept."""
TOOL_SECONDS = 2.0
_NATIVE = (
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
)


@dataclass(frozen=True)
class Copied:
    """Where the text went, in words for the message line."""

    way: str


class Clipboard:
    """Copies through the first way that works."""

    def __init__(
        self,
        write: Callable[[str], None],
        *,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Make a clipboard.

        Args:
            write: Sends an escape sequence to the terminal.
            environ: The process environment.
            folder: Where a text that is too long for the terminal is saved; default the temporary folder.
        """
        self._write = write
        self._environ = os.environ if environ is None else environ
        self._folder = folder

    async def copy(self, text: str) -> Copied:
        """Copy, and say how.

        Raises:
            OSError: Not even a file could be written.
        """
        terminal = Terminal.detect(self._environ)
        data = text.encode("utf-8", "replace")
        if not terminal.remote:
            for variable, command in _NATIVE:
                if self._environ.get(variable) and await self._run(command, data):
                    return Copied(f"copied with {command[0]}")
        if terminal.tmux and await self._run(("tmux", "load-buffer", "-w", "-"), data):
            return Copied("copied to the tmux buffer and the terminal")
        encoded = base64.b64encode(data).decode("ascii")
        if len(encoded) <= OSC52_LIMIT and not terminal.tmux:
            self._write(f"\x1b]52;c;{encoded}\x07")
            return Copied("sent to the terminal's clipboard (OSC 52)")
        path = await asyncio.to_thread(self._save, data)
        return Copied(f"saved to {path}")

    async def _run(self, command: tuple[str, ...], data: bytes) -> bool:
        program = shutil.which(command[0], path=self._environ.get("PATH"))
        if program is None:
            return False
        try:
            process = await asyncio.create_subprocess_exec(
                program,
                *command[1:],
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(self._environ),
            )
        except OSError:
            return False
        try:
            async with asyncio.timeout(TOOL_SECONDS):
                await process.communicate(data)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            return False
        return process.returncode == 0

    def _save(self, data: bytes) -> Path:
        descriptor, name = tempfile.mkstemp(prefix="kortix-copy-", suffix=".txt", dir=self._folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return Path(name)
