"""What the agent's programs cannot do to the supervisor, and what they cannot learn (invariants I1, I2, I11)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from kortix_tui.sandbox.frames import TurnOrder
from tests.support.door import WAIT_S, open_door
from tests.support.engine import docker
from tests.support.supervised import sandbox

pytestmark = pytest.mark.docker

_LOOK = r"""
import json, os, signal, socket, ctypes
found = {}
status = dict(line.split(":\t", 1) for line in open("/proc/self/status").read().splitlines() if ":\t" in line)
found["ids"] = [os.getresuid(), os.getresgid(), os.getgroups()]
found["status"] = {name: status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapAmb", "NoNewPrivs", "Seccomp")}
found["session"] = os.getsid(0) == os.getpid()
found["descriptors"] = sorted(int(name) for name in os.listdir("/proc/self/fd"))[:3]
found["open"] = len(os.listdir("/proc/self/fd"))

def attempt(act):
    try:
        act()
        return "done"
    except OSError as error:
        return type(error).__name__

others = [int(name) for name in os.listdir("/proc") if name.isdigit() and os.stat("/proc/" + name).st_uid != 1000]
found["others"] = len(others)
found["signals"] = sorted({attempt(lambda: os.kill(pid, number)) for pid in others for number in (0, 9, 15, 19)})
files = ("environ", "mem", "maps", "fd", "cwd", "root", "io", "auxv", "syscall", "stack")
def read(pid, name):
    path = "/proc/%d/%s" % (pid, name)
    if name == "fd": os.listdir(path)
    elif name in ("cwd", "root"): os.readlink(path)
    else:
        with open(path, "rb") as file: file.read(1)
found["memory"] = sorted({attempt(lambda: read(pid, name)) for pid in others for name in files})
libc = ctypes.CDLL(None, use_errno=True)
def trace(pid):
    if libc.ptrace(16, pid, None, None) != 0: raise OSError(ctypes.get_errno(), "")
found["traces"] = sorted({attempt(lambda: trace(pid)) for pid in others})
found["writes"] = {
    path: attempt(lambda: open(path + "/x", "w"))
    for path in ("/var/lib/kortix", "/opt/kortix", "/run", "/run/kortix", "/run/kortix-agent",
                 "/run/kortix-agent/prompts", "/etc", "/usr/local/bin", "/")
}
found["reads"] = {path: attempt(lambda: os.listdir(path)) for path in ("/var/lib/kortix", "/root")}
found["changes"] = {
    path: attempt(lambda: open(path, "a"))
    for path in ("/run/kortix-agent/token", "/run/kortix-agent/gitconfig", os.environ["KORTIX_PROMPT_FILE"],
                 "/opt/kortix/supervisor.py", "/opt/kortix/cli.py", "/etc/gitconfig")
}
found["removes"] = [attempt(lambda: os.unlink(path)) for path in ("/run/kortix-agent/token", "/run/kortix/door.sock")]
found["becomes"] = attempt(lambda: os.setuid(0)), attempt(lambda: os.setgid(0)), attempt(lambda: os.setgroups([0]))

def channel(connection):
    request = "POST /v1/supervisor HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\nUpgrade: kortix/1\r\n"
    connection.sendall((request + "Authorization: Bearer " + os.environ["KORTIX_TOKEN"] + "\r\n\r\n").encode())
    return connection.recv(100).split()[1].decode()

unix = socket.socket(socket.AF_UNIX)
unix.connect("/run/kortix/door.sock")
found["channel"] = channel(unix), channel(socket.create_connection(("127.0.0.1", 8118)))
print(json.dumps(found))
"""


async def test_the_agent_has_no_power_over_the_supervisor(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        found = json.loads(await box.python(_LOOK))
    assert found["ids"] == [[1000] * 3, [1000] * 3, []]
    none = "0000000000000000"
    assert found["status"] == {
        "CapInh": none, "CapPrm": none, "CapEff": none, "CapAmb": none, "NoNewPrivs": "1", "Seccomp": "2",
    }  # fmt: skip
    assert found["session"] and found["descriptors"] == [0, 1, 2] and found["open"] == 4
    assert found["others"] >= 3  # init, supervisor, forwarder
    assert found["signals"] == ["PermissionError"]
    assert found["memory"] == ["PermissionError"]
    assert found["traces"] == ["PermissionError"]
    assert set(found["writes"].values()) <= {"PermissionError", "OSError"}
    assert set(found["reads"].values()) == {"PermissionError"}
    assert set(found["changes"].values()) <= {"PermissionError", "OSError"}
    assert set(found["removes"]) <= {"PermissionError", "OSError"}
    assert set(found["becomes"]) == {"PermissionError"}
    assert found["channel"] == ["403", "403"]


async def test_before_any_key_was_given_out_the_channel_still_needs_root(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        await box.host.state("ready")
        box.host.channel_key = None  # as with a host that lost its state
        assert json.loads(await box.python(_LOOK))["channel"] == ["403", "403"]


async def test_what_is_secret_between_host_and_supervisor_is_nowhere_to_be_found(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        await box.host.state("ready")
        key = box.host.channel_key or "?"
        text = await box.sh(
            f"grep -rslI --exclude-dir=proc --exclude-dir=sys {key[:20]} / 2>/dev/null || true;"
            f"grep -al {key[:20]} /proc/*/environ /proc/*/cmdline 2>/dev/null | grep -v self || true"
        )
        # The search itself has the key on its own command line, and no other process has.
        assert [line for line in text.splitlines() if not line.startswith("/proc/")] == []
        for words in (docker("inspect", box.container), box.logs()):
            assert key not in words and box.host.agent_token not in words


async def test_a_key_that_is_wrong_keeps_a_supervisor_out(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        await box.host.state("ready")
        right, box.host.channel_key = box.host.channel_key, "f" * 64
        docker("kill", box.container)
        await box.bench.provider.start(box.spec)
        async with asyncio.timeout(WAIT_S):
            while "403" not in box.logs():
                await asyncio.sleep(0.1)
        assert len(box.host.hellos) == 1
        box.host.channel_key = right
        await box.host.connected(2)


async def test_programs_of_the_image_that_change_the_user_do_not(short_folder: Path) -> None:
    async with sandbox(short_folder) as box:
        end, _ = await box.run("bash", "-c", "cp /bin/bash /tmp/b; chmod u+s /tmp/b; /tmp/b -p -c 'id -u'; su -c id")
        assert end.exit_code != 0


async def test_the_door_of_a_dead_host_is_waited_for(short_folder: Path) -> None:
    async with sandbox(short_folder, serve=False) as box:
        async with open_door(box.door, box.host):
            await box.host.state("ready")
            channel = await box.host.connected()
            script = "sleep 0.5; git fetch -q && kortix info >/dev/null; echo fetched $?"
            await channel.start_turn(TurnOrder(turn_id="t", command=("bash", "-c", script)), "")
        async with open_door(box.door, box.host):
            await box.host.ended("t")
        assert "fetched 0" in box.host.output("t").decode()
