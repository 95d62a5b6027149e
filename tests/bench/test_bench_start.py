"""What starting costs, in CPU time, with 1,000 sessions in the home."""

from __future__ import annotations

import os
import pty
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sides import alternate, cpu_seconds, report

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.models import Project

SESSIONS = 1000


@pytest.fixture
def full_home(home: Home) -> Home:
    """A home with a thousand sessions that have ended."""
    runtime = Runtime(home, Settings(), operator_actor("cli"))
    with runtime.context.store.write() as tx:
        tx.execute(
            "INSERT INTO projects (id, slug, source, kind, base_branch, owner, created_at) VALUES (?,?,?,?,?,?,?)",
            ("prj_bench", "bench", "/nowhere", "bare", "main", "me", tx.now_text),
        )
        tx.audit("test.fill", scope="bench", actor=runtime.context.actor)
    project: Project = runtime.projects.find("bench")
    for number in range(SESSIONS):
        runtime.sessions.new(f"Fix the failing test number {number}", project=project)
    with runtime.context.store.write() as tx:
        tx.execute("UPDATE sessions SET status = 'stopped', wanted = 'stopped'")
        tx.audit("test.fill", scope="bench", actor=runtime.context.actor)
    runtime.close()
    return home


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEXTUAL", "SSH_", "TMUX"))}
    return {**kept, "TERM": "xterm-256color", **more}


def test_listing_a_thousand_sessions(full_home: Home, runs: int, tell: Callable[[str], None]) -> None:
    kortix = str(Path(sys.executable).with_name("kortix"))
    ours = [kortix, "sessions", "ls"]
    reference = [sys.executable, "-c", "import sqlite3, json, argparse, pydantic"]
    mine, theirs = alternate(
        runs, lambda: cpu_seconds(ours, environment()), lambda: cpu_seconds(reference, environment())
    )
    tell(report("kortix sessions ls with 1,000 sessions against an interpreter with imports, CPU", "1.5", mine, theirs))


def test_the_consoles_first_paint(full_home: Home, runs: int, tell: Callable[[str], None]) -> None:
    script = str(Path(__file__).with_name("paint.py"))
    mine, theirs = alternate(runs, lambda: painted(script, "console"), lambda: painted(script, "empty"))
    tell(report("console to its first paint with 1,000 sessions against an empty Textual app, CPU", "2", mine, theirs))


def painted(script: str, which: str) -> float:
    """CPU seconds of a child on a terminal of its own, from start to its first full picture."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, script, which], environment())
    reader = threading.Thread(target=_drain, args=(terminal,))
    reader.start()
    _, status, usage = os.wait4(pid, 0)
    reader.join(10)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    return usage.ru_utime + usage.ru_stime


def _drain(terminal: int) -> None:
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # the child closed its end
