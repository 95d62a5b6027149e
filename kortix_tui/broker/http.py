"""Requests and answers at a door, independent of how they travel."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

Headers = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Peer:
    """Who connected, as the kernel says. A check, never the identity: that is the door itself."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True)
class Request:
    """One request. Names of headers are in lower case; the path is not decoded and has no query."""

    method: str
    path: str
    query: str
    headers: Headers
    peer: Peer
    body: AsyncIterator[bytes] = field(repr=False)

    def header(self, name: str) -> str | None:
        """The first header of that (lower case) name."""
        return next((value for key, value in self.headers if key == name), None)

    def bearer(self) -> str | None:
        """The token of an `Authorization: Bearer …` header."""
        kind, _, token = (self.header("authorization") or "").partition(" ")
        return token.strip() if kind.lower() == "bearer" and token.strip() else None

    def proxy_password(self) -> str | None:
        """The password of a `Proxy-Authorization: Basic …` header."""
        kind, _, pair = (self.header("proxy-authorization") or "").partition(" ")
        try:
            _user, colon, password = base64.b64decode(pair.strip(), validate=True).decode("ascii").partition(":")
        except (binascii.Error, UnicodeError):
            return None
        return password if kind.lower() == "basic" and colon else None


@dataclass(frozen=True)
class Response:
    """One answer; the body is bytes, or pieces that are sent as they come.

    Attributes:
        reason: Words behind the status; many programs show nothing else of a proxy's refusal.
        lost: Called when the client did not take the answer.
    """

    status: int
    body: bytes | AsyncIterator[bytes] = b""
    headers: Headers = ()
    reason: str = ""
    lost: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True)
class Upgrade:
    """The connection changes to another protocol.

    Attributes:
        protocol: Its name, for the answer's header.
        serve: Takes the connection over and returns when it is done with it; the third argument is what the client
            sent already behind its request.
    """

    protocol: str
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]


@dataclass(frozen=True)
class Tunnel:
    """The answer to a CONNECT that is allowed: from here on the connection carries bytes that are not ours.

    Attributes:
        serve: As for `Upgrade`.
        close: Called in every case, also when the client was gone before it could be told.
    """

    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter, bytes], Awaitable[None]]
    close: Callable[[], Awaitable[None]]


Answer = Response | Upgrade | Tunnel
Handler = Callable[[Request], Awaitable[Answer]]


class BodyTooLarge(Exception):
    """The request's body is larger than this route takes."""


class BodyBroken(Exception):
    """The client went away, or sent something that is not the body that it announced."""


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body.

    Raises:
        BodyTooLarge: It is longer than `limit` bytes.
        BodyBroken: It did not come.
    """
    data = bytearray()
    async for piece in request.body:
        data += piece
        if len(data) > limit:
            raise BodyTooLarge
    return bytes(data)


def json_response(status: int, value: Any) -> Response:
    """An answer in JSON."""
    body = json.dumps(value, separators=(",", ":")).encode()
    return Response(status, body, (("content-type", "application/json"),))


def error_response(status: int, code: str, message: str, hint: str | None = None) -> Response:
    """An error in the form that every route uses."""
    return json_response(status, {"error": {"code": code, "message": message, "hint": hint}})
