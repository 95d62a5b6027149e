"""Starting a real daemon of our own: in its own network namespace and folders, so that the machine's is not touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kortix_tui.runtime import daemon
from kortix_tui.runtime.daemon import is_alive, running_daemon
from kortix_tui.sandbox.docker.endpoint import Answer, Endpoint, ask

pytestmark = pytest.mark.docker

START = """
import asyncio, sys
from pathlib import Path
from kortix_tui.runtime.daemon import Daemon, start_daemon
folder = Path(sys.argv[1])
command = ('dockerd', '--data-root', f'{folder}/data', '--exec-root', f'{folder}/exec', '-p', f'{folder}/pid',
           '-H', f'unix://{folder}/sock', '--bridge', 'none', '--iptables=false')
containerd = folder / 'exec/containerd/containerd.pid'
place = Daemon(folder / 'sock', folder / 'pid', containerd, folder / 'log', command, managed=False)
print(asyncio.run(start_daemon(place, lambda line: print(line, file=sys.stderr))))
"""


class Machine:
    """A network namespace with a folder for one daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
        self.socket = folder / "sock"
        until(lambda: _name(self.holder.pid) == "sleep")

    def begin(self) -> subprocess.Popen[str]:
        """One set-up, as a process of its own."""
        package = str(Path(daemon.__file__).parents[2])
        command = ["nsenter", f"--net=/proc/{self.holder.pid}/ns/net", sys.executable, "-c", START, str(self.folder)]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": package}, stdout=pipe, stderr=pipe, text=True)

    def start(self) -> tuple[str, str]:
        """What the set-up returned and what it said."""
        output, errors = self.begin().communicate(timeout=120)
        return output.strip(), errors

    @property
    def pids(self) -> list[int]:
        """Daemons and their children that belong to this folder."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if str(self.folder).encode() in command and _name(int(entry.name)) in ("dockerd", "containerd"):
                    found.append(int(entry.name))
        return found

    def daemons(self) -> list[int]:
        return [pid for pid in self.pids if is_alive(pid, "dockerd")]

    def kill(self) -> None:
        """What happens to a machine that loses its power: everything is gone, the files stay."""
        for pid in self.pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not self.daemons())

    def answers(self) -> bool:
        return ask(Endpoint(f"unix://{self.socket}", "test")).answer is Answer.ANSWERED


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def machine() -> Iterator[Machine]:
    assert os.geteuid() == 0, "these tests start a Docker daemon: run them as root"
    # Not in /tmp, which may be memory; a daemon's storage needs a real disk.
    folder = Path("/var/tmp") / f"kx{os.getpid()}"
    folder.mkdir()
    made = Machine(folder)
    yield made
    made.kill()
    made.holder.kill()
    made.holder.wait()
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        place = line.split(" ")[1]
        if place.startswith(str(folder)):
            subprocess.run(["umount", "-l", place], check=True)
    shutil.rmtree(folder)


def test_a_daemon_is_started_once_and_again_over_the_files_of_a_killed_one(machine: Machine) -> None:
    returned, said = machine.start()
    assert returned == "True" and machine.answers(), said
    (first,) = machine.daemons()
    # It survives the process that started it, in a session of its own.
    assert os.getsid(first) != os.getsid(0)

    assert machine.start()[0] == "False"
    assert machine.daemons() == [first]

    machine.kill()
    assert machine.socket.exists() and (machine.folder / "pid").exists()
    # By the next start the number may belong to anything.
    (machine.folder / "exec/containerd/containerd.pid").write_text(str(os.getpid()))
    (machine.folder / "pid").write_text(str(os.getpid()))
    returned, said = machine.start()
    assert returned == "True" and machine.answers(), said
    assert "which a killed dockerd left behind" in said and "killed containerd" in said
    assert len(machine.daemons()) == 1


def test_set_ups_at_once_start_one_daemon(machine: Machine) -> None:
    running = [machine.begin() for _ in range(3)]
    results = [process.communicate(timeout=120) for process in running]
    assert sorted(output.strip() for output, _ in results) == ["False", "False", "True"], results
    assert len(machine.daemons()) == 1


def test_beside_a_daemon_that_does_not_answer_none_is_started(machine: Machine, tmp_path: Path) -> None:
    """A stopped process is a daemon that hangs."""
    assert machine.start()[0] == "True"
    (pid,) = machine.daemons()
    os.kill(pid, signal.SIGSTOP)
    try:
        process = machine.begin()
        assert process.stderr is not None
        assert f"(process {pid}) is running" in process.stderr.readline()
        assert machine.daemons() == [pid]
    finally:
        os.kill(pid, signal.SIGCONT)
    assert process.communicate(timeout=120)[0].strip() == "False"
    assert machine.daemons() == [pid]


def test_the_machines_own_daemon_is_seen() -> None:
    pid = running_daemon()
    assert pid is not None and _name(pid) == "dockerd"
