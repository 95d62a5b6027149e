"""Vault keys in a file of 32 random bytes: for a box without a desktop, or a stick that is pulled out.

The file is refused where somebody else could have read or written it. It is never replaced: what it opened would be
lost.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import KortixError
from kortix_tui.base.paths import config_folder
from kortix_tui.base.text import visible_line
from kortix_tui.vault.key_errors import KeyMissing, KeyUnavailable
from kortix_tui.vault.secret import Secret

VARIABLE: Final = "KORTIX_VAULT_KEYFILE"
KEY_BYTES: Final = 32


def default_path() -> Path:
    """`KORTIX_VAULT_KEYFILE`, else `vault.key` in the operator's config folder; never in the home beside the vault."""
    named = os.environ.get(VARIABLE)
    return Path(named).absolute() if named else config_folder() / "vault.key"


def create(path: Path) -> Secret:
    """Make a new key file, 0600; its folder is made 0700 where it is missing.

    Raises:
        KeyUnavailable: The file exists, or cannot be written.
    """
    key = os.urandom(KEY_BYTES)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _unusable(path, error) from error
    _check_folder(path)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise KeyUnavailable(
            f"{_shown(path)} exists already, and a key file is never replaced.",
            hint="Name another file, or move this one away if nothing needs it.",
        ) from None
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # an umask may have taken our own rights
            file.write(key)
            file.flush()
            os.fsync(descriptor)
        _sync_folder(path.parent)
    except BaseException as error:
        # Nothing was sealed with it yet; half a key would be in the way.
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise _unusable(path, error) from error
        raise
    return Secret(key)


def load(path: Path) -> Secret:
    """Read a key file.

    Raises:
        KeyMissing: There is no such file.
        KeyUnavailable: It is not a plain file of ours, closed to others, with 32 bytes; or others can write its folder.
    """
    try:
        # O_NONBLOCK: a FIFO in its place must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise KeyMissing(
            f"The key file {_shown(path)} does not exist.",
            hint=f"Bring the medium that holds it, or name it in {VARIABLE}; or unlock with another slot.",
        ) from None
    except OSError as error:
        raise _unusable(path, error) from error
    try:
        _check(path, os.fstat(descriptor))
        _check_folder(path)
        key = os.read(descriptor, KEY_BYTES + 1)
    except OSError as error:
        raise _unusable(path, error) from error
    finally:
        os.close(descriptor)
    if len(key) != KEY_BYTES:
        raise KeyUnavailable(
            f"The key file {_shown(path)} does not hold {KEY_BYTES} bytes: it is no key file, or a part of it is lost.",
            hint="Restore it from a copy, or unlock with another slot.",
        )
    return Secret(key)


def _check(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyUnavailable(f"The key file {_shown(path)} is not a plain file.", hint="Name the file itself.")
    if status.st_uid != os.geteuid():
        raise KeyUnavailable(
            f"The key file {_shown(path)} belongs to another user (uid {status.st_uid}).",
            hint="Use a key file of your own.",
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise KeyUnavailable(
            f"The key file {_shown(path)} is open to others (mode {mode:04o}).",
            hint=f"Run: chmod 600 {_shown(path)}. If somebody may have read it, run also: kortix vault rotate",
        )


def _check_folder(path: Path) -> None:
    """Who can write the folder can put another file there; the sticky bit of `/tmp` does not keep the name free."""
    try:
        status = path.parent.stat()
    except OSError as error:
        raise _unusable(path, error) from error
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid not in (os.geteuid(), 0) or mode & 0o022:
        raise KeyUnavailable(
            f"Others can write the folder of the key file {_shown(path)} (uid {status.st_uid}, mode {mode:04o}).",
            hint="Keep the key file in a folder of your own with mode 0700.",
        )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> KortixError:
    reason = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror or "it cannot be opened"
    return KeyUnavailable(
        f"The key file {_shown(path)} cannot be used: {reason}.", hint="Name a plain file that you can read and write."
    )


def _shown(path: Path) -> str:
    return visible_line(str(path))
