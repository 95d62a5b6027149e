"""Long untrusted texts on a page: wrapped to its width, and folded so that what is hidden is counted."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from rich.cells import cell_len

from kortix_tui.base.text import visible
from kortix_tui.console.widgets.bar import Part

MOST_LINES: Final = 40
MOST_CHARACTERS: Final = 4_000
MARGIN: Final = "   "
GOES_ON: Final = "↪"
"""Begins a row that belongs to the line above: not every row was a line."""
MIN_ROW: Final = 20
Lines = list[list[Part]]


@lru_cache(maxsize=64)
def block(text: str, width: int, *, unfolded: bool, role: str = "text") -> Lines:
    """A text as rows, at most so many while it is folded; then a row says what is hidden. Kept: do not change it.

    Args:
        text: Untrusted.
        width: Cells of the page.
        unfolded: Whether all of it is wanted.
        role: Style of the text.
    """
    lines = text.split("\n")
    room = max(MIN_ROW, width - len(MARGIN) - 2)
    shown: Lines = []
    characters = len(text) if unfolded else MOST_CHARACTERS
    for at, line in enumerate(lines):
        if not unfolded and (at == MOST_LINES or characters <= 0):
            return [*shown, _hidden(lines[at:])]
        taken = line[:characters] if line else line
        characters -= len(taken) + 1
        shown += [
            [Part(f"{MARGIN}{GOES_ON if number else ' '} ", "muted"), Part(row, role)]
            for number, row in enumerate(_rows(visible(taken).expandtabs(4), room))
        ]
        if len(taken) < len(line):
            return [*shown, _hidden([line[len(taken) :], *lines[at + 1 :]])]
    return shown


def _hidden(rest: list[str]) -> list[Part]:
    size = sum(len(line.encode("utf-8", "surrogatepass")) + 1 for line in rest) - 1
    count = f"{len(rest):,} more line{'s' * (len(rest) != 1)}, {size:,} byte{'s' * (size != 1)}"
    return [Part(f"{MARGIN}▸ {count} folded here   ", "state.waiting"), Part("z", "key"), Part(" shows all", "muted")]


def _rows(text: str, width: int) -> Iterator[str]:
    """A line cut into rows of so many cells; nothing is dropped, not even spaces."""
    if text.isascii():
        yield from (text[start : start + width] for start in range(0, len(text) or 1, width))
        return
    row, used = "", 0
    for character in text:
        size = cell_len(character)
        if used + size > width and row:
            yield row
            row, used = "", 0
        row += character
        used += size
    yield row
