"""The way to the network of a tool server's program: the hosts that its connector declares, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.settings import Settings
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Outcome
from kortix_tui.broker.egress import SNI_MISMATCH
from kortix_tui.broker.network.addresses import networks
from kortix_tui.broker.network.resolving import connect
from kortix_tui.manifest.egress import covered
from kortix_tui.runtime.egressing import LONGEST_HOST, MOST, EgressBusy, EgressCeiling, EgressDenied, Streams
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Transaction

MOST_REFUSALS: Final = 60
"""Different refusals that are written down within a minute; more are not."""
_MINUTE_S: Final = 60


class ToolEgress:
    """Behind the door of one tool server; the broker's `EgressService`. Attempts are audit events: they are of no
    session.

    Args:
        project_id: Whose connector.
        connector: Its name.
        hosts: The only ones; every port of them.
        settings: The ceiling for sandboxes, and the private networks that connectors may reach.
        ledger: Where attempts are written.
        told: Makes the program's words storable.
        reach: Connects to a host and port.
    """

    def __init__(
        self,
        project_id: str,
        connector: str,
        hosts: tuple[str, ...],
        settings: Settings,
        ledger: Ledger,
        told: Callable[[str], str],
        *,
        reach: Callable[[str, int], Awaitable[Streams]] | None = None,
    ) -> None:
        self._project_id = project_id
        self._connector = connector
        self._hosts = hosts
        self._settings = settings
        self._ledger = ledger
        self._told = told
        self._reach = reach or self._connect
        self._open = 0
        self._minute = 0
        self._refused = set[tuple[str, int, str]]()

    async def open(self, method: str, host: str, port: int) -> _Passage:
        """A connection to a declared host, on record before a byte goes through it.

        Raises:
            Refused: The host is not declared, the operator's ceiling is below it, or it leads to a closed address.
            EgressBusy: Too many are open.
            KortixError: It cannot be reached, or nothing can be recorded.
        """
        host = visible_line(shorten(host, LONGEST_HOST))
        self._open += 1
        try:
            self._check(host)
            reader, writer, address = await self._reach(host, port)
        except BaseException as error:
            self._open -= 1
            if isinstance(error, KortixError):
                await self._record_refusal(method, host, port, error)
            raise
        passage = _Passage(self, reader, writer, host, port)
        try:
            await self._record("egress.connect", host, port, Outcome.SUCCESS, method=method, address=address)
        except BaseException:
            self._open -= 1
            writer.transport.abort()
            raise
        return passage

    async def ended(self, host: str, port: int, sent: int, received: int, code: str | None) -> None:
        """A connection is over."""
        self._open -= 1
        outcome = Outcome.SUCCESS if code is None else Outcome.DENIED if code == SNI_MISMATCH else Outcome.FAILURE
        await self._record("egress.close", host, port, outcome, code=code, bytes_out=sent, bytes_in=received)

    def _check(self, host: str) -> None:
        ceiling = self._settings.egress
        if not covered(self._hosts, host):
            raise EgressDenied(
                f"The connector {self._connector} declares no host {host}.",
                hint="A person can add it to its `hosts` in kortix.yaml.",
            )
        if covered(ceiling.deny, host) or not covered(ceiling.allow, host):
            raise EgressCeiling(
                f"The operator's settings do not allow {host}.", hint="It is `egress` in config.yaml that decides."
            )
        if self._open > MOST:
            raise EgressBusy(f"{MOST} connections of this tool server are open.", hint="Close some, then try again.")

    async def _connect(self, host: str, port: int) -> Streams:
        return await connect(host, port, allow_private=networks(self._settings.connectors.allow_private))

    async def _record_refusal(self, method: str, host: str, port: int, error: KortixError) -> None:
        """Once a minute for each destination: a loop must not fill the record."""
        minute = int(self._ledger.store.clock.monotonic() // _MINUTE_S)
        if minute != self._minute:
            self._minute = minute
            self._refused.clear()
        key = (host, port, error.code)
        if key in self._refused or len(self._refused) >= MOST_REFUSALS:
            return
        self._refused.add(key)
        outcome = Outcome.DENIED if isinstance(error, Refused) else Outcome.FAILURE
        await self._record("egress.connect", host, port, outcome, method=method, code=error.code)

    async def _record(self, event: str, host: str, port: int, outcome: Outcome, **detail: Any) -> None:
        host = self._told(host)

        def change(tx: Transaction) -> None:
            tx.audit(
                event, scope=f"host {host}:{port}", actor=SYSTEM, outcome=outcome, project_id=self._project_id,
                connector=self._connector, **detail,
            )  # fmt: skip

        await self._ledger.write(change)


class _Passage:
    """One open connection; the broker's `Passage`."""

    def __init__(
        self, egress: ToolEgress, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, port: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self._egress = egress
        self._host = host
        self._port = port

    async def close(self, sent: int, received: int, /, *, code: str | None = None) -> None:
        """End it, and record how many bytes went each way."""
        if code is None:
            self.writer.close()
        else:  # the other end must not take what it has for everything
            self.writer.transport.abort()
        await self._egress.ended(self._host, self._port, sent, received, code)
