"""Where a log pane reads its lines, and the ring that keeps the newest of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

DEFAULT_LINES = 10_000


class LogLine(NamedTuple):
    """One line of a log.

    Attributes:
        text: Safe text; colour sequences are allowed, no other control.
        at: Local time as shown, or empty.
        source: Who wrote it, in a word: `agent`, `git`, `host`.
    """

    text: str
    at: str = ""
    source: str = ""


class LineStore(Protocol):
    """Lines by a number that only grows. Old ones may go; numbers are never used again."""

    @property
    def first(self) -> int:
        """Number of the oldest line that is still there."""
        ...

    @property
    def end(self) -> int:
        """One more than the number of the newest line."""
        ...

    @property
    def revision(self) -> int:
        """Grows with every change, also of a line that is still being written."""
        ...

    def read(self, start: int, stop: int) -> Sequence[LogLine]:
        """Lines from `start` up to, not including, `stop`; the caller stays within `first` and `end`."""
        ...


class LineRing:
    """A `LineStore` in memory. One thread appends while another reads."""

    def __init__(self, limit: int = DEFAULT_LINES) -> None:
        self._lines: deque[LogLine] = deque(maxlen=limit)
        self._end = 0
        self._revision = 0
        self._guard = threading.Lock()

    @property
    def first(self) -> int:
        """Number of the oldest line that is still there."""
        return self._end - len(self._lines)

    @property
    def end(self) -> int:
        """One more than the number of the newest line."""
        return self._end

    @property
    def revision(self) -> int:
        """Grows with every change."""
        return self._revision

    def extend(self, lines: Iterable[LogLine]) -> int:
        """Add lines; gives how many."""
        fresh = list(lines)
        with self._guard:
            self._lines.extend(fresh)
            self._end += len(fresh)
            self._revision += 1
        return len(fresh)

    def amend(self, line: LogLine) -> None:
        """Write the newest line anew, because it goes on."""
        with self._guard:
            if self._lines:
                self._lines[-1] = line
                self._revision += 1

    def read(self, start: int, stop: int) -> Sequence[LogLine]:
        """Lines from `start` up to `stop`; those that went in the meantime are missing at the front."""
        with self._guard:
            first = self._end - len(self._lines)
            return list(islice(self._lines, max(0, start - first), max(0, stop - first)))
