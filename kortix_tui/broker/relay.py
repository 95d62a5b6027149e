"""One plain HTTP request to the outside and its answer back, both as streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import h11

from kortix_tui.base.errors import DeadlineExceeded, InvalidInput, KortixError
from kortix_tui.broker.http import Headers, Request, Response
from kortix_tui.broker.services import Passage

_CHUNK: Final = 64 * 1024
_HEAD_BYTES: Final = 64 * 1024
_HOP_BY_HOP: Final = frozenset(
    {
        "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip


class RelayFailed(KortixError):
    """The other end broke the connection off, or does not speak HTTP."""

    code = "relay_failed"


async def relay(request: Request, authority: str, path: str, passage: Passage, *, idle_s: float) -> Response:
    """Send a request through a passage, and hand back the answer as it comes. The passage is closed in every case.

    Args:
        request: As it came from the sandbox.
        authority: The host, and the port where it was written: what the request's own `Host` must say too.
        path: What is asked for at that host.
        passage: The connection, to the host that was checked.
        idle_s: Seconds that may pass without a byte.

    Raises:
        InvalidInput: The request names another host in its headers.
        DeadlineExceeded: The other end was silent for too long.
        RelayFailed: The other end broke off, or does not speak HTTP.
    """
    exchange = _Exchange(passage, idle_s)
    try:
        if _without_port(request.header("host") or authority) != _without_port(authority):
            raise InvalidInput("The request's address and its Host header name different hosts.")
        await exchange.send(request, _request_headers(request, authority), path)
        head = await exchange.head()
    except BaseException as error:
        await exchange.aclose(error)
        raise
    return Response(head.status_code, exchange, _response_headers(head))


def _without_port(authority: str) -> str:
    """A host as it is compared: in lower case, and without the port that everybody means."""
    return authority.lower().removesuffix(":80")


def _end_to_end(headers: Headers) -> Headers:
    """Headers without those that are for the next hop only."""
    named = ",".join(value for name, value in headers if name == "connection").lower().split(",")
    dropped = _HOP_BY_HOP | {name.strip() for name in named}
    return tuple((name, value) for name, value in headers if name not in dropped)


def _request_headers(request: Request, authority: str) -> Headers:
    chunked = request.header("transfer-encoding") is not None
    dropped = {"host", "expect"} | ({"content-length"} if chunked else set())
    kept = [(name, value) for name, value in _end_to_end(request.headers) if name not in dropped]
    framing = [("transfer-encoding", "chunked")] if chunked else []
    return (("host", authority), *kept, *framing, ("connection", "close"))


def _response_headers(head: h11.Response) -> Headers:
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in head.headers)
    chunked = any(name == "transfer-encoding" for name, _ in headers)
    return tuple(one for one in _end_to_end(headers) if not (chunked and one[0] == "content-length"))


class _Exchange:
    """The outer half of a relayed request; an iterator over the answer's body."""

    def __init__(self, passage: Passage, idle_s: float) -> None:
        self._passage = passage
        self._idle_s = idle_s
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._sent = 0
        self._received = 0
        self._closed = False

    async def send(self, request: Request, headers: Headers, path: str) -> None:
        """Send head and body. An end that answers early may leave the rest unread."""
        fields = [(name.encode("ascii"), value.encode("latin-1")) for name, value in headers]
        try:
            head = h11.Request(method=request.method, target=path, headers=fields)
            await self._write(self._http.send(head))
            async for piece in request.body:
                await self._write(self._http.send(h11.Data(data=piece)))
            await self._write(self._http.send(h11.EndOfMessage()))
        except h11.LocalProtocolError:
            raise InvalidInput("The request cannot be sent on as it is.") from None
        except ConnectionError:
            return

    async def head(self) -> h11.Response:
        """The answer's head."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise RelayFailed("The other end ended the connection without an answer.")

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        event = await self._event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        raise StopAsyncIteration

    async def _event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                async with asyncio.timeout(self._idle_s):
                    data = await self._passage.reader.read(_CHUNK)
                self._received += len(data)
                self._http.receive_data(data)
        except h11.RemoteProtocolError:
            raise RelayFailed("The other end does not speak HTTP, or ended in the middle of its answer.") from None
        except TimeoutError:
            raise DeadlineExceeded(f"The other end was silent for {self._idle_s:g} s.") from None
        except OSError:
            raise RelayFailed("The other end broke the connection off.") from None
        return event

    async def _write(self, data: bytes | None) -> None:
        if data:
            self._passage.writer.write(data)
            try:
                async with asyncio.timeout(self._idle_s):
                    await self._passage.writer.drain()
            except TimeoutError:
                raise DeadlineExceeded(f"The other end took nothing for {self._idle_s:g} s.") from None
            self._sent += len(data)

    async def aclose(self, error: BaseException | None = None) -> None:
        """End the passage, whole answer or not."""
        if self._closed:
            return
        self._closed = True
        whole = self._http.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED)
        code = error.code if isinstance(error, KortixError) else None if whole else "broken_off"
        await self._passage.close(self._sent, self._received, code=code)
