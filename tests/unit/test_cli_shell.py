"""`kortix sessions shell`: the control socket and a person's terminal, with a scripted sandbox behind the host."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from at_terminal import AtTerminal
from desk import wait_for
from seeded import Seeded

from kortix_tui.base.errors import Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context, operator_actor
from kortix_tui.runtime.control import Calls, ControlServer
from kortix_tui.runtime.control_frames import (
    Closed,
    Data,
    FromHost,
    Opened,
    OpenRequest,
    Rejected,
    pack,
    short_path,
)
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.sandbox.shell_stream import ShellStream

HINT = "ctrl-] and then q."


def no_calls() -> Calls:
    raise AssertionError("nobody calls here")


@dataclass
class Sandbox:
    """A host with its control socket, and a sandbox that answers what the test says."""

    seeded: Seeded
    loop: LoopThread = field(default_factory=LoopThread)
    frames: list[tuple[dict[str, Any], bytes]] = field(default_factory=list)
    shell: ShellStream | None = None
    opened: tuple[str, int, int, str] | None = None

    def __post_init__(self) -> None:
        self.context = Context(self.seeded.store, Settings(), operator_actor("cli"), self.loop)
        self.server = ControlServer(self.context, self.open_shell, no_calls)
        self.loop.call(self.server.start(), deadline_s=10)

    async def open_shell(self, session_id: str, rows: int, columns: int, term: str) -> ShellStream:
        self.opened = (session_id, rows, columns, term)
        self.shell = ShellStream("s1", self.send)
        return self.shell

    async def send(self, header: dict[str, Any], body: bytes) -> None:
        self.frames.append((header, body))
        if header["type"] == "shell_close" and self.shell is not None:
            self.shell.end(None)

    def prints(self, data: bytes) -> None:
        async def act() -> None:
            wait = self.shell
            assert wait is not None
            assert wait.feed(data)

        wait_for(lambda: self.shell)
        self.loop.call(act(), deadline_s=10)

    def exits(self, code: int | None) -> None:
        async def act() -> None:
            assert self.shell is not None
            self.shell.end(code)

        self.loop.call(act(), deadline_s=10)

    def typed(self) -> bytes:
        return b"".join(body for header, body in self.frames if header["type"] == "shell_data")

    def events(self) -> list[tuple[str, str]]:
        rows = self.seeded.store.all("SELECT event, outcome FROM audit WHERE event LIKE 'session.shell.%' ORDER BY seq")
        return [tuple(row) for row in rows]

    def close(self) -> None:
        self.loop.call(self.server.close(), deadline_s=20)
        self.loop.close()


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    made.lead()
    made.project()
    yield made
    made.close()


@pytest.fixture
def sandbox(seeded: Seeded) -> Iterator[Sandbox]:
    made = Sandbox(seeded)
    yield made
    made.close()


def test_a_person_works_in_a_shell(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session, rows=30, columns=100) as terminal:
        terminal.see(HINT)
        wait_for(lambda: sandbox.opened)
        assert sandbox.opened == (session, 30, 100, "xterm-256color")
        sandbox.prints(b"agent@box:~$ \x1b]0;evil title\x07\x1b[32mgreen\x1b[0m\x1b[5n")
        assert terminal.see(b"\x1b[32mgreen\x1b[0m").endswith(b"agent@box:~$ ")
        terminal.type(b"ls\r\x03")  # ctrl-c is the shell's
        wait_for(lambda: sandbox.typed() == b"ls\r\x03")
        terminal.changed_size(40, 120)
        resize = {"type": "shell_resize", "id": "s1", "rows": 40, "cols": 120}
        wait_for(lambda: (resize, b"") in sandbox.frames)
        sandbox.prints(b"\x1b[?1049h\x1b[?2004hin an editor")
        terminal.see("in an editor")
        sandbox.exits(3)
        assert terminal.end() == 3
        assert b"\x1b[?1049l\x1b[?2004l" in terminal.screen
        assert terminal.settings_now == terminal.before
    assert sandbox.events() == [("session.shell.open", "success"), ("session.shell.close", "success")]
    (detail,) = sandbox.seeded.one("SELECT detail FROM audit WHERE event = 'session.shell.close'")
    assert '"exit_code":3' in str(detail) and '"bytes_in":4' in str(detail)


def test_the_key_leaves_and_hangs_up(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session) as terminal:
        sandbox.prints(b"$ ")
        terminal.see("$ ")
        terminal.type(b"vim\x1dq")
        assert terminal.end() == 0
        assert b"Left the shell." in terminal.screen
        assert terminal.settings_now == terminal.before
    wait_for(lambda: {"type": "shell_close", "id": "s1"} in [header for header, _ in sandbox.frames])
    assert sandbox.typed() == b"vim"
    wait_for(lambda: sandbox.events()[-1] == ("session.shell.close", "success"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_the_terminal_is_put_back_when_the_command_is_ended(sandbox: Sandbox, number: int) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session) as terminal:
        sandbox.prints(b"\x1b[?25l$ ")
        terminal.see("$ ")
        terminal.process.send_signal(number)
        assert terminal.end() == 128 + number
        assert terminal.settings_now == terminal.before
        assert b"\x1b[?25h" in terminal.screen


def test_a_host_that_goes_is_said_and_the_terminal_put_back(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session) as terminal:
        sandbox.prints(b"$ ")
        terminal.see("$ ")
        sandbox.loop.call(sandbox.server.close(), deadline_s=20)
        terminal.see("kortix: The host went.")
        assert terminal.end() == 1
        assert terminal.settings_now == terminal.before


def test_a_sandbox_that_goes_ends_the_shell(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session) as terminal:
        sandbox.prints(b"$ ")
        terminal.see("$ ")
        sandbox.exits(None)
        terminal.see("The shell was cut off")
        assert terminal.end() == 1


def test_a_stopped_session_is_refused_with_the_way_out(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session(status="stopped", wanted="stopped")
    with AtTerminal("sessions", "shell", session) as terminal:
        terminal.see(f"Session {session} is stopped: it has no shell.")
        terminal.see(f"kortix sessions resume {session}")
        assert terminal.end() == 1
    assert sandbox.events() == [("session.shell.open", "failure")]


def test_much_output_arrives_whole_and_in_order(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    with AtTerminal("sessions", "shell", session) as terminal:
        terminal.see(HINT)
        for block in range(40):
            sandbox.prints(b"".join(b"line %05d\r\n" % (block * 100 + line) for line in range(100)))
        sandbox.exits(0)
        assert terminal.end() == 0
        numbers = [int(word) for word in terminal.screen.split() if word.isdigit()]
        assert numbers == list(range(4000))


# The socket itself


def talk(home: Home, data: bytes) -> list[tuple[object, bytes]]:
    """Send bytes and read frames until the host hangs up."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        with short_path(home.control_socket) as name:
            connection.connect(name)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        decoder, frames = wire.Decoder(), list[tuple[object, bytes]]()
        while received := connection.recv(65536):
            frames += [(FromHost.validate_json(header), body) for header, body in decoder.feed(received)]
        return frames


def test_the_socket_is_private_and_replaces_a_dead_hosts(seeded: Seeded) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(seeded.home.control_socket))
    stale.close()
    sandbox = Sandbox(seeded)
    mode = seeded.home.control_socket.stat().st_mode
    assert stat.S_ISSOCK(mode) and stat.S_IMODE(mode) == 0o600
    sandbox.close()
    assert not seeded.home.control_socket.exists()


def test_a_long_home_has_a_socket_too(short_folder: Path) -> None:
    home = Home(short_folder / ("long" * 40))
    home.prepare()
    seeded = Seeded(home)
    seeded.project()
    sandbox = Sandbox(seeded)
    frames = talk(home, pack(Data(), b"x"))
    assert isinstance(frames[0][0], Rejected)
    sandbox.close()
    seeded.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n" * 10, id="another protocol"),
        pytest.param(wire.encode({"type": "open"}), id="fields missing"),
        pytest.param(wire.encode({"type": "nonsense"}), id="unknown type"),
        pytest.param(pack(Data(), b"ls\r"), id="keys before a shell"),
        pytest.param(b"\xff" * 64, id="impossible length"),
    ],
)
def test_what_is_not_the_protocol_is_rejected(sandbox: Sandbox, data: bytes) -> None:
    frames = talk(sandbox.seeded.home, data)
    assert [type(frame) for frame, _ in frames] == [Rejected]
    assert sandbox.opened is None


def test_a_client_that_claims_to_be_somebody_else_is_written_down_as_our_user(sandbox: Sandbox) -> None:
    session = sandbox.seeded.session()
    actor = operator_actor("cli").model_copy(update={"kind": "agent", "name": "mallory"})
    request = OpenRequest(session_id=session, rows=24, columns=80, term="xterm", actor=actor)
    frames = talk(sandbox.seeded.home, pack(request))
    assert isinstance(frames[0][0], Opened)
    (label,) = sandbox.seeded.one("SELECT performed_by FROM audit WHERE event = 'session.shell.open'")
    assert label == operator_actor("cli").label


def test_another_user_is_refused(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kortix_tui.runtime.control.os.geteuid", lambda: os.getuid() + 1)
    frames = talk(sandbox.seeded.home, pack(Data(), b"x"))
    (frame, _) = frames[0]
    assert isinstance(frame, Rejected) and "another user" in frame.failure.message


def test_a_failing_sandbox_is_told(sandbox: Sandbox) -> None:
    async def fail(session_id: str, rows: int, columns: int, term: str) -> ShellStream:
        await asyncio.sleep(0)
        raise Refused("The sandbox has no shell.", hint="Look.")

    sandbox.loop.call(sandbox.server.close(), deadline_s=20)
    sandbox.server = ControlServer(sandbox.context, fail, no_calls)
    sandbox.loop.call(sandbox.server.start(), deadline_s=10)
    session = sandbox.seeded.session()
    request = OpenRequest(session_id=session, rows=24, columns=80, term="xterm", actor=operator_actor("cli"))
    ((frame, _),) = talk(sandbox.seeded.home, pack(request))
    assert isinstance(frame, Rejected)
    assert (frame.failure.code, frame.failure.message, frame.failure.hint) == (
        "refused",
        "The sandbox has no shell.",
        "Look.",
    )
    assert sandbox.events() == [("session.shell.open", "failure")]
    assert not isinstance(frame, Closed)
