"""A changed document of a connector: what it changes, and whether it may take effect."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.dialog import Dialog, heading, plain
from kortix_tui.console.widgets.text_pane import TextPane

MOST_LINES = 10


class AcceptDialog(Dialog[bool]):
    """Gives `True` only for a deliberate yes; the list can be scrolled before. `waiting` calls would end by it."""

    DEFAULT_CSS = """
    AcceptDialog TextPane { background: $surface; }
    """

    def __init__(
        self,
        slug: str,
        actions: int,
        lines: Sequence[Sequence[Part]],
        *,
        waiting: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(clock=clock)
        self._slug = slug
        self._actions = actions
        self._waiting = waiting
        self._lines = lines

    def compose(self) -> ComposeResult:
        """Question, changes, choice."""
        with Vertical(id="box"):
            yield heading(f"{self._slug} has changed: let that take effect?")
            yield plain("")
            pane = TextPane(self._lines, id="changes")
            pane.styles.height = max(1, min(len(self._lines), MOST_LINES))
            yield pane
            yield plain("")
            yield plain(f"It has {self._actions} actions then. Until you say yes, all stays as it was.")
            ends = Content.assemble((f"With your yes, {self._ends()}.", self.style_of("warning")))
            yield Static(ends, id="ends", markup=False)
            yield plain("")
            yield Static(self._choice(), id="choice", markup=False)

    def _ends(self) -> str:
        memory = "approvals remembered for it no longer hold"
        if not self._waiting:
            return memory
        one = self._waiting == 1
        calls = "1 call of it that waits ends" if one else f"{self._waiting} calls of it that wait end"
        return f"{calls} unsent, and {memory}"

    def on_mount(self) -> None:
        """The list can be scrolled."""
        self.query_one(TextPane).focus()

    def _choice(self) -> Content:
        return Content.assemble(
            (" Leave it ", self.style_of("cursor") + self.style_of("title")),
            ("  enter, n or esc", self.style_of("muted")),
            "      ",
            ("y", self.style_of("key")),
            ("  accept", self.style_of("title")),
        )

    def on_key(self, event: events.Key) -> None:
        """Answer."""
        if event.key in {"ctrl+c", "ctrl+q"} or event.key not in {"y", "enter", "n", "q", "escape"}:
            return
        event.stop()
        event.prevent_default()
        if not self.drop_early(event):
            self.dismiss(event.key == "y")
