"""How long a session has only waited for a person: that time is not the agent's."""

from __future__ import annotations

from datetime import datetime

from kortix_tui.base.clock import from_text, to_text
from kortix_tui.base.words import Verdict
from kortix_tui.store.database import Store


def waited_s(store: Store, session_id: str, since: datetime) -> float:
    """Seconds since a moment in which a call of the session was held open for a person's decision.

    What several calls waited at the same time counts once. A call whose caller has left holds nobody up.
    """
    rows = store.all(
        "SELECT max(created_at, ?), min(coalesce(left_at, ?), coalesce(decided_at, ?), coalesce(ended_at, ?))"
        " FROM calls WHERE session_id = ? AND verdict = ? AND state != 'refused' ORDER BY 1",
        (to_text(since), *(to_text(store.clock.now()),) * 3, session_id, Verdict.ASK),
    )
    total, until = 0.0, since
    for begin, end in ((from_text(begin), from_text(end)) for begin, end in rows):
        begin = max(begin, until)
        if end > begin:
            total += (end - begin).total_seconds()
            until = end
    return total
