"""Turns: one start of the agent's program each, at most once for a turn id, whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import signal
import subprocess
from typing import Any, Awaitable, Callable, Mapping

from kortix_tui.guest.children import Children
from kortix_tui.guest.files import sync_folder, write_shared
from kortix_tui.guest.identity import Identity, signal_group
from kortix_tui.guest.output import Output
from kortix_tui.guest.places import Places

PROMPT_LIMIT = 64 << 20
_PROMPT_IN_ENVIRONMENT = 64 * 1024
_TERM_TO_KILL_S = 5.0
_HELD_OPEN_S = 0.5
_WORDS = 4000
_TURN_ID = re.compile(r"[A-Za-z0-9_.-]{1,128}\Z")

Record = Callable[..., None]


class TurnBook:
    """Which turns were started and which have ended; on disk before either becomes true for anybody else.

    Args:
        path: A file of lines `S <turn id>` and `E <turn id>`.
    """

    def __init__(self, path: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self.started: set[str] = set()
        self.ended: dict[str, None] = {}
        data = os.pread(self._descriptor, os.fstat(self._descriptor).st_size, 0)
        whole = data[: data.rfind(b"\n") + 1]
        self._size = len(whole)
        os.ftruncate(self._descriptor, self._size)  # a torn line is a turn that never began
        sync_folder(os.path.dirname(path))
        for line in whole.decode("ascii", "replace").splitlines():
            mark, _, turn_id = line.partition(" ")
            self.started.add(turn_id)
            if mark == "E":
                self.ended[turn_id] = None

    def interrupted(self) -> list[str]:
        """Turns that were running when the sandbox went down."""
        return sorted(self.started - set(self.ended))

    def start(self, turn_id: str) -> None:
        """From here on the turn is never started again."""
        self._write("S", turn_id)
        self.started.add(turn_id)

    def end(self, turn_id: str) -> None:
        """The turn's end is in the journal."""
        self._write("E", turn_id)
        self.ended[turn_id] = None

    def _write(self, mark: str, turn_id: str) -> None:
        line = f"{mark} {turn_id}\n".encode("ascii")
        try:
            if os.pwrite(self._descriptor, line, self._size) != len(line):
                raise OSError(errno.ENOSPC, "the disk is full")
            os.fdatasync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)


def read_environment(header: Mapping[str, Any]) -> dict[str, str]:
    """The variables that an order brings. Values may be secret: no message shows one.

    Raises:
        ValueError: They are not names and texts that a program can be started with.
    """
    given = header.get("environment") or {}
    pairs = given.items() if isinstance(given, dict) else [("", given)]
    for name, value in pairs:
        try:
            fits = bool(name) and "=" not in name and b"\0" not in os.fsencode(name) + os.fsencode(value)
        except (TypeError, UnicodeError):
            fits = False
        if not fits:  # not while another error is handled: one of an encoding carries the whole text
            raise ValueError("environment must be names and texts")
    return given


class Order:
    """What the host asks of a turn.

    Args:
        header: The `start_turn` frame's header; comes from the host, which may be of another version.

    Raises:
        ValueError: A field is missing or of another type.
    """

    def __init__(self, header: Mapping[str, Any]) -> None:
        self.turn_id: str = header.get("turn_id", "")
        self.command: list[str] = header.get("command", [])
        self.environment = read_environment(header)
        self.folder: str = header.get("cwd") or ""
        self.prompt_in: list[str] = header.get("prompt_in") or []
        self.prompt = bytearray()
        if not isinstance(self.turn_id, str) or not _TURN_ID.match(self.turn_id):
            raise ValueError("turn_id is not one")
        words = [*self.command, self.folder]
        if not self.command or not all(isinstance(word, str) and "\0" not in word for word in words):
            raise ValueError("command and cwd must be text")

    def add_prompt(self, piece: bytes) -> None:
        """Take the next part of the prompt."""
        if len(self.prompt) + len(piece) > PROMPT_LIMIT:
            raise ValueError(f"the prompt is longer than {PROMPT_LIMIT} bytes")
        self.prompt += piece


class Turn:
    """One turn that has begun.

    Args:
        order: What to run.
        places: Where files go.
        identity: Who runs it.
        record: Writes to the journal: kind, then keywords.
        pressed: Whether output should wait in the pipe.
    """

    def __init__(
        self, order: Order, *, places: Places, identity: Identity, record: Record, pressed: Callable[[], bool]
    ) -> None:
        self.order = order
        self.turn_id = order.turn_id
        self.pid: int | None = None
        self._places = places
        self._identity = identity
        self._record = record
        self._pressed = pressed
        self._process: subprocess.Popen[bytes] | None = None
        self._cancelled = False
        self._killing: asyncio.TimerHandle | None = None

    async def run(
        self,
        children: Children,
        ready: Callable[[], Awaitable[str | None]],
        environment: Mapping[str, str],
        file_size: int | None,
    ) -> dict[str, Any]:
        """Run the program to its end.

        Args:
            children: Who waits for processes.
            ready: Returns when the workspace is there, with what is wrong if it never will be.
            environment: What the program gets beside the order's own.
            file_size: Largest file that it may write.

        Returns:
            The data of the `turn_ended` record.
        """
        problem = await ready()
        if self._cancelled:
            return _ended("cancelled", message="cancelled before it started")
        if problem is not None:
            return not_started(problem)
        prompt_file = os.path.join(self._places.prompts, self.turn_id)
        output = Output(self._emit, self._pressed)
        try:
            try:
                self._start(prompt_file, environment, file_size, output)
            except OSError as error:
                return not_started(f"{self.order.command[0]}: {error.strerror or error}")
            assert self._process is not None
            status = await children.wait(self._process)
            await output.end(_HELD_OPEN_S)
        finally:
            output.close()
            if self._killing is not None:
                self._killing.cancel()
            with contextlib.suppress(OSError):
                os.unlink(prompt_file)
        reason = "cancelled" if self._cancelled else "exited" if status >= 0 else "killed"
        return _ended(reason, exit_code=status if status >= 0 else None, number=-status if status < 0 else None)

    def _emit(self, stream: str, piece: bytes) -> None:
        self._record("output", turn_id=self.turn_id, stream=stream, body=piece)

    def _start(self, prompt_file: str, environment: Mapping[str, str], file_size: int | None, output: Output) -> None:
        order = self.order
        write_shared(self._identity, prompt_file, bytes(order.prompt))
        everything = {**self._identity.environment(), **environment, "KORTIX_TURN_ID": self.turn_id}
        if "file" in order.prompt_in:
            everything["KORTIX_PROMPT_FILE"] = prompt_file
        if "env" in order.prompt_in and len(order.prompt) < _PROMPT_IN_ENVIRONMENT and 0 not in order.prompt:
            everything["KORTIX_PROMPT"] = os.fsdecode(bytes(order.prompt))
        everything.update(order.environment)
        # The file itself, not a pipe: nothing to feed, and no harm when it is never read.
        stdin = os.open(prompt_file if "stdin" in order.prompt_in else os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        pipes = [os.pipe(), os.pipe()]
        try:
            self._process = self._identity.start(
                order.command,
                environment=everything,
                folder=order.folder or self._places.workspace,
                stdin=stdin,
                stdout=pipes[0][1],
                stderr=pipes[1][1],
                file_size=file_size,
            )
        except BaseException:
            for reading, _ in pipes:
                os.close(reading)
            raise
        finally:
            os.close(stdin)
            for _, writing in pipes:
                os.close(writing)
        self.pid = self._process.pid
        self._record("turn_started", turn_id=self.turn_id, data={"pid": self.pid}, sync=True)
        output.follow("stdout", pipes[0][0])
        output.follow("stderr", pipes[1][0])
        if self._cancelled:
            self.cancel()

    def cancel(self) -> None:
        """Ask the program's process group to end, and end it after five seconds."""
        self._cancelled = True
        if self._process is not None and self._process.returncode is None and self._killing is None:
            signal_group(self._process, signal.SIGTERM)
            loop = asyncio.get_running_loop()
            self._killing = loop.call_later(_TERM_TO_KILL_S, signal_group, self._process, signal.SIGKILL)


def _ended(
    reason: str, *, exit_code: int | None = None, number: int | None = None, message: str = ""
) -> dict[str, Any]:
    words = message.encode("utf-8", "replace").decode()[:_WORDS]
    return {"exit_code": exit_code, "signal": number, "reason": reason, "message": words}


def interrupted() -> dict[str, Any]:
    """The end of a turn whose sandbox went down under it: nobody saw how the program ended."""
    return _ended("killed", message="the sandbox stopped while the turn was running; it may have had effects")


def not_started(message: str) -> dict[str, Any]:
    """The end of a turn whose program never ran."""
    return _ended("not_started", message=message)
