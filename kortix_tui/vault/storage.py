"""The vault on disk: where it may lie, how it is read, and how a new generation takes the place of the old one.

A reader sees the old file or the new one, whole, whatever happens to the writer: a new file is written beside, synced,
renamed over, and the folder synced. The lock file is never replaced, so that its `flock` means the same to everybody.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

from kortix_tui.base.errors import VaultFailed, VaultMissing
from kortix_tui.base.text import visible_line
from kortix_tui.vault.cipher import MAC_BYTES
from kortix_tui.vault.errors import UnsafePlace, VaultBusy, VaultExists, corrupt
from kortix_tui.vault.layout import MAX_FILE_BYTES

LOCK_WAIT_S: Final = 10.0
_POLL_S: Final = 0.0005
"""Shorter than a write, so that a writer in a tight loop does not keep the others out."""
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_REMOTE: Final = re.compile(r"nfs\d?|cifs|smb\w*|afs|9p|ncpfs|fuse\.(?:sshfs|smb\w*|davfs\d?|rclone|glusterfs)")
_MOUNTS: Final = Path("/proc/self/mountinfo")


class Previous(Enum):
    """What happens to the previous generation when a new one is written."""

    LINK = "link"
    """The file that is replaced becomes the previous one."""
    DROP = "drop"
    """None is left: it holds what the old root key opens."""
    SET_ASIDE = "set aside"
    """What is replaced is damaged: it is kept under another name, and the previous one stays."""


@dataclass(frozen=True)
class Stamp:
    """Tells whether a file is still the one that was read, also when an inode number is used again."""

    inode: int
    size: int
    modified_ns: int
    mac: bytes


@dataclass(frozen=True)
class Place:
    """The files of one vault."""

    path: Path

    @property
    def previous(self) -> Path:
        """The generation before."""
        return self.path.with_name(self.path.name + ".prev")

    @property
    def damaged(self) -> Path:
        """What a repair found."""
        return self.path.with_name(self.path.name + ".damaged")

    @property
    def lock(self) -> Path:
        """The target of `flock`: `vault.lock` for `vault.kxv`."""
        return self.path.with_suffix(".lock")

    @property
    def shown(self) -> str:
        """The path for messages."""
        return visible_line(str(self.path))

    def check(self) -> None:
        """Refuse a folder where others can replace the file, or a file system that may not keep locks and `fsync`.

        Raises:
            UnsafePlace: With what to do about it.
            VaultMissing: There is no such folder.
        """
        folder = self.path.parent
        try:
            status = folder.stat()
        except OSError as error:
            raise VaultMissing(
                f"The folder of the vault cannot be opened: {error.strerror}.", hint="Run `kortix setup`."
            ) from error
        shown = visible_line(str(folder))
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o022:
            raise UnsafePlace(
                f"Others can write to the folder of the vault, {shown}.",
                hint=f"Make it yours alone, for example: chmod 700 {shown}",
            )
        if kind := remote_file_system(folder):
            raise UnsafePlace(
                f"The vault would lie on a network file system ({kind}), {shown}.",
                hint="Set KORTIX_HOME to a folder on a local disk.",
            )

    def read(self, *, previous: bool = False) -> tuple[bytes, Stamp]:
        """The whole file.

        Raises:
            VaultMissing: There is none.
            UnsafePlace: Others can read or write it, or it is no plain file.
            VaultFailed: It is too large or cannot be read.
        """
        with self._opened(self.previous if previous else self.path) as (descriptor, status):
            if status.st_size > MAX_FILE_BYTES:
                raise corrupt(f"it is larger than {MAX_FILE_BYTES // 2**20} MiB")
            parts, wanted = [], status.st_size
            while wanted and (part := os.read(descriptor, wanted)):
                parts.append(part)
                wanted -= len(part)
            data = b"".join(parts)
            return data, Stamp(status.st_ino, status.st_size, status.st_mtime_ns, data[-MAC_BYTES:])

    def stamp(self) -> Stamp:
        """What `read` would find, without reading it all. Raises as `read` does."""
        with self._opened(self.path) as (descriptor, status):
            mac = os.pread(descriptor, MAC_BYTES, max(0, status.st_size - MAC_BYTES))
            return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, mac)

    @contextlib.contextmanager
    def locked(self, wait_s: float = LOCK_WAIT_S) -> Iterator[None]:
        """Be the only writer; files that killed writers left behind are removed.

        Raises:
            VaultBusy: Another writer did not end in time.
        """
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            self._fail("lock", error)
        try:
            deadline = time.monotonic() + wait_s
            while not _try_lock(descriptor):
                if time.monotonic() >= deadline:
                    raise VaultBusy(
                        "Another process is writing the vault.",
                        hint="Try again; if it goes on, see with `fuser` who holds vault.lock.",
                    )
                time.sleep(_POLL_S)
            self._sweep()
            yield
        finally:
            os.close(descriptor)

    def create(self, data: bytes) -> Stamp:
        """Write the first generation. Call it under the lock.

        Raises:
            VaultExists: A vault or its previous generation is there.
        """
        if self.previous.exists():
            raise VaultExists(
                f"There is no {self.path.name}, but its previous generation is there.",
                hint=f"Run `kortix vault repair --from-previous`, or move {visible_line(self.previous.name)} away.",
            )
        draft = self._draft()
        try:
            stamp = self._write(draft, data)
            # A link, not a rename: it never replaces what is there.
            os.link(draft, self.path, follow_symlinks=False)
            draft.unlink()
            self._sync_folder()
        except FileExistsError:
            self._discard(draft)
            raise VaultExists(f"A vault is there already: {self.shown}.", hint="Use it, or move it away.") from None
        except OSError as error:
            self._discard(draft)
            self._fail("write", error)
        return stamp

    def replace(self, data: bytes, previous: Previous = Previous.LINK) -> Stamp:
        """Put a new generation in place of the old one. Call it under the lock.

        When this fails, the file is the old one or, if only the last sync failed, the new one; never anything else.

        Raises:
            VaultFailed: The disk is full or broken.
        """
        draft = self._draft()
        try:
            stamp = self._write(draft, data)
            match previous:
                case Previous.LINK:
                    self._keep(self.previous)
                case Previous.SET_ASIDE:
                    self._keep(self.damaged)
                case Previous.DROP:
                    self.previous.unlink(missing_ok=True)
                    self.damaged.unlink(missing_ok=True)
            draft.rename(self.path)
            self._sync_folder()
        except OSError as error:
            self._discard(draft)
            self._fail("write", error)
        return stamp

    def _keep(self, name: Path) -> None:
        name.unlink(missing_ok=True)
        # After a loss there may be nothing to keep.
        with contextlib.suppress(FileNotFoundError):
            os.link(self.path, name, follow_symlinks=False)

    def _draft(self) -> Path:
        return self.path.with_name(f"{self.path.name}.tmp.{os.getpid()}")

    def _write(self, draft: Path, data: bytes) -> Stamp:
        descriptor = os.open(draft, _WRITE, 0o600)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, data[-MAC_BYTES:])

    def _sync_folder(self) -> None:
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _discard(self, draft: Path) -> None:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)

    def _sweep(self) -> None:
        marks = f"{self.path.name}.tmp."
        with contextlib.suppress(OSError), os.scandir(self.path.parent) as entries:
            for entry in entries:
                if entry.name.startswith(marks):
                    Path(entry.path).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _opened(self, path: Path) -> Iterator[tuple[int, os.stat_result]]:
        try:
            descriptor = os.open(path, _READ)
        except FileNotFoundError:
            raise VaultMissing(
                f"There is no vault at {visible_line(str(path))}.", hint="Run `kortix vault init`."
            ) from None
        except OSError as error:
            self._fail("read", error)
        try:
            status = os.fstat(descriptor)
            self._check_file(path, status)
            yield descriptor, status
        except OSError as error:
            self._fail("read", error)
        finally:
            os.close(descriptor)

    def _check_file(self, path: Path, status: os.stat_result) -> None:
        shown = visible_line(str(path))
        if not stat.S_ISREG(status.st_mode):
            raise UnsafePlace(f"{shown} is not a plain file.", hint="Put the vault itself there.")
        if status.st_uid != os.geteuid():
            raise UnsafePlace(
                f"{shown} belongs to another user (uid {status.st_uid}).", hint="Use a vault of your own."
            )
        if mode := stat.S_IMODE(status.st_mode) & 0o077:
            raise UnsafePlace(
                f"Others have access to {shown} (mode {stat.S_IMODE(status.st_mode):04o}, {mode:03o} too much).",
                hint=f"Run: chmod 600 {shown} and, if others may have written it, `kortix vault verify`.",
            )

    def _fail(self, act: str, error: OSError) -> NoReturn:
        if error.errno == errno.ELOOP:
            raise UnsafePlace(
                f"{self.shown} or its lock is a symbolic link.", hint="Put the vault itself there."
            ) from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        raise VaultFailed(
            f"The vault could not be {_DONE[act]}: {error.strerror or 'unknown error'}.",
            hint="Free some space and try again." if full else "See that its disk is healthy and its folder is yours.",
        ) from error


_DONE: Final = {"lock": "locked for writing", "read": "read", "write": "written"}


def remote_file_system(folder: Path, mounts: Path = _MOUNTS) -> str | None:
    """The kind of network file system that a folder is on; `None` for a local disk, and where the kernel does not tell.

    Locks and `fsync` of these are not what they are on a disk.
    """
    try:
        lines = mounts.read_text("utf-8", "surrogateescape").splitlines()
        where = str(folder.resolve())
    except OSError:
        return None
    best, kind = -1, ""
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        point = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), fields[4]).rstrip("/")
        # A later mount on the same point hides the one before.
        if (where == point or where.startswith(point + "/")) and len(point) >= best:
            best, kind = len(point), after.split(" ")[0]
    return kind if _REMOTE.fullmatch(kind) else None


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
