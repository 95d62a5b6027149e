"""Where a manifest is read from: a folder, or a commit that somebody else knows how to read."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Protocol

from kortix_tui.base.errors import Refused
from kortix_tui.manifest.fields import path_problem

_MOST_BYTES = 256 * 1024
_MOST_FILES = 20_000


class Source(Protocol):
    """The files of one state of a repository. Symbolic links are never followed out of it."""

    def read(self, path: str) -> bytes | None:
        """The bytes of a plain file, `None` when there is none. May be cut after the 256 KiB that are readable."""
        ...

    def list(self, path: str) -> list[str]:
        """Repository paths of all files below a folder, at any depth, sorted; empty when it is no folder."""
        ...


class FolderSource:
    """A folder on this machine, such as the operator's own checkout."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    def read(self, path: str) -> bytes | None:
        """The bytes of a plain file below the folder.

        Raises:
            Refused: The path leads out of the folder, or the file cannot be read.
        """
        place = self._inside(path)
        try:
            # Without O_NONBLOCK, opening a named pipe would wait for a writer that never comes.
            descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}.", hint="Check its permissions.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return None
            # One more byte than is readable, so that the reader sees that it is too large.
            return os.read(descriptor, _MOST_BYTES + 1)
        finally:
            os.close(descriptor)

    def list(self, path: str) -> list[str]:
        """All files below a folder. Linked folders are not entered.

        Raises:
            Refused: The path leads out of the folder, or holds too many files.
        """
        top = self._inside(path)
        found: list[str] = []
        for folder, _, names in os.walk(top):
            relative = os.path.relpath(folder, self._root)
            prefix = "" if relative == "." else relative + "/"
            found += [prefix + name for name in names]
            if len(found) > _MOST_FILES:
                raise Refused(f"The folder {path} holds more than {_MOST_FILES} files.", hint="Name a smaller folder.")
        return sorted(found)

    def _inside(self, path: str) -> Path:
        problem = path_problem(path)
        if problem:
            raise Refused(f"The path {path!r} {problem}.")
        try:
            place = (self._root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # too long, links in a circle, no file name at all
            raise Refused(f"The path {path!r} cannot be followed.", hint="Check its links and its length.") from error
        if not place.is_relative_to(self._root):
            raise Refused(f"{path} is a link that leads out of the project.", hint="Put the file itself there.")
        return place
