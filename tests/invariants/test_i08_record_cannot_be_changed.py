"""I8: the audit log is append-only and hash-chained; any edit, cut or reorder is found."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from kortix_tui.base.errors import StoreFailed
from kortix_tui.base.paths import Home
from kortix_tui.store import audit
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Store, Unaudited


@pytest.fixture
def store(home: Home):
    store = Store(home)
    yield store
    store.close()


def write_events(store: Store, count: int) -> None:
    for number in range(count):
        with store.write() as tx:
            tx.audit("test.thing.change", scope=f"thing {number}", actor=SYSTEM, number=number)


def verify(store: Store) -> audit.ChainReport:
    head = audit.read_head(store.home)
    return audit.verify(store.connection, store.key, {head[0]: head[1]} if head else {})


def tamper(store: Store, *statements: str) -> None:
    """What somebody with the file, but without the key, can do."""
    raw = sqlite3.connect(store.home.database)
    raw.execute("DROP TRIGGER audit_no_update")
    raw.execute("DROP TRIGGER audit_no_delete")
    for statement in statements:
        raw.execute(statement)
    raw.commit()
    raw.close()


def test_an_untouched_chain_verifies(store: Store) -> None:
    write_events(store, 20)
    report = verify(store)
    assert report.ok and report.rows == 20


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit SET scope = 'other' WHERE seq = 7", 7),
        ("UPDATE audit SET outcome = 'denied' WHERE seq = 1", 1),
        ("UPDATE audit SET at = '2020-01-01T00:00:00.000Z' WHERE seq = 20", 20),
        ("UPDATE audit SET detail = '{}' WHERE seq = 3", 3),
        ("UPDATE audit SET performed_by = 'somebody' WHERE seq = 9", 9),
        ("UPDATE audit SET project_id = 'prj' WHERE seq = 9", 9),
        ("DELETE FROM audit WHERE seq = 10", 10),
        ("DELETE FROM audit WHERE seq > 15", 16),
        ("DELETE FROM audit", 1),
        ("UPDATE audit SET seq = seq + 100 WHERE seq = 20", 20),
        ("UPDATE audit SET hash = prev WHERE seq = 5", 5),
    ],
)
def test_every_edit_is_found(store: Store, statement: str, broken_at: int) -> None:
    write_events(store, 20)
    tamper(store, statement)
    report = verify(store)
    assert not report.ok
    assert report.broken_at == broken_at


def test_swapped_rows_are_found(store: Store) -> None:
    write_events(store, 6)
    tamper(
        store,
        "UPDATE audit SET seq = 1000 WHERE seq = 3",
        "UPDATE audit SET seq = 3 WHERE seq = 4",
        "UPDATE audit SET seq = 4 WHERE seq = 1000",
    )
    assert verify(store).broken_at == 3


def test_a_chain_rebuilt_with_another_key_is_found(store: Store) -> None:
    write_events(store, 5)
    report = audit.verify(store.connection, b"\0" * 32, {})
    assert not report.ok and report.broken_at == 1


def test_the_table_refuses_updates_and_deletes(store: Store) -> None:
    write_events(store, 1)
    for statement in ("UPDATE audit SET scope = 'x'", "DELETE FROM audit"):
        with pytest.raises(sqlite3.Error, match="append-only"):
            store.connection.execute(statement)


def test_a_change_without_an_event_is_not_committed(store: Store) -> None:
    with pytest.raises(Unaudited), store.write() as tx:
        tx.execute(
            "INSERT INTO projects (id, slug, source, kind, base_branch, owner, created_at) VALUES (?,?,?,?,?,?,?)",
            ("prj", "p", "/p", "bare", "main", "me", tx.now_text),
        )
    assert store.one("SELECT 1 FROM projects") is None


def test_a_lost_key_is_not_replaced(store: Store) -> None:
    write_events(store, 1)
    store.home.audit_key.unlink()
    with pytest.raises(StoreFailed, match="missing"):
        Store(store.home)


def _append_for_ever(path: str) -> None:
    store = Store(Home(__import__("pathlib").Path(path)))
    write_events(store, 1_000_000)


def test_kill_9_while_appending_breaks_no_link_and_loses_no_acknowledged_row(store: Store) -> None:
    for _ in range(5):
        child = multiprocessing.get_context("spawn").Process(target=_append_for_ever, args=(str(store.home.path),))
        child.start()
        start = store.one("SELECT coalesce(max(seq), 0) FROM audit")[0]
        while store.one("SELECT coalesce(max(seq), 0) FROM audit")[0] < start + 20:
            time.sleep(0.002)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        report = verify(store)
        head = audit.read_head(store.home)
        assert report.ok, report
        assert head is not None and head[0] <= report.rows
