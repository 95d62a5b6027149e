"""The ticker: one paint a beat, none while the terminal has not taken the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.strip import Strip
from textual.widget import Widget

from kortix_tui.console.ticker import Live, Ticker


class Counter(Widget):
    def __init__(self) -> None:
        super().__init__()
        self.frames = 0

    def on_frame(self) -> None:
        self.frames += 1

    def render_line(self, y: int) -> Strip:
        return Strip.blank(self.size.width)


async def test_a_busy_terminal_is_left_alone(widget_app: Callable[..., Any]) -> None:
    counter = Counter()
    app = widget_app(counter)
    async with app.run_test():
        assert isinstance(counter, Live)
        ticker = Ticker(app, 10)
        ticker.beat()
        assert (counter.frames, ticker.frames, ticker.skipped) == (1, 1, 0)
        app._driver.output_pending = True
        ticker.beat()
        ticker.beat()
        assert (counter.frames, ticker.frames, ticker.skipped) == (1, 1, 2)
        app._driver.output_pending = False
        ticker.beat()
        assert counter.frames == 2


async def test_what_is_not_shown_is_not_painted(widget_app: Callable[..., Any]) -> None:
    counter = Counter()
    app = widget_app(counter)
    async with app.run_test() as pilot:
        counter.display = False
        await pilot.pause()
        Ticker(app, 10).beat()
        assert counter.frames == 0
