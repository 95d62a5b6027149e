"""`kortix demo` as somebody meets it first."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import git

from kortix_tui.base.paths import Home
from kortix_tui.store.database import Store

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[2]


def demo(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "demo", *options], cwd="/", stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=170, env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )  # fmt: skip


def on_engine(folder: Path) -> tuple[list[str], list[str]]:
    """Running containers, and everything, of a demo's home."""
    store = Store(Home(folder / "home"))
    mark = f"label=kortix.install={store.install_id}"
    store.close()
    running, everything = (
        subprocess.run(
            ["docker", *listing, "--filter", mark], capture_output=True, text=True, timeout=60
        ).stdout.split()
        for listing in (["ps", "-q"], ["ps", "-aq"])
    )
    return running, everything


def test_without_console_it_ends_with_the_diff_and_the_command_that_merges(home: Home) -> None:
    done = demo("--no-console", "--yes")
    assert done.returncode == 0, done.stderr
    assert '+payment = charge(1250, "EUR")' in done.stdout
    assert "28 tests pass" in done.stderr
    last = done.stdout.rstrip().splitlines()[-1]
    assert last.startswith("Merge it:  KORTIX_HOME=")
    setting, *command = shlex.split(last.removeprefix("Merge it:  "))
    folder = Path(setting.removeprefix("KORTIX_HOME=")).parent
    assert folder.parent == home.path.parent / "kortix-demo"
    running, everything = on_engine(folder)
    assert running == [] and len(everything) == 1
    assert git(folder / "acme-api", "log", "--format=%s") == "Import the sample project acme-api"

    assert command[:4] == [sys.executable, "-P", "-m", "kortix_tui.cli.main"]  # as it was started itself
    with AtTerminal(*command[4:], KORTIX_HOME=str(folder / "home")) as terminal:
        terminal.see("Type «merge»")
        terminal.type("merge\n")
        assert terminal.end() == 0
    assert git(folder / "acme-api", "status", "--porcelain") == ""
    assert "charge(amount, currency)" in (folder / "acme-api/README.md").read_text()

    cleaned = demo("--clean")
    assert cleaned.returncode == 0, cleaned.stderr
    assert cleaned.stdout == f"Removed {folder}\n"
    assert not folder.exists()
    name = "kortix-" + everything[0]
    assert name not in subprocess.run(["docker", "ps", "-a"], capture_output=True, text=True, timeout=60).stdout


def test_merge_merges_also_for_an_agent_program_as_the_repository_is_its_own(home: Home, short_folder: Path) -> None:
    folder = short_folder / "mine"
    done = demo("--no-console", "--merge", "--yes", "--home", str(folder), CLAUDECODE="1")
    assert done.returncode == 0, done.stderr
    assert git(folder / "acme-api", "log", "-1", "--format=%s").startswith("Merge CR #1")
    again = demo("--no-console", "--yes", "--home", str(folder))
    assert again.returncode == 1 and "is not empty" in again.stderr
    assert demo("--clean", "--home", str(home.path)).returncode == 1  # no demo: left as it is
    assert home.path.exists()
    printed = next(line for line in done.stderr.splitlines() if "Remove everything" in line).partition(": Remove")[2]
    command = shlex.split(printed.partition(": ")[2])
    assert command[4:] == ["demo", "--clean", "--home", str(folder)]
    cleaned = subprocess.run(
        command, cwd="/", capture_output=True, timeout=170, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert cleaned.returncode == 0
    assert not folder.exists()
