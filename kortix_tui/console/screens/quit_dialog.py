"""Leaving a console that is the host: somebody must go on, or everything must stop."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from kortix_tui.console.leaving import Leave
from kortix_tui.console.widgets.dialog import Dialog, heading, plain


class QuitDialog(Dialog[Leave | None]):
    """Gives how to leave, or nothing to stay."""

    def __init__(self, unfinished: int, *, hosting: bool, clock: Callable[[], float] = time.monotonic) -> None:
        """Make the dialog.

        Args:
            unfinished: Sessions and requests that still need a host.
            hosting: Whether this console is the host.
            clock: Seconds that only grow; for tests.
        """
        super().__init__(clock=clock)
        self._needed = hosting and unfinished > 0
        self._unfinished = unfinished
        self._hosting = hosting

    def compose(self) -> ComposeResult:
        """What goes on, and the choices."""
        with Vertical(id="box"):
            yield heading("Leave the console?")
            yield plain("")
            yield plain(self._text())
            yield plain("")
            yield Static(self._choices(), id="choice", markup=False)

    def _text(self) -> str:
        if self._needed:
            count = self._unfinished
            what = "1 session or request still needs" if count == 1 else f"{count} sessions and requests still need"
            return f"{what} a host, and that is this console. Sandboxes run on in any case."
        if self._hosting:
            return "Nothing is unfinished."
        return "Another process is the host; everything goes on."

    def _choices(self) -> Content:
        key, muted, strong = self.style_of("key"), self.style_of("muted"), self.style_of("title")
        if not self._needed:
            return Content.assemble(("y", key), (" quit   ", strong), ("esc", key), (" stay", muted))
        return Content.assemble(
            ("b", key), (" go on in the background, and quit\n", strong),
            ("s", key), (" stop all sessions (their work is saved), and quit\n", strong),
            ("esc", key), (" stay", muted),
        )  # fmt: skip

    def on_key(self, event: events.Key) -> None:
        """Choose. Every key ends here."""
        if self.drop_early(event):
            return
        event.stop()
        match event.key:
            case "b" if self._needed:
                self.dismiss(Leave.BACKGROUND)
            case "s" if self._needed:
                self.dismiss(Leave.STOP_ALL)
            case "y" if not self._needed:
                self.dismiss(Leave.QUIT)
            case "escape" | "n" | "q" | "enter":
                self.dismiss(None)
