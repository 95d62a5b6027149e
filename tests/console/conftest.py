"""Console tests: a terminal without a past, and small apps around one widget."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest
from console_source import FixedClock, MemorySource, a_day
from textual import _wait
from textual.app import App, ComposeResult
from textual.filter import LineFilter
from textual.pilot import Pilot
from textual.widget import Widget

from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.safety import OutputFilter
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.theme import ThemeShelf
from kortix_tui.console.ticker import Ticker

CLEARED = ("NO_COLOR", "COLORTERM", "TERM", "TMUX", "TERM_PROGRAM", "LC_TERMINAL", "DISPLAY", "WAYLAND_DISPLAY")


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person's own terminal says must not change what a test sees."""
    for name in list(os.environ):
        own = name.startswith(("TEXTUAL", "SSH_")) and not name.startswith("TEXTUAL_SNAPSHOT")
        if name in CLEARED or own:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def quick_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot waits twice for each key until the processor was idle for a while; half of its 20 ms tell that as well.

    What comes from the bridge's threads is waited for with `until`, never with this.
    """
    monkeypatch.setattr(_wait, "SLEEP_GRANULARITY", 0.01)


class WidgetApp(App[None]):
    """One or more widgets under the console's theme, output filter and ticker."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, widgets: Iterable[Widget], theme: str = "kortix-dark", css: str = "") -> None:
        self._widgets = list(widgets)
        self._output_filter = OutputFilter()
        super().__init__()
        self.register_theme(ThemeShelf().open(theme).to_textual())
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
        return text_of(self)


def text_of(app: App[Any]) -> str:
    """What is on the uppermost screen, as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join(strip.text.rstrip() for strip in strips)


@pytest.fixture
def shown() -> Callable[[App[Any]], str]:
    return text_of


async def wait_until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    """Wait for a condition, never for a time; the bridge's threads answer when they answer."""
    for _ in range(1000):
        if condition():
            await pilot.pause()
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


@pytest.fixture
def console(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., KortixApp]]:
    """Makes consoles on a runtime in memory, with a clock that stands still."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    bridges: list[Bridge] = []

    def make(source: MemorySource | None = None, **options: Any) -> KortixApp:
        bridges.append(Bridge(source or a_day()))
        values: dict[str, Any] = {"terminal": Terminal.detect({}), "clock": FixedClock(), "ticking": False}
        return KortixApp(bridges[-1], **(values | options))

    yield make
    for bridge in bridges:
        bridge.stop()


@pytest.fixture
def until() -> Callable[..., Awaitable[None]]:
    return wait_until


@pytest.fixture
def widget_app() -> Callable[..., WidgetApp]:
    return lambda *widgets, theme="kortix-dark": WidgetApp(widgets, theme)
