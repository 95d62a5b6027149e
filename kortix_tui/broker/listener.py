"""One HTTP/1.1 listener on a Unix socket: the door of one session.

Whoever connects is hostile. Heads, bodies, connections and waits are limited; one request at a time a connection;
anything that h11 does not accept ends the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import socket
import stat
import struct
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import h11

from kortix_tui.base.errors import KortixError
from kortix_tui.broker.http import (
    BodyBroken,
    BodyTooLarge,
    Handler,
    Peer,
    Request,
    Response,
    Tunnel,
    Upgrade,
    error_response,
)

_LOG = logging.getLogger(__name__)
SOCKET_NAME = "door.sock"
_CHUNK = 64 * 1024
_LINGER_S = 1.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    b'{"error":{"code":"busy","message":"Too many connections are open at this door.","hint":null}}'
)
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Limits:
    """What one door gives to its sandbox.

    Attributes:
        head_bytes: Request line and headers.
        head_s: Until the head is there, counted from its first byte or the connection's start.
        idle_s: Between two requests of a connection.
        body_s: Between two pieces of a body.
        write_s: Until the client takes a piece of the answer.
        connections: At the same time for each account in the sandbox, so that an agent that holds all of its own
            cannot keep the supervisor out; more are answered 503.
    """

    head_bytes: int = 64 * 1024
    head_s: float = 30.0
    idle_s: float = 120.0
    body_s: float = 60.0
    write_s: float = 60.0
    connections: int = 32


class DoorListener:
    """Serves one socket.

    Args:
        folder: The door's folder, which the sandbox sees read-only; made when absent.
        handler: Answers requests.
        limits: What clients may use up.
    """

    def __init__(self, folder: Path, handler: Handler, *, limits: Limits | None = None) -> None:
        self._folder = folder
        self._handler = handler
        self._limits = limits or Limits()
        self._server: asyncio.Server | None = None
        self._closed = False
        self._identity: tuple[int, int] | None = None
        self._connections: dict[asyncio.Task[None], int] = {}

    async def open(self) -> None:
        """Bind the socket and begin to serve.

        A socket that an earlier host left is replaced in one rename, after ours listens: who waits at the door meets
        the old one, which refuses, or the new one, never nothing.

        Raises:
            OSError: The folder cannot be used.
        """
        self._folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        self._folder.chmod(0o711)  # the sandbox's accounts pass through; the umask may have said otherwise
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            temporary = f".door-{secrets.token_hex(6)}"
            short = Path(f"/proc/self/fd/{descriptor}")  # a socket's path has 107 bytes at most; a home has not
            listening.bind(str(short / temporary))
            (short / temporary).chmod(0o666)
            listening.listen(128)
            listening.setblocking(False)
            os.rename(temporary, SOCKET_NAME, src_dir_fd=descriptor, dst_dir_fd=descriptor)
            status = os.stat(SOCKET_NAME, dir_fd=descriptor)
            self._identity = status.st_dev, status.st_ino
            self._server = await asyncio.start_unix_server(self._connected, sock=listening)
        except BaseException:
            listening.close()
            raise
        finally:
            os.close(descriptor)

    async def close(self) -> None:
        """Stop serving: the socket goes if it is still ours, and every connection ends."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        with contextlib.suppress(OSError):
            path = self._folder / SOCKET_NAME
            status = path.lstat()
            if stat.S_ISSOCK(status.st_mode) and (status.st_dev, status.st_ino) == self._identity:
                path.unlink()
        connections = list(self._connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:  # asyncio always runs this in a task of its own
            return
        peer = _peer(writer)
        try:
            if self._closed:  # accepted just before `close`, which could not see this task yet
                return
            if list(self._connections.values()).count(peer.uid) >= self._limits.connections:
                writer.write(_BUSY)
                return
            self._connections[task] = peer.uid
            await _Connection(reader, writer, peer, self._handler, self._limits).serve()
        except (ConnectionError, TimeoutError, h11.ProtocolError, BodyBroken):
            # The client's fault or leave: nothing of ours depends on it, and what it did not take is dropped.
            writer.transport.abort()
        except (OSError, KortixError) as error:
            # After the answer began there is no other way to tell the client than to break off.
            _LOG.warning("A connection at the door %s was broken off: %s", self._folder, error)
            writer.transport.abort()
        except asyncio.CancelledError:
            # Only `close` cancels. Returning, instead of raising, keeps asyncio's stream server from reporting it.
            writer.transport.abort()
        finally:
            self._connections.pop(task, None)
            writer.close()


def _peer(writer: asyncio.StreamWriter) -> Peer:
    raw = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return Peer(*_CREDENTIALS.unpack(raw))


class _Connection:
    """One client, one request after the other."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        peer: Peer,
        handler: Handler,
        limits: Limits,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._peer = peer
        self._handler = handler
        self._limits = limits
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)

    async def serve(self) -> None:
        """Answer requests until either side ends the connection."""
        wait = self._limits.head_s
        while True:
            try:
                head = await self._read_head(wait)
            except TimeoutError:
                await self._refuse(error_response(408, "timeout", "The request did not come in time."))
                return
            except h11.RemoteProtocolError as error:
                answer = error_response(error.error_status_hint, "invalid", "The request is not valid HTTP/1.1.")
                await self._refuse(answer)
                return
            if head is None or not await self._serve_one(head):
                return
            wait = self._limits.idle_s

    async def _read_head(self, wait: float) -> h11.Request | None:
        """The next request's head; `None` when the client has closed."""
        begun = self._http.trailing_data[0] != b""
        async with asyncio.timeout(self._limits.head_s if begun else wait) as deadline:
            while True:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    self._check_head(event)
                    return event
                if event is not h11.NEED_DATA:
                    return None
                data = await self._reader.read(_CHUNK)
                if not begun:  # idling is over: from its first byte a head has its own, shorter time
                    begun = True
                    deadline.reschedule(asyncio.get_running_loop().time() + self._limits.head_s)
                self._http.receive_data(data)

    def _check_head(self, head: h11.Request) -> None:
        """Refuse what h11 lets pass: a large head that came in one piece, and versions to come."""
        size = len(head.target) + sum(len(name) + len(value) + 4 for name, value in head.headers)
        if size > self._limits.head_bytes:
            raise h11.RemoteProtocolError("the head is too large", error_status_hint=431)
        if head.http_version not in (b"1.0", b"1.1"):
            raise h11.RemoteProtocolError("this version is not served", error_status_hint=505)

    async def _serve_one(self, head: h11.Request) -> bool:
        """Answer one request; false when the connection is over."""
        try:
            path, _, query = head.target.decode("ascii").partition("?")
        except UnicodeDecodeError:
            await self._answer(error_response(400, "invalid", "The address is not ASCII."))
            return False
        headers = tuple((key.decode("ascii"), value.decode("latin-1")) for key, value in head.headers)
        body = self._body()
        request = Request(head.method.decode("ascii"), path, query, headers, self._peer, body)
        try:
            response = await self._handler(request)
            if isinstance(response, Upgrade):
                await self._upgrade(response)
                return False
            if isinstance(response, Tunnel):
                await self._tunnel(response)
                return False
            await self._answer(response)
        except BodyTooLarge:
            await self._answer(error_response(413, "too_large", "The body is too large."))
        finally:
            await body.aclose()
        if self._http.their_state is h11.SEND_BODY:
            self._http.next_event()  # a request without a body has ended, unread
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            return True
        await self._linger()
        return False

    async def _body(self) -> AsyncGenerator[bytes]:
        """The request's body as it comes. Asked for by the handler, so that nothing unwanted is read."""
        if self._http.they_are_waiting_for_100_continue:
            await self._write(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                raise BodyBroken(str(error)) from error
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif event is h11.NEED_DATA:
                async with asyncio.timeout(self._limits.body_s):
                    self._http.receive_data(await self._reader.read(_CHUNK))
            else:
                return

    async def _paused(self) -> bool:
        """Whether the request has ended, and the client waits for another protocol."""
        async for _ in self._body():
            raise BodyBroken("a request that upgrades has no body")
        return self._http.next_event() is h11.PAUSED

    async def _tunnel(self, tunnel: Tunnel) -> None:
        try:
            if not await self._paused():
                raise BodyBroken("only CONNECT opens a tunnel")
            await self._write(self._http.send(h11.Response(status_code=200, headers=[], reason=b"Connected")))
            trailing, ended = self._http.trailing_data
            if not ended:
                await tunnel.serve(self._reader, self._writer, trailing)
        finally:
            await tunnel.close()

    async def _upgrade(self, upgrade: Upgrade) -> None:
        if not await self._paused():
            await self._answer(error_response(426, "upgrade_required", "Ask for the protocol with Upgrade."))
            return
        answer = h11.InformationalResponse(
            status_code=101, headers=[("connection", "Upgrade"), ("upgrade", upgrade.protocol)]
        )
        await self._write(self._http.send(answer))
        trailing, ended = self._http.trailing_data
        if not ended:
            await upgrade.serve(self._reader, self._writer, trailing)

    async def _answer(self, response: Response) -> None:
        whole = isinstance(response.body, bytes)
        headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in response.headers]
        if isinstance(response.body, bytes):
            headers.append((b"content-length", str(len(response.body)).encode()))
        head = h11.Response(status_code=response.status, headers=headers, reason=response.reason.encode("ascii"))
        try:
            if isinstance(response.body, bytes):
                events = (head, h11.Data(data=response.body), h11.EndOfMessage())
                await self._write(b"".join(self._http.send(event) or b"" for event in events))
            else:
                await self._write(self._http.send(head))
                async for piece in response.body:
                    await self._write(self._http.send(h11.Data(data=piece)))
                await self._write(self._http.send(h11.EndOfMessage()))
        except (OSError, TimeoutError):
            if response.lost is not None:
                await response.lost()
            raise
        finally:
            if not whole:
                closing = getattr(response.body, "aclose", None)
                if closing is not None:
                    await closing()

    async def _write(self, data: bytes | None) -> None:
        if data:
            self._writer.write(data)
            async with asyncio.timeout(self._limits.write_s):
                await self._writer.drain()

    async def _refuse(self, response: Response) -> None:
        """Say what was wrong where the state of the connection still lets us, and end it."""
        with contextlib.suppress(h11.LocalProtocolError):
            await self._answer(response)
            await self._linger()

    async def _linger(self) -> None:
        """End our half, and throw away for a moment what still comes: a reset would take our answer with it."""
        self._writer.write_eof()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_S):
                while await self._reader.read(_CHUNK):
                    pass
