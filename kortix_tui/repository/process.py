"""Running git in one of two environments.

*Sealed* faces a sandbox or touches what an agent wrote: an emptied environment, no configuration but the
mirror's own and ours, limits on memory, processor time and output. *Operator* speaks to the source repository
with the person's ssh, credential helper and configuration, but asks nothing and runs no hook.

Each git runs in a process group (session) of its own, which is ended on cancellation and when a deadline passes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kortix_tui.base.errors import DeadlineExceeded, GitFailed
from kortix_tui.base.privacy import operators_umask
from kortix_tui.repository.errors import git_failed

_MIB = 1 << 20
_CHUNK = 65536
# Without limits of its own, `ulimit` of every shell can do this; where it cannot (macOS has no -v) the rest holds.
_LIMITED = 'ulimit -c 0; ulimit -t "$1"; ulimit -v "$2" 2>/dev/null || :; shift 2; exec nice -n 5 "$@"'

NO_HOOKS = os.devnull
"""As `core.hooksPath`: no hook can be found below it, and nobody can put one there."""

OPERATOR_SETTINGS = (
    f"core.hooksPath={NO_HOOKS}",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    # The command would get a path as its argument and is asked for refs; `true` has none. An empty one runs the path.
    "core.alternateRefsCommand=true",
    "submodule.recurse=false",
    "fetch.recurseSubmodules=no",
    "push.recurseSubmodules=no",
    "protocol.ext.allow=never",
    "gc.auto=0",
    "maintenance.auto=false",
    "advice.detachedHead=false",
)
"""For every git, so also for that of the person's own repository."""
_SEALED = (
    *OPERATOR_SETTINGS,
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.pager=cat",
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=256m",
    "core.deltaBaseCacheLimit=64m",
    # Larger blobs are streamed and never compared line by line.
    "core.bigFileThreshold=16m",
    "pack.threads=1",
    "pack.windowMemory=128m",
    "grep.threads=1",
    "protocol.allow=never",
    "diff.external=",
    "merge.renameLimit=2000",
)


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one git process may use.

    Attributes:
        wall_s: Seconds until its process group is ended.
        cpu_s: Seconds of processor time for each process; `None`: no limit.
        memory_bytes: Address space of each process; `None`: no limit.
        output_bytes: How much it may print before it is ended.
    """

    wall_s: float = 120.0
    cpu_s: int | None = 30
    memory_bytes: int | None = 1 << 30
    output_bytes: int = 64 * _MIB


@dataclass(frozen=True, slots=True)
class Output:
    """What a finished git left: its exit status and both streams."""

    status: int
    stdout: bytes
    stderr: bytes

    @property
    def text(self) -> str:
        """Standard output without the last newline; undecodable bytes become surrogates."""
        return self.stdout.decode("utf-8", "surrogateescape").rstrip("\n")

    def fields(self) -> list[bytes]:
        """Standard output of a `-z` command."""
        parts = self.stdout.split(b"\0")
        return parts[:-1] if parts[-1] == b"" else parts


@dataclass(frozen=True, slots=True)
class Running:
    """A git at work, and its three pipes."""

    process: asyncio.subprocess.Process
    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader


@dataclass(frozen=True)
class Git:
    """One way of running git: environment, settings, limits and the repository it works on.

    Attributes:
        environment: The whole environment of the process.
        settings: `name=value`, given with `-c`.
        limits: What each command may use unless it says otherwise.
        git_dir: The repository's own folder, given with `--git-dir` (no search, no ownership guess).
        directory: Where to run; for checkouts.
        inherited: Descriptors that git keeps open as long as it runs.
        umask: For the files that it makes; -1: ours.
    """

    environment: Mapping[str, str]
    settings: tuple[str, ...]
    limits: Limits = field(default_factory=Limits)
    git_dir: Path | None = None
    directory: Path | None = None
    inherited: tuple[int, ...] = ()
    umask: int = -1

    def having(self, *settings: str, environment: Mapping[str, str] | None = None) -> Git:
        """The same with more settings or variables."""
        return replace(
            self,
            settings=(*self.settings, *settings),
            environment={**self.environment, **(environment or {})},
        )

    def at(self, *, git_dir: Path | None = None, directory: Path | None = None) -> Git:
        """The same for another repository."""
        return replace(self, git_dir=git_dir, directory=directory)

    def holding(self, descriptor: int) -> Git:
        """The same, keeping a descriptor (such as a lock's) open even when this process dies first."""
        return replace(self, inherited=(*self.inherited, descriptor))

    def arguments(self, *args: str) -> list[str]:
        """The whole command line."""
        command = [git_program(), "--no-pager"]
        for setting in self.settings:
            command += ["-c", setting]
        if self.git_dir is not None:
            command.append(f"--git-dir={self.git_dir}")
        return [*command, *args]

    @contextlib.asynccontextmanager
    async def running(self, *args: str, limits: Limits | None = None) -> AsyncIterator[Running]:
        """Start git with three pipes; whatever happens, it and its children are gone afterwards."""
        command = self.arguments(*args)
        bounds = limits or self.limits
        if bounds.cpu_s is not None or bounds.memory_bytes is not None:
            cpu = str(bounds.cpu_s) if bounds.cpu_s is not None else "unlimited"
            memory = str(bounds.memory_bytes // 1024) if bounds.memory_bytes is not None else "unlimited"
            command = ["/bin/sh", "-c", _LIMITED, "git", cpu, memory, *command]
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self.environment),
            # Never where we happen to be: that folder may be gone, or be a checkout.
            cwd=self.directory or self.git_dir or "/",
            start_new_session=True,
            pass_fds=self.inherited,
            umask=self.umask,
        )
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise GitFailed("git started without pipes.")
        try:
            yield Running(process, process.stdin, process.stdout, process.stderr)
        finally:
            await end(process)

    async def run(
        self,
        *args: str,
        stdin: bytes = b"",
        ok: tuple[int, ...] = (0,),
        limits: Limits | None = None,
        what: str | None = None,
        cut_at: int | None = None,
    ) -> Output:
        """Run to the end.

        Args:
            *args: Subcommand and arguments.
            stdin: Given to it.
            ok: Exit statuses that are answers.
            limits: In place of the usual ones.
            what: How an error names the command; its first word when absent.
            cut_at: Enough after this many bytes: git is ended then, its status counts as 0, and at least one byte
                more than this is returned.

        Raises:
            GitFailed: Another exit status, or more output than allowed.
            DeadlineExceeded: It took too long.
        """
        bounds = limits or self.limits
        name = what or args[0]
        try:
            async with asyncio.timeout(bounds.wall_s), self.running(*args, limits=bounds) as git:
                sending = asyncio.create_task(feed(git.stdin, stdin))
                errors = asyncio.create_task(tail(git.stderr))
                try:
                    stdout = await _collect(git.stdout, bounds.output_bytes, name, cut_at)
                    if cut_at is not None and len(stdout) > cut_at:
                        return Output(0, stdout, b"")
                    stderr = await errors
                    status = await git.process.wait()
                finally:
                    sending.cancel()
                    errors.cancel()
                    await asyncio.gather(sending, errors, return_exceptions=True)
        except TimeoutError as error:
            raise DeadlineExceeded(
                f"git {name} did not end within {bounds.wall_s:g} seconds.",
                hint="Check the network and the load of this machine, then try again.",
            ) from error
        if status not in ok:
            raise git_failed(name, status, stderr)
        return Output(status, stdout, stderr)


def git_program() -> str:
    """The path of git.

    Raises:
        GitFailed: It is not installed.
    """
    found = shutil.which("git")
    if found is None:
        raise GitFailed("git is not installed.", hint="Install git 2.39 or newer.")
    return found


def sealed_environment() -> dict[str, str]:
    """Nothing of the operator's: no home, no configuration, no protocol version, no language."""
    return {
        "PATH": os.pathsep.join(dict.fromkeys((str(Path(git_program()).parent), "/usr/local/bin", "/usr/bin", "/bin"))),
        "HOME": "/nonexistent",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_ADVICE": "0",
        "LC_ALL": "C",
    }


def sealed(git_dir: Path | None = None, *, limits: Limits | None = None) -> Git:
    """Git for the mirror and for all that an agent wrote."""
    return Git(sealed_environment(), _SEALED, limits or Limits(), git_dir)


_INHERITED_REPOSITORY = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
    "GITOPERATOR_SETTINGS_DIR",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_ATTR_SOURCE",
    "GIT_TEMPLATE_DIR",
    "GIT_TRACE",
    "GIT_TRACE_CURL",
    "GIT_CURL_VERBOSE",
)


def operator_environment() -> dict[str, str]:
    """The person's own environment, unable to ask and untied from whatever repository we were started in."""
    environment = {name: value for name, value in os.environ.items() if name not in _INHERITED_REPOSITORY}
    environment |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "SSH_ASKPASS_REQUIRE": "never",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_EDITOR": "false",
        "GIT_PAGER": "cat",
        "LC_ALL": "C",
    }
    return environment


def operator(directory: Path | None = None, *, git_dir: Path | None = None, wall_s: float = 120.0) -> Git:
    """Git for the source repository only: with the person's access, without hooks, questions or limits but time."""
    limits = Limits(wall_s=wall_s, cpu_s=None, memory_bytes=None)
    return Git(operator_environment(), OPERATOR_SETTINGS, limits, git_dir, directory, umask=operators_umask())


async def without_questions(git: Git) -> Git:
    """Make ssh fail where it would ask. A person's own ssh command stays: without a terminal it cannot ask either."""
    if "GIT_SSH_COMMAND" in git.environment or "GIT_SSH" in git.environment:
        return git
    configured = await git.run("config", "--get", "core.sshCommand", ok=(0, 1))
    if configured.status == 0:
        return git
    return git.having(environment={"GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20"})


async def end(process: asyncio.subprocess.Process) -> None:
    """End a process group that still runs: SIGTERM, so that git removes its quarantine, then SIGKILL."""
    if process.returncode is None:
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(1.0):
                await _drain(process)
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await _drain(process)
    if process.stdin is not None:
        process.stdin.close()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # The leader is not reaped yet (returncode is None), so its id, and the group's, cannot be another's.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Read what is left, so that the pipes close, and wait for the end."""
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(RuntimeError):  # another reader is on it and will meet the end itself
                while await stream.read(_CHUNK):
                    pass
    await process.wait()


async def feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    """Give a process its whole input and close it; one that no longer listens is its own affair."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        if data:
            stdin.write(data)
            await stdin.drain()
        stdin.close()
        await stdin.wait_closed()


async def _collect(stream: asyncio.StreamReader, limit: int, name: str, cut_at: int | None) -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := await stream.read(_CHUNK):
        size += len(chunk)
        if cut_at is not None and size > cut_at:
            return b"".join((*parts, chunk))
        if size > limit:
            raise GitFailed(f"git {name} printed more than {limit // _MIB or 1} MiB.")
        parts.append(chunk)
    return b"".join(parts)


async def tail(stream: asyncio.StreamReader, limit: int = 8192) -> bytes:
    """Read to the end, keeping the last bytes: the reason is at the end."""
    kept = b""
    while chunk := await stream.read(_CHUNK):
        kept = (kept + chunk)[-limit:]
    return kept
