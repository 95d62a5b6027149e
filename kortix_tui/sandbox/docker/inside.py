"""The isolation probe as it runs inside a sandbox: tries what must be impossible and prints what happened.

Its text is handed to the sandbox's Python in place of the supervisor, so it imports nothing of this project and
runs on Python 3.9. It starts where the supervisor starts (container root), and tries most things from a child that
is what an agent is: uid 1000 without capabilities. Output: one JSON object, probe name → [passed, what was seen].
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import platform
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

AGENT = 1000
JOURNAL = "/var/lib/kortix"
DOOR = "/run/kortix"
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWNET = 0x10000000, 0x00020000, 0x40000000
AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK = 16, 17, 38, 40
DENIED = (errno.EPERM, errno.EACCES, errno.ENOSYS)
# name → number on x86_64, number on aarch64, arguments that a kernel would refuse anyway: nothing can happen.
CALLS: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "mount": (165, 40, (0, 0, 0, 0, 0)),
    "umount2": (166, 39, (0, 0)),
    "pivot_root": (155, 41, (0, 0)),
    "open_tree": (428, 428, (-1, 0, 0)),
    "fsopen": (430, 430, (0, 0)),
    "unshare(user)": (272, 97, (CLONE_NEWUSER,)),
    "unshare(mount)": (272, 97, (CLONE_NEWNS,)),
    "unshare(net)": (272, 97, (CLONE_NEWNET,)),
    "setns": (308, 268, (-1, 0)),
    "clone(user)": (56, 220, (CLONE_NEWUSER, 0, 0, 0, 0)),
    "clone3": (435, 435, (0, 0)),
    "bpf": (321, 280, (-1, 0, 0)),
    "keyctl": (250, 219, (0, 0, 0, 0, 0)),
    "add_key": (248, 217, (0, 0, 0, 0, 0)),
    "request_key": (249, 218, (0, 0, 0, 0)),
    "perf_event_open": (298, 241, (0, 0, -1, -1, 0)),
    "userfaultfd": (323, 282, (0,)),
    "open_by_handle_at": (304, 265, (-1, 0, 0)),
    "name_to_handle_at": (303, 264, (-1, 0, 0, 0, 0)),
    "kexec_load": (246, 104, (0, 0, 0, 0)),
    "io_uring_setup": (425, 425, (1, 0)),
    "init_module": (175, 105, (0, 0, 0)),
    "process_vm_readv": (310, 270, (0, 0, 0, 0, 0, 0)),
    "pidfd_getfd": (438, 438, (-1, -1, 0)),
    "fanotify_init": (300, 262, (0, 0)),
    "syslog": (103, 116, (10, 0, 0)),
    "swapon": (167, 224, (0, 0)),
}


def status() -> dict[str, str]:
    """The kernel's account of this process."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}


def number_of(act: Callable[[], object]) -> int:
    """The error number that an act ends with; 0 when it works."""
    try:
        act()
    except OSError as error:
        return error.errno or -1
    return 0


def name_of(number: int) -> str:
    """An error number in words."""
    return "allowed" if number == 0 else errno.errorcode.get(number, str(number))


def all_fail(acts: dict[str, Callable[[], object]], allowed: tuple[int, ...]) -> list[object]:
    """Whether every act ends with one of the allowed errors; names those that do not."""
    seen = {name: number_of(act) for name, act in acts.items()}
    wrong = [f"{name}: {name_of(number)}" for name, number in seen.items() if number not in allowed]
    return [not wrong, "; ".join(wrong) or ", ".join(seen)]


def write(path: str) -> Callable[[], object]:
    """An attempt to make or change a file."""

    return lambda: Path(path).open("a").close()


def read(path: str) -> Callable[[], object]:
    """An attempt to open a file."""
    return lambda: Path(path).open("rb").close()


def look(path: str) -> Callable[[], object]:
    """An attempt to list a folder."""
    return lambda: list(Path(path).iterdir())


def try_call(name: str) -> int:
    """Make one system call with harmless arguments, in a child where it might change this process."""
    numbers, arguments = CALLS[name][:2], CALLS[name][2]
    number = numbers[0] if platform.machine() == "x86_64" else numbers[1]
    child = os.fork()
    if child == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(value) for value in arguments))
        # A clone that works returns twice: 0 in the new process as well as its number here.
        os._exit(ctypes.get_errno() & 0xFF if result == -1 else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def privileges() -> list[object]:
    """No capability, none to be gained, and a filter on system calls."""
    found = status()
    sets = {key: int(found[key], 16) for key in ("CapInh", "CapPrm", "CapEff", "CapAmb")}
    wrong = [f"{key} {value:x}" for key, value in sets.items() if value]
    if found.get("NoNewPrivs") != "1":
        wrong.append("NoNewPrivs is off")
    return [not wrong, "; ".join(wrong) or "no capability, no_new_privs"]


def seccomp() -> list[object]:
    """A filter is active."""
    mode = status().get("Seccomp", "absent")
    return [mode == "2", f"mode {mode}"]


def system_calls() -> list[object]:
    """Dangerous system calls fail."""
    seen = {name: try_call(name) for name in CALLS}
    wrong = [f"{name}: {name_of(number)}" for name, number in seen.items() if number not in DENIED]
    return [not wrong, "; ".join(wrong) or f"{len(seen)} refused"]


def socket_families() -> list[object]:
    """Sockets reach no hypervisor, kernel crypto or raw network."""
    families = {"AF_VSOCK": (AF_VSOCK, 1, 0), "AF_ALG": (AF_ALG, 5, 0), "AF_PACKET": (AF_PACKET, 3, 0)}
    families["AF_NETLINK(audit)"] = (AF_NETLINK, 3, 9)

    def open_one(family: tuple[int, int, int]) -> Callable[[], object]:
        return lambda: socket.socket(*family).close()

    return all_fail({name: open_one(family) for name, family in families.items()}, DENIED)


def network() -> list[object]:
    """Only loopback exists and no address is reachable."""
    wrong = [f"interface {name}" for _, name in socket.if_nameindex() if name != "lo"]
    routes = Path("/proc/net/route").read_text().splitlines()
    wrong += [f"route via {line.split()[0]}" for line in routes[1:]]

    def reach(family: int, address: str) -> Callable[[], object]:
        def act() -> None:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.settimeout(2)
                probe.connect((address, 53))

        return act

    for name, act in (
        ("192.0.2.1", reach(socket.AF_INET, "192.0.2.1")),
        ("169.254.169.254", reach(socket.AF_INET, "169.254.169.254")),
        ("2001:db8::1", reach(socket.AF_INET6, "2001:db8::1")),
    ):
        number = number_of(act)
        if number not in (errno.ENETUNREACH, errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH):
            wrong.append(f"{name}: {name_of(number)}")
    return [not wrong, "; ".join(wrong) or "loopback only, no route"]


def root_file_system() -> list[object]:
    """Even container root cannot change the image or the kernel's settings."""
    paths = ["/kortix-probe", "/etc/passwd", "/usr/bin/kortix-probe", "/opt/kortix/supervisor.py"]
    paths += ["/proc/sys/kernel/hostname", "/proc/sysrq-trigger"]
    acts = {path: write(path) for path in paths}
    acts["/sys/fs/cgroup"] = Path("/sys/fs/cgroup/kortix-probe").mkdir
    return all_fail(acts, (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT))


def door_folder() -> list[object]:
    """The door's folder cannot be written, and its socket neither removed nor replaced, not even by root."""
    door = Path(DOOR, "door.sock")
    acts: dict[str, Callable[[], object]] = {
        "make a file": write(f"{DOOR}/probe"),
        "remove the socket": door.unlink,
        "rename the socket": lambda: door.rename(Path(DOOR, "other")),
    }
    return all_fail(acts, (errno.EROFS, errno.EACCES, errno.EPERM))


def door_answers() -> list[object]:
    """The door's socket can be reached and the host answers."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as door:
            door.settimeout(5)
            door.connect(f"{DOOR}/door.sock")
            answer = door.recv(64)
    except OSError as error:
        return [False, str(error)]
    return [answer == b"kortix door", repr(answer)]


def supervisor_is_safe() -> list[object]:
    """The agent can neither signal, trace, read nor imitate what runs as container root."""
    above = os.getppid()
    acts: dict[str, Callable[[], object]] = {
        "signal the supervisor": lambda: os.kill(above, 0),
        "signal init": lambda: os.kill(1, 0),
        "read its environment": read(f"/proc/{above}/environ"),
        "read its memory": read(f"/proc/{above}/mem"),
        "list its files": look(f"/proc/{above}/fd"),
        "read the journal": look(JOURNAL),
        "write the journal": write(f"{JOURNAL}/probe"),
        "become root": lambda: os.setuid(0),
    }
    return all_fail(acts, (errno.EPERM, errno.EACCES))


def host_is_hidden() -> list[object]:
    """No socket of the engine, no disk of the host, no process of others."""
    places = ("/var/run/docker.sock", "/run/docker.sock", "/run/containerd", "/dev/kvm", "/dev/mem", "/dev/kmsg")
    wrong = [path for path in places if Path(path).exists()]
    wrong += [str(path) for pattern in ("sd*", "vd*", "nvme*") for path in Path("/dev").glob(pattern)]
    processes = [path for path in Path("/proc").iterdir() if path.name.isdigit()]
    if len(processes) > 10:
        wrong.append(f"{len(processes)} processes are visible")
    return [not wrong, "; ".join(wrong) or "nothing of the host"]


def workspace() -> list[object]:
    """The agent's own places can be written, and programs run from them."""
    wrong = []
    for folder in ("/workspace", "/home/agent", "/tmp"):  # noqa: S108  # the sandbox's own
        program = Path(folder, ".kortix-probe")
        try:
            program.write_text("#!/bin/sh\nexit 7\n")
            program.chmod(0o700)
            if subprocess.call([str(program)]) != 7:
                wrong.append(f"{folder}: programs do not run")
            program.unlink()
        except OSError as error:
            wrong.append(f"{folder}: {error.strerror}")
    return [not wrong, "; ".join(wrong) or "writable"]


def limit(paths: list[str]) -> str:
    """A limit of this container from whichever cgroup version the host has."""
    for path in paths:
        try:
            return Path(path).read_text().strip()
        except OSError:
            continue
    return ""


def processes_limit() -> list[object]:
    """The number of processes has a limit."""
    found = limit(["/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"])
    return [found.isdigit() and int(found) <= 65536, found or "none to be seen"]


def memory_limit() -> list[object]:
    """Memory has a limit."""
    found = limit(["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"])
    return [found.isdigit() and int(found) < 1 << 50, found or "none to be seen"]


AS_ROOT = (root_file_system, door_folder, processes_limit, memory_limit)
AS_AGENT = (
    privileges,
    seccomp,
    system_calls,
    socket_families,
    network,
    door_answers,
    supervisor_is_safe,
    host_is_hidden,
    workspace,
)


def run(probes: tuple[Callable[[], list[object]], ...]) -> dict[str, list[object]]:
    """Results by name; a probe that breaks has failed."""
    results: dict[str, list[object]] = {}
    for probe in probes:
        try:
            results[probe.__name__] = probe()
        except Exception:
            results[probe.__name__] = [False, traceback.format_exc(limit=1).strip().replace("\n", " ")]
    return results


def main() -> None:
    """Run all probes and print the results."""
    results = run(AS_ROOT)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        os.setgroups([])
        os.setresgid(AGENT, AGENT, AGENT)
        os.setresuid(AGENT, AGENT, AGENT)
        os.umask(0o022)
        with os.fdopen(writer, "w") as pipe:
            json.dump(run(AS_AGENT), pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    results.update(json.loads(text or "{}"))
    sys.stdout.write(json.dumps(results) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
