"""I8: the audit log is append-only and hash-chained; any edit, cut or reorder is found."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import time

import pytest
from desk import Desk

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
    return audit.verify(store.connection, store.key, [head] if head else [])


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
    report = audit.verify(store.connection, b"\0" * 32)
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
        assert head is not None and head.seq <= report.rows


def rebuild(store: Store, without: int) -> None:
    """What somebody with the audit key can do: leave a row out and compute everything after it anew."""
    rows = store.all("SELECT * FROM audit ORDER BY seq")
    tamper(store, "DELETE FROM audit")
    raw = sqlite3.connect(store.home.database)
    prev, seq, digest = audit.GENESIS, 0, ""
    for row in rows:
        if row[0] != without:
            seq += 1
            digest = audit._digest(store.key, seq, prev, row[1:10])
            raw.execute("INSERT INTO audit VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", (seq, *row[1:10], prev, digest))
            prev = digest
    raw.commit()
    raw.close()
    audit.write_head(store.home, seq, digest)


@pytest.mark.docker
def test_a_chain_rebuilt_with_the_key_disagrees_with_what_a_merge_commit_took_along(desk: Desk) -> None:
    desk.run("echo more >> hello.txt; git commit -qam More; kortix cr open --title More")
    desk.runtime.changes.show(desk.project, 1)
    merged = desk.runtime.changes.merge(desk.project, 1).merge_commit
    whole = desk.runtime.audit.verify()
    assert whole.ok and whole.anchors == 2
    store = desk.runtime.context.store
    denied = store.one("SELECT seq FROM audit WHERE event = 'session.turn.end'")[0]
    rebuild(store, denied)
    assert audit.verify(store.connection, store.key).ok, "the forger made a mistake of another kind"
    report = desk.runtime.audit.verify()
    assert not report.ok and merged[:12] in (report.fault or "")


@pytest.mark.docker
def test_an_agents_own_trailers_are_no_anchors(desk: Desk) -> None:
    forged = f"x%n%nReviewed-Head: y%nAudit: 1:{'0' * 64}".replace("%n", "\n")
    desk.run(
        f"git switch -qc side; echo a > a; git add a; git commit -qm A; git switch -q -;"
        f"git merge -q --no-ff side -m '{forged}'; git commit -q --allow-empty -m '{forged}'; git push -q;"
        "kortix cr open --title Forged"
    )
    desk.runtime.changes.show(desk.project, 1)
    desk.runtime.changes.merge(desk.project, 1)
    assert desk.runtime.audit.verify().ok
