"""The limit on open files that an engine can give.

An engine without CAP_SYS_RESOURCE (inside a container or a locked-down machine) cannot raise a hard limit above
its own, and then fails to start any container that asks for more. The kernel tells both facts of the
process that listens on the engine's socket; where it does not, the provider finds out by trying.
"""

from __future__ import annotations

import re
import resource
import socket
import struct
from pathlib import Path
from urllib.parse import urlsplit

WANTED_OPEN_FILES = 65536
_CAP_SYS_RESOURCE = 1 << 24


def likely_open_files(url: str) -> int:
    """What to ask for first: 65536, or less when the engine is known to be unable."""
    pid = _listener(url)
    if pid is None:
        return WANTED_OPEN_FILES
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        limits = Path(f"/proc/{pid}/limits").read_text()
    except OSError:
        return WANTED_OPEN_FILES
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    hard = re.search(r"^Max open files\s+\S+\s+(\d+)", limits, re.MULTILINE)
    if effective is None or hard is None or int(effective[1], 16) & _CAP_SYS_RESOURCE:
        return WANTED_OPEN_FILES
    return min(WANTED_OPEN_FILES, int(hard[1]))


def lower_open_files(refused: int | None) -> int | None:
    """What to ask for after `refused` was too much; `None` is the engine's own default."""
    ours = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if refused is not None and ours != resource.RLIM_INFINITY and ours < refused:
        return ours
    return None


def _listener(url: str) -> int | None:
    """The process that made the listening socket; `None` when it is not visible from here."""
    parts = urlsplit(url)
    if parts.scheme != "unix":
        return None
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(2.0)
        try:
            connection.connect(parts.path)
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return None
    pid = int(struct.unpack("3i", credentials)[0])
    return pid if pid > 1 else None  # 1: systemd listens for the engine, which then has all capabilities
