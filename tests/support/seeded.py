"""Rows in a home without any engine: what lists and pages are tested on."""

from __future__ import annotations

from dataclasses import dataclass, field

from kortix_tui.base.clock import to_text
from kortix_tui.base.ids import new_session_id
from kortix_tui.base.paths import Home
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Store
from kortix_tui.store.lock import HostLock


@dataclass
class Seeded:
    """A home whose host is this test: commands that only ask leave their requests in the store."""

    home: Home
    store: Store = field(init=False)
    lock: HostLock | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self.store = Store(self.home)

    def close(self) -> None:
        self.leave()
        self.store.close()

    def lead(self) -> None:
        """Hold the host lock, so that no command starts a background host."""
        self.lock = HostLock.acquire(self.store, "serve")
        assert self.lock is not None

    def leave(self) -> None:
        if self.lock is not None:
            self.lock.release()
            self.lock = None

    def project(self, slug: str = "acme", source: str = "/nowhere/acme") -> str:
        with self.store.write() as tx:
            tx.execute(
                "INSERT INTO projects (id, slug, source, kind, base_branch, base_commit, owner, created_at)"
                " VALUES (?, ?, ?, 'checkout', 'main', ?, 'op', ?)",
                (f"prj_{slug}", slug, source, "b" * 40, tx.now_text),
            )
            tx.audit("project.create", scope=f"project {slug}", actor=SYSTEM)
        return f"prj_{slug}"

    def session(self, project: str = "prj_acme", *, prompt: str = "Do it", **values: object) -> str:
        identity = new_session_id()
        with self.store.write() as tx:
            row: dict[str, object] = {
                "id": identity, "project_id": project, "title": "Do it", "agent": "builder", "status": "running",
                "activity": "idle", "wanted": "running", "base_branch": "main", "idle_minutes": 15, "owner": "op",
                "origin": "cli", "agent_token": "t", "created_at": tx.now_text, "updated_at": tx.now_text,
                "active_at": tx.now_text,
            } | values  # fmt: skip
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO sessions ({names}) VALUES ({marks})", tuple(row.values()))
            tx.audit("session.create", scope=f"session {identity}", actor=SYSTEM, session_id=identity)
        self.prompt(identity, prompt)
        return identity

    def prompt(self, session: str, text: str, state: str = "queued") -> str:
        with self.store.write() as tx:
            n = tx.execute("SELECT coalesce(max(n), 0) + 1 FROM prompts WHERE session_id = ?", (session,)).fetchone()[0]
            identity = f"prm_{session}{n}"
            tx.execute(
                "INSERT INTO prompts (id, session_id, n, text, state, created_by, created_at)"
                " VALUES (?, ?, ?, ?, ?, 'operator', ?)",
                (identity, session, n, text, state, tx.now_text),
            )
            tx.audit("session.prompt.send", scope=f"session {session}", actor=SYSTEM, session_id=session)
        return identity

    def change(self, session: str, number: int = 1, *, project: str = "prj_acme", **values: object) -> str:
        identity = f"chg_{session}{number}"
        with self.store.write() as tx:
            row: dict[str, object] = {
                "id": identity, "project_id": project, "number": number, "session_id": session, "title": "A change",
                "description": "", "status": "open", "base_branch": "main", "base_commit": "b" * 40,
                "head_commit": "a" * 40, "files": 1, "additions": 1, "deletions": 1, "opened_by": "agent builder",
                "created_at": tx.now_text,
                "updated_at": tx.now_text,
            } | values  # fmt: skip
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO change_requests ({names}) VALUES ({marks})", tuple(row.values()))
            tx.audit("change_request.open", scope=f"change {number}", actor=SYSTEM, session_id=session)
        return identity

    def rescue(self, session: str, n: int = 1) -> None:
        with self.store.write() as tx:
            tx.execute(
                "INSERT INTO rescues VALUES (?, ?, ?, ?, 'stop', 2, ?)",
                (session, n, "c" * 40, f"refs/kortix/rescue/{session}/{n}", to_text(tx.now)),
            )
            tx.audit("session.work.rescue", scope=f"session {session}", actor=SYSTEM, session_id=session)

    def set(self, table: str, identity: str, **values: object) -> None:
        """Change a row as a host would."""
        with self.store.write() as tx:
            assignments = ", ".join(f"{name} = ?" for name in values)
            tx.execute(f"UPDATE {table} SET {assignments} WHERE id = ?", (*values.values(), identity))
            tx.audit("test.change", scope=f"{table} {identity}", actor=SYSTEM)

    def one(self, query: str, *values: object) -> tuple[object, ...]:
        row = self.store.one(query, values)
        assert row is not None
        return tuple(row)
