"""A host for one session's door, small enough for tests: it stores records as the runtime does, in memory."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from kortix_tui.base.errors import NotFound, Refused
from kortix_tui.base.words import Exposure, SecretRequestState
from kortix_tui.broker.door import Door
from kortix_tui.broker.listener import DoorListener, Limits
from kortix_tui.broker.services import (
    ChangeInfo,
    ChangeProposal,
    ConnectorService,
    EgressService,
    GitService,
    SecretInfo,
    SecretReport,
    SecretState,
    SecretWish,
    SessionInfo,
)
from kortix_tui.sandbox.channel import Channel
from kortix_tui.sandbox.frames import Committer, Hello, OutputRecord, Record, Repository, TurnEndedRecord, Welcome

WAIT_S = 60.0


@dataclass
class SmallSecrets:
    """Secret verbs that know one secret and remember what was asked for."""

    wishes: list[SecretWish] = field(default_factory=list)
    states: dict[str, SecretRequestState] = field(default_factory=dict)
    looks: int = 0

    async def list(self) -> list[SecretInfo]:
        return [
            SecretInfo(
                identifier="stripe-live", name="STRIPE_KEY", exposure=Exposure.ENVIRONMENT, state=SecretState.DELIVERED
            ),
            SecretInfo(identifier="TOKEN", name=None, exposure=None, state=SecretState.MISSING),
        ]

    async def request(self, wish: SecretWish, /) -> SecretReport:
        if wish.identifier == "stripe-live":
            raise Refused("stripe-live is stored and granted.", hint="It is in this sandbox as $STRIPE_KEY.")
        self.wishes.append(wish)
        self.states.setdefault(wish.identifier, SecretRequestState.OPEN)
        return self._report(wish)

    async def report(self, request_id: str, /) -> SecretReport:
        self.looks += 1
        wish = next((wish for wish in self.wishes if f"srq_{wish.identifier.lower()}" == request_id), None)
        if wish is None:
            raise NotFound("This session made no such request.")
        return self._report(wish)

    def _report(self, wish: SecretWish) -> SecretReport:
        return SecretReport(
            id=f"srq_{wish.identifier.lower()}", identifier=wish.identifier, exposure=wish.exposure,
            state=self.states[wish.identifier],
        )  # fmt: skip


@dataclass
class SmallHost:
    """The services behind one door; keeps what a database would keep over restarts of the host."""

    session_id: str
    repository: Repository | None = None
    git: GitService | None = None
    agent_token: str = field(default_factory=lambda: secrets.token_hex(16))
    channel_key: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    mode: str = "normal"
    stored: list[Record] = field(default_factory=list)
    ends: dict[str, TurnEndedRecord] = field(default_factory=dict)
    hellos: list[Hello] = field(default_factory=list)
    proposals: list[ChangeProposal] = field(default_factory=list)
    denied: int = 0
    secrets: SmallSecrets = field(default_factory=SmallSecrets)
    connectors: ConnectorService | None = None
    egress: EgressService | None = None
    channel: Channel | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def stored_seq(self) -> int:
        return self.stored[-1].seq if self.stored else 0

    async def supervise(self, channel: Channel) -> None:
        hello = await channel.hello()
        if self.channel is not None:
            await self.channel.close()
        new_key = None if self.channel_key else secrets.token_hex(32)
        self.channel_key = self.channel_key or new_key
        await channel.welcome(
            Welcome(
                channel_key=new_key,
                stored_seq=self.stored_seq,
                mode=self.mode,  # type: ignore[arg-type]
                repository=self.repository,
                agent_token=self.agent_token,
                identity=Committer(name='Robin Ag"ent\\', email="robin@example.invalid"),
                environment=self.environment,
            )
        )
        async with self.changed:
            self.hellos.append(hello)
            self.channel = channel
            self.changed.notify_all()
        async for record in channel.records():
            async with self.changed:
                self.stored.append(record)
                if isinstance(record, TurnEndedRecord):
                    self.ends.setdefault(record.turn_id, record)
                self.changed.notify_all()
            with contextlib.suppress(Exception):
                await channel.ack(record.seq)

    async def session(self) -> SessionInfo:
        return SessionInfo(
            session_id=self.session_id, project="acme", agent="robin", base_branch="main", branch=self.session_id,
            title="A title",
        )  # fmt: skip

    async def changes(self) -> list[ChangeInfo]:
        return [
            ChangeInfo(number=number, status="open", title=one.title, head_commit=one.head_commit)
            for number, one in enumerate(self.proposals, start=1)
        ]

    async def open_change(self, proposal: ChangeProposal) -> ChangeInfo:
        if proposal.title == "refuse me":
            raise Refused("The host has not seen that commit.", hint="Push it first.")
        self.proposals.append(proposal)
        return (await self.changes())[-1]

    async def deny_merge(self) -> None:
        self.denied += 1

    # ---- waiting, for tests ---------------------------------------------------------------------------------

    async def connected(self, times: int = 1) -> Channel:
        """The channel, once the supervisor has come `times` times."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: len(self.hellos) >= times)
        assert self.channel is not None
        return self.channel

    async def state(self, name: str) -> str:
        """Wait for a state and return its message."""

        def find() -> list[str]:
            return [
                record.data.message for record in self.stored if record.kind == "state" and record.data.name == name
            ]

        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(find)
        return find()[-1]

    async def ended(self, turn_id: str) -> TurnEndedRecord:
        """Wait for a turn's end."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: turn_id in self.ends)
        return self.ends[turn_id]

    async def printed(self, turn_id: str, words: bytes) -> None:
        """Wait until a turn has written these words."""
        async with asyncio.timeout(WAIT_S), self.changed:
            await self.changed.wait_for(lambda: words in self.output(turn_id))

    def output(self, turn_id: str, stream: str = "stdout") -> bytes:
        """What a turn wrote."""
        return b"".join(
            record.body
            for record in self.stored
            if isinstance(record, OutputRecord) and record.turn_id == turn_id and record.stream == stream
        )


@contextlib.asynccontextmanager
async def open_door(folder: Path, host: SmallHost, *, limits: Limits | None = None) -> AsyncIterator[DoorListener]:
    """Serve a host at a door."""
    listener = DoorListener(folder, Door(host).handle, limits=limits)
    await listener.open()
    try:
        yield listener
    finally:
        await listener.close()
