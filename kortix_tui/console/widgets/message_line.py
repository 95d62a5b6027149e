"""The line above the hints: what just happened, or the filter, search or command being typed.

It is always there, so nothing moves when it speaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Input

from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.bar import Bar, Part

SHOWN_SECONDS = 8.0
HISTORY = 100


class Purpose(StrEnum):
    """What is being typed."""

    FILTER = "filter"
    SEARCH = "search"
    COMMAND = "command"


_PROMPTS = {Purpose.FILTER: "/", Purpose.SEARCH: "/", Purpose.COMMAND: ":"}


class _Said(Bar):
    """The last message."""

    def __init__(self) -> None:
        super().__init__(id="said")
        self.part: Part | None = None
        self.sign = ""

    def left(self) -> Sequence[Part]:
        if self.part is None:
            return ()
        return (Part(f" {self.sign} ", self.part.role), Part(self.part.text, self.part.role))


class _LineInput(Input):
    """One line of input that leaves the arrows up and down, tab and esc to its owner."""

    def on_key(self, event: events.Key) -> None:
        owner = self.parent
        if isinstance(owner, MessageLine) and owner.take(event.key):
            event.stop()
            event.prevent_default()


class MessageLine(Horizontal):
    """Says things and asks for a line of text."""

    DEFAULT_CSS = """
    MessageLine { height: 1; width: 1fr; background: $background; }
    MessageLine > #prompt { width: 3; }
    MessageLine > Input { height: 1; border: none; padding: 0; background: $background; width: 1fr; }
    MessageLine > Input:focus { border: none; background: $background; }
    """

    class Changed(Message):
        """The text being typed changed; filters follow it."""

        def __init__(self, purpose: Purpose, text: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.text = text

    class Submitted(Message):
        """The person pressed enter."""

        def __init__(self, purpose: Purpose, text: str) -> None:
            super().__init__()
            self.purpose = purpose
            self.text = text

    class Cancelled(Message):
        """The person pressed esc."""

        def __init__(self, purpose: Purpose) -> None:
            super().__init__()
            self.purpose = purpose

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._said = _Said()
        self._prompt = _Prompt()
        self._input = _LineInput(id="typed")
        self._prompt.display = self._input.display = False
        self._purpose: Purpose | None = None
        self._before: Widget | None = None
        self._complete: Callable[[str], list[str]] | None = None
        self._history: dict[Purpose, list[str]] = {purpose: [] for purpose in Purpose}
        self._place = 0
        self._timer: Timer | None = None

    def compose(self) -> ComposeResult:
        """The message and, hidden, the input."""
        yield self._said
        yield self._prompt
        yield self._input

    @property
    def asking(self) -> Purpose | None:
        """What is being typed now."""
        return self._purpose

    @property
    def text(self) -> str:
        """What is said now."""
        return self._said.part.text if self._said.part else ""

    def say(self, text: str, role: str = "success", *, keep: bool = False) -> None:
        """Show a message.

        Args:
            text: One line; made visible here.
            role: `success`, `warning`, `error` or `muted`; the sign follows it.
            keep: Leave it until the next message instead of some seconds.
        """
        self._said.sign = {"success": "✔", "warning": "!", "error": "✘"}.get(role, "·")
        self._said.part = Part(visible_line(text), role) if text else None
        self._said.refresh()
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        if text and not keep:
            self._timer = self.set_timer(SHOWN_SECONDS, lambda: self.say(""))

    def ask(self, purpose: Purpose, value: str = "", *, complete: Callable[[str], list[str]] | None = None) -> None:
        """Start typing.

        Args:
            purpose: What for.
            value: Text to start with.
            complete: Gives what the text could become, for tab.
        """
        if self._purpose is None:
            self._before = self.screen.focused
        self._purpose = purpose
        self._complete = complete
        self._place = len(self._history[purpose])
        self._prompt.sign = _PROMPTS[purpose]
        self._said.display = False
        self._prompt.display = self._input.display = True
        self._input.value = value
        self._input.cursor_position = len(value)
        # At once, not later as `focus()` does: the next key is meant for the input already.
        self.screen.set_focus(self._input)

    def take(self, key: str) -> bool:
        """A key of the input that is the line's own; whether it was."""
        purpose = self._purpose
        if purpose is None:
            return False
        if key == "escape":
            self._close()
            self.post_message(self.Cancelled(purpose))
        elif key in {"up", "down"}:
            self._recall(purpose, -1 if key == "up" else 1)
        elif key == "tab":
            self._tab()
        else:
            return False
        return True

    def _recall(self, purpose: Purpose, step: int) -> None:
        history = self._history[purpose]
        self._place = max(0, min(len(history), self._place + step))
        self._input.value = history[self._place] if self._place < len(history) else ""
        self._input.cursor_position = len(self._input.value)

    def _tab(self) -> None:
        if self._complete is None:
            return
        found = self._complete(self._input.value)
        if len(found) == 1:
            self._input.value = found[0] + " "
        elif found:
            common = _common_start(found)
            if len(common) > len(self._input.value):
                self._input.value = common
        self._input.cursor_position = len(self._input.value)

    @on(Input.Changed)
    def _changed(self, event: Input.Changed) -> None:
        event.stop()
        if self._purpose is not None:
            self.post_message(self.Changed(self._purpose, event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        purpose = self._purpose
        if purpose is None:
            return
        history = self._history[purpose]
        if event.value and (not history or history[-1] != event.value):
            history.append(event.value)
            del history[:-HISTORY]
        self._close()
        self.post_message(self.Submitted(purpose, event.value))

    def _close(self) -> None:
        self._purpose = None
        self._complete = None
        self._prompt.display = self._input.display = False
        self._said.display = True
        before, self._before = self._before, None
        self.screen.set_focus(before if before is not None and before.is_attached else None)


class _Prompt(Bar):
    """The sign before the input."""

    def __init__(self) -> None:
        super().__init__(id="prompt")
        self.sign = ""

    def left(self) -> Sequence[Part]:
        return (Part(f" {self.sign}", "key"),)


def _common_start(words: list[str]) -> str:
    first, last = min(words), max(words)
    for place, character in enumerate(first):
        if place >= len(last) or character != last[place]:
            return first[:place]
    return first
