"""A fault of the program itself: a short message for the person, the details in a private file."""

from __future__ import annotations

import os
import sys
import time

from kortix_tui.base.crash import describe
from kortix_tui.base.paths import Home
from kortix_tui.base.text import visible_line

MAX_LOG = 1 << 20


def report(error: Exception) -> int:
    """Log what it was and where, but no message and no value, and say so. Returns the exit status."""
    name = visible_line(type(error).__name__)
    details = describe(error) + "\n"
    log = Home.locate().path / "faults.log"
    try:
        _append(log, details)
    except OSError:
        sys.stderr.write(f"{details}kortix: it failed unexpectedly ({name}).\n")
    else:
        sys.stderr.write(f"kortix: it failed unexpectedly ({name}).\n  Details: {log}\n")
    return 1


def _append(log: os.PathLike[str], details: str) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(log, flags, 0o600)
    try:
        if os.fstat(descriptor).st_size > MAX_LOG:
            os.ftruncate(descriptor, 0)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        command = visible_line(" ".join(sys.argv[1:2]))
        os.write(descriptor, f"--- {stamp} kortix {command}\n{details}".encode(errors="backslashreplace"))
    finally:
        os.close(descriptor)
