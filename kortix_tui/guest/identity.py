"""Who the programs of a sandbox run as, and how they are started.

The supervisor is root with CAP_SETUID, CAP_SETGID and CAP_KILL and nothing else: it cannot write where uid 1000 is
the owner, nor give files away. So files for the agent are root's with the agent's group (an owner may hand a file to
a group that it is in), work inside the agent's folders is done with the agent's effective uid, and programs drop
everything before they start.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
from typing import IO, Iterator, Mapping, Sequence, Union

from kortix_tui.guest.places import SYSTEM_PATH

AGENT = 1000
NOBODY = 65534
_PR_SET_DUMPABLE = 4
_PR_SET_NO_NEW_PRIVS = 38
_FIRST_TO_DIE = b"500"  # when memory runs out, the agent's programs go before the supervisor
_libc = ctypes.CDLL(None, use_errno=True)

Stream = Union[int, IO[bytes], None]


def harden() -> None:
    """Nobody may trace this process or read its memory, whoever asks."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Identity:
    """An account that programs run as.

    Args:
        uid: Its user and group number; `None` keeps the caller's (on a host, in tests).
        home: Its home folder.
        path: Where its programs are found; the image's own, in a sandbox.
    """

    def __init__(self, uid: int | None, home: str = "/", path: str = SYSTEM_PATH) -> None:
        self.uid = uid
        self.home = home
        self.path = path

    def join_group(self) -> None:
        """Make the supervisor a member of the account's group, so that it can hand files to it."""
        if self.uid is not None:
            os.setgroups([self.uid])

    def share(self, path: str, mode: int) -> None:
        """Let the account's group have what `mode` says of a file or folder of ours."""
        if self.uid is not None:
            os.chown(path, -1, self.uid)
        os.chmod(path, mode)

    @contextlib.contextmanager
    def assumed(self) -> Iterator[None]:
        """Work on files with the account's rights.

        Only the effective number changes, so that the account's own processes still cannot signal this one. Nothing
        may be awaited inside.
        """
        if self.uid is None:
            yield
            return
        os.seteuid(self.uid)
        try:
            yield
        finally:
            os.seteuid(0)

    def drop(self) -> None:
        """Become the account for good; in a child, before its program."""
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
        if _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")

    def start(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: str,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream = subprocess.DEVNULL,
        stderr: Stream = subprocess.DEVNULL,
        file_size: int | None = None,
        terminal: bool = False,
    ) -> subprocess.Popen[bytes]:
        """Start a program in a session of its own.

        Args:
            command: The program and its arguments; found through the environment's PATH.
            environment: All of its environment.
            folder: Where it starts.
            stdin: As for `subprocess`.
            stdout: As for `subprocess`.
            stderr: As for `subprocess`.
            file_size: Largest file that it may write, in bytes.
            terminal: Its standard input is a terminal that becomes its controlling one.

        Raises:
            OSError: The folder cannot be entered or the program cannot be run.
        """
        with self.assumed():
            entered = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

        def prepare() -> None:
            os.umask(0o022)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
            with contextlib.suppress(OSError):
                score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
                os.write(score, _FIRST_TO_DIE)
                os.close(score)
            if terminal:
                import fcntl
                import termios

                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            self.drop()
            os.fchdir(entered)

        try:
            return subprocess.Popen(
                list(command),
                env=dict(environment),
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
                preexec_fn=prepare,
            )
        except subprocess.SubprocessError as error:
            raise OSError(0, f"the program could not be prepared: {error}") from error
        finally:
            os.close(entered)

    def environment(self) -> dict[str, str]:
        """What every program of the account has."""
        return {
            "PATH": self.path,
            "HOME": self.home,
            "USER": "agent",
            "LOGNAME": "agent",
            "SHELL": "/bin/sh",
            "LANG": "C.UTF-8",
        }

    def signal_all(self, number: int) -> None:
        """Signal every process of the account at once, which a fork in between cannot escape."""
        if self.uid is None:
            return
        with self.assumed(), contextlib.suppress(ProcessLookupError):
            os.kill(-1, number)

    def count(self) -> int:
        """How many processes the account has."""
        found = 0
        for name in os.listdir("/proc"):
            if name.isdigit():
                with contextlib.suppress(OSError):
                    with open(f"/proc/{name}/stat", "rb") as status:
                        state = status.read().rpartition(b")")[2].split()[0]
                    found += state not in (b"Z", b"X") and os.stat(f"/proc/{name}").st_uid == self.uid
        return found


def signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal a program and what is still in its process group; gone already is fine."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
