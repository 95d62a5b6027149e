"""Running programs of the machine (apt, mmdebstrap, systemctl): with a deadline, in an owned process group."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.base.privacy import operators_umask
from kortix_tui.base.text import visible, without_sgr

Progress = Callable[[str], None]
"""Gets one line of safe text at a time."""
Ask = Callable[[str], Awaitable[bool]]
"""Puts a yes-or-no question to the person before something changes their machine."""
_TAIL_LINES = 20
_LINE_BYTES = 64 * 1024
_GRACE_SECONDS = 10.0


@dataclass(frozen=True)
class Ended:
    """How a program ended.

    Attributes:
        status: Its exit status; negative for a signal.
        tail: The newest lines of its output, made visible.
    """

    status: int
    tail: str


def as_root(command: Sequence[str]) -> list[str] | None:
    """The command as root would run it from here; `None` when this user has no way."""
    if os.geteuid() == 0:
        return list(command)
    return ["sudo", "--", *command] if shutil.which("sudo") else None


async def run(command: Sequence[str], progress: Progress, *, seconds: float) -> Ended:
    """Run a program, giving its output line by line.

    A program run through sudo stays in our session, as sudo asks for the password at the terminal; all others
    get a session of their own, so that ending them ends their children too.

    Raises:
        DeadlineExceeded: It ran too long and was ended.
        FileNotFoundError: There is no such program.
    """
    own_session = command[0] != "sudo"
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=None if not own_session else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        start_new_session=own_session,
        limit=_LINE_BYTES,
        umask=operators_umask(),  # package scripts and daemons make files for everybody
    )
    tail: list[str] = []
    try:
        async with asyncio.timeout(seconds):
            await _read_lines(process, tail, progress)
            status = await process.wait()
    except TimeoutError:
        raise DeadlineExceeded(f"{command[0]} did not end within {seconds:.0f} s and was stopped.") from None
    finally:
        if process.returncode is None:
            await _end(process, group=own_session)
    return Ended(status, "\n".join(tail))


async def _read_lines(process: asyncio.subprocess.Process, tail: list[str], progress: Progress) -> None:
    assert process.stdout is not None  # noqa: S101  # asked for above
    while True:
        try:
            raw = await process.stdout.readline()
        except ValueError:
            continue  # a line over the limit: its rest is read as the next one
        if not raw:
            return
        # Progress bars redraw a line with carriage returns: the last drawing counts.
        line = raw.decode("utf-8", "replace").rstrip("\r\n").rsplit("\r", 1)[-1]
        text = without_sgr(visible(line, sgr=True)).rstrip()
        if text:
            tail.append(text)
            del tail[:-_TAIL_LINES]
            progress(text)


async def _end(process: asyncio.subprocess.Process, *, group: bool) -> None:
    """Ask a program to end, then make it: mmdebstrap needs the chance to unmount what it mounted."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            if group:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await process.wait()
                return
