"""The base of all big data widgets: paints whole frames from a model and tells the screen only what differs.

There is no virtual size and no scrollbar. Changing the one repaints a second time for layout; drawing the
other costs about half of the bytes of a frame. Where one is, the rule above the pane says.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import bindings
from kortix_tui.console.palette import Palette, palette_of
from kortix_tui.console.widgets.cells import window

WHEEL_LINES = 3
SIDE_CELLS = 8


class Pager(Widget, can_focus=True):
    """A focusable pane of lines. Subclasses say what a frame looks like and what moving means."""

    BINDINGS = bindings(Where.MOVE)
    DEFAULT_CSS = """
    Pager {
        width: 1fr;
        height: 1fr;
        background: $background;
        color: $foreground;
    }
    """

    class Moved(Message):
        """What is shown has changed place; titles and hints may want to follow."""

        def __init__(self, pager: Pager) -> None:
            super().__init__()
            self.pager = pager

        @property
        def control(self) -> Pager:
            """The pane that moved."""
            return self.pager

    class Yanked(Message):
        """Text that the person wants to copy."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._frame: list[Strip] = []
        self._painted: Size | None = None
        self._palette: Palette | None = None
        self._dirty = True

    # What a subclass gives.

    @abstractmethod
    def compose_frame(self, width: int, height: int) -> Sequence[Strip]:
        """The lines to show now, at most `height`; each may be shorter than `width`."""

    @abstractmethod
    def go(self, lines: int) -> None:
        """Move by some lines."""

    @abstractmethod
    def go_top(self) -> None:
        """Move to the first line."""

    @abstractmethod
    def go_bottom(self) -> None:
        """Move to the last line."""

    def slide(self, cells: int) -> None:
        """Move sideways by some cells."""

    def yank(self) -> str:
        """What `y` copies; empty copies nothing."""
        return ""

    def search(self, text: str) -> str:
        """Search for a text, or end the search with an empty one; gives a hint or an empty text."""
        return "This pane has no search." if text else ""

    @property
    def position(self) -> str:
        """Where the pane is, in a few words for the rule above it."""
        return ""

    # Painting.

    @property
    def palette(self) -> Palette:
        """Styles of the active theme."""
        return palette_of(self.app)

    @property
    def page(self) -> int:
        """Lines on one page."""
        return max(1, self.size.height)

    def mark_dirty(self) -> None:
        """Repaint with the next tick: for changes of data."""
        self._dirty = True

    def on_frame(self) -> None:
        """Called by the ticker."""
        if self._dirty or self.palette is not self._palette:
            self.repaint()

    def repaint(self) -> None:
        """Compose the frame now and refresh the lines that differ: for answers to a key."""
        self._dirty = False
        width, height = self.size
        if not width or not height or not self.is_attached:
            return
        self._palette = self.palette
        old, fresh = self._frame, self._make_frame(width, height)
        self._frame = fresh
        if self._painted != self.size or len(old) != len(fresh):
            self._painted = self.size
            self.refresh()
            return
        changed = [Region(0, y, width, 1) for y in range(height) if fresh[y] != old[y]]
        if changed:
            self.refresh(*changed)

    def _make_frame(self, width: int, height: int) -> list[Strip]:
        # The widget's own colours lie under everything, so that a pane looks right on any surface.
        base = self.rich_style
        blank = self.palette["text"] + Style(bgcolor=base.bgcolor)
        lines = list(self.compose_frame(width, height))[:height]
        frame = [Strip(window(list(line), 0, width, blank), width).apply_style(base) for line in lines]
        frame.extend([Strip([Segment(" " * width, blank)], width)] * (height - len(frame)))
        return frame

    def render_line(self, y: int) -> Strip:
        """One line of the frame, for Textual's line API."""
        if self._painted != self.size or self.palette is not self._palette or y >= len(self._frame):
            self._palette = self.palette
            self._painted = self.size
            self._frame = self._make_frame(*self.size)
        strip = self._frame[y]
        selection = self.text_selection
        if selection is not None:
            strip = self._with_selection(strip, selection, y)
        return strip.apply_offsets(0, y)

    def _with_selection(self, strip: Strip, selection: Selection, y: int) -> Strip:
        span = selection.get_span(y)
        if span is None:
            return strip
        start, end = span
        end = strip.cell_length if end == -1 else end
        before, chosen, after = (
            strip.crop(0, start),
            strip.crop(start, end),
            strip.crop(end, strip.cell_length),
        )
        style = Style(reverse=True)
        return Strip.join([before, chosen.apply_style(style), after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text of the frame as it is shown."""
        text = "\n".join(strip.text.rstrip() for strip in self._frame)
        return selection.extract(text), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint the selection."""
        self.refresh()

    def notify_style_update(self) -> None:
        """Called by Textual when the theme changes."""
        super().notify_style_update()
        self._dirty = True

    def on_resize(self, event: events.Resize) -> None:
        """Fit the new size."""
        self.repaint()

    def moved(self) -> None:
        """Repaint after a move and say so."""
        self.repaint()
        self.post_message(self.Moved(self))

    # Keys and wheel.

    def action_move_down(self) -> None:
        """One line down."""
        self.go(1)

    def action_move_up(self) -> None:
        """One line up."""
        self.go(-1)

    def action_move_page_down(self) -> None:
        """One page down."""
        self.go(self.page - 1 or 1)

    def action_move_page_up(self) -> None:
        """One page up."""
        self.go(-(self.page - 1 or 1))

    def action_move_half_down(self) -> None:
        """Half a page down."""
        self.go(self.page // 2 or 1)

    def action_move_half_up(self) -> None:
        """Half a page up."""
        self.go(-(self.page // 2 or 1))

    def action_move_top(self) -> None:
        """To the first line."""
        self.go_top()

    def action_move_bottom(self) -> None:
        """To the last line."""
        self.go_bottom()

    def action_pager_page(self) -> None:
        """One page down."""
        self.action_move_page_down()

    def action_pager_left(self) -> None:
        """Scroll left."""
        self.slide(-SIDE_CELLS)

    def action_pager_right(self) -> None:
        """Scroll right."""
        self.slide(SIDE_CELLS)

    def action_move_yank(self) -> None:
        """Copy."""
        text = self.yank()
        if text:
            self.post_message(self.Yanked(text))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Wheel down."""
        event.stop()
        self.go(WHEEL_LINES)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Wheel up."""
        event.stop()
        self.go(-WHEEL_LINES)
