"""One session's way to the network: which hosts it may reach now, and the record of every attempt.

The rules that the session is pinned to, the same agent's rules on the base branch and the operator's ceiling must all
allow a destination (invariant I3). What is taken away counts from the next connection on, and ends those that are open.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from kortix_tui.base.errors import Conflict, KortixError, Refused
from kortix_tui.base.settings import EgressSettings
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.network.addresses import networks
from kortix_tui.broker.network.resolving import connect
from kortix_tui.manifest.check import Report
from kortix_tui.manifest.egress import NetworkEgress, covered
from kortix_tui.runtime.egress_record import EgressRecord
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Note, Preparing
from kortix_tui.store.models import Session

FRESH_S: Final = 20.0
"""How long it may take until what the source's base branch tightens is asked for again."""
WATCH_S: Final = 30.0
"""How often open connections are held against the rules."""
MOST: Final = 24
"""Open connections of one session; fewer than its door takes, so that git and the agent's verbs always get through."""
MOST_A_MINUTE: Final = 600
LONGEST_HOST: Final = 253
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter, str]


class EgressDenied(Refused):
    """No rule allows the destination."""

    code: ClassVar[str] = "egress_denied"


class EgressCeiling(Refused):
    """The operator's ceiling is below the destination."""

    code: ClassVar[str] = "egress_ceiling"


class EgressBusy(Conflict):
    """The session has too many connections at this moment."""

    code: ClassVar[str] = "egress_busy"


@dataclass(frozen=True)
class Rules:
    """What a session may reach at this moment.

    Attributes:
        pinned: What the plan says that the session runs under.
        base: What the base branch says now of the same agent; `None` for nothing.
        fault: Why that cannot be known.
        ceiling: The operator's.
        agent: Whose rules they are.
        base_branch: Where a person could change them.
    """

    pinned: NetworkEgress | None
    base: NetworkEgress | None
    fault: str | None
    ceiling: EgressSettings
    agent: str
    base_branch: str

    def allowing(self, host: str, port: int) -> str:
        """The rule that allows a destination.

        Raises:
            EgressDenied: None does.
            EgressCeiling: One does, and the operator's settings do not.
        """
        place = f"{host}:{port}"
        if _is_address(host):
            raise EgressDenied(f"{place} is an address; only names can be allowed.", hint="Connect to the host's name.")
        rule = self.pinned.allowing(host, port) if self.pinned is not None else None
        if rule is None:
            raise EgressDenied(
                f"No network_egress rule of agent {self.agent} allows {place}.",
                hint=f"A person can add one to kortix.yaml on {self.base_branch}; it counts for new sessions.",
            )
        if self.base is None or self.base.allowing(host, port) is None:
            why = self.fault or f"{self.base_branch} does not allow it any more"
            raise EgressDenied(f"{place} was allowed, and is not now: {why}.")
        ceiling = self.ceiling
        if covered(ceiling.deny, host) or not covered(ceiling.allow, host):
            raise EgressCeiling(
                f"The operator's settings do not allow {place}.", hint="It is `egress` in config.yaml that decides."
            )
        return rule


def base_rules(report: Report, agent: str, base_branch: str) -> tuple[NetworkEgress | None, str | None]:
    """An agent's rules in a manifest, and why there can be none."""
    if report.manifest is None or report.errors:
        return None, f"kortix.yaml on {base_branch} is not valid"
    found, file = report.manifest.agents.get(agent), report.agents.get(agent)
    if found is None or file is None or not found.enabled or file.behaviour.disable:
        return None, f"{base_branch} has no agent {agent} any more, or it is switched off"
    return found.network_egress, None


class SessionEgress:
    """The way out behind one session's door; the broker's `EgressService`.

    Args:
        session_id: Whose door.
        ceiling: The operator's settings.
        ledger: Where attempts are written.
        preparing: Knows plans and the base branch.
        note: Writes a line into the session's record.
        told: Makes the agent's words storable.
        reach: Connects to a host and port.
    """

    def __init__(
        self,
        session_id: str,
        ceiling: EgressSettings,
        ledger: Ledger,
        preparing: Preparing,
        note: Note,
        told: Callable[[str], str],
        *,
        reach: Callable[[str, int], Awaitable[Streams]] | None = None,
    ) -> None:
        self._session_id = session_id
        self._ceiling = ceiling
        self._ledger = ledger
        self._preparing = preparing
        self._note = note
        self._reach = reach or self._connect
        self._record = EgressRecord(ledger, note, told)
        self._open = set[_Passage]()
        self._starting = 0
        self._reading = asyncio.Lock()
        self._read_at: float | None = None
        self._complaint = ""
        self._watching: asyncio.Task[None] | None = None
        self._minute, self._count = 0, 0

    async def begin(self) -> None:
        """Write down the end of connections that an earlier host left open."""
        await self._record.abandoned(self._session())

    async def close(self) -> None:
        """Stop watching; the door has ended the connections."""
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        with contextlib.suppress(KortixError):  # where another host took over, these counts are lost
            await self._record.settle(self._session(), everything=True)

    async def open(self, method: str, host: str, port: int) -> _Passage:
        """A connection to a destination that is allowed, on record before a byte goes through it.

        Raises:
            Refused: No rule allows it, the operator's ceiling is below it, or it leads to a closed address.
            EgressBusy: The session has too many connections.
            KortixError: It cannot be reached, or nothing can be recorded.
        """
        session = self._session()
        host = visible_line(shorten(host, LONGEST_HOST))
        await self._record.settle(session)
        try:
            with self._place():
                rules = await self._rules(session)
                self._cut(rules)
                rule = rules.allowing(host, port)
                reader, writer, address = await self._reach(host, port)
        except KortixError as error:
            await self._record.refused(session, method, host, port, error)
            raise
        try:
            row = await self._record.opened(session, method, host, port, rule, address)
        except BaseException:
            writer.transport.abort()
            raise
        passage = _Passage(reader, writer, host, port, row, self._ended)
        self._open.add(passage)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name=f"egress {self._session_id}")
        return passage

    @contextlib.contextmanager
    def _place(self) -> Iterator[None]:
        """One of the connections that a session may have at a time, and try in a minute."""
        minute = int(self._ledger.store.clock.monotonic() // 60)
        if minute != self._minute:
            self._minute, self._count = minute, 0
        self._count += 1
        if len(self._open) + self._starting >= MOST:
            raise EgressBusy(f"{MOST} connections of this session are open.", hint="Close some, then try again.")
        if self._count > MOST_A_MINUTE:
            raise EgressBusy(f"This session tried {MOST_A_MINUTE} connections in a minute.", hint="Try again later.")
        self._starting += 1
        try:
            yield
        finally:
            self._starting -= 1

    async def _connect(self, host: str, port: int) -> Streams:
        return await connect(host, port, allow_private=networks(self._ceiling.allow_private), setting="egress")

    async def _rules(self, session: Session) -> Rules:
        plan = self._preparing.pinned(session)
        base, fault = None, None
        if plan.grants.network_egress is not None:
            base, fault = await self._base(session, plan.name)
        return Rules(plan.grants.network_egress, base, fault, self._ceiling, plan.name, session.base_branch)

    async def _base(self, session: Session, agent: str) -> tuple[NetworkEgress | None, str | None]:
        """What the base branch says now; the source is asked again when its last word is old."""
        async with self._reading:
            now = self._ledger.store.clock.monotonic()
            old = self._read_at is None or now >= self._read_at + FRESH_S
            try:
                report = await self._preparing.base_report(session, self._complain if old else None)
            except KortixError as error:
                return None, error.message.rstrip(".")
            finally:
                if old:
                    self._read_at = self._ledger.store.clock.monotonic()
            return base_rules(report, agent, session.base_branch)

    def _complain(self, text: str) -> None:
        if text != self._complaint:
            self._complaint = text
            self._note(text)

    def _cut(self, rules: Rules) -> None:
        """End what is not allowed any more."""
        for passage in list(self._open):
            try:
                rules.allowing(passage.host, passage.port)
            except Refused as error:
                passage.cut(error.code)

    async def _watch(self) -> None:
        """Hold open connections against the rules, as long as there are any."""
        try:
            while self._open:
                await asyncio.sleep(WATCH_S)
                with contextlib.suppress(KortixError):  # who cannot read the rules now looks again
                    self._cut(await self._rules(self._session()))
        finally:
            self._watching = None

    async def _ended(self, passage: _Passage, sent: int, received: int, code: str | None) -> None:
        self._open.discard(passage)
        await self._record.ended(self._session(), passage.row, sent, received, code)

    def _session(self) -> Session:
        session = self._ledger.session(self._session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session


class _Passage:
    """One open connection; the broker's `Passage`."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        host: str,
        port: int,
        row: str,
        ended: Callable[[_Passage, int, int, str | None], Awaitable[None]],
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.host = host
        self.port = port
        self.row = row
        self._ended = ended
        self._cut: str | None = None

    def cut(self, code: str) -> None:
        """End it now, whatever goes through it."""
        self._cut = code
        self.reader.set_exception(ConnectionAbortedError(code))
        self.writer.transport.abort()

    async def close(self, sent: int, received: int, /, *, code: str | None = None) -> None:
        """End it, and record how many bytes went each way."""
        code = self._cut or code
        if code is None:
            self.writer.close()
        else:  # the other end must not take what it has for everything
            self.writer.transport.abort()
        await self._ended(self, sent, received, code)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
