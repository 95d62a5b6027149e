"""What a session waited for a person is counted once, and only while somebody was held up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from seeded import Seeded

from kortix_tui.base.clock import to_text
from kortix_tui.base.paths import Home
from kortix_tui.runtime.call_waits import waited_s
from kortix_tui.store.audit import SYSTEM

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def at(minutes: float | None) -> str | None:
    return None if minutes is None else to_text(START + timedelta(minutes=minutes))


@pytest.mark.parametrize(
    ("calls", "minutes"),
    [
        ([], 0),
        ([(1, None, 4, None)], 3),
        ([(1, 2, 9, None)], 1),
        ([(1, None, None, 3)], 2),
        ([(-5, None, 4, None)], 4),
        ([(-9, None, -5, None)], 0),
        ([(1, None, 5, None), (2, None, 4, None), (4, None, 7, None)], 6),
        ([(1, None, 2, None), (5, None, 6, None)], 2),
    ],
)  # fmt: skip
def test_waiting(home: Home, calls: list[tuple[float | None, ...]], minutes: float) -> None:
    seeded = Seeded(home)
    seeded.project()
    session_id = seeded.session()
    with seeded.store.write() as tx:
        for number, (created, left, decided, ended) in enumerate(calls):
            tx.execute(
                "INSERT INTO calls (id, project_id, session_id, key, connector, action, risk, state, verdict, rule,"
                " reason, arguments, created_by, created_at, left_at, decided_at, ended_at)"
                " VALUES (?, 'prj_acme', ?, ?, 'desk', 'send', 'write', 'done', 'require_approval', '{}', '', '{}',"
                " 'agent', ?, ?, ?, ?)",
                (f"cal_{number}", session_id, str(number), at(created), at(left), at(decided), at(ended)),
            )
        tx.audit("test", scope="calls", actor=SYSTEM)
    assert waited_s(seeded.store, session_id, START) == minutes * 60
    seeded.close()
