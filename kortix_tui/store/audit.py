"""The audit chain (invariant I8): every row carries a keyed hash over itself and its predecessor.

`hash = HMAC-SHA256(key, seq ‖ prev ‖ canonical row)`. Whoever lacks the key cannot edit, cut or reorder rows unseen;
the head file, and the head written into each merge commit, bound what even a holder of the key can rewrite.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import secrets
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.clock import from_text, to_text
from kortix_tui.base.errors import StoreFailed
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Outcome

GENESIS: Final = "0" * 64


class Actor(BaseModel):
    """Who acts, and by which way in.

    A human is the operating-system user; `tty` and `parent` are what the process says of where it was started.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    name: str
    via: str
    tty: str | None = None
    parent: str | None = None

    @property
    def label(self) -> str:
        """The column «Performed by»: `anna (cli)`, `agent refactorer`, `host`."""
        match self.kind:
            case "human":
                return f"{self.name} ({self.via})"
            case "agent":
                return f"agent {self.name}"
            case _:
                return self.name


SYSTEM: Final = Actor(kind="system", name="host", via="runtime")


class AuditEvent(BaseModel):
    """One row of the record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    at: datetime
    event: str
    scope: str
    performed_by: str
    actor: Actor
    outcome: Outcome
    project_id: str | None
    session_id: str | None
    detail: dict[str, Any]
    prev: str
    hash: str


class Anchor(BaseModel):
    """What a row's hash was when it was noted somewhere else."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    hash: str
    where: str


class ChainReport(BaseModel):
    """What `verify` found. `broken_at` is the first row that does not fit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    ok: bool
    broken_at: int | None = None
    fault: str | None = None
    head: str | None = None
    anchors: int = 0
    notes: tuple[str, ...] = ()


def load_key(home: Home) -> bytes:
    """The home's audit key; made on first use, never replaced.

    Raises:
        StoreFailed: The file is damaged, or rows exist whose key is gone.
    """
    path = home.audit_key
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        if home.database.exists() and _has_rows(home):
            raise StoreFailed(
                f"{path} is missing although the audit log has rows.",
                hint="Restore the file from a backup; without it the record cannot be extended or verified.",
            ) from None
        draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, secrets.token_bytes(32))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        try:
            # A link, not a rename: of two processes that start at once, the first one's key stays.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        key = path.read_bytes()
    if len(key) != 32:
        raise StoreFailed(f"{path} is damaged: {len(key)} bytes instead of 32.", hint="Restore it from a backup.")
    return key


def _has_rows(home: Home) -> bool:
    connection = sqlite3.connect(f"{home.database.absolute().as_uri()}?mode=ro", uri=True)
    try:
        return connection.execute("SELECT 1 FROM audit LIMIT 1").fetchone() is not None
    except sqlite3.DatabaseError:
        return False  # empty, or damaged: whoever opens it to write says so
    finally:
        connection.close()


def _digest(key: bytes, seq: int, prev: str, row: tuple[str | None, ...]) -> str:
    body = json.dumps([seq, prev, *row], ensure_ascii=True, separators=(",", ":")).encode()
    return hmac.new(key, body, hashlib.sha256).hexdigest()


def append(
    connection: sqlite3.Connection,
    key: bytes,
    *,
    at: datetime,
    event: str,
    scope: str,
    actor: Actor,
    outcome: Outcome,
    project_id: str | None,
    session_id: str | None,
    detail: dict[str, Any],
) -> tuple[int, str]:
    """Add one event inside the caller's write transaction; returns its sequence number and hash."""
    newest = connection.execute("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1").fetchone()
    seq, prev = (newest[0] + 1, newest[1]) if newest else (1, GENESIS)
    row = (
        to_text(at),
        event,
        scope,
        actor.label,
        actor.model_dump_json(),
        outcome.value,
        project_id,
        session_id,
        json.dumps(detail, ensure_ascii=True, sort_keys=True, separators=(",", ":")),
    )
    digest = _digest(key, seq, prev, row)
    connection.execute("INSERT INTO audit VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (seq, *row, prev, digest))
    return seq, digest


def write_head(home: Home, seq: int, digest: str) -> None:
    """Note the newest committed link outside the database. May lag after a crash or on a full disk, never leads."""
    draft = home.audit_head.with_name(f"audit.head.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(descriptor, f"{seq}:{digest}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        draft.replace(home.audit_head)
    except OSError:
        # The row is committed: calling it failed would have its writer do it twice.
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def read_head(home: Home) -> Anchor | None:
    """What `write_head` noted last.

    Raises:
        StoreFailed: The file is not one of ours.
    """
    try:
        seq, _, digest = home.audit_head.read_text().strip().partition(":")
        return Anchor(seq=int(seq), hash=digest, where=home.audit_head.name)
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise StoreFailed(f"{home.audit_head} is damaged.", hint="Compare with a backup, then remove it.") from error


def verify(connection: sqlite3.Connection, key: bytes, anchors: Iterable[Anchor] = ()) -> ChainReport:
    """Recompute the chain and compare it with what was noted of it elsewhere.

    Whoever has the key can rebuild the whole chain; the lowest anchor that disagrees says from where on.
    """
    kept = defaultdict[int, list[Anchor]](list)
    for anchor in anchors:
        kept[anchor.seq].append(anchor)
    count = sum(map(len, kept.values()))
    expected, prev, head = 1, GENESIS, None
    for row in connection.execute("SELECT * FROM audit ORDER BY seq"):
        seq, digest = row[0], str(row[11])
        fault: str | None = None
        if seq != expected:
            fault = f"row {expected} is missing"
        elif row[10] != prev:
            fault = f"row {seq} does not continue row {seq - 1}"
        elif not hmac.compare_digest(_digest(key, seq, prev, tuple(row[1:10])), digest):
            fault = f"row {seq} was changed"
        elif other := next((anchor for anchor in kept[seq] if anchor.hash != digest), None):
            fault = f"row {seq} differs from what {other.where} says of it: it or a row before was rewritten"
        if fault:
            return ChainReport(rows=expected - 1, ok=False, broken_at=expected, fault=fault, head=head, anchors=count)
        expected, prev, head = seq + 1, digest, f"{seq}:{digest}"
    if lost := min((seq for seq in kept if seq >= expected), default=None):
        where = kept[lost][0].where
        fault = f"the log ends at row {expected - 1}, but {where} knows row {lost}: its tail was cut"
        return ChainReport(rows=expected - 1, ok=False, broken_at=expected, fault=fault, head=head, anchors=count)
    return ChainReport(rows=expected - 1, ok=True, head=head, anchors=count)


def read(
    connection: sqlite3.Connection,
    *,
    session_id: str | None = None,
    event: str | None = None,
    limit: int = 100,
) -> Iterator[AuditEvent]:
    """Newest first; `event` is a prefix such as `session.`."""
    clauses, values = ["1"], list[Any]()
    if session_id is not None:
        clauses.append("session_id = ?")
        values.append(session_id)
    if event is not None:
        clauses.append("substr(event, 1, ?) = ?")
        values += [len(event), event]
    query = f"SELECT * FROM audit WHERE {' AND '.join(clauses)} ORDER BY seq DESC LIMIT ?"
    for row in connection.execute(query, (*values, limit)):
        yield AuditEvent(
            seq=row[0],
            at=from_text(row[1]),
            event=row[2],
            scope=row[3],
            performed_by=row[4],
            actor=Actor.model_validate_json(row[5]),
            outcome=Outcome(row[6]),
            project_id=row[7],
            session_id=row[8],
            detail=json.loads(row[9]),
            prev=row[10],
            hash=row[11],
        )
