"""The proxy that a sandbox reaches the network through: CONNECT, and plain HTTP by its full address.

It parses, splices and counts. Whether a destination is allowed, and the record of it, are the service's part. What
goes through a tunnel is not looked into, but for the name that a TLS client asks for.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult, urlsplit

from kortix_tui.base.errors import DeadlineExceeded, InvalidInput, KortixError, Refused
from kortix_tui.broker.client_hello import Hello, server_name
from kortix_tui.broker.http import Answer, Request, Response, Tunnel, error_response
from kortix_tui.broker.relay import relay
from kortix_tui.broker.services import EgressService, Passage

CHUNK: Final = 64 * 1024
SNI_MISMATCH: Final = "sni_mismatch"


@dataclass(frozen=True)
class PassageLimits:
    """How long a connection to the outside may last, in seconds.

    Attributes:
        idle_s: Without a byte in either direction.
        total_s: Of one tunnel, however busy it is.
    """

    idle_s: float = 600.0
    total_s: float = 12 * 3600.0


@dataclass(frozen=True)
class Target:
    """Where a request wants to go.

    Attributes:
        host: As the client wrote it, without brackets; in lower case.
        authority: Host and port as they go into a `Host` header.
        path: What is asked for there, of a plain HTTP request.
    """

    host: str
    port: int
    authority: str
    path: str = ""


def is_proxied(request: Request) -> bool:
    """Whether a request is meant for a proxy, not for the door itself."""
    return request.method == "CONNECT" or (not request.path.startswith("/") and "://" in request.path)


def read_target(request: Request) -> Target:
    """The destination of a proxied request.

    Raises:
        InvalidInput: The address is not one that a proxy serves.
    """
    if request.method == "CONNECT":
        parts, port = _split(f"//{request.path}"), None
        if parts.netloc != request.path or request.query:
            raise InvalidInput("The address of a CONNECT is HOST:PORT.")
    else:
        parts, port = _split(request.path), 80
        if parts.scheme != "http":
            raise InvalidInput("Only http:// is asked of a proxy directly.", hint="Use CONNECT for everything else.")
    try:
        port = parts.port or port
    except ValueError:
        port = None
    host = parts.hostname or ""
    if port is None or not host or "@" in parts.netloc:
        raise InvalidInput("The address has no host, no port, or a user in it.")
    path = (parts.path or "/") + (f"?{request.query}" if request.query else "")
    return Target(host, port, parts.netloc.lower(), path)


def _split(text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        raise InvalidInput("The address is not one.") from None


class EgressProxy:
    """Answers proxied requests; for a door, or as the handler of a listener of its own.

    Args:
        service: Decides, connects and records.
        token: What clients must give as the proxy's password.
        limits: How long connections may last.
    """

    def __init__(self, service: EgressService | None, token: str, limits: PassageLimits | None = None) -> None:
        self._service = service
        self._token = token
        self._limits = limits or PassageLimits()

    async def handle(self, request: Request) -> Answer:
        """Answer one request."""
        given = request.proxy_password()
        if not given or not hmac.compare_digest(given.encode(), self._token.encode()):
            answer = error_response(407, "unauthorized", "The proxy's password is missing or wrong.")
            challenge = ("proxy-authenticate", 'Basic realm="kortix"')
            return Response(answer.status, answer.body, (*answer.headers, challenge), "Proxy Authentication Required")
        try:
            if self._service is None:
                raise Refused("There is no way to the network from here.")
            target = read_target(request)
            passage = await self._service.open(request.method, target.host, target.port)
        except KortixError as error:
            return _refusal(error)
        if request.method == "CONNECT":
            tunnel = _Tunnel(passage, target.host, self._limits)
            return Tunnel(tunnel.serve, tunnel.close)
        try:
            return await relay(request, target.authority, target.path, passage, idle_s=self._limits.idle_s)
        except KortixError as error:
            return _refusal(error)


def _refusal(error: KortixError) -> Response:
    match error:
        case Refused():
            status, reason = 403, f"Refused by kortix: {error.code}"
        case InvalidInput():
            status, reason = 400, "Bad Request"
        case DeadlineExceeded():
            status, reason = 504, "Gateway Timeout"
        case _:
            status, reason = 502, f"Bad Gateway: {error.code}"
    answer = error_response(status, error.code, error.message, error.hint)
    return Response(answer.status, answer.body, answer.headers, reason)


class _Misnamed(ConnectionError):
    """The client asks the other end for another host than it asked us for."""


class _Tunnel:
    """Bytes both ways between a client and a passage."""

    def __init__(self, passage: Passage, host: str, limits: PassageLimits) -> None:
        self._passage = passage
        self._host = host
        self._limits = limits
        self._sent = 0
        self._received = 0
        self._code: str | None = None
        self._deadline = asyncio.timeout(None)
        self._end = 0.0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trailing: bytes) -> None:
        """Splice until both sides have ended; each may end its half alone.

        Raises:
            OSError: A side broke off, or the time is over: the client has to see that it was no end.
        """
        self._end = asyncio.get_running_loop().time() + self._limits.total_s
        halves = [
            asyncio.create_task(self._send(reader, trailing), name="tunnel out"),
            asyncio.create_task(self._receive(writer), name="tunnel in"),
        ]
        try:
            async with self._deadline:
                self._alive()
                await asyncio.gather(*halves)
        except _Misnamed:
            self._code = SNI_MISMATCH
            raise
        except TimeoutError:
            self._code = DeadlineExceeded.code
            raise
        except OSError:
            self._code = "broken_off"
            raise
        finally:
            for half in halves:
                half.cancel()
            await asyncio.gather(*halves, return_exceptions=True)

    async def close(self) -> None:
        """End the passage, and have it recorded."""
        await self._passage.close(self._sent, self._received, code=self._code)

    def _alive(self) -> None:
        now = asyncio.get_running_loop().time()
        self._deadline.reschedule(min(self._end, now + self._limits.idle_s))

    async def _send(self, reader: asyncio.StreamReader, data: bytes) -> None:
        far = self._passage.writer
        data = await self._named(reader, data)
        while data:
            far.write(data)
            await far.drain()
            self._sent += len(data)
            self._alive()
            data = await reader.read(CHUNK)
        if far.can_write_eof():
            far.write_eof()

    async def _named(self, reader: asyncio.StreamReader, data: bytes) -> bytes:
        """The client's first bytes, once it is sure that they ask for no other host."""
        while (found := server_name(data)) is Hello.MORE:
            more = await reader.read(CHUNK)
            if not more:
                break
            data += more
            self._alive()
        if found is Hello.NAMELESS or (isinstance(found, str) and found != self._host):
            raise _Misnamed(f"the TLS client does not ask for {self._host}")
        return data

    async def _receive(self, near: asyncio.StreamWriter) -> None:
        while data := await self._passage.reader.read(CHUNK):
            near.write(data)
            await near.drain()
            self._received += len(data)
            self._alive()
        if near.can_write_eof():
            near.write_eof()
