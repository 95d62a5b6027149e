"""Starting a Docker daemon where none runs: never a second one, and over the stale files of a killed one.

A second daemon beside a running one can delete the first one's bridge, so a daemon is started only when no process
in this network namespace is one. A daemon that was killed leaves pid files behind, and the next start fails while
the number in them belongs to anything at all, even a zombie; so such files are removed first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.sandbox.commands import Progress, as_root, run
from kortix_tui.sandbox.docker.endpoint import DEFAULT_SOCKET, Answer, Endpoint, ask

_POLL_SECONDS = 0.2
_START_SECONDS = 30.0
_LOCK_SECONDS = 4 * _START_SECONDS
_LOCK_NAME = "\0kortix-starts-dockerd"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_LAUNCH = f"""\
export PATH="$PATH:{_SBIN}"
remove_stale() {{
    [ -f "$1" ] || return 0
    pid=$(cat "$1")
    state=$(sed -n 's/^State:[[:space:]]*\\(.\\).*/\\1/p' "/proc/$pid/status" 2>/dev/null)
    name=$(cat "/proc/$pid/comm" 2>/dev/null)
    case "$state" in
        "" | Z | X) ;;
        *) [ "$name" != "$2" ] || return 0 ;;
    esac
    echo "Removing $1, which a killed $2 left behind."
    rm -f -- "$1"
}}
log=$1
remove_stale "$2" "$3"
remove_stale "$4" "$5"
shift 5
setsid "$@" </dev/null >>"$log" 2>&1 &
"""


@dataclass(frozen=True)
class Daemon:
    """One daemon's places. The defaults are those of the distribution's package.

    Attributes:
        socket: Where it will answer.
        pid_file: Its own pid file.
        containerd_pid_file: The pid file of the containerd that it starts.
        log: Gets its output, as nothing else does without a service manager.
        command: How it is started.
        managed: Whether the machine's service manager knows it, and is to start it where there is one.
    """

    socket: Path = DEFAULT_SOCKET
    pid_file: Path = Path("/var/run/docker.pid")
    containerd_pid_file: Path = Path("/var/run/docker/containerd/containerd.pid")
    log: Path = Path("/var/log/kortix-dockerd.log")
    command: tuple[str, ...] = ("dockerd",)
    managed: bool = True


def daemon_program() -> str | None:
    """The daemon's program if it is installed; administrators' folders are often not in a user's PATH."""
    return shutil.which("dockerd", path=f"{os.environ.get('PATH', '')}:{_SBIN}")


def running_daemon(proc: Path = Path("/proc")) -> int | None:
    """The pid of a Docker daemon in our network namespace; `None` when there is none.

    Daemons in namespaces of their own (rootless, nested in containers) do not count: they cannot get in the way.
    Where the namespace cannot be read (another user's process), it is taken for ours.
    """
    ours = _namespace(proc / "self")
    for folder in proc.iterdir():
        if folder.name.isdigit() and is_alive(int(folder.name), "dockerd", proc):
            theirs = _namespace(folder)
            if theirs is None or theirs == ours:
                return int(folder.name)
    return None


def is_alive(pid: int, name: str, proc: Path = Path("/proc")) -> bool:
    """Whether `pid` is a process of that name and no zombie."""
    try:
        status = (proc / str(pid) / "status").read_text()
    except OSError:
        return False
    fields = {key: value.strip() for key, _, value in (line.partition(":") for line in status.splitlines())}
    return fields.get("Name") == name and not fields.get("State", "Z").startswith(("Z", "X"))


def launch_command(daemon: Daemon) -> list[str]:
    """What root runs to start the daemon in a session of its own; it returns at once.

    It first removes the pid files of which the process is gone, a zombie, or some other program by now. That has to be
    done by root too: others cannot even look into the folder.
    """
    names = (str(daemon.pid_file), "dockerd", str(daemon.containerd_pid_file), "containerd")
    return ["sh", "-c", _LAUNCH, "sh", str(daemon.log), *names, *daemon.command]


async def start_daemon(daemon: Daemon, progress: Progress) -> bool:
    """Make the daemon run and answer, with the service manager where there is one.

    Returns:
        Whether it had to be started.

    Raises:
        EngineUnavailable: It could not be started, or one runs that does not answer; says what to do.
    """
    async with _only_starter(progress):
        if await _answers(daemon):
            return False
        return await _start(daemon, progress)


async def _start(daemon: Daemon, progress: Progress) -> bool:
    pid = running_daemon()
    if pid is not None:
        progress(f"A Docker daemon (process {pid}) is running; waiting for it to answer.")
        await _wait(daemon, f"A Docker daemon runs (process {pid}), but does not answer at {daemon.socket}.")
        return False
    for manager in _managers() if daemon.managed else []:
        command = as_root(manager)
        if command is None:
            break
        progress(f"Starting the Docker daemon: {shlex.join(command)}")
        ended = await run(command, progress, seconds=2 * _START_SECONDS)
        if ended.status == 0 and await _answers_soon(daemon):
            return True
    pid = running_daemon()
    if pid is None:
        await _start_alone(daemon, progress)
    else:
        await _wait(daemon, f"The Docker daemon (process {pid}) was started, but does not answer at {daemon.socket}.")
    return True


def _managers() -> list[list[str]]:
    """The service manager's command, if it runs here; a package's init script where nothing manages services."""
    if Path("/run/systemd/system").is_dir():
        return [["systemctl", "start", "docker"]]
    if Path("/etc/init.d/docker").exists() and shutil.which("service", path=f"{os.environ.get('PATH', '')}:{_SBIN}"):
        return [["service", "docker", "start"]]
    return []


async def _start_alone(daemon: Daemon, progress: Progress) -> None:
    """Start the daemon without a service manager; it survives this process."""
    command = as_root(launch_command(daemon))
    if command is None:
        raise EngineUnavailable(
            "The Docker daemon does not run, and starting it needs root.", hint="As root, run: kortix setup"
        )
    progress(f"Starting the Docker daemon; its log is {daemon.log}.")
    ended = await run(command, progress, seconds=_START_SECONDS)
    if ended.status != 0:
        raise EngineUnavailable(f"The Docker daemon could not be started: {ended.tail}", hint=f"See {daemon.log}.")
    await _wait(daemon, "The Docker daemon was started, but does not answer.")


@asynccontextmanager
async def _only_starter(progress: Progress) -> AsyncIterator[None]:
    """One set-up at a time looks, cleans and starts, whichever user runs it.

    An abstract socket is the lock: its name belongs to the network namespace, as the harm of a second daemon does,
    and it is gone with its process.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as lock:
        told = False
        try:
            async with asyncio.timeout(_LOCK_SECONDS):
                while not _try_bind(lock):
                    if not told:
                        progress("Another set-up starts the Docker daemon; waiting for it.")
                        told = True
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise EngineUnavailable("Another set-up has been starting the Docker daemon for too long.") from None
        yield


def _try_bind(lock: socket.socket) -> bool:
    try:
        lock.bind(_LOCK_NAME)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return False
        raise
    return True


async def _answers(daemon: Daemon) -> bool:
    endpoint = Endpoint(f"unix://{daemon.socket}", "default socket")
    attempt = await asyncio.to_thread(ask, endpoint)
    # A daemon that refuses this user answers its own users: that is a matter of groups.
    return attempt.answer in (Answer.ANSWERED, Answer.DENIED)


async def _answers_soon(daemon: Daemon) -> bool:
    try:
        async with asyncio.timeout(_START_SECONDS):
            while not await _answers(daemon):  # noqa: ASYNC110  # nobody tells when a socket appears
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        return False
    return True


async def _wait(daemon: Daemon, failure: str) -> None:
    if await _answers_soon(daemon):
        return
    tail = await asyncio.to_thread(_tail, daemon.log)
    raise EngineUnavailable(
        f"{failure}{tail}", hint=f"Look at its log ({daemon.log}, or: journalctl -u docker), then run: kortix setup"
    )


def _tail(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()[-5:]
    except OSError:
        return ""
    return "\n" + "\n".join(lines) if lines else ""


def _namespace(process: Path) -> str | None:
    try:
        return str((process / "ns/net").readlink())
    except OSError:
        return None
