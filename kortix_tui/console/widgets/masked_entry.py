"""A field for what must never be seen: values, passphrases, recovery keys.

What is typed or pasted is neither drawn nor kept as text: it goes into one buffer of bytes that is overwritten when the
field closes. There is no history, no selection, no suggestion and no way to copy. Python cannot overwrite the short
texts in which the terminal's driver hands keys over; the messages that carry them are emptied here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from textual import events
from textual.message import Message
from textual.selection import Selection

from kortix_tui.console.widgets.bar import Bar, Part
from kortix_tui.console.widgets.dialog import GUARD_SECONDS
from kortix_tui.runtime.secret_sources import Secret

DOTS: Final = "••••••••"
"""Always as many: how long something is tells about it."""
MAX_BYTES: Final = 1 << 16
LABEL_CELLS: Final = 12
_REPLACEMENT: Final = "\ufffd"


class MaskedEntry(Bar, can_focus=True):
    """Takes keys and pastes; gives a `Secret`.

    Keys that were typed before the field could be seen were meant for something else. They are not taken, and neither
    is what follows them until the person clears the field: a value without its beginning would look the same.
    """

    ALLOW_SELECT = False
    back_role = "bar"

    class Submitted(Message):
        """Enter was pressed."""

        def __init__(self, entry: MaskedEntry) -> None:
            super().__init__()
            self.entry = entry

        @property
        def control(self) -> MaskedEntry:
            """The field."""
            return self.entry

    def __init__(
        self,
        label: str,
        *,
        lines: bool = False,
        hint: str = "type or paste; it is never shown",
        clock: Callable[[], float] = time.monotonic,
        id: str | None = None,
    ) -> None:
        """Make an empty field.

        Args:
            label: What it is for.
            lines: Whether it may have several lines.
            hint: Shown while it is empty.
            clock: Seconds that only grow; for tests.
            id: The widget's id.
        """
        super().__init__(id=id)
        self._label = label
        self._lines = lines
        self._hint = hint
        self._clock = clock
        self._seen_at = clock() + GUARD_SECONDS
        self._buffer = bytearray()
        self._fault = ""

    # What is in it.

    @property
    def empty(self) -> bool:
        """Whether it has nothing."""
        return not self._buffer

    @property
    def fault(self) -> str:
        """Why what is in it cannot be used; empty when it can."""
        return self._fault

    def secret(self) -> Secret:
        """A copy of what is in it, without the last line's end."""
        return Secret(memoryview(self._buffer)[: len(self._buffer) - self._buffer.endswith(b"\n")])

    def clear(self) -> None:
        """Overwrite and forget what is in it."""
        self._buffer[:] = bytes(len(self._buffer))
        self._buffer.clear()
        self._fault = ""
        self.refresh()

    def wait(self) -> None:
        """It is shown only now: what was typed before is not for it."""
        self._seen_at = self._clock() + GUARD_SECONDS

    def on_unmount(self) -> None:
        """Nothing stays when the dialog closes."""
        self.clear()

    # Keys.

    def on_key(self, event: events.Key) -> None:
        """Take what is text; leave moving, sending and leaving to the dialog."""
        if event.key in {"backspace", "ctrl+u", "enter"}:
            event.stop()
            event.prevent_default()
            if self._too_early(event):
                return
            if event.key == "enter":
                self.post_message(self.Submitted(self))
            elif event.key == "ctrl+u" or self._fault:
                self.clear()
            else:
                self._shorten()
        elif event.is_printable:
            event.stop()
            event.prevent_default()
            if not self._too_early(event):
                self._take(event.character or "")
            event.key, event.character = "masked", None

    def on_paste(self, event: events.Paste) -> None:
        """Take a paste as it is; terminals send line ends in several ways."""
        event.stop()
        event.prevent_default()
        if not self._too_early(event):
            self._take(event.text.replace("\r\n", "\n").replace("\r", "\n"))
        event.text = ""

    def _too_early(self, event: events.Event) -> bool:
        # What counts is when it was typed, not when a busy console came to it.
        if min(self._clock(), event.time) >= self._seen_at:
            return False
        self._refuse("typed before this was shown: ctrl+u begins again")
        self.refresh()
        return True

    def _take(self, text: str) -> None:
        if self._fault:
            return
        if not self._lines and "\n" in text.removesuffix("\n"):
            self._refuse("this has one line only: ctrl+u begins again")
        elif _REPLACEMENT in text:
            self._refuse("this is not text (UTF-8): ctrl+u begins again")
        else:
            self._buffer += text.encode("utf-8", "surrogateescape")
            if len(self._buffer) > MAX_BYTES:
                self._refuse(f"more than {MAX_BYTES >> 10} KiB: ctrl+u begins again")
        self.refresh()

    def _refuse(self, fault: str) -> None:
        self.clear()
        self._fault = fault

    def _shorten(self) -> None:
        """Take the last character away: all bytes of it."""
        while self._buffer:
            if self._buffer.pop() & 0xC0 != 0x80:
                break
        self.refresh()

    # Painting.

    def get_selection(self, selection: Selection) -> None:
        """Nothing can be selected."""

    def on_focus(self) -> None:
        """Show where typing goes."""
        self.refresh()

    def on_blur(self) -> None:
        """Show that typing goes elsewhere."""
        self.refresh()

    def left(self) -> Sequence[Part]:
        """Label, and whether there is something."""
        parts = [Part(f"{self._label:<{LABEL_CELLS}}", "muted"), Part("› " if self.has_focus else "  ", "key")]
        if self._fault:
            return [*parts, Part(self._fault, "error")]
        if self.empty:
            return [*parts, Part(self._hint, "muted")]
        parts.append(Part(DOTS, "title"))
        count = self._buffer.count(b"\n") + 1 - self._buffer.endswith(b"\n")
        if count > 1:
            parts.append(Part(f"  {count} lines", "muted"))
        return parts
