"""A person's shell in a session's sandbox: this process's end of it."""

from __future__ import annotations

import contextlib
import locale
import os
import selectors
import socket
from typing import Final

from pydantic import BaseModel, ConfigDict, ValidationError

from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_client import HostGone, connect
from kortix_tui.runtime.control_frames import (
    Answer,
    Closed,
    Data,
    FromHost,
    Opened,
    OpenRequest,
    Part,
    Rejected,
    Resize,
    pack,
)
from kortix_tui.runtime.raw_terminal import RawTerminal
from kortix_tui.runtime.sessions import Sessions
from kortix_tui.runtime.terminal_filter import DetachKey, TerminalFilter

TERM: Final = "xterm-256color"
"""What programs inside are told: its sequences are those that the filter was made for."""
ANSWER_S: Final = 60.0
_CHUNK: Final = 64 * 1024


class ShellEnd(BaseModel):
    """How a shell ended."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    session_id: str
    exit_code: int | None
    detached: bool


class Shells:
    """The shell verb."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def attach(self, reference: str, *, keyboard: int = 0, screen: int = 1) -> ShellEnd:
        """Open a shell in the session's sandbox and stay until it ends or the person types `ctrl-]` `q`.

        The shell runs as the agent's user, without start-up files. What it prints goes through `TerminalFilter`;
        the terminal is put back on every way out. Leaving by the key hangs the shell up.

        Args:
            reference: Session id or prefix.
            keyboard: Descriptor to read keys from.
            screen: Descriptor to write to.

        Raises:
            Refused: The session is not running, or there is no terminal.
            HostGone: The host ended meanwhile.
        """
        session = Sessions(self._context).find(reference)
        terminal = RawTerminal(keyboard, screen)
        rows, columns = terminal.size()
        with connect(self._context, deadline_s=ANSWER_S) as connection:
            request = OpenRequest(
                session_id=session.id, rows=rows, columns=columns, term=TERM, actor=self._context.actor
            )
            incoming = _Incoming(connection)
            connection.sendall(pack(request))
            incoming.opened()
            output = TerminalFilter(utf8=locale.getencoding().lower() == "utf-8")
            with terminal:
                try:
                    return _Attached(session.id, connection, incoming, terminal, output).run()
                except OSError as error:
                    raise HostGone("The connection to the shell broke.", hint="Open the shell again.") from error
                finally:
                    with contextlib.suppress(OSError):  # the terminal may be what is gone
                        terminal.write(output.reset())


class _Incoming:
    """Frames from the host."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._decoder = wire.Decoder()
        self._early: list[tuple[Opened | Data | Closed | Answer | Part | Rejected, bytes]] = []

    def opened(self) -> None:
        """Wait until the shell runs; raises what the host answered otherwise."""
        while not self._early:
            self._early += self._receive()
        frame, _ = self._early.pop(0)
        if not isinstance(frame, Opened):
            raise frame.failure.error() if isinstance(frame, Rejected) else HostGone("The host answered out of turn.")

    def read(self) -> list[tuple[Opened | Data | Closed | Answer | Part | Rejected, bytes]]:
        """What has come; blocks when nothing has."""
        early, self._early = self._early, []
        return early or self._receive()

    @property
    def waiting(self) -> bool:
        """Whether frames were read already that nobody has taken."""
        return bool(self._early)

    def _receive(self) -> list[tuple[Opened | Data | Closed | Answer | Part | Rejected, bytes]]:
        try:
            data = self._connection.recv(_CHUNK)
            if not data:
                raise HostGone("The host went.", hint="Open the shell again: another process takes over.")
            return [(FromHost.validate_json(header), body) for header, body in self._decoder.feed(data)]
        except OSError as error:
            raise HostGone("The host does not answer.", hint="Open the shell again.") from error
        except (wire.FrameError, ValidationError) as error:
            raise HostGone(
                "The host speaks another version.", hint="End it, as `kortix host` says, and open the shell again."
            ) from error


class _Attached:
    """The time during which keys and output flow."""

    def __init__(
        self,
        session_id: str,
        connection: socket.socket,
        incoming: _Incoming,
        terminal: RawTerminal,
        output: TerminalFilter,
    ) -> None:
        self._session_id = session_id
        self._connection = connection
        self._incoming = incoming
        self._terminal = terminal
        self._output = output
        self._keys = DetachKey()

    def run(self) -> ShellEnd:
        """Carry bytes both ways until the shell ends or the person leaves."""
        with selectors.DefaultSelector() as selector:
            for source in (self._connection, self._terminal.keyboard, self._terminal.changes):
                selector.register(source, selectors.EVENT_READ)
            while True:
                ready = [] if self._incoming.waiting else [key.fileobj for key, _ in selector.select()]
                if not ready or self._connection in ready:
                    for frame, body in self._incoming.read():
                        if isinstance(frame, Closed):
                            return self._end(frame.exit_code)
                        self._terminal.write(self._output.feed(body))
                if self._terminal.changes in ready:
                    self._terminal.changed()
                    rows, columns = self._terminal.size()
                    self._connection.sendall(pack(Resize(rows=rows, columns=columns)))
                if self._terminal.keyboard in ready and not self._type():
                    return self._end(None, detached=True)

    def _type(self) -> bool:
        """Pass on what was typed; false when the person leaves or the terminal is gone."""
        data = os.read(self._terminal.keyboard, 4096)
        typed, leave = self._keys.feed(data)
        if typed:
            self._connection.sendall(pack(Data(), typed))
        return bool(data) and not leave

    def _end(self, exit_code: int | None, *, detached: bool = False) -> ShellEnd:
        return ShellEnd(session_id=self._session_id, exit_code=exit_code, detached=detached)
