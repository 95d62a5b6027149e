"""What was called before, from the record: for rules with limits on rate and amount."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from kortix_tui.base.clock import from_text, to_text
from kortix_tui.base.words import CallState
from kortix_tui.broker.policy import Counted, PastCall, PastCalls
from kortix_tui.store.database import Store

COUNTING: Final = (
    CallState.PENDING,
    CallState.APPROVED,
    CallState.EXECUTING,
    CallState.DONE,
    CallState.FAILED,
    CallState.UNKNOWN,
)
"""States of calls that ran or may still run: only those use a limit up."""

_LONGEST: Final = timedelta(days=1)
_LONGEST_WAIT: Final = timedelta(days=31)
"""Longer than an approval can wait before its call begins."""


class RecordedUsage:
    """`Usage` over a project's recorded calls, of all its sessions, as they are now. Reads them when a rule asks.

    Whoever counts on it writes the decided call before another one of the project is decided.
    """

    def __init__(self, store: Store, project_id: str) -> None:
        self._store = store
        self._project_id = project_id
        self._now = store.clock.now()

    @property
    def now(self) -> datetime:
        """The moment at which this was made."""
        return self._now

    def calls(self, counted: Counted, since: datetime, /) -> int | None:
        """How many there were since."""
        return self._past.calls(counted, since)

    def total(self, counted: Counted, arg: str, since: datetime, /) -> Decimal | None:
        """The sum of their amounts; `None` when one has none."""
        return self._past.total(counted, arg, since)

    @cached_property
    def _past(self) -> PastCalls:
        marks = ", ".join("?" * len(COUNTING))
        since = self._now - _LONGEST
        rows = self._store.all(
            "SELECT coalesce(started_at, created_at), connector, action, arguments FROM calls"
            f" WHERE project_id = ? AND created_at > ? AND coalesce(started_at, created_at) > ? AND state IN ({marks})",
            (self._project_id, to_text(since - _LONGEST_WAIT), to_text(since), *COUNTING),
        )
        past = [
            PastCall(from_text(at), connector, action, stored_arguments(text)) for at, connector, action, text in rows
        ]
        return PastCalls(self._now, past)


def stored_arguments(text: str) -> dict[str, Any] | None:
    """A call's arguments as the store has them; `None` when they are no JSON object."""
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
