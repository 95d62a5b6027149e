"""What all dialogs share: a framed box in the middle, safe text, and keys that wait until it was seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from textual import events
from textual.content import Content
from textual.screen import ModalScreen
from textual.style import Style as ContentStyle
from textual.widgets import Static

from kortix_tui.base.text import visible, visible_line
from kortix_tui.console.palette import palette_of

GUARD_SECONDS = 0.6
"""Keys that come sooner after new content were typed for something else, or on a slow link."""

T = TypeVar("T")


class Dialog(ModalScreen[T]):
    """A modal dialog whose keys, esc apart, are ignored for a moment after its content changed."""

    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog > #box {
        width: 76; max-width: 96%; height: auto; max-height: 96%;
        background: $surface; border: round $primary; padding: 0 1;
    }
    Dialog .title { text-style: bold; color: $primary; height: auto; }
    Dialog .note { height: auto; }
    Dialog Static { height: auto; width: 1fr; background: $surface; }
    Dialog Input { background: $panel; border: none; height: 1; padding: 0 1; }
    Dialog Input:focus { border: none; }
    Dialog TextArea { height: 8; border: none; background: $panel; padding: 0 1; }
    Dialog TextArea:focus { border: none; }
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._armed_at = clock() + GUARD_SECONDS

    def disarm(self) -> None:
        """The content changed: keys must wait again."""
        self._armed_at = self._clock() + GUARD_SECONDS

    def drop_early(self, event: events.Key) -> bool:
        """Swallow a key that came too soon; whether it was.

        What counts is when it was typed: a key that waited while the console was busy is no answer to what it
        could not have shown yet. Esc never waits: it decides nothing, and a dialog that stayed would take the keys
        that were meant for what is below it.
        """
        if event.key == "escape" or min(self._clock(), event.time) >= self._armed_at:
            return False
        event.stop()
        event.prevent_default()
        return True

    def leave(self) -> bool:
        """Close because the person leaves the console; whether it may be closed now."""
        self.dismiss(None)
        return True

    def facts(self, pairs: Sequence[tuple[str, str]]) -> Content:
        """Labels and values as aligned lines; values are untrusted and made visible."""
        width = max((len(label) for label, _ in pairs), default=0)
        muted = self.style_of("muted")
        lines = []
        for label, value in pairs:
            body = visible(value).replace("\n", "\n" + " " * (width + 2))
            lines.append(Content.assemble((f"{label:<{width}}  ", muted), Content(body)))
        return Content("\n").join(lines)

    def send_hint(self, act: str) -> Content:
        """How to send or leave a form, in one line."""
        key, muted = self.style_of("key"), self.style_of("muted")
        return Content.assemble(
            ("ctrl+s", key), (f" {act}   ", muted),
            ("tab", key), (" next field   ", muted),
            ("esc", key), (" cancels", muted),
        )  # fmt: skip

    def complain(self, text: str) -> None:
        """Say why nothing happened, in the line that every dialog keeps for it."""
        self.query_one("#complaint", Static).update(Content.styled(visible_line(text), self.style_of("error")))

    def style_of(self, role: str) -> ContentStyle:
        """A role's style for `Content`."""
        return ContentStyle.from_rich_style(palette_of(self.app)[role])


def plain(text: str, *, classes: str = "note", id: str | None = None) -> Static:
    """A text that is never read as markup."""
    return Static(Content(visible(text)), classes=classes, id=id, markup=False)


def heading(text: str) -> Static:
    """A dialog's title."""
    return Static(Content(visible_line(text)), classes="title", markup=False)
