"""Files that forms read and write, on the bridge's threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import visible_line

MAX_FILE: Final = 64 << 20
KEYRING: Final = "keyring:"


def path_of(text: str) -> Path:
    """A path that a person typed."""
    return Path(os.path.expanduser(text)).absolute()  # noqa: PTH111 - `Path.expanduser` raises for a strange user


def read_file(path: Path) -> bytes:
    """A backup or an identity.

    Raises:
        InvalidInput: It cannot be read, or is too long.
    """
    shown = visible_line(str(path))
    try:
        # O_NONBLOCK: a FIFO in its place must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise InvalidInput(f"{shown} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE:
        raise InvalidInput(f"{shown} is longer than {MAX_FILE >> 20} MiB.")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read.

    Raises:
        InvalidInput: It is there already, or cannot be written.
    """
    shown = visible_line(str(path))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{shown} is there already and is not replaced.", hint="Name another file.") from None
    except OSError as error:
        raise InvalidInput(f"{shown} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        path.unlink(missing_ok=True)  # half a backup would look like a whole one
        raise InvalidInput(f"{shown} cannot be written: {error.strerror}.") from error
