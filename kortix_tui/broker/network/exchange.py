"""One request out, one answer back, and the plain truth about whether it may have had an effect."""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping
from contextlib import aclosing
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final, cast
from urllib.parse import quote

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.model import HttpCall, Reply
from kortix_tui.broker.network.client import TOTAL_S, watching
from kortix_tui.broker.network.resolving import AddressRefused, Unreachable

if TYPE_CHECKING:
    import httpx

LONGEST_ANSWER: Final = 8 << 20
"""Bytes of an answer that are kept, after decompression."""

_SEEN: Final = frozenset(
    (
        "content-type",
        "content-language",
        "etag",
        "last-modified",
        "link",
        "location",
        "request-id",
        "retry-after",
        "x-request-id",
    )
)
_MOST_HEADERS: Final = 32
LONGEST_HEADER: Final = 4096
"""Characters of an answer's header that are kept; what was longer has exactly so many, the last one an ellipsis."""
_OURS: Final = frozenset(
    ("connection", "content-length", "expect", "host", "te", "trailer", "transfer-encoding", "upgrade")
)
_CONTROL: Final = re.compile("[\x00-\x08\x0a-\x1f\x7f]")
_USER: Final = re.compile(r"(//)[^/?#@\s<>]*@")
_MOST_REDIRECTS: Final = 3


class NotSent(KortixError):
    """Nothing of the request left this machine: certainly without effect.

    Attributes:
        reason: `address_refused`, `unreachable`, `timeout`, `tls` or `invalid`.
    """

    code: ClassVar[str] = "not_sent"

    def __init__(self, message: str, *, reason: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class MaybeSent(KortixError):
    """The request may have arrived and have had its effect; its answer did not come whole.

    Attributes:
        reason: `timeout`, `broken` or `answer_refused`.
        status: Of the answer, where that much came.
    """

    code: ClassVar[str] = "maybe_sent"

    def __init__(self, message: str, *, reason: str, status: int | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.reason = reason
        self.status = status


class FetchFailed(KortixError):
    """A document could not be fetched."""

    code: ClassVar[str] = "fetch_failed"


@lru_cache(maxsize=256)
def canonical(url: str) -> str:
    """The spelling of a URL in which it is sent, and must therefore be shown and stored.

    Raises:
        NotSent: It is no URL.
    """
    import httpx

    try:
        # Twice: a scheme in capitals hides a default port from the first pass.
        return str(httpx.URL(str(httpx.URL(url))))
    except (httpx.InvalidURL, UnicodeError):
        raise NotSent(f"`{_shown(url)}` is not a URL.", reason="invalid", hint="Check the arguments.") from None


async def send(
    client: httpx.AsyncClient,
    call: HttpCall,
    *,
    credential_headers: Mapping[str, str],
    credential_query: Mapping[str, str],
    credential_cookies: Mapping[str, str],
    deadline_s: float = TOTAL_S,
) -> Reply:
    """Send a call with its credential, and read the answer as far as it is kept.

    A redirect is an answer like any other; it is not followed. The body comes back as it is: whoever hands it on
    redacts it. No message of an error holds a credential.

    Args:
        client: From `open_client`, pinned to the connector's server.
        call: With the URL in its canonical spelling.
        deadline_s: Seconds for everything together.

    Raises:
        NotSent: Certainly without effect.
        MaybeSent: An effect is possible, and there is no whole answer.
    """
    request = _request(client, call, credential_headers, credential_query, credential_cookies)
    response: httpx.Response | None = None
    with watching() as departure:
        try:
            async with asyncio.timeout(deadline_s):
                response = await client.send(request, stream=True, auth=None)
                body, size = await _read(response, LONGEST_ANSWER)
                headers = _seen(response.headers.multi_items(), credential_query)
                return Reply(
                    status=response.status_code,
                    headers=tuple(headers),
                    body=body,
                    truncated=size > len(body),
                    size=size,
                )
        except _failures() as error:
            reason, message, hint = _told(error, request.url.host, deadline_s)
        finally:
            if response is not None:
                await response.aclose()
    # Outside of the handler: the error's own chain knows the request, and with it the credential.
    if not departure.begun:
        raise NotSent(message, reason=reason, hint=hint)
    status = response.status_code if response is not None else None
    so_far = "" if status is None else f" Its answer began with status {status}."
    raise MaybeSent(f"{message} The call may have run.{so_far}", reason=reason, status=status, hint=hint)


async def fetch(client: httpx.AsyncClient, url: str, *, limit_bytes: int, deadline_s: float = TOTAL_S) -> bytes:
    """A document, whole. Up to three redirects are followed, within the same scheme, host and port.

    Args:
        limit_bytes: A longer document is refused.
        deadline_s: Seconds for everything together.

    Raises:
        AddressRefused: The URL, or where it redirects to, is closed.
        FetchFailed: There is no such document, it is too long, or its server cannot be reached.
    """
    import httpx

    try:
        where = httpx.URL(url)
    except (httpx.InvalidURL, UnicodeError):
        raise FetchFailed(f"`{_shown(url)}` is not a URL.", hint="Write it as `https://host/path`.") from None
    first = (where.scheme, where.host, where.port)
    try:
        async with asyncio.timeout(deadline_s):
            for _ in range(_MOST_REDIRECTS + 1):
                target = await _fetch_once(client, where, limit_bytes)
                if isinstance(target, bytes):
                    return target
                if (target.scheme, target.host, target.port) != first:
                    raise AddressRefused(
                        f"{_place(where)} redirects to another server, {_place(target)}, which is not followed.",
                        hint="If it is meant, write that URL instead.",
                    )
                where = target
    except (AddressRefused, FetchFailed):
        raise
    except _failures() as error:
        _, message, hint = _told(error, where.host, deadline_s)
    else:
        message, hint = f"{_place(where)} redirects more than {_MOST_REDIRECTS} times.", None
    raise FetchFailed(message, hint=hint)


async def _fetch_once(client: httpx.AsyncClient, url: httpx.URL, limit: int) -> bytes | httpx.URL:
    response = await client.send(client.build_request("GET", url), stream=True, auth=None)
    try:
        if response.has_redirect_location:
            return url.join(response.headers["location"])
        if response.status_code != 200:
            raise FetchFailed(
                f"{_place(url)} answered with status {response.status_code}.",
                hint="Check the URL; a document that needs a login is not fetched.",
            )
        body, size = await _read(response, limit)
        if size > limit:
            raise FetchFailed(f"{_place(url)} is longer than {limit} bytes.")
        return body
    finally:
        await response.aclose()


def _request(
    client: httpx.AsyncClient,
    call: HttpCall,
    headers: Mapping[str, str],
    query: Mapping[str, str],
    cookies: Mapping[str, str],
) -> httpx.Request:
    if canonical(call.url) != call.url or "#" in call.url:
        raise NotSent(f"`{_shown(call.url)}` would be sent in another spelling.", reason="invalid")
    shown = [name.lower() for name, _ in call.headers]
    if not _OURS.isdisjoint(shown) or not {name.lower() for name in headers}.isdisjoint(shown):
        raise NotSent("The call sets a header that the host or the credential sets.", reason="invalid")
    fields = [(name, value) for name, value in call.headers if name.lower() != "cookie"]
    given = [value for name, value in call.headers if name.lower() == "cookie"]
    if cookies or given:
        fields.append(("cookie", "; ".join((*given, *(f"{name}={value}" for name, value in cookies.items())))))
    fields.extend(headers.items())
    if any(_CONTROL.search(text) for field in fields for text in field):
        raise NotSent("A header or the credential holds characters that no header can carry.", reason="invalid")
    url = call.url
    if query:
        added = "&".join(f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in query.items())
        url += ("&" if "?" in url else "?") + added
    raw = [(name.encode(), value.encode()) for name, value in fields]
    return client.build_request(call.method, url, headers=raw, content=call.body)


async def _read(response: httpx.Response, limit: int) -> tuple[bytes, int]:
    """The body up to a limit, and how many bytes were read. The transport has decompressed it."""
    body = bytearray()
    size = 0
    async with aclosing(cast(AsyncGenerator[bytes, None], response.aiter_raw())) as pieces:
        async for piece in pieces:
            size += len(piece)
            body += piece[: limit - len(body)]
            if size > limit:
                break
    return bytes(body), size


def _seen(headers: Iterable[tuple[str, str]], query: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Headers that an agent may see, one safe line each, without users and credentials in addresses."""
    names = "|".join(re.escape(quote(name, safe="")) for name in query)
    left = _MOST_HEADERS
    for name, value in headers:
        key = name.lower()
        if key not in _SEEN or not left:
            continue
        left -= 1
        text = value
        if key in ("location", "link"):
            text = _USER.sub(r"\1", text)
            if names:
                text = re.sub(rf"([?&;](?:{names})=)[^&;#<>\s]*", r"\1[redacted]", text, flags=re.IGNORECASE)
        yield key, shorten(visible_line(text), LONGEST_HEADER)


def _failures() -> tuple[type[Exception], ...]:
    import httpx

    return (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, KortixError, OSError)


def _told(error: Exception, host: str, deadline_s: float) -> tuple[str, str, str | None]:
    """Reason, message and hint of a failure. Only texts that cannot hold a credential are taken from it."""
    import httpx

    host = _shown(host)
    causes = tuple(_causes(error))
    for cause in causes:
        match cause:
            case AddressRefused():
                return "address_refused", cause.message, cause.hint
            case Unreachable():
                return "unreachable", cause.message, cause.hint
            case KortixError():
                return cause.code, cause.message, cause.hint
            case ssl.SSLCertVerificationError():
                return (
                    "tls",
                    f"The certificate of {host} is not accepted: {visible_line(cause.verify_message)}.",
                    "Name the authority's file under `connectors.ca_certificates` in config.yaml, if you trust it.",
                )
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "tls", f"{host} does not speak TLS as it should.", None
    match error:
        case httpx.ConnectTimeout() | httpx.PoolTimeout():
            return "timeout", f"No connection to {host} came about in time.", None
        case TimeoutError() | httpx.TimeoutException():
            return "timeout", f"{host} did not answer within {deadline_s:g} s.", None
        case httpx.ConnectError():
            return "unreachable", f"{host} cannot be reached.", "Check that it runs, and the port."
        case httpx.LocalProtocolError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return "invalid", "The request cannot be written as HTTP.", None
        case _:
            return "broken", f"{host} broke the exchange off, or does not speak HTTP as it should.", None


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        # The pool cuts the chain of its errors, but keeps what it started from as their argument.
        inner = error.args[0] if error.args else None
        error = inner if isinstance(inner, BaseException) else error.__cause__


def _shown(text: str) -> str:
    return shorten(visible_line(text.partition("?")[0]), 200)


def _place(url: httpx.URL) -> str:
    """A URL without what could be secret in it."""
    return _shown(str(url.copy_with(userinfo=b"", query=None, fragment=None)))
