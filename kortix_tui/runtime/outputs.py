"""Answers of calls on disk: what an agent gets at once is cut, the whole answer stays in a file below its session."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Final

from kortix_tui.base.paths import Home

MOST_BYTES: Final = 256 << 20
"""What the answers of one session may take; the oldest go first."""
CUT: Final = 1 << 20
"""Bytes of an answer that an agent gets at once."""
_NAME: Final = re.compile(r"cal_[a-z2-7]{16}\.out\Z")


class Outputs:
    """The answers of one home. Blocking; call it in a thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._sizes: dict[str | None, int] = {}

    def folder(self, session_id: str | None) -> Path:
        """Where they are: of a session, or of the operator's own calls."""
        return (self._home.path if session_id is None else self._home.session(session_id)) / "calls"

    def write(self, session_id: str | None, name: str, data: bytes) -> None:
        """Keep an answer in a file of that name.

        Raises:
            OSError: The disk does not take it.
        """
        folder = self.folder(session_id)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room(session_id, folder, len(data))
        descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)

    def read(self, session_id: str | None, name: str) -> bytes | None:
        """A whole answer; `None` when it had to go."""
        if not _NAME.match(name):
            return None
        try:
            return (self.folder(session_id) / name).read_bytes()
        except OSError:
            return None

    def _make_room(self, session_id: str | None, folder: Path, more: int) -> None:
        if session_id not in self._sizes:
            self._sizes[session_id] = sum(size for _, size, _ in _files(folder))
        self._sizes[session_id] += more
        if self._sizes[session_id] <= MOST_BYTES:
            return
        for _, size, path in sorted(_files(folder)):
            with contextlib.suppress(OSError):
                path.unlink()
                self._sizes[session_id] -= size
            if self._sizes[session_id] <= MOST_BYTES:
                return


def _files(folder: Path) -> list[tuple[int, int, Path]]:
    """Age, size and path of each answer."""
    found = list[tuple[int, int, Path]]()
    for path in folder.iterdir():
        if _NAME.match(path.name):
            status = path.lstat()
            found.append((status.st_mtime_ns, status.st_size, path))
    return found
