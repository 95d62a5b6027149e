"""Sessions for a list, read without models: `kortix sessions ls` may not cost more than importing pydantic does.

This is the short way only. Whatever is not plain — a home that does not exist yet or was written by another version,
a read that the record does not tell yet — answers `None`, and the caller goes the long way through `Runtime`, which
creates, checks and records.
"""

from __future__ import annotations

import os
import pwd
import sqlite3
import stat
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from kortix_tui.base.clock import to_text
from kortix_tui.base.paths import Home
from kortix_tui.store.schema import MIGRATIONS

READ_WINDOW: Final = timedelta(minutes=5)
"""As in `kortix_tui.runtime.context`, which cannot be imported here for its cost; a test holds them together."""


class SessionLine(NamedTuple):
    """What a list shows of a session; times are the store's texts."""

    id: str
    project: str
    status: str
    activity: str
    title: str
    agent: str
    queued: int
    files: int
    additions: int
    deletions: int
    change: int | None
    change_status: str | None
    rescued: int
    created_at: str
    removed_at: str | None


_QUERY: Final = (
    "SELECT s.id, p.slug, s.status, s.activity, s.title, s.agent,"
    " (SELECT count(*) FROM prompts q WHERE q.session_id = s.id AND q.state = 'queued'),"
    " s.files, s.additions, s.deletions, c.number, c.status,"
    " (SELECT count(*) FROM rescues r WHERE r.session_id = s.id), s.created_at, s.removed_at"
    " FROM sessions s JOIN projects p ON p.id = s.project_id"
    " LEFT JOIN change_requests c ON c.session_id = s.id AND c.number ="
    " (SELECT max(number) FROM change_requests x WHERE x.session_id = s.id)"
    " WHERE s.removed_at IS NULL ORDER BY s.created_at DESC, s.id"
)
_SEEN: Final = (
    "SELECT 1 FROM seen WHERE performed_by = ? AND event = 'session.list' AND scope = 'all projects' AND at > ?"
)


def session_lines(home: Home, *, now: datetime | None = None) -> list[SessionLine] | None:
    """All sessions that are not removed, newest first; `None` where only the long way is right."""
    try:
        status = home.path.stat()
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077 or not home.database.exists():
            return None
        performed_by = f"{pwd.getpwuid(os.geteuid()).pw_name} (cli)"
        since = to_text((now or datetime.now(UTC)) - READ_WINDOW)
        with closing(sqlite3.connect(home.database, timeout=10, isolation_level=None)) as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] != len(MIGRATIONS):
                return None
            if connection.execute(_SEEN, (performed_by, since)).fetchone() is None:
                return None
            return [SessionLine(*row) for row in connection.execute(_QUERY)]
    except (OSError, KeyError, sqlite3.Error):
        return None
