"""One clock for all repainting. Data never paints on arrival: it marks, and the next tick paints once.

Ten panes that each repaint as lines arrive fill a slow link with frames that nobody sees, and keys wait
behind them. One ticker, which skips a beat while the terminal has not taken the last frame, adapts to any link.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from textual.app import App
from textual.widget import Widget


@runtime_checkable
class Live(Protocol):
    """A widget whose content changes by itself."""

    def on_frame(self) -> None:
        """Paint what changed since the last call; cheap when nothing did."""
        ...


class Ticker:
    """Asks the visible live widgets to paint, some times a second."""

    def __init__(self, app: App[Any], frames_per_second: float) -> None:
        """Make a stopped ticker.

        Args:
            app: Whose screens are painted.
            frames_per_second: Upper bound of repaints.
        """
        self._app = app
        self._interval = 1.0 / frames_per_second
        self.frames = 0
        self.skipped = 0

    def start(self) -> None:
        """Start beating; ends with the app."""
        self._app.set_interval(self._interval, self.beat, name="ticker")

    def beat(self) -> None:
        """One beat."""
        if self._output_pending():
            self.skipped += 1
            return
        self.frames += 1
        for screen in self._app.screen_stack:
            for widget in screen.query(Widget):
                if isinstance(widget, Live) and widget.display:
                    widget.on_frame()

    def _output_pending(self) -> bool:
        return bool(getattr(self._app._driver, "output_pending", False))
