"""How long ago something was, by a clock that nobody can set."""

from __future__ import annotations

from datetime import datetime

from kortix_tui.base.clock import Clock


class Elapsed:
    """Seconds since a moment that the store names.

    What passed before this process saw the moment is read from the wall clock, once; from then on only time counts in
    which the machine ran. So neither a corrected clock nor a laptop that slept ends live work.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._moment: datetime | None = None
        self._before = 0.0
        self._seen = 0.0

    def since(self, moment: datetime) -> float:
        """Seconds since the moment; never negative."""
        if moment != self._moment:
            self._moment = moment
            self._before = max(0.0, (self._clock.now() - moment).total_seconds())
            self._seen = self._clock.monotonic()
        return self._before + self._clock.monotonic() - self._seen
