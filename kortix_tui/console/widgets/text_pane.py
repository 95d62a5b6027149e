"""A pager over prepared lines: help, details, error texts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.segment import Segment
from textual.strip import Strip

from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import bindings
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.cells import window
from kortix_tui.console.widgets.pager import Pager


class TextPane(Pager):
    """Lines of parts that can be scrolled."""

    BINDINGS = bindings(Where.PAGER)

    def __init__(
        self, lines: Sequence[Sequence[Part]] = (), *, id: str | None = None, classes: str | None = None
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[Sequence[Part]] = list(lines)
        self._top = 0
        self._left = 0

    def show(self, lines: Sequence[Sequence[Part]], *, keep_place: bool = False) -> None:
        """Show other lines, from the start unless the place is to be kept."""
        self._lines = list(lines)
        if not keep_place:
            self._top = self._left = 0
        self._top = max(0, min(self._top, len(self._lines) - self.page))
        self.moved()

    @property
    def position(self) -> str:
        """How far it is."""
        if len(self._lines) <= self.page:
            return ""
        return f"{min(len(self._lines), self._top + self.page)}/{len(self._lines)}"

    def go(self, lines: int) -> None:
        """Scroll."""
        self._top = max(0, min(self._top + lines, len(self._lines) - self.page))
        self.moved()

    def go_top(self) -> None:
        """To the first line."""
        self.go(-len(self._lines))

    def go_bottom(self) -> None:
        """To the last line."""
        self.go(len(self._lines))

    def slide(self, cells: int) -> None:
        """Scroll sideways."""
        self._left = max(0, self._left + cells)
        self.moved()

    def yank(self) -> str:
        """Everything, as text."""
        return "\n".join("".join(part.text for part in line) for line in self._lines)

    def compose_frame(self, width: int, height: int) -> Sequence[Strip]:
        """The visible lines."""
        palette = self.palette
        return [
            Strip(
                window(
                    [Segment(part.text, palette.get(part.role)) for part in line], self._left, width, palette["text"]
                )
            )
            for line in self._lines[self._top : self._top + height]
        ]
