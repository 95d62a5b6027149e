"""The supervisor's few files: its own, and those that it hands to the agent."""

from __future__ import annotations

import contextlib
import os

from kortix_tui.guest.identity import Identity


def sync_folder(path: str) -> None:
    """Make a created, renamed or removed name in the folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: str) -> str | None:
    """The content of a small file; `None` when there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read().strip()
    except FileNotFoundError:
        return None


def write_private(path: str, text: str) -> None:
    """Replace a file that only the supervisor reads, durably."""
    temporary = path + ".new"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    sync_folder(os.path.dirname(path))


def write_shared(identity: Identity, path: str, data: bytes) -> None:
    """Replace a file that the account may read and not change."""
    temporary = path + ".new"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(data)
    identity.share(temporary, 0o440)
    os.rename(temporary, path)
