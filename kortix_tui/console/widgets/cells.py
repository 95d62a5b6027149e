"""Fitting text to terminal cells. Wide characters (CJK, emoji) take two; what is measured is what is drawn."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style

ELLIPSIS = "…"


def width_of(text: str) -> int:
    """Cells that the text takes."""
    return len(text) if text.isascii() else cell_len(text)


def cut(text: str, width: int) -> str:
    """At most `width` cells of the text, with an ellipsis where something is lost."""
    if width <= 0:
        return ""
    if width_of(text) <= width:
        return text
    if text.isascii():
        return text[: width - 1] + ELLIPSIS
    # A wide character that would be cut in half leaves a space, which then reads as part of the text.
    return set_cell_size(text, width - 1).rstrip(" ") + ELLIPSIS


def fit(text: str, width: int, *, right: bool = False) -> str:
    """Exactly `width` cells: cut or padded, to the right edge for numbers."""
    text = cut(text, width)
    padding = " " * (width - width_of(text))
    return padding + text if right else text + padding


def window(segments: list[Segment], left: int, width: int, filler: Style) -> list[Segment]:
    """The `width` cells from `left` on, padded with spaces in the `filler` style.

    A wide character on either edge becomes a space.
    """
    if left:
        segments = _drop(segments, left)
    kept: list[Segment] = []
    room = width
    for text, style, _ in segments:
        size = width_of(text)
        if size >= room:
            kept.append(Segment(text[:room] if text.isascii() else set_cell_size(text, room), style))
            return kept
        if text:
            kept.append(Segment(text, style))
        room -= size
    if room:
        kept.append(Segment(" " * room, filler))
    return kept


def _drop(segments: list[Segment], cells: int) -> list[Segment]:
    kept: list[Segment] = []
    for text, style, _ in segments:
        size = width_of(text)
        if cells >= size:
            cells -= size
            continue
        if cells:
            if text.isascii():
                text = text[cells:]
            else:
                head = 0
                index = 0
                while head < cells:
                    head += cell_len(text[index])
                    index += 1
                text = " " * (head - cells) + text[index:]
            cells = 0
        kept.append(Segment(text, style))
    return kept
