"""The one database of a home: many readers, short audited writes.

WAL with `synchronous=FULL` (0.37 ms a commit where it was measured), every write `BEGIN IMMEDIATE`: a deferred
begin that upgrades fails at once under contention, whatever the busy time-out.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from kortix_tui.base.clock import Clock, SystemClock, to_text
from kortix_tui.base.errors import Conflict, KortixError, StoreFailed
from kortix_tui.base.ids import new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Outcome
from kortix_tui.store import audit
from kortix_tui.store.audit import Actor
from kortix_tui.store.schema import HOUSEKEEPING, MIGRATIONS

BUSY_TIMEOUT_S: Final = 10.0
_TARGET = re.compile(r"\s*(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM|REPLACE INTO)\s+(\w+)", re.IGNORECASE)


class Fenced(Conflict):
    """Another process became the host; this one must stop acting."""

    code = "fenced"


class Unaudited(StoreFailed):
    """A programming fault: state changed without an audit event."""

    code = "unaudited"


class Transaction:
    """One write. Commits when the block ends, rolls back when it raises."""

    def __init__(self, store: Store, connection: sqlite3.Connection) -> None:
        self._store = store
        self._connection = connection
        self._governed: set[str] = set()
        self.last_event: tuple[int, str] | None = None
        self.now = store.clock.now()
        self.now_text = to_text(self.now)

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement with bound values."""
        target = _TARGET.match(statement)
        if target and target[1] == "audit":
            raise Unaudited("Audit rows are written by Transaction.audit only.")
        cursor = self._connection.execute(statement, values)
        # A move that found its row in another state has changed nothing.
        if target and target[1] not in HOUSEKEEPING and cursor.rowcount != 0:
            self._governed.add(target[1])
        return cursor

    def audit(
        self,
        event: str,
        *,
        scope: str,
        actor: Actor,
        outcome: Outcome = Outcome.SUCCESS,
        project_id: str | None = None,
        session_id: str | None = None,
        **detail: Any,
    ) -> tuple[int, str]:
        """Append the event that describes this change; returns its sequence number and hash."""
        self.last_event = audit.append(
            self._connection,
            self._store.key,
            at=self.now,
            event=event,
            scope=scope,
            actor=actor,
            outcome=outcome,
            project_id=project_id,
            session_id=session_id,
            detail=detail,
        )
        return self.last_event

    def check(self) -> None:
        """Refuse to commit a change of state that the record does not tell."""
        if self._governed and self.last_event is None:
            raise Unaudited(f"State changed without an audit event: {', '.join(sorted(self._governed))}.")


class Store:
    """Opens the database of a home. Safe to share between threads: each thread has its own connection."""

    def __init__(self, home: Home, clock: Clock | None = None) -> None:
        self.home = home
        self.clock = clock or SystemClock()
        home.prepare()
        self.key = audit.load_key(home)
        self._local = threading.local()
        self._open: list[sqlite3.Connection] = []
        self._guard = threading.Lock()
        self._head: tuple[int, str] | None = None
        self._migrate()
        self.install_id = self._meta("install_id")

    # Connections

    @property
    def connection(self) -> sqlite3.Connection:
        """This thread's connection."""
        connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            try:
                connection = sqlite3.connect(
                    self.home.database, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
                )
                connection.execute(f"PRAGMA busy_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
            except sqlite3.Error as error:
                raise _failed(self.home, error) from error
            if mode != "wal":
                connection.close()
                raise StoreFailed(
                    f"{self.home.database} is on a file system without shared memory (journal mode {mode}).",
                    hint="Set KORTIX_HOME to a folder on a local disk.",
                )
            self._local.connection = connection
            with self._guard:
                self._open.append(connection)
        return connection

    def close(self) -> None:
        """Close every thread's connection."""
        self.note_head()
        with self._guard:
            for connection in self._open:
                connection.close()
            self._open.clear()
        self._local = threading.local()

    def data_version(self) -> int:
        """A number that changes when another connection committed; cheap enough to poll every 50 ms."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    # Reading

    def all(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a read."""
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise _failed(self.home, error) from error

    def one(self, query: str, values: Sequence[Any] = ()) -> Any | None:
        """The first row of a read, or `None`."""
        try:
            return self.connection.execute(query, values).fetchone()
        except sqlite3.Error as error:
            raise _failed(self.home, error) from error

    @contextmanager
    def snapshot(self) -> Iterator[sqlite3.Connection]:
        """Several reads of one moment."""
        connection = self.connection
        connection.execute("BEGIN")
        try:
            yield connection
        finally:
            connection.execute("ROLLBACK")

    # Writing

    @contextmanager
    def write(self, *, epoch: int | None = None, anchor: bool = True) -> Iterator[Transaction]:
        """One audited transaction.

        Args:
            epoch: The caller acts as host of this epoch; refused when another host has taken over since.
            anchor: Whether the chain's head is noted outside the database at once; otherwise `note_head` does it, or
                the next write that does.

        Raises:
            Fenced: `epoch` is not the newest.
            StoreFailed: The disk is full, the database is locked for too long or damaged.
        """
        connection = self.connection
        transaction: Transaction
        try:
            connection.execute("BEGIN IMMEDIATE")
            try:
                if epoch is not None and self._epoch(connection) != epoch:
                    raise Fenced(f"Another process took over as host (this one had epoch {epoch}).")
                transaction = Transaction(self, connection)
                yield transaction
                transaction.check()
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _failed(self.home, error) from error
        if transaction.last_event is not None:
            self._head = None if anchor else transaction.last_event
            if anchor:
                audit.write_head(self.home, *transaction.last_event)

    def note_head(self) -> None:
        """Note the chain's head outside the database, where writes have left that for later."""
        head, self._head = self._head, None
        if head is not None:
            audit.write_head(self.home, *head)

    @staticmethod
    def _epoch(connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
        return int(row[0])

    # Schema

    def _meta(self, key: str) -> str:
        row = self.one("SELECT value FROM meta WHERE key = ?", (key,))
        if row is None:
            raise StoreFailed(f"{self.home.database} is incomplete: {key} is missing.", hint="Restore a backup.")
        return str(row[0])

    def _migrate(self) -> None:
        connection = self.connection
        try:
            version = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if version == len(MIGRATIONS):
                return
            if version > len(MIGRATIONS):
                raise StoreFailed(
                    f"{self.home.database} was written by a newer version (schema {version}, not {len(MIGRATIONS)}).",
                    hint="Use the newer kortix, or another KORTIX_HOME.",
                )
            connection.execute("BEGIN IMMEDIATE")
            try:
                version = int(connection.execute("PRAGMA user_version").fetchone()[0])
                for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
                    for statement in _statements(script):
                        connection.execute(statement)
                    if number == 1:
                        connection.executemany(
                            "INSERT INTO meta VALUES (?, ?)", [("install_id", new_id("ins")), ("epoch", "0")]
                        )
                    connection.execute(f"PRAGMA user_version = {number}")
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _failed(self.home, error) from error


def _statements(script: str) -> Iterator[str]:
    """Split a migration; `executescript` would commit behind our back."""
    pending = ""
    for line in script.splitlines():
        pending += line + "\n"
        if pending.strip() and sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _failed(home: Home, error: sqlite3.Error) -> KortixError:
    name = getattr(error, "sqlite_errorname", "") or ""
    if name.startswith("SQLITE_FULL"):
        return StoreFailed("The disk is full: nothing was recorded, so nothing was done.", hint="Free some space.")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return StoreFailed(f"Another process keeps {home.database} busy.", hint="Try again in a moment.")
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return StoreFailed(f"{home.database} is damaged ({error}).", hint="Restore it from a backup.")
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_IOERR")):
        return StoreFailed(
            f"{home.database} cannot be used ({error}).", hint="Check the folder's permissions and disk."
        )
    return StoreFailed(f"The store failed: {error}.")
