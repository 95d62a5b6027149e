"""One choice of a few on one line: `‹ acme-api ›`, turned with the arrows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.bar import Bar, Part


class ChoiceField(Bar, can_focus=True):
    """Takes one line however many values there are."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "turn(-1)", "Previous", show=False),
        Binding("right,l,space", "turn(1)", "Next", show=False),
    ]

    class Changed(Message):
        """Another value was chosen."""

        def __init__(self, choice: ChoiceField, value: str) -> None:
            super().__init__()
            self.choice = choice
            self.value = value

        @property
        def control(self) -> ChoiceField:
            """The field."""
            return self.choice

    def __init__(
        self,
        label: str,
        values: Sequence[str],
        value: str | None = None,
        *,
        cells: int = 8,
        id: str | None = None,
    ) -> None:
        """Make the field.

        Args:
            label: What it is about.
            values: What can be chosen.
            value: What is chosen first.
            cells: Width of the label.
            id: The widget's id.
        """
        super().__init__(id=id)
        self._label = label
        self._cells = cells
        self._values = list(values)
        self._index = self._values.index(value) if value in self._values else 0

    @property
    def value(self) -> str | None:
        """The chosen value, or nothing when there is none to choose."""
        return self._values[self._index] if self._values else None

    def action_turn(self, step: int) -> None:
        """Choose a neighbour."""
        if self._values:
            self._index = (self._index + step) % len(self._values)
            self.refresh()
            self.post_message(self.Changed(self, self._values[self._index]))

    def on_focus(self) -> None:
        """Show the arrows strongly."""
        self.refresh()

    def on_blur(self) -> None:
        """Show the arrows quietly."""
        self.refresh()

    back_role = "bar"

    def left(self) -> Sequence[Part]:
        """Label, arrows, value."""
        arrow = "key" if self.has_focus else "muted"
        value = self.value
        parts = [Part(f"{self._label:<{self._cells}}", "muted"), Part("‹ ", arrow)]
        parts.append(Part(visible_line(value) if value is not None else "none", "title" if value else "muted"))
        parts.append(Part(" ›", arrow))
        if len(self._values) > 1:
            parts.append(Part(f"  {self._index + 1} of {len(self._values)}", "muted"))
        return parts
