"""Time: UTC in the store, local on the screen. Tests inject their own clock."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where the program reads time."""

    def now(self) -> datetime:
        """Wall time in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that only grow; for deadlines."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Wall time in UTC, cut to milliseconds as the store keeps it."""
        moment = datetime.now(UTC)
        return moment.replace(microsecond=moment.microsecond // 1000 * 1000)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()


def to_text(moment: datetime) -> str:
    """ISO 8601 in UTC with milliseconds and a `Z`, which sorts as text."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def from_text(text: str) -> datetime:
    """Read what `to_text` wrote."""
    return datetime.fromisoformat(text)


def age(since: datetime, now: datetime) -> str:
    """How long ago, in one or two units: `8s`, `12m`, `3h`, `2d`."""
    seconds = max(0, int((now - since).total_seconds()))
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
