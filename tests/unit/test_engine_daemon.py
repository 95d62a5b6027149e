"""What counts as a running daemon and as a stale pid file, with real processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kortix_tui.runtime import daemon
from kortix_tui.runtime.daemon import Daemon, is_alive, launch_command, running_daemon

SLEEP = shutil.which("sleep") or "/bin/sleep"
NEW_NETWORK = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--net"]


@pytest.fixture
def places(tmp_path: Path) -> Daemon:
    return Daemon(
        pid_file=tmp_path / "docker.pid",
        containerd_pid_file=tmp_path / "containerd.pid",
        log=tmp_path / "log",
        command=("echo", "started with", "two words"),
    )


def removed(places: Daemon) -> list[Path]:
    """Start the daemon and see which of its files went before."""
    before = [path for path in (places.pid_file, places.containerd_pid_file) if path.exists()]
    subprocess.run(launch_command(places), check=True, timeout=20)
    deadline = time.monotonic() + 20
    while not places.log.exists() or not places.log.read_text().endswith("started with two words\n"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return [path for path in before if not path.exists()]


@pytest.fixture
def named(tmp_path: Path) -> Iterator[Path]:
    """A program called `dockerd` that only waits."""
    program = tmp_path / "dockerd"
    shutil.copy(SLEEP, program)
    yield program


def wait_until_alive(process: subprocess.Popen[bytes]) -> None:
    """The kernel renames a process a moment after `Popen` has returned."""
    deadline = time.monotonic() + 20
    while not is_alive(process.pid, "dockerd"):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)


def test_no_files_nothing_stale(places: Daemon) -> None:
    assert removed(places) == []


def test_a_file_of_a_dead_process_is_stale(places: Daemon) -> None:
    with subprocess.Popen([SLEEP, "0"]) as gone:
        pass
    places.pid_file.write_text(f"{gone.pid}\n")
    assert removed(places) == [places.pid_file]


def test_a_file_of_a_zombie_is_stale(places: Daemon, named: Path) -> None:
    with subprocess.Popen([named, "60"]) as zombie:
        try:
            wait_until_alive(zombie)
            places.pid_file.write_text(str(zombie.pid))
            assert removed(places) == []
        finally:
            zombie.kill()
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has fetched its status
        assert Path(f"/proc/{zombie.pid}").exists()
        assert removed(places) == [places.pid_file]


def test_a_number_that_another_program_has_by_now_is_stale(places: Daemon) -> None:
    places.pid_file.write_text(str(os.getpid()))
    places.containerd_pid_file.write_text(str(os.getpid()))
    assert removed(places) == [places.pid_file, places.containerd_pid_file]


@pytest.mark.parametrize("text", ["", "x", "-1", "99999999999"])
def test_garbage_is_stale(text: str, places: Daemon) -> None:
    places.pid_file.write_text(text)
    assert removed(places) == [places.pid_file]


def test_a_daemon_in_another_network_is_not_in_the_way(named: Path) -> None:
    with subprocess.Popen([*NEW_NETWORK, str(named), "60"]) as other:
        try:
            wait_until_alive(other)
            assert running_daemon() != other.pid
            code = "from kortix_tui.runtime.daemon import running_daemon; print(running_daemon())"
            package = str(Path(daemon.__file__).parents[2])
            enter = ["nsenter", f"--net=/proc/{other.pid}/ns/net"]
            if os.geteuid() != 0:
                enter = ["nsenter", f"--target={other.pid}", "--user", "--net", "--preserve-credentials"]
            seen = subprocess.check_output(
                [*enter, sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": package}, text=True
            )
            assert seen.strip() == str(other.pid)
        finally:
            other.kill()
