"""Searching a pager without freezing it: a slice of lines with every tick, within a time budget."""

from __future__ import annotations

import re
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence

from kortix_tui.console.widgets.filter import MATCH_LIMIT, compile_smart

SLICE_LINES = 1000
BUDGET_SECONDS = 0.01
"""Time one tick may spend; at least one slice is done in any case."""


class Search:
    """One search over numbered lines. Plain text is smart-case; `~` starts a regular expression."""

    def __init__(self, text: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.text = text
        self._clock = clock
        if text.startswith("~") and len(text) > 1:
            self.pattern, self.hint = compile_smart(text[1:])
        else:
            flags = re.NOFLAG if text != text.lower() else re.IGNORECASE
            self.pattern, self.hint = re.compile(re.escape(text), flags), ""
        self._hits: list[int] = []
        self._next = 0

    @property
    def count(self) -> int:
        """Matching lines found so far."""
        return len(self._hits)

    def complete(self, end: int) -> bool:
        """Whether all lines up to `end` have been looked at."""
        return self._next >= end

    def advance(self, first: int, end: int, read: Callable[[int, int], Sequence[str]]) -> bool:
        """Look at more lines; whether anything new was found.

        Args:
            first: The oldest line there is.
            end: One more than the newest.
            read: Gives the plain text of a range of lines.
        """
        found = False
        if self._hits and self._hits[0] < first:
            del self._hits[: bisect_left(self._hits, first)]
        deadline = self._clock() + BUDGET_SECONDS
        self._next = max(self._next, first)
        while self._next < end:
            stop = min(self._next + SLICE_LINES, end)
            lines = read(self._next, stop)
            if not lines:
                break
            for number, line in enumerate(lines, stop - len(lines)):
                if self.pattern.search(line[:MATCH_LIMIT]):
                    self._hits.append(number)
                    found = True
            self._next = stop
            if self._clock() >= deadline:
                break
        return found

    def after(self, line: int) -> int | None:
        """The next match after a line, from the start again at the end."""
        if not self._hits:
            return None
        return self._hits[bisect_right(self._hits, line) % len(self._hits)]

    def before(self, line: int) -> int | None:
        """The last match before a line, from the end again at the start."""
        if not self._hits:
            return None
        return self._hits[bisect_left(self._hits, line) - 1]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Where the pattern matches in one line."""
        return [match.span() for match in self.pattern.finditer(text[:MATCH_LIMIT]) if match.end() > match.start()]
