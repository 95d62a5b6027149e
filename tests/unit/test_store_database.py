from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kortix_tui.base.errors import Refused, StoreFailed
from kortix_tui.base.paths import Home
from kortix_tui.store import lock
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Fenced, Store
from kortix_tui.store.lock import HostLock


@pytest.fixture
def store(home: Home):
    store = Store(home)
    yield store
    store.close()


def test_two_stores_of_one_home_share_the_key_and_the_install(home: Home, store: Store) -> None:
    other = Store(home)
    assert (other.key, other.install_id) == (store.key, store.install_id)
    other.close()


def test_stores_opened_at_once_agree(short_folder: Path) -> None:
    home, found = Home(short_folder / "new"), list[tuple[str, bytes]]()

    def open_one() -> None:
        store = Store(home)
        found.append((store.install_id, store.key))
        store.close()

    threads = [threading.Thread(target=open_one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len(set(found)) == 1


def test_concurrent_writers_never_lose_an_update(store: Store) -> None:
    with store.write() as tx:
        tx.execute("INSERT INTO meta VALUES ('counter', '0')")

    def add() -> None:
        for _ in range(25):
            with store.write() as tx:
                value = int(tx.execute("SELECT value FROM meta WHERE key = 'counter'").fetchone()[0])
                tx.execute("UPDATE meta SET value = ? WHERE key = 'counter'", (str(value + 1),))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.one("SELECT value FROM meta WHERE key = 'counter'") == ("100",)


def test_another_connection_sees_that_something_was_written(home: Home, store: Store) -> None:
    other = Store(home)
    before = other.data_version()
    with store.write() as tx:
        tx.audit("test.event", scope="x", actor=SYSTEM)
    assert other.data_version() != before
    other.close()


def test_an_error_inside_rolls_everything_back(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.write() as tx:
        tx.audit("test.event", scope="x", actor=SYSTEM)
        raise ZeroDivisionError
    assert store.one("SELECT count(*) FROM audit") == (0,)


def test_a_home_of_a_newer_version_is_refused(home: Home, store: Store) -> None:
    store.connection.execute("PRAGMA user_version = 999")
    with pytest.raises(StoreFailed, match="newer version"):
        Store(home)


def test_a_damaged_database_says_so(home: Home) -> None:
    home.database.write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreFailed, match="damaged"):
        Store(home)


def test_an_open_home_is_refused(short_folder: Path) -> None:
    folder = short_folder / "open"
    folder.mkdir(mode=0o755)
    folder.chmod(0o755)
    with pytest.raises(Refused, match="chmod 700"):
        Store(Home(folder))


def test_only_one_process_is_host_and_the_next_epoch_fences_the_last(store: Store) -> None:
    first = HostLock.acquire(store, "console")
    assert first is not None
    assert HostLock.acquire(store, "command") is None
    assert (found := lock.holder(store)) is not None and found.kind == "console" and found.epoch == first.epoch
    first.release()
    assert lock.holder(store) is None
    second = HostLock.acquire(store, "command")
    assert second is not None and second.epoch == first.epoch + 1
    with pytest.raises(Fenced):
        first.beat()
    second.beat()
    second.release()
