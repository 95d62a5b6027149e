"""The one place where a brokered call leaves: the stored request, the credential put in, the answer made safe."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from kortix_tui.base.text import visible_line
from kortix_tui.base.words import CallState
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.model import HttpCall, Materialised, McpCall, Reply
from kortix_tui.broker.network.client import Reach, open_client, server_of
from kortix_tui.broker.network.exchange import LONGEST_HEADER, MaybeSent, NotSent, send
from kortix_tui.runtime.call_ledger import End
from kortix_tui.vault.redaction import Redactor

if TYPE_CHECKING:
    import httpx

    from kortix_tui.base.settings import ConnectorSettings
    from kortix_tui.broker.connectors.mcp import ToolServers
    from kortix_tui.broker.connectors.mcp_programs import Programs

MOST_CLIENTS: Final = 64
SHORTEST: Final = 4
"""Characters of a credential from which it is taken out of an answer to the letter, however short values are for the
vault's own search."""
_MARK: Final = b"[redacted]"
_FAULT: Final = "Sending it failed in a way that is not foreseen. The call may have run."
log = logging.getLogger(__name__)
_Place = tuple[str, str, tuple[str, str, int]]


@dataclass(frozen=True)
class Sent:
    """How sending ended.

    Attributes:
        end: For the record.
        headers: Of the answer, redacted.
        body: Of the answer, redacted; at most 8 MiB.
        truncated: Whether the server sent more.
        rejected: Whether the server did not take the credential.
    """

    end: End
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False
    rejected: bool = False


class Sending:
    """Sends calls; keeps one client for each connector and server of a project, for as long as the term lasts.

    Args:
        settings: Which private networks and certificates the operator allows.
        programs: Runs tool servers over stdio; without it, they are refused.
    """

    def __init__(self, settings: ConnectorSettings, programs: Programs | None = None) -> None:
        self._programs = programs
        self._reach = Reach.of(settings)
        self._clients: dict[_Place, httpx.AsyncClient] = {}

    async def close(self) -> None:
        """Let go of open connections."""
        clients, self._clients = list(self._clients.values()), {}
        for client in clients:
            await client.aclose()
        if "_tools" in vars(self):
            await self._tools.close()

    @cached_property
    def _tools(self) -> ToolServers:
        from kortix_tui.broker.connectors.mcp import ToolServers

        return ToolServers(self._reach, self._programs)

    async def send(self, request: Materialised, attached: Attached, redactor: Redactor) -> Sent:
        """Send a request as it is stored; never raises for what becomes of it.

        Args:
            request: What a person saw, or policy allowed.
            attached: The credential's parts.
            redactor: The values that must not get into an answer.
        """
        begun = time.monotonic()
        clean = Cleaning(attached, redactor)
        try:
            reply = await self._exchange(request, attached)
        except NotSent as error:  # a tool server's own words may be in its message
            end = End(CallState.FAILED, code=NotSent.code, message=clean.text(str(error)), duration_ms=_since(begun))
            return Sent(end, {}, b"")
        except MaybeSent as error:
            end = End(
                CallState.UNKNOWN, code="may_have_run", message=clean.text(str(error)), status=error.status,
                duration_ms=_since(begun),
            )  # fmt: skip
            return Sent(end, {}, b"")
        except Exception as error:  # its text, and its chain, may hold the credential
            log.warning("sending a call of %s failed: %s", request.connector, type(error).__name__)
            end = End(CallState.UNKNOWN, code="may_have_run", message=_FAULT, duration_ms=_since(begun))
            return Sent(end, {}, b"")
        return _answered(reply, _since(begun), clean)

    async def _exchange(self, request: Materialised, attached: Attached) -> Reply:
        if isinstance(request.call, McpCall):
            return await self._tools.call(request, request.call, attached)
        return await send(
            await self._client(request, request.call), request.call, credential_headers=attached.headers,
            credential_query=attached.query, credential_cookies=attached.cookies,
        )  # fmt: skip

    async def _client(self, request: Materialised, call: HttpCall) -> httpx.AsyncClient:
        server = server_of(call.url)
        place = (request.project_id, request.connector, server)
        client = self._clients.pop(place, None)
        if client is None:
            client = open_client(self._reach, pinned=frozenset({server}))
            if len(self._clients) >= MOST_CLIENTS:
                await self._clients.pop(next(iter(self._clients))).aclose()
        self._clients[place] = client  # the newest last
        return client


def _since(begun: float) -> float:
    return round((time.monotonic() - begun) * 1000, 3)


def _answered(reply: Reply, duration_ms: float, clean: Cleaning) -> Sent:
    body = clean.data(reply.body, cut=reply.truncated)
    good = reply.status < 400
    end = End(
        CallState.DONE if good else CallState.FAILED,
        code=None if good else "http_error",
        message=None if good else f"The server answered with status {reply.status}.",
        status=reply.status, bytes=len(body), duration_ms=duration_ms,
    )  # fmt: skip
    headers = {name: visible_line(_header(clean, value)) for name, value in reply.headers}
    return Sent(end, headers, body, reply.truncated, rejected=reply.status == 401)


def _header(clean: Cleaning, value: str) -> str:
    if len(value) < LONGEST_HEADER or not value.endswith("…"):
        return clean.text(value)
    return clean.text(value[:-1], cut=True) + "…"


class Cleaning:
    """Takes the vault's values, and what this very request carried, out of an answer."""

    def __init__(self, attached: Attached, redactor: Redactor) -> None:
        sent = {
            *attached.secrets, *attached.headers.values(), *attached.query.values(), *attached.cookies.values(),
            *attached.environment.values(),
        }  # fmt: skip
        self._exact = sorted((one.encode() for one in sent if len(one) >= SHORTEST), key=len, reverse=True)
        self._own = Redactor.of(("credential", one) for one in self._exact)
        self._redactor = redactor

    def data(self, data: bytes, *, cut: bool = False) -> bytes:
        """The bytes without them.

        Args:
            data: The bytes.
            cut: There was more: they may end in the middle of a value, and an agent may choose where.
        """
        clean = data
        for redactor in (self._own, self._redactor):
            clean = redactor.stream().feed(clean, final=True) if cut else redactor.data(clean)
        for exact in self._exact:
            clean = clean.replace(exact, _MARK)
        return self._without_beginning(clean) if cut else clean

    def text(self, text: str, *, cut: bool = False) -> str:
        """The text without them."""
        return self.data(text.encode("utf-8", "surrogatepass"), cut=cut).decode("utf-8", "replace")

    def _without_beginning(self, data: bytes) -> bytes:
        """The bytes, which do not end with the beginning of what was sent."""
        for exact in self._exact:
            for length in range(len(exact) - 1, SHORTEST - 1, -1):
                if data.endswith(exact[:length]):
                    return data[:-length] + _MARK
        return data
