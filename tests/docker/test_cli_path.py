"""The whole path by commands, each a process of its own, against the real engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from at_terminal import AtTerminal
from desk import git, sweep, wait_for

from kortix_tui.base.paths import Home
from kortix_tui.store import lock
from kortix_tui.store.database import Store

pytestmark = pytest.mark.docker
ROOT = Path(__file__).resolve().parents[2]
PUSH = "echo more >> hello.txt && git commit -qam More && git push -q"
OPEN = f'{PUSH} && kortix cr open --title "More" --description "Adds a line."'


@dataclass
class Commands:
    """A home, and the commands that people type."""

    home: Home
    repository: Path

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "kortix_tui.cli.main", *arguments], stdin=subprocess.DEVNULL, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(ROOT)},
            cwd=self.repository,
        )  # fmt: skip

    def run(self, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
        process = self.popen(*arguments)
        out, error = process.communicate(timeout=150)
        assert process.returncode == status, (arguments, process.returncode, out, error)
        return subprocess.CompletedProcess(arguments, process.returncode, out, error)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json").stdout)

    def host(self) -> int | None:
        view = self.json("host")
        return view["host"]["pid"] if view["host"] else None

    def on_engine(self) -> list[str]:
        store = Store(self.home)
        mark = f"label=kortix.install={store.install_id}"
        store.close()
        found = list[str]()
        for listing in (["ps", "-aq"], ["volume", "ls", "-q"]):
            done = subprocess.run(["docker", *listing, "--filter", mark], capture_output=True, text=True, timeout=60)
            found += done.stdout.split()
        return found


@pytest.fixture
def commands(home: Home, repository: Path) -> Iterator[Commands]:
    made = Commands(home, repository)
    yield made
    store = Store(home)
    leader = lock.holder(store)
    if leader is not None:
        os.kill(leader.pid, signal.SIGTERM)
        wait_for(lambda: not lock.is_locked(store))
    sweep(store.install_id)
    store.close()


def test_from_a_prompt_to_a_merged_change_and_away(commands: Commands) -> None:
    commands.run("projects", "add", str(commands.repository), "--slug", "shop")
    done = commands.run("sessions", "new", "-p", OPEN, "--wait")
    session = done.stdout.strip()
    assert "Sandbox ready on branch" in done.stderr and "Change request shop#1 is open" in done.stderr
    assert [row["id"] for row in commands.json("sessions", "ls")] == [session]
    assert "Opened change request 1" in commands.run("sessions", "logs", session).stdout
    assert "+more\n" in commands.run("cr", "diff", "1").stdout
    with AtTerminal("cr", "merge", "shop#1") as terminal:
        terminal.see("Type «merge»")
        terminal.type("merge\n")
        terminal.see("Merged shop#1 as ")
        assert terminal.end() == 0
    assert git(commands.repository, "show", "main:hello.txt") == "hello\nmore"

    chat = commands.run("sessions", "chat", session[:6], "-p", "cat hello.txt; echo x > left.txt", "--queue", "--wait")
    assert "hello\nmore\n" in chat.stderr
    assert commands.json("sessions", "stop", session, "--wait")["status"] == "stopped"
    page = commands.run("sessions", "show", session).stdout
    assert "rescued work" in page and "git fetch " in page
    line = next(line for line in page.splitlines() if "git fetch " in line)
    joined = commands.json("sessions", "rescue", "join", session, "1")
    assert (
        git(commands.home.mirror(commands.json("projects", "ls")[0]["id"]), "show", f"{joined['head_commit']}:left.txt")
        == "x"
    )
    subprocess.run(line.partition(": ")[2], shell=True, cwd=commands.repository, check=True, timeout=60)
    assert git(commands.repository, "show", "HEAD:left.txt") == "x"
    assert commands.json("sessions", "resume", session, "--wait")["status"] == "running"
    assert commands.json("sessions", "rm", session, "--yes", "--wait")["removed_at"] is not None
    wait_for(lambda: commands.host() is None)
    assert commands.on_engine() == []
    assert commands.run("audit", "verify").returncode == 0


def test_a_failed_turn_ends_with_1(commands: Commands) -> None:
    commands.run("projects", "add", str(commands.repository))
    failed = commands.run("sessions", "new", "-p", "echo oops >&2; exit 7", "--wait", status=1)
    assert "oops" in failed.stderr and "exit status 7" in failed.stderr


def test_without_wait_a_background_host_does_the_work_and_ends(commands: Commands) -> None:
    commands.run("projects", "add", str(commands.repository))
    started = commands.run("sessions", "new", "-p", "echo background")
    session = started.stdout.strip()
    assert "A background host goes on with the work" in started.stderr
    pid = commands.host()
    assert pid is not None
    wait_for(lambda: commands.json("sessions", "show", session)["prompts"][0]["state"] == "finished")
    assert "background\n" in commands.run("sessions", "logs", session).stdout
    commands.run("sessions", "stop", session)
    wait_for(lambda: commands.json("sessions", "ls")[0]["status"] == "stopped")
    wait_for(lambda: commands.host() is None)
    assert "nothing is left to do" in (commands.home.path / "host.log").read_text()


def test_an_interrupted_wait_hands_the_session_on(commands: Commands) -> None:
    commands.run("projects", "add", str(commands.repository))
    waiting = commands.popen("sessions", "new", "-p", "echo began; sleep 3; echo ended", "--wait")
    assert waiting.stderr is not None
    seen = ""
    while "began\n" not in seen:
        seen += waiting.stderr.readline()
    waiting.send_signal(signal.SIGINT)
    out, error = waiting.communicate(timeout=60)
    assert waiting.returncode == 130 and out == ""
    assert "goes on" in error and "A background host goes on with the work" in error
    session = commands.json("sessions", "ls")[0]["id"]
    followed = commands.popen("sessions", "logs", "-f", session)
    wait_for(lambda: commands.json("sessions", "show", session)["prompts"][0]["state"] == "finished")
    commands.run("sessions", "stop", session, "--wait")
    text, _ = followed.communicate(timeout=60)
    assert followed.returncode == 0
    assert "began\nended\n" in text


def test_a_shell_in_a_real_sandbox(commands: Commands) -> None:
    commands.run("projects", "add", str(commands.repository))
    session = commands.run("sessions", "new", "-p", "echo 'echo STARTUP' >> ~/.bashrc", "--wait").stdout.strip()
    with AtTerminal("sessions", "shell", session, rows=33, columns=101) as terminal:
        terminal.see("$ ")
        terminal.type("echo [$(id -u)] [$(stty size)] [$PWD]; printf '\\033]52;c;aGk=\\007ok\\n'; exit 5\r")
        before = terminal.see("[1000] [33 101] [/workspace]")
        assert b"STARTUP" not in before
        terminal.see("ok\r\n")
        assert terminal.end() == 5
        assert b"\x1b]" not in terminal.screen
        assert terminal.settings_now == terminal.before
    events = commands.json("audit", "ls", "--event", "session.shell")
    assert [event["event"] for event in events] == ["session.shell.close", "session.shell.open"]
    commands.run("sessions", "stop", session, "--wait")
    with AtTerminal("sessions", "shell", session) as terminal:
        terminal.see(f"kortix sessions resume {session}")
        assert terminal.end() == 1
