"""What a process that holds keys does, so that its memory stays its own.

Python cannot promise to wipe a value. What is real: no core file, and no other process of the same user that reads our
environment or memory. Standard library only, because the keyring's child uses it too.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import resource
import sys
from typing import Final

_PR_SET_DUMPABLE: Final = 4
_TALKATIVE: Final = ("httpx", "httpcore", "hpack", "urllib3")
"""Libraries that write request headers into their debug log."""


def harden() -> bool:
    """Close this process to others of the same user. Safe to call again; children start unhardened, without core files.

    Returns:
        Whether the kernel now refuses others to read our memory; only Linux can.
    """
    # Another thread or a limit of the machine may forbid it; the second lock does not depend on it.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in _TALKATIVE:
        logger = logging.getLogger(name)
        logger.setLevel(max(logger.level, logging.WARNING))
    if not sys.platform.startswith("linux"):
        return False
    try:
        return int(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0
    except (AttributeError, OSError):  # a libc without it
        return False
