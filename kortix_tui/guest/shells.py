"""The shells that people have open, by the names that the host gave them."""

from __future__ import annotations

from typing import Any, Callable, Coroutine, Mapping

from kortix_tui.guest import turns
from kortix_tui.guest.children import Children
from kortix_tui.guest.identity import Identity
from kortix_tui.guest.link import Link
from kortix_tui.guest.shell import Shell

_MOST = 16
Spawn = Callable[[Coroutine[Any, Any, None]], object]


class Shells:
    """Answers the `shell_…` frames. Shells live as long as the link that opened them.

    Args:
        identity: Who runs them.
        children: Who waits for processes.
        spawn: Starts a task and owns it.
    """

    def __init__(self, identity: Identity, children: Children, spawn: Spawn) -> None:
        self._identity = identity
        self._children = children
        self._spawn = spawn
        self._open: dict[str, Shell] = {}

    def open(self, link: Link, header: Mapping[str, Any], folder: str, environment: Mapping[str, str]) -> None:
        """Open one, or say in it why it cannot be.

        Raises:
            ValueError: The header is not one.
        """
        shell_id = str(header["id"])
        if shell_id in self._open:
            return
        shell = Shell(shell_id, self._identity, self._children)
        term = str(header.get("term") or "xterm-256color")
        everything = {**turns.read_environment(header), **environment, "TERM": term}
        try:
            if len(self._open) >= _MOST:
                raise OSError(0, "too many shells are open")
            shell.open(folder, everything, int(header["rows"]), int(header["cols"]))
        except OSError as error:
            message = f"The shell cannot be opened: {error.strerror or error}\r\n"
            link.post({"type": "shell_data", "id": shell_id}, message.encode("utf-8", "replace"))
            link.post({"type": "shell_closed", "id": shell_id, "exit_code": 127})
            return
        self._open[shell_id] = shell
        self._spawn(self._run(shell, link))

    async def _run(self, shell: Shell, link: Link) -> None:
        try:
            await shell.run(link)
        finally:
            del self._open[shell.shell_id]

    def write(self, link: Link, header: Mapping[str, Any], body: bytes) -> None:
        """Typed by the person."""
        shell = self._open.get(str(header["id"]))
        if shell is not None:
            shell.write(body)

    def acknowledge(self, link: Link, header: Mapping[str, Any], body: bytes) -> None:
        """The person has seen so much."""
        shell = self._open.get(str(header["id"]))
        if shell is not None:
            shell.grant(int(header["bytes"]))

    def resize(self, link: Link, header: Mapping[str, Any], body: bytes) -> None:
        """The person's window has another size."""
        shell = self._open.get(str(header["id"]))
        if shell is not None:
            shell.resize(int(header["rows"]), int(header["cols"]))

    def close(self, link: Link, header: Mapping[str, Any], body: bytes) -> None:
        """The person hangs up."""
        shell = self._open.get(str(header["id"]))
        if shell is not None:
            shell.close()

    def close_all(self) -> None:
        """The link is gone."""
        for shell in self._open.values():
            shell.close()
