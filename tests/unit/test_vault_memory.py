"""A process that holds keys is closed to others of its own user, and still does its own work."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kortix_tui.base.paths import Home

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-93f1c7"
STRANGER = 64999
"""A user without a name, for tests that run as root: root may read everything."""

PRELUDE = f"""
import ctypes, json, os, resource, sys
sys.path.insert(0, {str(ROOT)!r})

def become_a_user():
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid({STRANGER}, {STRANGER}, {STRANGER})
        os.setresuid({STRANGER}, {STRANGER}, {STRANGER})
    # As after `exec`: changing the user by itself closes a process already, which would prove nothing here.
    assert ctypes.CDLL(None).prctl(4, 1, 0, 0, 0) == 0
"""
VICTIM = """
from kortix_tui.vault.memory import harden
become_a_user()
if sys.argv[1] == "hardened":
    assert harden() and harden()
    assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
print(os.getpid(), flush=True)
sys.stdin.read()
"""
READER = """
become_a_user()
def tried(name):
    try:
        with open(f"/proc/{sys.argv[1]}/{name}", "rb", buffering=0) as file:
            found = os.pread(file.fileno(), 64, int(sys.argv[2])) if name == "mem" else file.read(1 << 16)
            return "read " + found.decode("latin-1")
    except OSError as error:
        return error.strerror
print(json.dumps({name: tried(name) for name in ("environ", "mem", "maps")}))
"""
WORK = """
import asyncio, socket, subprocess
from pathlib import Path
from kortix_tui.broker.listener import DoorListener
from kortix_tui.runtime.control_frames import short_path
from kortix_tui.sandbox.docker.probe import _bind
from kortix_tui.vault.memory import harden
folder = Path(sys.argv[1])
become_a_user()
assert harden()

async def main():
    long = folder / ("x" * 120)
    long.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    with short_path(long / "control.sock") as name:
        listener.bind(name)
    listener.listen()
    with short_path(long / "control.sock") as name:
        socket.socket(socket.AF_UNIX).connect(name)
    listener.close()
    door = DoorListener(long / "door", None)
    await door.open()
    assert (long / "door/door.sock").is_socket()
    await door.close()
    (long / "probe").mkdir()
    _bind(long / "probe").close()
    # What the doctor and the audit read.
    assert Path("/proc/self/mounts").read_text() and Path("/proc/self/status").read_text()
    assert Path(f"/proc/{os.getpid()}/comm").read_text()
    # Children are ordinary processes.
    child = await asyncio.create_subprocess_exec("git", "init", "-q", str(long / "repo"))
    assert await child.wait() == 0
    limit = subprocess.run(["sh", "-c", "ulimit -c; cat /proc/self/environ | wc -c"], capture_output=True, text=True)
    assert limit.stdout.split()[0] == "0" and int(limit.stdout.split()[1]) > 0, limit

asyncio.run(main())
print("worked")
"""


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(code), *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"CANARY": CANARY},
    )  # fmt: skip


@contextmanager
def victim(how: str) -> Iterator[int]:
    """The pid of a process with something to hide."""
    with start(VICTIM, how) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.kill()


def read_from_outside(pid: int) -> dict[str, str]:
    """What another process of the same user gets."""
    # Where something is mapped; the test itself may be root.
    address = Path(f"/proc/{pid}/maps").read_text().split("-", 1)[0] if os.geteuid() == 0 else "0"
    with start(READER, str(pid), str(int(address, 16))) as process:
        said, _ = process.communicate(timeout=60)
    found: dict[str, str] = json.loads(said)
    return found


def test_others_of_the_same_user_cannot_read_a_hardened_process() -> None:
    with victim("hardened") as pid:
        assert read_from_outside(pid) == dict.fromkeys(("environ", "mem", "maps"), "Permission denied")


def test_without_hardening_they_can() -> None:
    with victim("open") as pid:
        found = read_from_outside(pid)
    assert CANARY in found["environ"] and found["maps"].startswith("read ")
    assert found["mem"].startswith("read ") or os.geteuid() != 0


def test_a_hardened_process_still_does_its_work(short_folder: Path) -> None:
    if os.geteuid() == 0:
        os.chown(short_folder, STRANGER, STRANGER)
    with start(WORK, str(short_folder)) as process:
        said, _ = process.communicate(timeout=120)
    assert process.returncode == 0 and said == "worked\n"


def test_a_client_that_takes_a_value_is_closed_as_the_host_is(home: Home) -> None:
    """Where another process is the host, passphrases and values are typed into one that opens no vault itself."""
    code = """
        import ctypes, resource, sys
        from kortix_tui.cli.opening import reading
        with reading() as runtime:
            before = ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
            runtime.vault
            print(before, ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "1 0 (0, 0)\n", done.stderr


def test_libraries_do_not_log_request_headers() -> None:
    code = """
    import logging
    from kortix_tui.vault.memory import harden
    logging.getLogger("httpx").setLevel(logging.ERROR)
    harden()
    print(logging.getLogger("httpx").level, logging.getLogger("httpcore").level)
    """
    with start(code) as process:
        said, _ = process.communicate(timeout=60)
    assert said == f"{logging.ERROR} {logging.WARNING}\n"


@pytest.mark.parametrize("platform", ["darwin", "freebsd14"])
def test_elsewhere_it_says_that_memory_stays_open(platform: str) -> None:
    code = f"""
    import sys
    from kortix_tui.vault.memory import harden
    sys.platform = {platform!r}
    print(harden(), resource.getrlimit(resource.RLIMIT_CORE))
    """
    with start(code) as process:
        said, _ = process.communicate(timeout=60)
    assert said == "False (0, 0)\n"
