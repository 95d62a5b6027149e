"""`kortix setup` on a machine where nothing is: Debian without Docker, as root, as a user, over a killed daemon.

The machine is a container of the engine with an engine of its own inside.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import sysconfig
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from engine import bench, docker

import kortix_tui
from kortix_tui.sandbox.images import BASE_NAME

pytestmark = [
    pytest.mark.docker,
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the machine's Python is 3.11 and shares our packages"),
]

# An engine in a container needs nearly everything; --privileged fails where the outer engine lacks a capability itself.
AS_A_MACHINE = (
    *("--cap-add", "ALL", "--cap-drop", "SYS_RESOURCE", "--device-cgroup-rule", "a *:* rwm"),
    *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined"),
    *("--security-opt", "systempaths=unconfined"),
    *("-v", "/sys/fs/cgroup:/sys/fs/cgroup:rw", "-v", "/var/lib/docker"),
)
SETUP = """
import asyncio, os, sys, time
from kortix_tui.base.errors import KortixError
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.membership import with_group
from kortix_tui.runtime.setup import set_up

async def ask(question):
    print("ASKED", question, flush=True)
    return sys.argv[1] == "yes"

async def main():
    began = time.monotonic()
    try:
        ready = await set_up(Settings(), ask, print)
    except KortixError as error:
        sys.exit(f"FAILED {error.code}: {error}")
    if ready.engine is None:
        command = with_group([sys.executable, *sys.argv])
        os.execvp(command[0], command)
    print("READY", ready.image, ready.did, flush=True)

asyncio.run(main())
"""


class Machine:
    """A Debian machine to be set up."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, command: str, *, user: str = "root") -> tuple[int, str]:
        done = subprocess.run(
            ["docker", "exec", "-u", user, self.name, "sh", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=800,
        )
        return done.returncode, done.stdout

    def setup(self, answer: str = "yes", *, user: str = "root") -> tuple[int, str]:
        return self.run(
            f"export HOME=$(getent passwd {user} | cut -d: -f6) PYTHONDONTWRITEBYTECODE=1; "
            f"export PYTHONPATH=/source:/packages; cd /; python3 /setup.py {answer}",
            user=user,
        )

    def daemons(self) -> int:
        return int(self.run("pgrep -xc dockerd")[1])


@pytest.fixture
async def machine(short_folder: Path) -> AsyncIterator[Machine]:
    async with bench(short_folder):  # the base image is there
        name = f"kortix-test-machine-{secrets.token_hex(4)}"
        script = short_folder / "setup.py"
        script.write_text(SETUP)
        mounts = {
            Path(kortix_tui.__file__).parents[1]: "/source",
            sysconfig.get_path("purelib"): "/packages",
            script: "/setup.py",
        }
        volumes = [word for source, target in mounts.items() for word in ("-v", f"{source}:{target}:ro")]
        docker("run", "-d", "--init", "--name", name, *AS_A_MACHINE, *volumes, BASE_NAME, "sleep", "3600")
        try:
            yield Machine(name)
        finally:
            docker("rm", "-f", "-v", name)


async def test_a_fresh_machine(machine: Machine) -> None:
    status, said = machine.setup("no")
    assert status == 1 and "FAILED refused" in said and "sudo apt-get install docker.io iptables" in said
    assert machine.run("command -v dockerd")[0] != 0

    status, said = machine.setup()
    assert status == 0 and "READY kortix-template:" in said, said
    assert "'installed Docker', 'started Docker', 'built the default image'" in said
    assert machine.daemons() == 1

    status, said = machine.setup()
    assert (status, said.count("\n")) == (0, 1) and said.endswith("()\n"), said

    # A user without rights learns what to do; one with sudo is asked, and works at once.
    status, said = machine.run("useradd -m person")
    assert status == 0, said
    status, said = machine.setup(user="person")
    assert status == 1 and "As root, run: usermod -aG docker person" in said, said
    prepared = """
        apt-get install -y -qq --no-install-recommends sudo >/dev/null 2>&1 &&
        echo 'person ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/person
    """
    assert machine.run(textwrap.dedent(prepared))[0] == 0
    status, said = machine.setup("no", user="person")
    assert status == 1 and "can become root on this machine" in said and "FAILED refused" in said, said
    status, said = machine.setup(user="person")
    assert status == 0 and "READY kortix-template:" in said, said

    # Killed like a machine that lost its power; the user's set-up starts it again, once.
    machine.run("pkill -9 -x dockerd; pkill -9 -x containerd")
    machine.run("echo 1 > /var/run/docker.pid; echo 1 > /var/run/docker/containerd/containerd.pid")
    status, said = machine.setup(user="person")
    assert status == 0 and "'started Docker'" in said, said
    assert machine.daemons() == 1
