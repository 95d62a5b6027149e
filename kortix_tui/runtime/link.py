"""One session's connection to its sandbox: the door that the host serves, the channel that came in through it, and the
record that it fills."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from kortix_tui.base.errors import DeadlineExceeded, KortixError, Refused, VaultLocked
from kortix_tui.broker.door import Door
from kortix_tui.broker.listener import DoorListener
from kortix_tui.broker.services import ChangeInfo, ChangeProposal, SessionInfo
from kortix_tui.harness.command import TurnStart
from kortix_tui.manifest.plan import AgentPlan
from kortix_tui.repository.door import Access, GitDoor, PushReport
from kortix_tui.repository.mirror import KeptRef, Mirror
from kortix_tui.review.opening import MAX_DESCRIPTION, MAX_TITLE, Proposal
from kortix_tui.runtime.agent_secrets import AgentSecrets, storable
from kortix_tui.runtime.calls import Calls
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.delivery import Delivery, value_scan
from kortix_tui.runtime.egressing import SessionEgress
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.pushes import Pushes
from kortix_tui.runtime.recording import Recording, TurnEnd
from kortix_tui.runtime.session_connectors import SessionConnectors
from kortix_tui.sandbox.channel import Channel, ChannelClosed, ProtocolViolation
from kortix_tui.sandbox.frames import Committer, Hello, Repository, RescueResult, TurnOrder, Welcome
from kortix_tui.sandbox.shell_stream import ShellStream
from kortix_tui.store.models import Change, Session

PUSH_GRANTS: Final = ("project.gitops.push", "project.cr.open", "*")
"""Any of these lets an agent push its session's branch and propose it; the second is the older name."""
SHUTDOWN_S: Final = 5.0
VIOLATIONS: Final = 5
NO_RESCUE: Final = 0
VIOLATION_S: Final = 1.0
OpenMirror = Callable[[str], Awaitable[Mirror]]


class ScopeInsufficient(Refused):
    """The agent's grant on the base branch does not cover what it asked for."""

    code = "agent_scope_insufficient"


class CloneFailed(KortixError):
    """The sandbox could not get the repository."""

    code = "clone_failed"


class Link:
    """Serves the door and speaks to the supervisor behind it. What it learns wakes the runner through `changed`.

    Implements the broker's `DoorServices`.
    """

    def __init__(
        self,
        session_id: str,
        context: Context,
        ledger: Ledger,
        preparing: Preparing,
        delivery: Delivery,
        changed: asyncio.Event,
        calls: Calls,
    ) -> None:
        self.session_id = session_id
        self.has_repository = True
        self._may_push = False
        self._context = context
        self._ledger = ledger
        self._preparing = preparing
        self._open_mirror: OpenMirror = preparing.mirror
        self._changed = changed
        self._mode = "normal"
        self._listener: DoorListener | None = None
        self._channel: Channel | None = None
        self._connected = asyncio.Event()
        self._hello: Hello | None = None
        self._custodian = custodian = delivery.custodian
        self._recording = Recording(
            session_id,
            context,
            changed,
            redactor=lambda: custodian.redactor,
            holding=lambda: custodian.holding(session_id),
        )
        self._greeting = asyncio.Lock()
        self._offered_key: str | None = None
        self._violations = 0
        self._pushes: Pushes | None = None
        self._shells = list[ShellStream]()
        self.git: GitDoor | None = None
        self._calls = calls
        self.connectors: SessionConnectors | None = None
        self.egress: SessionEgress | None = None
        self._has_egress = False
        self.secrets = AgentSecrets(session_id, ledger, delivery, self.note)

    # Opening and closing

    async def open_record(self) -> None:
        """Open the session's record, so that notes show while its sandbox is still being made."""
        await self._recording.open(self._ledger)

    async def open(self, mode: str) -> None:
        """Serve the door; `rescue` lets work out and nothing in, and starts no agent."""
        if self._listener is not None and mode == self._mode:
            return
        await self._close_door()
        session = self._session()
        text = self._ledger.plan(self.session_id)
        plan = AgentPlan.model_validate_json(text) if text is not None else None
        self.has_repository = plan is None or plan.repository_access
        self._may_push = plan is not None and any(plan.grants.permissions.allows(name) for name in PUSH_GRANTS)
        self._mode = mode
        await self._open_egress(plan)
        if mode == "normal":
            self.connectors = SessionConnectors(self.session_id, self._calls, self.note)
        if self.has_repository:
            mirror = await self._open_mirror(session.project_id)
            self._pushes = Pushes(session.id, self._ledger, mirror)
            self.git = GitDoor(
                mirror,
                session.id,
                session.base_branch,
                access=self._access(),
                scan=value_scan(self._custodian, session.id),
                on_push=self._pushed,
            )
            self.git.rescue_number = NO_RESCUE
            await self._pushes.catch_up()
        listener = DoorListener(self._context.home.door(session.id), Door(self).handle)
        await listener.open()
        self._listener = listener

    async def _open_egress(self, plan: AgentPlan | None) -> None:
        """The way to the network; also for an agent that has none, whose attempts are on record then."""
        rules = plan.grants.network_egress if plan is not None else None
        self._has_egress = rules is not None and rules.opens
        egress = SessionEgress(
            self.session_id, self._context.settings.egress, self._ledger, self._preparing, self.note, self._told
        )
        await egress.begin()
        self.egress = egress if self._mode == "normal" else None

    def _access(self) -> Access:
        if self._mode != "normal":
            return Access.PUSH_ONLY
        return Access.FULL if self._may_push else Access.READ

    async def close(self) -> None:
        """Leave the sandbox to itself: it goes on, and connects to the next host."""
        await self._close_door()
        await self._recording.close()

    async def _close_door(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            await listener.close()
        connectors, self.connectors = self.connectors, None
        if connectors is not None:
            connectors.close()
        egress, self.egress = self.egress, None
        if egress is not None:
            await egress.close()
        self._channel = None
        self._connected.clear()

    async def forget_key(self) -> None:
        """The sandbox's volumes are new: whoever connects first is its supervisor."""
        session = self._session()
        if self.channel_key is not None:
            await self._ledger.give_key(session, None)

    # What the runner asks

    @property
    def alive(self) -> bool:
        """Whether the supervisor is connected."""
        return self._channel is not None and not self._channel.closed.is_set()

    @property
    def attended(self) -> bool:
        """Whether a person has a shell open in the sandbox."""
        self._shells = [shell for shell in self._shells if not shell.ended]
        return bool(self._shells)

    async def connected(self, deadline_s: float) -> None:
        """Wait for the supervisor.

        Raises:
            DeadlineExceeded: It did not come.
        """
        try:
            async with asyncio.timeout(deadline_s):
                await self._connected.wait()
        except TimeoutError:
            raise DeadlineExceeded("The sandbox's supervisor did not connect.") from None

    async def ready(self, deadline_s: float) -> None:
        """Wait until the workspace is cloned.

        Raises:
            CloneFailed: The sandbox could not clone.
            ChannelClosed: It left meanwhile.
            DeadlineExceeded: It takes too long.
        """
        try:
            async with asyncio.timeout(deadline_s):
                while not (self._recording.is_ready or (self._hello is not None and self._hello.cloned)):
                    if (fault := self._recording.clone_fault) is not None:
                        await self._live().close()  # it tries anew when it is back
                        raise CloneFailed(
                            f"The sandbox could not clone the repository: {fault}",
                            hint="Look at `kortix sessions logs`; `kortix sessions resume` tries again.",
                        )
                    if not self.alive:
                        raise ChannelClosed("The sandbox's supervisor left before the workspace was ready.")
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise DeadlineExceeded("The sandbox did not get its clone in time.") from None

    async def start_turn(self, turn: TurnStart, secrets: Mapping[str, str]) -> None:
        """Have the supervisor run a turn; the same turn is never run twice."""
        environment = {**secrets, **turn.environment}
        order = TurnOrder(turn_id=turn.turn_id, command=turn.command, environment=environment, cwd=turn.cwd)
        await self._live().start_turn(order, turn.prompt)

    async def cancel_turn(self, turn_id: str) -> None:
        """End a turn's program."""
        await self._live().cancel_turn(turn_id)

    def runs(self, turn_id: str) -> bool:
        """Whether the supervisor said, when it connected, that it runs this turn."""
        running = self._hello.running if self._hello is not None else None
        return running is not None and running.turn_id == turn_id

    def ended(self, turn_id: str) -> TurnEnd | None:
        """How a turn ended, if it did."""
        found = self._recording.turn_end(turn_id)
        if found is None and self._hello is not None and turn_id in self._hello.ended and self._recording.caught_up:
            return TurnEnd.unseen()
        return found

    async def wait_end(self, turn_id: str, deadline_s: float) -> TurnEnd | None:
        """Wait for a turn's end; `None` when it does not come."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(deadline_s):
                while (end := self.ended(turn_id)) is None:
                    if not self.alive:
                        return None
                    self._changed.clear()
                    await self._changed.wait()
                return end
        return None

    async def rescue(self, number: int, reason: str, deadline_s: float) -> RescueResult:
        """Have the supervisor push what would be lost."""
        if self.git is None:
            raise Refused("The session has no repository to save its work to.")
        self.git.rescue_number = number
        try:
            return await self._live().rescue(number, reason, deadline=deadline_s)
        finally:
            self.git.rescue_number = NO_RESCUE

    async def shutdown(self) -> None:
        """End everything in the sandbox in order."""
        with contextlib.suppress(ChannelClosed, DeadlineExceeded):
            await self._live().shutdown(SHUTDOWN_S)

    async def open_shell(self, rows: int, columns: int, term: str, secrets: Mapping[str, str]) -> ShellStream:
        """A terminal in the sandbox, for a person."""
        shell = await self._live().open_shell(rows=rows, columns=columns, term=term, environment=secrets)
        self._shells.append(shell)
        return shell

    async def rescues(self) -> list[KeptRef]:
        """Work of this session that is safe in the mirror."""
        mirror = await self._open_mirror(self._session().project_id)
        return await mirror.rescues(self.session_id)

    def note(self, text: str) -> None:
        """A line of the host's own in the session's record."""
        self._recording.note(text)

    def _live(self) -> Channel:
        if self._channel is None or self._channel.closed.is_set():
            raise ChannelClosed("The sandbox is not connected.", hint="Try again in a moment.")
        return self._channel

    def _session(self) -> Session:
        session = self._ledger.session(self.session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session

    # What the door asks (DoorServices)

    @property
    def agent_token(self) -> str:
        """What the agent's requests must carry."""
        return self._ledger.locks(self.session_id)[1]

    @property
    def channel_key(self) -> str | None:
        """What the supervisor must carry; `None` while none was given out."""
        return self._ledger.locks(self.session_id)[0]

    async def supervise(self, channel: Channel) -> None:
        """Serve one connection of the supervisor until it closes; a newer one takes its place."""
        hello = await channel.hello()
        if hello.session_id != self.session_id:
            self.note("Another session's supervisor came to this door and was sent away.")
            return
        async with self._greeting:  # two connections at once must not be given two keys
            old, self._channel = self._channel, None
            if old is not None:
                await old.close()
            key = self._offered_key = secrets.token_hex(32) if self.channel_key is None else None
            self._hello = hello
            self._recording.attach(hello.last_seq)
            await channel.welcome(self._welcome(self._session(), key))
            self._channel = channel
        self._connected.set()
        self._changed.set()
        try:
            await self._recording.fill(channel, self._keep_key)
        finally:
            if self._channel is channel:
                self._channel = None
                self._connected.clear()
            self._changed.set()
            await self._judge(channel)

    async def _keep_key(self) -> None:
        """Hold the supervisor to its key once it is sure to have it: it writes before it sends its first record.

        Noted any earlier, a death of either side in between would lock the sandbox out for ever.
        """
        key, self._offered_key = self._offered_key, None
        if key is not None:
            await self._ledger.give_key(self._session(), key)

    async def _judge(self, channel: Channel) -> None:
        """Slow down a supervisor that breaks the protocol; it comes back at once, and breaks it again."""
        if isinstance(channel.failure, ProtocolViolation):
            self._violations += 1
            self.note(f"The sandbox's connection was closed: {channel.failure.message}")
            await asyncio.sleep(VIOLATION_S)

    @property
    def violation(self) -> KortixError | None:
        """Why this supervisor cannot be worked with, once it has broken the protocol too often."""
        if self._violations < VIOLATIONS:
            return None
        return ProtocolViolation(
            f"The sandbox's supervisor broke the protocol {self._violations} times.",
            hint="Its image may be of another version: stop and resume the session.",
        )

    @property
    def shortage(self) -> str | None:
        """Why the record cannot be written at this moment."""
        return self._recording.shortage

    def _welcome(self, session: Session, key: str | None) -> Welcome:
        repository = Repository(
            branch=session.id, base_branch=session.base_branch, base_commit=session.base_commit or ""
        )
        agent = session.agent or "agent"
        return Welcome(
            channel_key=key,
            stored_seq=self._recording.stored_seq,
            mode="rescue" if self._mode == "rescue" else "normal",
            repository=repository if self.has_repository else None,
            agent_token=self.agent_token,
            proxy=self._has_egress and self._mode == "normal",
            identity=Committer(name=f"{agent} (kortix agent)", email=f"{session.id}@sessions.kortix.invalid"),
        )

    async def session(self) -> SessionInfo:
        """Facts about the session, for its agent."""
        session = self._session()
        return SessionInfo(
            session_id=session.id,
            project=self._ledger.project(session.project_id).slug,
            agent=session.agent,
            base_branch=session.base_branch,
            branch=session.id,
            title=session.title,
        )

    async def changes(self) -> list[ChangeInfo]:
        """The session's change requests, oldest first."""
        rows = self._context.store.all(
            f"SELECT {Change.columns()} FROM change_requests WHERE session_id = ? ORDER BY number", (self.session_id,)
        )
        return [_info(Change.of(row)) for row in rows]

    async def open_change(self, proposal: ChangeProposal) -> ChangeInfo:
        """Open a change request at a head that the host has seen pushed."""
        session = self._session()
        if not self._may_push:
            await self._ledger.denied(session, "change_request.create", scope=f"session {session.id}")
            raise ScopeInsufficient(
                f"Agent {session.agent} may not open change requests: project.gitops.push is not granted to it.",
                hint="A person can grant it in kortix.yaml on the base branch, for new sessions.",
            )
        wanted = Proposal(
            title=storable(self._custodian, session.id, proposal.title)[:MAX_TITLE],
            description=storable(self._custodian, session.id, proposal.description)[:MAX_DESCRIPTION],
            head_commit=proposal.head_commit,
        )
        change = await self._ledger.open_change(session, wanted, self._ledger.project(session.project_id).slug)
        self.note(f"Opened change request {change.number}: {change.title}")
        return _info(change)

    async def deny_merge(self) -> None:
        """The agent asked for a merge, which no agent may do."""
        session = self._session()
        await self._ledger.denied(session, "change_request.merge", scope=f"session {session.id}")
        self.note("The agent asked for a merge; merge is default-deny for agents.")

    async def _pushed(self, report: PushReport) -> None:
        if self._pushes is None:
            return
        for value in report.values:
            what = "A push was refused" if report.is_refused else "Saved work"
            self.note(f"{what}: it has the value of the secret {value.identifier} in {value.place}.")
        if report.unsearched is not None:
            self.note(f"Saved work was not searched for values of secrets: {report.unsearched}.")
        # What a ref is called is the agent's word, and goes into the record.
        updates = tuple(
            replace(update, ref=self._told(update.ref), reason=self._told(update.reason)) for update in report.updates
        )
        await self._pushes.pushed(replace(report, updates=updates))
        self._changed.set()

    def _told(self, text: str) -> str:
        try:
            return storable(self._custodian, self.session_id, text)
        except VaultLocked:
            return "(not stored while the vault is locked)"


def _info(change: Change) -> ChangeInfo:
    return ChangeInfo(number=change.number, status=change.status, title=change.title, head_commit=change.head_commit)
