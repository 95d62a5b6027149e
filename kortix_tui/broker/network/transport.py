"""How the client of `client.py` connects, judges and decodes. Apart from it, because httpx is slow to import."""

from __future__ import annotations

import asyncio
import logging
import ssl
import zlib
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import lru_cache
from http.cookiejar import CookieJar, DefaultCookiePolicy
from pathlib import Path
from typing import Any, ClassVar, Final

import certifi
import httpcore
import httpx

from kortix_tui import __version__
from kortix_tui.base.errors import DeadlineExceeded, InvalidInput, KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.network import client
from kortix_tui.broker.network.addresses import IPNetwork, networks
from kortix_tui.broker.network.resolving import AddressRefused, Resolver, Unreachable, checked_host, resolve, share

_LIMITS: Final = httpx.Limits(max_connections=32, max_keepalive_connections=8, keepalive_expiry=5.0)
_HIGHEST_RATIO: Final = 100
_RATIO_COUNTS_FROM: Final = 1 << 20
"""Bytes of decoded answer below which any ratio is fine."""
_PIECE: Final = 64 * 1024
_MOST_TRIES: Final = 8
_SocketOption = tuple[int, int, int] | tuple[int, int, bytes | bytearray] | tuple[int, int, None, int]

for _name in ("httpx", "httpcore"):
    # They log whole URLs and headers, and with them credentials.
    logging.getLogger(_name).setLevel(logging.WARNING)


class AnswerRefused(KortixError):
    """An answer came, but in a form that is not taken: compressed beyond measure, or with an unknown method."""

    code: ClassVar[str] = "answer_refused"


def build_client(
    reach: client.Reach, *, pinned: frozenset[tuple[str, str, int]] | None, resolver: Resolver
) -> httpx.AsyncClient:
    """See `client.open_client`."""
    allowed = networks(reach.allow_private)
    context = _tls(tuple((path, _changed(path)) for path in reach.ca_certificates))
    secure = _Transport(_Backend(allowed, resolver, named_only=False), context, pinned)
    plain = _Transport(_Backend(allowed, resolver, named_only=pinned is None), context, pinned)
    return httpx.AsyncClient(
        transport=secure,
        mounts={"http://": plain},
        trust_env=False,
        follow_redirects=False,
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=())),
        headers={"user-agent": f"kortix-tui/{__version__}", "accept-encoding": "gzip, deflate"},
        timeout=httpx.Timeout(client.TOTAL_S, connect=client.CONNECT_S),
    )


def _changed(path: str) -> int:
    try:
        return Path(path).stat().st_mtime_ns
    except OSError as error:
        raise _unreadable(path) from error


def _unreadable(path: str) -> InvalidInput:
    return InvalidInput(
        f"The certificates in {path} cannot be read.",
        hint="It must be a file of certificates in PEM form; it is named under `ca_certificates` in config.yaml.",
    )


@lru_cache(maxsize=8)
def _tls(files: tuple[tuple[str, int], ...]) -> ssl.SSLContext:
    # Not `create_default_context`: that one writes session keys to a file when the environment says so.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_default_certs()
    paths = ssl.get_default_verify_paths()
    if not paths.cafile and not paths.capath:
        context.load_verify_locations(certifi.where())
    for path, _ in files:
        try:
            context.load_verify_locations(path)
        except (OSError, ssl.SSLError) as error:
            raise _unreadable(path) from error
    return context


class _Transport(httpx.AsyncHTTPTransport):
    """Judges each request before it has a connection, and decodes each answer."""

    def __init__(
        self, backend: _Backend, context: ssl.SSLContext, pinned: frozenset[tuple[str, str, int]] | None
    ) -> None:
        # The base class offers no way to give the pool a backend. It is not called at all, so that a version of it that
        # keeps its pool elsewhere fails loudly instead of connecting unchecked.
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=_LIMITS.max_connections,
            max_keepalive_connections=_LIMITS.max_keepalive_connections,
            keepalive_expiry=_LIMITS.keepalive_expiry,
            http1=True,
            http2=False,
            network_backend=backend,
        )
        self._pinned = pinned

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._judge(request)
        response = await super().handle_async_request(request)
        return _decoded(response)

    def _judge(self, request: httpx.Request) -> None:
        url = request.url
        host = checked_host(url.raw_host.decode("ascii"))
        port = url.port or {"https": 443, "http": 80}.get(url.scheme, 0)
        shown = shorten(visible_line(f"{url.scheme}://{host}:{port}"), 200)
        if url.scheme not in ("https", "http") or url.userinfo:
            raise AddressRefused(f"{shown} is not served: only http and https, without a user in the address.")
        if self._pinned is not None and (url.scheme, host, port) not in self._pinned:
            raise AddressRefused(
                f"{shown} is not where this connector goes; nothing was sent.",
                hint="A connector talks to the server of its base URL only.",
            )
        if request.headers.get("host", "").encode() != url.netloc:
            raise AddressRefused(f"The request names another host than {shown}; nothing was sent.")
        if "sni_hostname" in request.extensions:
            raise AddressRefused(f"The request asks for another certificate than that of {shown}; nothing was sent.")


class _Backend(httpcore.AsyncNetworkBackend):
    """Connects to an address of the host that was judged, never to its name."""

    def __init__(self, allow_private: Sequence[IPNetwork], resolver: Resolver, *, named_only: bool) -> None:
        self._allow_private = allow_private
        self._resolver = resolver
        self._named_only = named_only
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[_SocketOption] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        end = loop.time() + (client.CONNECT_S if timeout is None else timeout)
        try:
            found = await resolve(
                host,
                port,
                allow_private=self._allow_private,
                deadline_s=end - loop.time(),
                resolver=self._resolver,
                named_only=self._named_only,
            )
        except Unreachable as error:
            raise httpcore.ConnectError(error) from error
        except DeadlineExceeded as error:
            raise httpcore.ConnectTimeout(error) from error
        return await self._try(found[:_MOST_TRIES], port, end)

    async def _try(self, addresses: Sequence[str], port: int, end: float) -> httpcore.AsyncNetworkStream:
        loop = asyncio.get_running_loop()
        failure: Exception = httpcore.ConnectTimeout("no time left")
        for at, address in enumerate(addresses):
            time = share(end - loop.time(), len(addresses) - at)
            try:
                return _Stream(await self._sockets.connect_tcp(address, port, timeout=time))
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Stream(httpcore.AsyncNetworkStream):
    """A connection that says when a request's bytes leave; those of a handshake do not count."""

    def __init__(self, inner: httpcore.AsyncNetworkStream) -> None:
        self._inner = inner

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        client.depart()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        try:
            return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))
        except asyncio.CancelledError:
            await self._inner.aclose()  # httpcore closes after an error, but not here
            raise

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


def _decoded(response: httpx.Response) -> httpx.Response:
    """The same answer without a content encoding, so that nobody behind decodes it without limits."""
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in ("", "identity"):
        return response
    headers = [(name, value) for name, value in response.headers.raw if name.lower() != b"content-encoding"]
    if encoding in ("gzip", "x-gzip", "deflate"):
        headers = [(name, value) for name, value in headers if name.lower() != b"content-length"]
    stream = response.stream
    assert isinstance(stream, httpx.AsyncByteStream)  # noqa: S101 - what the base class makes
    return httpx.Response(
        response.status_code, headers=headers, stream=_Decoder(stream, encoding), extensions=response.extensions
    )


class _Decoder(httpx.AsyncByteStream):
    """Inflates while it is read, and stops at an answer that grows beyond measure."""

    def __init__(self, inner: httpx.AsyncByteStream, encoding: str) -> None:
        self._inner = inner
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if self._encoding not in ("gzip", "x-gzip", "deflate"):
            raise AnswerRefused(f"The answer is encoded as `{shorten(visible_line(self._encoding), 60)}`.")
        inflate: Any = None
        taken = given = 0
        async for packed in self._inner:
            if not packed:
                continue
            taken += len(packed)
            if inflate is None:
                inflate = zlib.decompressobj(self._window(packed[0]))
            full = True
            while packed or full:
                try:
                    piece = inflate.decompress(packed, _PIECE)
                except zlib.error:
                    raise AnswerRefused("The answer is not what its encoding says.") from None
                packed = inflate.unconsumed_tail
                full = len(piece) == _PIECE
                given += len(piece)
                if given > max(_RATIO_COUNTS_FROM, _HIGHEST_RATIO * taken):
                    raise AnswerRefused(f"The answer grows more than {_HIGHEST_RATIO} times when decompressed.")
                if piece:
                    yield piece
        if inflate is not None and not inflate.eof:
            raise AnswerRefused("The answer ends in the middle of its encoding.")

    def _window(self, first: int) -> int:
        if self._encoding != "deflate":
            return 16 + zlib.MAX_WBITS
        # Some servers send `deflate` without the zlib header that the word means.
        return zlib.MAX_WBITS if first & 0x0F == 8 else -zlib.MAX_WBITS

    async def aclose(self) -> None:
        await self._inner.aclose()
