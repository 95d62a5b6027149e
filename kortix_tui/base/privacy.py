"""Files of ours are for our own user only; what we do in the operator's name keeps to the operator's own umask."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

VARIABLE: Final = "KORTIX_UMASK"
"""Carries the operator's umask into processes that we start or become; they would only see ours."""


def keep_private() -> None:
    """From now on, whatever this process creates is closed to everybody else, unless its mode is set on purpose."""
    before = os.umask(0o077)
    os.environ.setdefault(VARIABLE, f"{before:03o}")


def operators_umask() -> int:
    """The umask that the operator works with, for programs that write where the operator's files are.

    Returns:
        The mask, or -1 (which `subprocess` takes for "as it is") where this process has not changed it.
    """
    text = os.environ.get(VARIABLE, "")
    return int(text, 8) if re.fullmatch("[0-7]{1,4}", text) else -1


@contextmanager
def as_operator() -> Iterator[None]:
    """Create files as the operator would. Blocking work of a single thread only: the umask is the process's."""
    mask = operators_umask()
    if mask < 0:
        yield
        return
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)
