"""Console tests: a terminal without a past, and small apps around one widget."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import pytest
from textual.app import App, ComposeResult
from textual.filter import LineFilter
from textual.widget import Widget

from kortix_tui.console.safety import OutputFilter
from kortix_tui.console.theme import load_themes
from kortix_tui.console.ticker import Ticker

CLEARED = ("NO_COLOR", "COLORTERM", "TERM", "TMUX", "TERM_PROGRAM", "LC_TERMINAL", "DISPLAY", "WAYLAND_DISPLAY")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person's own terminal says must not change what a test sees."""
    for name in list(os.environ):
        own = name.startswith(("TEXTUAL", "SSH_")) and not name.startswith("TEXTUAL_SNAPSHOT")
        if name in CLEARED or own:
            monkeypatch.delenv(name)


class WidgetApp(App[None]):
    """One or more widgets under the console's theme, output filter and ticker."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, widgets: Iterable[Widget], theme: str = "kortix-dark", css: str = "") -> None:
        self._widgets = list(widgets)
        self._output_filter = OutputFilter()
        super().__init__()
        for entry in load_themes()[0]:
            self.register_theme(entry.to_textual())
        self.theme = theme
        self.ticker = Ticker(self, 50)
        self.heard: list[object] = []

    def compose(self) -> ComposeResult:
        yield from self._widgets

    def beat(self) -> None:
        """One frame of the ticker, which does not run by itself here: a pilot waits for quiet."""
        self.ticker.beat()

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), self._output_filter]

    def screen_text(self) -> str:
        """What is on the screen, as text."""
        strips = self.screen._compositor.render_strips()
        return "\n".join(strip.text.rstrip() for strip in strips)


@pytest.fixture
def widget_app() -> Callable[..., WidgetApp]:
    return lambda *widgets, theme="kortix-dark": WidgetApp(widgets, theme)
