"""The help desk beside a demo: made with it, started again where it is gone, ended with it.

It is a process of its own, and never code from the demo's repository (invariant I12).
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.runtime import demo_helpdesk
from kortix_tui.runtime.demo_home import ADDRESS, DESK

_LETTERS: Final = Path(__file__).with_name("demo_tickets.json")
"""What customers have written. Invented; the addresses lead nowhere."""
_PROCESS: Final = "process.json"
_LOG: Final = "helpdesk.log"
_END_S: Final = 5.0
_POLL_S: Final = 0.02
log = logging.getLogger(__name__)


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Config(_Part):
    """Chosen once. The token itself is in the demo's vault only."""

    port: int
    token_sha256: str


class _Process(_Part):
    """Which process serves; `started` tells it from a later one of the same number."""

    pid: int
    started: str


class HelpDesk:
    """One demo's help desk.

    Args:
        folder: Of its files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, demo: Path) -> tuple[HelpDesk, str]:
        """Make one with every ticket open, and start it on a free port.

        Returns:
            The help desk, and the token that its callers need; it is kept nowhere here.
        """
        desk, token = cls(demo / DESK), secrets.token_urlsafe(32)
        desk.folder.mkdir(mode=0o700)
        demo_helpdesk.replace(desk.folder / demo_helpdesk.TICKETS, _LETTERS.read_text("utf-8"))
        with _listening(0) as listening:
            config = _Config(
                port=listening.getsockname()[1], token_sha256=hashlib.sha256(token.encode()).hexdigest()
            )  # fmt: skip
            demo_helpdesk.replace(desk._config_file, config.model_dump_json())
            desk._start(listening)
        return desk, token

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://{ADDRESS}:{self._config().port}"

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        process = self._process()
        return process is not None and _started(process.pid) == process.started

    def wake(self) -> None:
        """Start it where it is gone. Of several processes that want to, the one that gets the port does it.

        Where another program has the port, this is noted in the log: calls fail then, and everything else works.
        """
        if self.alive:
            return
        try:
            with _listening(self._config().port) as listening:
                self._start(listening)
        except (OSError, ValidationError) as error:
            if not self.alive:
                log.warning("the demo's help desk could not be started: %s", error)

    def end(self) -> None:
        """End its process and wait until it is gone.

        Raises:
            DeadlineExceeded: It did not end.
        """
        process = self._process()
        if process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            end = time.monotonic() + _END_S
            while _started(process.pid) == process.started:
                if time.monotonic() > end:
                    break
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
                time.sleep(_POLL_S)
            else:
                return
        raise DeadlineExceeded(f"The demo's help desk, process {process.pid}, does not end.")

    # Inside

    @property
    def _config_file(self) -> Path:
        return self.folder / demo_helpdesk.CONFIG

    def _config(self) -> _Config:
        return _Config.model_validate_json(self._config_file.read_bytes())

    def _process(self) -> _Process | None:
        try:
            return _Process.model_validate_json((self.folder / _PROCESS).read_bytes())
        except (FileNotFoundError, ValidationError):
            return None

    def _start(self, listening: socket.socket) -> None:
        """Hand the socket to a new process. Who connects before it serves waits in the socket's queue."""
        script, flags = demo_helpdesk.__file__, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        pid = os.posix_spawn(
            sys.executable,
            # Isolated: neither the current folder nor an environment says what is imported.
            [sys.executable, "-I", script, str(self.folder)],
            {"PATH": os.defpath, "LANG": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, listening.fileno(), demo_helpdesk.LISTENING),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(self.folder / _LOG), flags, 0o600),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
        )
        process = _Process(pid=pid, started=_started(pid) or "")
        demo_helpdesk.replace(self.folder / _PROCESS, process.model_dump_json())


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((ADDRESS, port))
        listening.listen(16)
    except BaseException:
        listening.close()
        raise
    return listening


def _started(pid: int) -> str | None:
    """When a process began, as one word that no later process shares; `None` when it is gone."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)  # a child of ours that ended would stay in the list
    try:
        # The name may hold anything, `)` included; behind it, the fields are plain.
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in ("Z", "X") else f"{boot} {fields[19]}"
