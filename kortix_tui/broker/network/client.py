"""The one HTTP client of the host's calls to the outside: connectors, documents, token services, tool servers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from kortix_tui.broker.network.resolving import Resolver, system_resolver

if TYPE_CHECKING:
    import httpx

    from kortix_tui.base.settings import ConnectorSettings

CONNECT_S: Final = 5.0
"""Seconds for the look-up, the connection and, once more, the TLS handshake."""
TOTAL_S: Final = 60.0
"""Seconds for a whole call; also what the client waits for any single read or write."""


class Reach(BaseModel):
    """What the operator's settings open to the client.

    Attributes:
        allow_private: Networks that are not public and may be reached nevertheless; only there is plain http taken
            without being pinned.
        ca_certificates: Files with certificates that are trusted beside the system's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow_private: tuple[str, ...] = ()
    ca_certificates: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: ConnectorSettings) -> Self:
        """What the operator's settings for connectors open."""
        return cls(allow_private=settings.allow_private, ca_certificates=settings.ca_certificates)


def server_of(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL, as a client is pinned to them."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)


@dataclass
class Departure:
    """Whether anything of a request may have left this machine."""

    begun: bool = False


_departure: ContextVar[Departure | None] = ContextVar("departure", default=None)


@contextmanager
def watching() -> Iterator[Departure]:
    """Tells, for the requests made within, whether a first byte of one may have left: after that an effect is possible.

    Requests of tasks that were started within count too.
    """
    departure = Departure()
    token = _departure.set(departure)
    try:
        yield departure
    finally:
        _departure.reset(token)


def depart() -> None:
    """Says that a byte of the current request is about to leave."""
    departure = _departure.get()
    if departure is not None:
        departure.begun = True


def open_client(
    reach: Reach,
    *,
    pinned: frozenset[tuple[str, str, int]] | None = None,
    resolver: Resolver = system_resolver,
) -> httpx.AsyncClient:
    """A client that connects only to addresses that were checked, keeps no cookies and follows no redirect.

    It takes nothing from the environment (no proxy, no netrc). Answers are decompressed within limits before anything
    sees them. What is refused raises `AddressRefused` from a request; other failures are httpx's own. Close it after
    use. The first client of a process reads the system's certificates, about 0.1 s: inside a loop, open it through
    `asyncio.to_thread`.

    Args:
        pinned: The only (scheme, host, port) that it talks to; `None` for any, with plain http to networks in
            `reach.allow_private` only.

    Raises:
        InvalidInput: A file of certificates cannot be read.
    """
    from kortix_tui.broker.network.transport import build_client

    return build_client(reach, pinned=pinned, resolver=resolver)
