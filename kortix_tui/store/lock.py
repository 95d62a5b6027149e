"""Exactly one host: an exclusive `flock` and an epoch that fences the one before.

`flock` was free at once after `kill -9` although a child lived on; POSIX record locks are lost when any descriptor of
the file closes, so they are never used. The descriptor is close-on-exec: children do not keep the lock.
"""

from __future__ import annotations

import fcntl
import os
from datetime import timedelta
from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.store.database import Store
from kortix_tui.store.models import HostRow

SILENT_AFTER: Final = timedelta(seconds=10)
"""A host that has not beaten for this long is shown as silent."""


class HostLock:
    """The runtime lock of a home while this process holds it."""

    def __init__(self, store: Store, descriptor: int, epoch: int) -> None:
        self._store = store
        self._descriptor: int | None = descriptor
        self.epoch = epoch

    @classmethod
    def acquire(cls, store: Store, kind: str) -> HostLock | None:
        """Become the host, or return `None` when another process is.

        Args:
            store: The home's store.
            kind: What this process is, for people: `console`, `command` or `serve`.
        """
        descriptor = os.open(store.home.host_lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        try:
            with store.write() as tx:
                epoch = int(tx.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()[0]) + 1
                tx.execute("UPDATE meta SET value = ? WHERE key = 'epoch'", (str(epoch),))
                tx.execute(
                    "INSERT OR REPLACE INTO host VALUES (1, ?, ?, ?, ?, ?)",
                    (epoch, os.getpid(), kind, tx.now_text, tx.now_text),
                )
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()} {kind} epoch {epoch}\n".encode(), 0)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(store, descriptor, epoch)

    def beat(self) -> None:
        """Say that the host is alive; fenced when it is not the host any more."""
        with self._store.write(epoch=self.epoch) as tx:
            tx.execute("UPDATE host SET beat_at = ? WHERE id = 1", (tx.now_text,))

    def release(self) -> None:
        """Let another process take over. Safe to call twice."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None


def is_locked(store: Store) -> bool:
    """Whether some process is the host at this instant."""
    try:
        descriptor = os.open(store.home.host_lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        # A shared lock that is dropped at once: two processes that only look do not see each other as host.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def holder(store: Store) -> HostRow | None:
    """The host as it last described itself, or `None` when nobody holds the lock."""
    if not is_locked(store):
        return None
    row = store.one(f"SELECT {HostRow.columns()} FROM host WHERE id = 1")
    return HostRow.of(row) if row else None


def is_silent(store: Store, host: HostRow) -> bool:
    """Whether the host holds the lock but has stopped beating."""
    return to_text(store.clock.now() - SILENT_AFTER) > to_text(host.beat_at)
