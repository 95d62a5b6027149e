"""Asking before an act that lasts. The stronger the act, the harder it is to do by accident.

Tier 2 (merge, close for good, kill): Cancel has the focus, enter cancels, `y` must be pressed.
Tier 3 (delete): the name must be typed; pasting is refused.
Tier 1 acts are done at once with a message; they need no dialog.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from enum import IntEnum

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.dialog import Dialog, heading, plain


class Tier(IntEnum):
    """How hard an act is to take back."""

    LASTING = 2
    DESTRUCTIVE = 3


class _TypedName(Input):
    """Takes keys, one by one: no paste, and none before the dialog was seen."""

    def on_key(self, event: events.Key) -> None:
        if isinstance(self.screen, ConfirmDialog) and self.screen.drop_early(event):
            return
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            self.screen.dismiss(False)

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if isinstance(self.screen, ConfirmDialog):
            self.screen.complain("Type it: pasting is off here.")


class ConfirmDialog(Dialog[bool]):
    """A yes or no about one exact thing. Gives `True` only for a deliberate yes."""

    def __init__(
        self,
        title: str,
        *,
        act: str,
        facts: Sequence[tuple[str, str]],
        effect: str,
        tier: Tier = Tier.LASTING,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a dialog.

        Args:
            title: The question.
            act: The verb of the yes, as in `merge`.
            facts: What it is about: labels and untrusted values.
            effect: What will happen, in a sentence.
            tier: How hard it is to take back.
            name: What must be typed at tier 3.
            clock: Seconds that only grow; for tests.
        """
        super().__init__(clock=clock)
        self._title = title
        self._act = act
        self._facts = tuple(facts)
        self._effect = effect
        self._tier = tier
        self._expected = name

    def compose(self) -> ComposeResult:
        """Question, facts, effect, choice."""
        with Vertical(id="box"):
            yield heading(self._title)
            yield plain("")
            yield Static(self.facts(self._facts), id="facts", markup=False)
            yield plain("")
            yield plain(self._effect, id="effect")
            yield plain("")
            if self._tier is Tier.DESTRUCTIVE:
                yield plain(f"Type {visible_line(self._expected)} to {self._act}; esc cancels.", id="ask")
                yield _TypedName(id="name")
            else:
                yield Static(self._choice(), id="choice", markup=False)
            yield Static(Content(""), id="complaint", markup=False)

    def on_mount(self) -> None:
        """Put the focus where nothing happens by accident."""
        if self._tier is Tier.DESTRUCTIVE:
            self.query_one(_TypedName).focus()

    def _choice(self) -> Content:
        return Content.assemble(
            (" Cancel ", self.style_of("cursor") + self.style_of("title")),
            ("  enter, n or esc", self.style_of("muted")),
            "      ",
            ("y", self.style_of("key")),
            (f"  {self._act}", self.style_of("title")),
        )

    def change(self, facts: Sequence[tuple[str, str]], effect: str) -> None:
        """Show other facts; keys wait again, because what they would answer is new."""
        self._facts, self._effect = tuple(facts), effect
        self.query_one("#facts", Static).update(self.facts(self._facts))
        self.query_one("#effect", Static).update(Content(visible_line(effect)))
        self.disarm()

    def on_key(self, event: events.Key) -> None:
        """Answer. Every key ends here."""
        if event.key in {"ctrl+c", "ctrl+q"} or self.drop_early(event):
            return
        if self._tier is Tier.LASTING:
            event.stop()
            if event.key == "y":
                self.dismiss(True)
            elif event.key in {"enter", "n", "q", "escape"}:
                self.dismiss(False)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value == self._expected:
            self.dismiss(True)
        else:
            self.complain(f"That is not {self._expected}. Nothing was done.")
