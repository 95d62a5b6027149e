"""A page over everything else, to read and close."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical

from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.dialog import Dialog, heading
from kortix_tui.console.widgets.text_pane import TextPane

MOST_LINES = 30


class ReportDialog(Dialog[None]):
    """Reading harms nothing, so its keys work at once."""

    DEFAULT_CSS = """
    ReportDialog > #box { width: 84; }
    ReportDialog TextPane { background: $surface; }
    """

    def __init__(self, title: str, lines: Sequence[Sequence[Part]]) -> None:
        super().__init__()
        self._title = title
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Title and lines."""
        with Vertical(id="box"):
            yield heading(f"{self._title}   ·   q closes")
            pane = TextPane([[], *self._lines], id="report")
            pane.styles.height = min(len(self._lines) + 1, MOST_LINES)
            yield pane

    def on_mount(self) -> None:
        """Scroll with the usual keys."""
        self.query_one(TextPane).focus()

    def on_key(self, event: events.Key) -> None:
        """Close."""
        if event.key in {"escape", "q", "enter"}:
            event.stop()
            event.prevent_default()
            self.dismiss(None)
