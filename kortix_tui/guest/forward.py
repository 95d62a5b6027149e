"""From a loopback port to the door: for programs that cannot speak to a Unix socket, such as git.

A dumb pipe in a process of its own. It runs as nobody, so that the agent can neither signal it nor borrow the
supervisor's identity at the door (the host sees who connected), and it waits for a host that is away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket

from kortix_tui.guest.identity import Identity

PATIENCE_S = 60.0
_RETRY_S = 0.1
_CONNECTIONS = 64
_CHUNK = 65536


def listen(port: int) -> socket.socket:
    """The port, bound before anything else runs, so that nobody else has it."""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(128)
    return server


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the end, and hand the end on: each side may close its half alone.

    Raises:
        OSError: A side broke off: the other one has to be told by closing it, or it waits for ever.
    """
    while True:
        data = await reader.read(_CHUNK)
        if not data:
            break
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()


async def _reach(door: str, patience: float) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            return await asyncio.open_unix_connection(door)
        except OSError:
            if loop.time() >= until:
                raise
            await asyncio.sleep(_RETRY_S)


async def serve(server: socket.socket, door: str, *, patience: float = PATIENCE_S) -> None:
    """Forward every connection until cancelled.

    Args:
        server: The listening port.
        door: Path of the door's socket.
        patience: How long a connection waits for a host, in seconds.
    """
    free = asyncio.Semaphore(_CONNECTIONS)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with free:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await _reach(door, patience)
                try:
                    await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
                finally:
                    far_writer.close()
        writer.close()

    listener = await asyncio.start_server(connected, sock=server)
    async with listener:
        await listener.serve_forever()


class Forwarder:
    """The child process that forwards.

    Args:
        server: The listening port.
        door: Path of the door's socket.
        identity: Who it runs as.
    """

    def __init__(self, server: socket.socket, door: str, identity: Identity) -> None:
        self.pid = os.fork()
        self._status: int | None = None
        if self.pid == 0:
            become(server, door, identity)

    def poll(self) -> int | None:
        """How it ended, once it has."""
        return self._wait(os.WNOHANG)

    def end(self) -> None:
        """Kill it and wait, which takes no time."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._wait(0)

    def _wait(self, options: int) -> int | None:
        if self._status is None:
            found, status = os.waitpid(self.pid, options)
            if found:
                self._status = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        return self._status


def become(server: socket.socket, door: str, identity: Identity) -> None:
    """Turn a fork of the supervisor into the forwarder; never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        kept = server.fileno()
        os.closerange(3, kept)
        os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
        identity.drop()
        asyncio.run(serve(server, door))
    finally:
        os._exit(1)
