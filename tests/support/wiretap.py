"""Everything that this process says and hears: bytes on its sockets, and what its children are started with."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kortix_tui.guest import wire

_SAMPLE_S = 0.05
_UPGRADE = b"POST /v1/supervisor "
_UPGRADED = b"HTTP/1.1 101 "


@dataclass
class Line:
    """One connection of a socket, with all that went in and out."""

    name: str
    heard: bytearray = field(default_factory=bytearray)
    said: bytearray = field(default_factory=bytearray)

    @property
    def is_channel(self) -> bool:
        """Whether a supervisor speaks here."""
        return "door" in self.name and self.heard.startswith(_UPGRADE) and self.said.startswith(_UPGRADED)

    @property
    def is_door(self) -> bool:
        """Whether an agent's program speaks here."""
        return "door" in self.name and not self.is_channel

    @property
    def is_control(self) -> bool:
        return self.name.endswith("control.sock")

    def frames(self) -> tuple[list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
        """Heard and said frames; those of a channel begin behind the upgrade."""
        streams = (bytes(self.heard), bytes(self.said))
        if self.is_channel:
            streams = (streams[0].partition(b"\r\n\r\n")[2], streams[1].partition(b"\r\n\r\n")[2])
        heard, said = (list(wire.Decoder().feed(stream)) for stream in streams)
        return heard, said


class Wiretap:
    """What was heard; see `tapped`."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.children: set[bytes] = set()
        """Arguments and environments of children and their children."""
        self._known: weakref.WeakKeyDictionary[socket.socket, Line] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def line(self, connection: socket.socket) -> Line:
        with self._lock:
            if connection not in self._known:
                self._known[connection] = Line(_name(connection))
                self.lines.append(self._known[connection])
            return self._known[connection]

    def started(self, arguments: object, environment: Any) -> None:
        words = [arguments] if isinstance(arguments, str | bytes | os.PathLike) else list(arguments)  # type: ignore[call-overload]
        pairs = os.environ if environment is None else environment
        texts = [*words, *(os.fsdecode(name) + "=" + os.fsdecode(value) for name, value in pairs.items())]
        self.children.add(b"\0".join(os.fsencode(text) for text in texts))

    def sample(self) -> None:
        """Look at all processes below this one."""
        parents = dict[int, int]()
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with suppress(OSError):
                    status = Path("/proc", entry, "stat").read_bytes().rpartition(b")")[2].split()
                    parents[int(entry)] = int(status[1])
        ours = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        for pid in ours:
            for what in ("cmdline", "environ"):
                with suppress(OSError):
                    self.children.add(Path("/proc", str(pid), what).read_bytes())


@contextmanager
def tapped() -> Iterator[Wiretap]:
    """Listen to this process."""
    tap, stop = Wiretap(), threading.Event()
    patch = pytest.MonkeyPatch()
    plain = socket.socket

    def taking(name: str, keep: Callable[[Line, tuple[Any, ...], Any], None]) -> None:
        method = getattr(plain, name)

        @functools.wraps(method)
        def recorded(self: socket.socket, *arguments: Any, **options: Any) -> Any:
            line = tap.line(self)
            result = method(self, *arguments, **options)
            keep(line, arguments, result)
            return result

        patch.setattr(plain, name, recorded)

    taking("recv", lambda line, _, data: line.heard.extend(data))
    taking("recv_into", lambda line, given, count: line.heard.extend(memoryview(given[0]).cast("B")[:count]))
    taking("send", lambda line, given, count: line.said.extend(memoryview(given[0]).cast("B")[:count]))
    taking("sendall", lambda line, given, _: line.said.extend(memoryview(given[0]).cast("B")))
    taking("sendmsg", lambda line, given, count: line.said.extend(b"".join(bytes(one) for one in given[0])[:count]))
    start = subprocess.Popen.__init__

    @functools.wraps(start)
    def starting(self: Any, arguments: Any, *rest: Any, **options: Any) -> None:
        tap.started(arguments, options.get("env"))
        start(self, arguments, *rest, **options)

    patch.setattr(subprocess.Popen, "__init__", starting)

    def watch() -> None:
        while not stop.wait(_SAMPLE_S):
            tap.sample()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield tap
    finally:
        stop.set()
        watcher.join(10)
        patch.undo()


def _name(connection: socket.socket) -> str:
    """The path of a Unix socket, from whichever end has it."""
    names = []
    for ask in (connection.getsockname, connection.getpeername):
        with suppress(OSError):
            names.append(ask())
    return next((str(name) for name in names if name), "unnamed")
