"""A pager under a rule with its title: one line of frame a pane, no boxes."""

from __future__ import annotations

from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical

from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.bar import Bar, Part
from kortix_tui.console.widgets.cells import cut
from kortix_tui.console.widgets.pager import Pager


class Rule(Bar):
    """`─ Title ──────────── position ─`, strong while its pager has the focus."""

    filler = "─"

    def __init__(self, pager: Pager, title: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._pager = pager
        self._title = visible_line(title)

    @property
    def title(self) -> str:
        """What is shown below."""
        return self._title

    @title.setter
    def title(self, text: str) -> None:
        self._title = visible_line(text)
        self.refresh()

    @property
    def filler_role(self) -> str:  # type: ignore[override]
        """The line takes the colour of the focus."""
        return "rule.focused" if self._pager.has_focus else "rule"

    def left(self) -> Sequence[Part]:
        """The title."""
        role = "title.focused" if self._pager.has_focus else "title"
        return (Part("─ ", self.filler_role), Part(self._title, role), Part(" ", role))

    def right(self) -> Sequence[Part]:
        """Where the pager is."""
        position = self._pager.position
        if not position:
            return (Part("─", self.filler_role),)
        # The title gives way first: it is known from the list, the position is not.
        return (Part(f" {cut(position, max(8, self.size.width * 2 // 3))} ", "muted"), Part("─", self.filler_role))


class Pane(Vertical):
    """A rule and a pager."""

    DEFAULT_CSS = """
    Pane { height: 1fr; width: 1fr; }
    """

    def __init__(self, title: str, pager: Pager, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.pager = pager
        self.rule = Rule(pager, title)

    def compose(self) -> ComposeResult:
        """Rule over pager."""
        yield self.rule
        yield self.pager

    @on(Pager.Moved)
    def _follow(self) -> None:
        self.rule.refresh()

    def on_descendant_focus(self) -> None:
        """Strengthen the rule."""
        self.rule.refresh()

    def on_descendant_blur(self) -> None:
        """Quieten the rule."""
        self.rule.refresh()
