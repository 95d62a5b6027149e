"""A disk that can be filled: nothing else shows what a program does when there is no room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Cramped:
    """A small file system at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, left: int = 0) -> None:
        """Take all space but `left` bytes."""
        with self._filler.open("ab", buffering=0) as file:
            try:
                while True:
                    file.write(b"\0" * 65536)
            except OSError:
                size = self._filler.stat().st_size
                file.truncate(max(0, size - left))

    def empty(self) -> None:
        """Give it back."""
        self._filler.unlink()


@contextmanager
def cramped(folder: Path, size: str) -> Iterator[Cramped]:
    """Mount a file system of a size at the folder, which is made."""
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "none", str(folder)], check=True)
    try:
        yield Cramped(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
