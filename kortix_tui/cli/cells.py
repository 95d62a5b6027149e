"""How many cells text takes on a terminal, and tables that line up whatever is in them."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

GAP = "  "
LEAST_FLEXIBLE = 12
"""Narrowest that a flexible column gets before other columns are dropped."""


class Column(NamedTuple):
    """One column of a table."""

    title: str
    right: bool = False
    flexible: bool = False
    """Gets the width that is left, and is cut when that is too little."""
    drop: int = 0
    """Where the terminal is narrow, the highest goes first; 0 stays."""
    style: Callable[[str], str] | None = None
    """SGR parameters for a cell's text, such as `32`; empty for none."""


def cell_width(text: str) -> int:
    """Cells that one line of safe text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_width, text))


def _width(character: str) -> int:
    if character < "\u0300":
        return 1
    if unicodedata.category(character) in ("Mn", "Me") or "\u1160" <= character <= "\u11ff":
        return 0  # drawn over the character before; vowels and final consonants of Hangul join theirs
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells: cut with an ellipsis, or padded."""
    if len(text) <= width and text.isascii():
        return text.rjust(width) if right else text.ljust(width)
    taken = cell_width(text)
    if taken > width:
        text = _cut(text, width)
        taken = cell_width(text)
    space = " " * (width - taken)
    return space + text if right else text + space


def _cut(text: str, width: int) -> str:
    if width < 1:
        return ""
    taken = 0
    for at, character in enumerate(text):
        taken += _width(character)
        if taken > width - 1:
            return text[:at] + "…"
    return text


def layout(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], *, width: int | None = None, colour: bool = False
) -> list[str]:
    """The lines of a table with its header.

    Args:
        columns: What is shown.
        rows: Safe text, one cell a column.
        width: Cells that a line may have; `None` cuts and drops nothing, for pipes.
        colour: Whether styles are applied.
    """
    natural = [
        max([cell_width(column.title), *(cell_width(row[at]) for row in rows)]) for at, column in enumerate(columns)
    ]
    shown = list(range(len(columns)))
    if width is not None:
        # What is empty in every row says nothing, and its room is wanted.
        shown = [at for at in shown if not columns[at].drop or any(row[at] for row in rows)]
        while _least(columns, natural, shown) > width:
            droppable = [at for at in shown if columns[at].drop]
            if not droppable:
                break
            shown.remove(max(droppable, key=lambda at: columns[at].drop))
        _squeeze(columns, natural, shown, width)
    header = GAP.join(fit(columns[at].title, natural[at], right=columns[at].right) for at in shown).rstrip()
    lines = [f"\x1b[1m{header}\x1b[0m" if colour else header]
    if not rows:
        return lines
    last = shown[-1]
    drawn = [_draw(columns[at], [row[at] for row in rows], natural[at], colour=colour, last=at == last) for at in shown]
    lines.extend(map(GAP.join, zip(*drawn, strict=True)))
    return lines


def _draw(column: Column, cells: Sequence[str], width: int, *, colour: bool, last: bool) -> list[str]:
    """One column's cells, each as wide as the column; the last one needs no padding at its end."""
    drawn = [fit(cell, width, right=column.right) for cell in cells]
    if last and not column.right:
        drawn = [cell.rstrip() for cell in drawn]
    style = column.style
    if not colour or style is None:
        return drawn
    codes = map(style, cells)
    return [f"\x1b[{code}m{cell}\x1b[0m" if code else cell for code, cell in zip(codes, drawn, strict=True)]


def _least(columns: Sequence[Column], natural: Sequence[int], shown: Sequence[int]) -> int:
    widths = (min(natural[at], LEAST_FLEXIBLE) if columns[at].flexible else natural[at] for at in shown)
    return sum(widths) + len(GAP) * (len(shown) - 1)


def _squeeze(columns: Sequence[Column], natural: list[int], shown: Sequence[int], width: int) -> None:
    """Take what is too much from the flexible columns, the widest first."""
    excess = sum(natural[at] for at in shown) + len(GAP) * (len(shown) - 1) - width
    flexible = [at for at in shown if columns[at].flexible]
    while excess > 0 and flexible:
        widest = max(flexible, key=lambda at: natural[at])
        if natural[widest] <= 1:
            return
        natural[widest] -= 1
        excess -= 1
