"""One-line widgets that are painted from parts: text and the role of its style, left and right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from kortix_tui.console.palette import palette_of
from kortix_tui.console.widgets.cells import cut, width_of


class Part(NamedTuple):
    """A piece of a line: safe text and the role of its style."""

    text: str
    role: str = "text"


class Bar(Widget):
    """A line with a left and a right side. The right side stays whole; the left is cut."""

    DEFAULT_CSS = """
    Bar { height: 1; width: 1fr; background: $background; }
    """
    filler = " "
    filler_role = "text"
    back_role: str | None = None

    def left(self) -> Sequence[Part]:
        """The left side."""
        return ()

    def right(self) -> Sequence[Part]:
        """The right side."""
        return ()

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._shown: tuple[object, ...] = ()

    def on_frame(self) -> None:
        """Repaint when what it says has changed."""
        state = (tuple(self.left()), tuple(self.right()), palette_of(self.app))
        if state != self._shown:
            self._shown = state
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """The one line."""
        palette = palette_of(self.app)
        back = palette[self.back_role] if self.back_role else Style.null()
        width = self.size.width
        right = list(self.right())
        room = max(0, width - sum(width_of(part.text) for part in right))
        segments: list[Segment] = []
        for part in self.left():
            text = cut(part.text, room)
            room -= width_of(text)
            segments.append(Segment(text, palette.get(part.role) + back))
        segments.append(Segment(self.filler * room, palette.get(self.filler_role) + back))
        segments.extend(Segment(part.text, palette.get(part.role) + back) for part in right)
        return Strip(segments).adjust_cell_length(width).apply_style(self.rich_style)
