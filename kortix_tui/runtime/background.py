"""A host that outlives the command or console that started it: `kortix serve` in a session of its own."""

from __future__ import annotations

import os
import site
import sys
import time
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

import kortix_tui
from kortix_tui.base.errors import KortixError
from kortix_tui.base.paths import Home
from kortix_tui.base.text import visible
from kortix_tui.runtime.context import Context
from kortix_tui.store import lock

START_S: Final = 20.0
MAX_LOG: Final = 4 << 20


class BackgroundFailed(KortixError):
    """The background host did not come up."""

    code = "background_failed"


class BackgroundHost(BaseModel):
    """A host that was started and leads.

    Attributes:
        pid: Its process.
        log: Where it writes what it has to say.
        idle: How many sessions only wait to be stopped for their idleness, when there is nothing else to do.
        idle_minutes: After how many idle minutes the last of them stops; `None` when there is work.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    pid: int
    log: Path
    idle: int = 0
    idle_minutes: float | None = None


def host_log(home: Home) -> Path:
    """Where hosts write what they have to say."""
    return home.path / "host.log"


def start_background(context: Context, *, linger_s: float | None = None) -> BackgroundHost | None:
    """Start `kortix serve` unless some process is the host already; returns once one leads.

    Args:
        context: This process's.
        linger_s: How long it stays with nothing to do, where that is longer than usual: a person is about to type.

    Returns:
        The new host, or `None` when another process acts.

    Raises:
        BackgroundFailed: It ended at once, or did not lead in time.
    """
    if lock.is_locked(context.store):
        return None
    log = host_log(context.home)
    pid = _spawn(context.home, log, linger_s)
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        leader = lock.holder(context.store)
        if leader is not None and leader.pid == pid:
            idle, minutes = _only_idle(context)
            return BackgroundHost(pid=pid, log=log, idle=idle, idle_minutes=minutes)
        if os.waitpid(pid, os.WNOHANG)[0]:
            if lock.is_locked(context.store):
                return None  # another process was quicker, and ours left
            raise BackgroundFailed(f"The background host ended at once: {_last_line(log)}", hint=f"See {log}.")
        time.sleep(0.02)
    raise BackgroundFailed("The background host did not start in time.", hint=f"See {log}.")


def _only_idle(context: Context) -> tuple[int, float | None]:
    """How many sessions idle, and for how long at most, when nothing but that is left; else nothing."""
    row = context.store.one(
        "SELECT (SELECT count(*) FROM requests WHERE state IN ('pending', 'running')), count(*),"
        " coalesce(sum(s.status = 'running' AND s.activity = 'idle' AND s.wanted = 'running' AND NOT EXISTS"
        " (SELECT 1 FROM prompts q WHERE q.session_id = s.id AND q.state IN ('queued', 'running'))), 0),"
        " max(s.idle_minutes) FROM sessions s"
        " WHERE s.removed_at IS NULL AND (s.wanted != 'stopped' OR s.status IN ('provisioning', 'running'))"
    )
    if row is None or row[0] or row[1] != row[2] or not row[2]:
        return 0, None
    return row[2], row[3]


def _spawn(home: Home, log: Path, linger_s: float | None) -> int:
    if log.exists() and log.stat().st_size > MAX_LOG:
        log.replace(log.with_name("host.log.1"))
    environment = os.environ | {"KORTIX_HOME": str(home.path)}
    root = str(Path(kortix_tui.__file__).resolve().parent.parent)
    if root not in site.getsitepackages():
        # Run from a checkout: the child starts in another folder and must find the same package.
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, environment.get("PYTHONPATH"))))
    linger = [] if linger_s is None else ["--linger", f"{linger_s:g}s"]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    # Every other descriptor is close-on-exec, as Python opens them. `-P`: without it the current folder, which may be
    # a checkout that an agent wrote to, would be the first place to import from (I12).
    return os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "serve", "--background", *linger],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def _last_line(log: Path) -> str:
    try:
        lines = log.read_bytes()[-4096:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return "no reason is known."
    return visible(lines[-1]) if lines else "it said nothing."
