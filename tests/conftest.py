"""What all tests share: private homes, and a check that nothing is left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk, make_repository, sweep

from kortix_tui.base.paths import Home

_BEFORE = pytest.StashKey[set[str]]()

# A developer's own settings and agents must not change what tests see, nor the size that readline, once it is loaded
# by the controller of a parallel run, claims for the terminals of all its children.
_FOREIGN = ("KORTIX_", "CLAUDE", "CODEX_", "GEMINI_CLI", "COLUMNS", "LINES")
for _name in [name for name in os.environ if name.startswith(_FOREIGN)]:
    del os.environ[_name]


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder with a short path: Unix sockets have 108 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="kx", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def home(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A fresh home, also for child processes, with no operator configuration."""
    folder = short_folder / "home"
    monkeypatch.setenv("KORTIX_HOME", str(folder))
    monkeypatch.setenv("KORTIX_CONFIG_HOME", str(short_folder / "config"))
    made = Home(folder)
    made.prepare()
    return made


def _on_engine() -> dict[str, set[str]]:
    """Containers and volumes on this machine's engine by the home that they belong to; empty without an engine."""
    found = dict[str, set[str]]()
    row = '{{%s}} {{.Label "kortix.install"}}'
    for listing in (["ps", "-a", "--format", row % ".Names"], ["volume", "ls", "--format", row % ".Name"]):
        try:
            done = subprocess.run(
                ["docker", *listing, "--filter", "label=kortix.install"], capture_output=True, text=True, timeout=60
            )
        except (OSError, subprocess.TimeoutExpired):
            continue
        for line in done.stdout.splitlines():
            name, _, install = line.partition(" ")
            found.setdefault(install, set()).add(name)
    return found


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember whose sandboxes were there before; a worker of a parallel run leaves that to its controller."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = set(_on_engine())


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A container or volume that a test leaves behind fails the run."""
    before = session.config.stash.get(_BEFORE, None)
    if before is None:
        return
    left = sorted(name for install, names in _on_engine().items() if install not in before for name in names)
    if left:
        print(f"\nleft behind on the engine: {', '.join(left)}", file=sys.stderr)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Fast tests first, then those that need an engine, then the long ones."""
    items.sort(key=lambda item: (bool(item.get_closest_marker("long")), bool(item.get_closest_marker("docker"))))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what the benchmarks found."""
    for report in terminalreporter.getreports("passed"):
        for name, text in getattr(report, "user_properties", ()):
            if name == "bench" and report.when == "call":
                terminalreporter.write_line(f"[bench] {text}")


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and not thread.daemon]
    for thread in left:
        thread.join(5)
    assert not [thread for thread in left if thread.is_alive()], f"threads left behind: {left}"


@pytest.fixture
def repository(short_folder: Path) -> Path:
    """The operator's own repository: one commit on `main`, with an agent that runs its prompt as a script."""
    return make_repository(short_folder / "repo")


@pytest.fixture
def desk(home: Home, repository: Path) -> Iterator[Desk]:
    """A home that hosts, with one project; nothing of it stays on the engine."""
    desk = Desk(home, repository)
    yield desk
    install = desk.runtime.context.store.install_id
    desk.runtime.close()
    sweep(install)
