"""Who calls what under which rules: everything about a call that can be found out before it is written down or sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kortix_tui.base.errors import KortixError, NotFound
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors import calling
from kortix_tui.broker.connectors.calling import CallRefused, Side, Wanted
from kortix_tui.broker.connectors.model import Action, Catalogue, Decision, Materialised
from kortix_tui.broker.policy import PastCalls
from kortix_tui.broker.services import CallWish
from kortix_tui.manifest.check import Report
from kortix_tui.manifest.connectors import Connector
from kortix_tui.manifest.fields import Grant
from kortix_tui.runtime.call_usage import RecordedUsage
from kortix_tui.runtime.catalogue_store import definition_hash
from kortix_tui.runtime.catalogues import Catalogues
from kortix_tui.runtime.connection_choice import choose, place_of
from kortix_tui.runtime.connection_rows import connection_rows
from kortix_tui.runtime.governing import Governing
from kortix_tui.runtime.ledger import Ledger, agent_actor
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.store.audit import Actor
from kortix_tui.store.models import Call, Connection

if TYPE_CHECKING:
    from kortix_tui.manifest.policies import PolicyRule

KEPT: Final = 128
SHORT: Final = 16 << 10
"""Characters of arguments that are checked at once, which costs less than another thread's start."""
_ALL: Final = Grant(everything=True)


@dataclass(frozen=True)
class Caller:
    """Who calls.

    Attributes:
        session_id: Whose agent; `None` for the operator.
        agent: Its name on the base branch.
        commit: The commit that governs the session; `None` for the operator, whom the base branch governs.
        grant: The connectors that this commit gives the agent.
        attended: For the operator: whether a person is at a terminal.
    """

    project_id: str
    session_id: str | None
    agent: str
    branch: str
    commit: str | None
    grant: Grant
    actor: Actor
    attended: bool = False


@dataclass(frozen=True)
class Known:
    """A connector that the caller may use, and what it can do.

    Attributes:
        catalogue: Of the definition that governs the session.
        current: Of the definition on the base branch now.
    """

    wanted: Wanted
    catalogue: Catalogue
    current: Catalogue


@dataclass(frozen=True)
class Prepared:
    """A call that could be made.

    Attributes:
        decision: What policy said when it was prepared.
    """

    known: Known
    action: Action
    risk: Risk
    arguments: dict[str, Any]
    account: str | None
    request: Materialised
    decision: Decision

    @property
    def limited(self) -> bool:
        """Whether some rule counts calls or amounts: it is decided anew, and on record before the next is decided."""
        return any(
            _counts(rule)
            for policy in self.known.wanted.policies
            for rule in (*policy.project, *policy.connector)
        )  # fmt: skip


def _counts(rule: PolicyRule) -> bool:
    return any(one.max_calls is not None or one.max_sum is not None for one in rule.conditions)


class CallMaking:
    """Finds out what a wish means; shared by all sessions of one term.

    Args:
        ledger: Knows sessions; its store knows catalogues, connections and calls.
        preparing: Knows the plans that sessions are pinned to.
        governing: Knows manifests.
        reader: Knows what connectors can do.
    """

    def __init__(self, ledger: Ledger, preparing: Preparing, governing: Governing, reader: Catalogues) -> None:
        self._ledger = ledger
        self._store = ledger.store
        self._preparing = preparing
        self._governing = governing
        self._reader = reader
        self._callers: dict[str, Caller] = {}
        self._catalogues: dict[tuple[str, str, str], tuple[tuple[str, str], Catalogue]] = {}
        self._hashes: dict[int, tuple[Connector, str]] = {}

    # Callers

    def caller(self, session_id: str) -> Caller:
        """A session's agent, as it was pinned at its first start; nothing of that changes later."""
        if session_id not in self._callers:
            session = self._ledger.session(session_id)
            if session is None:
                raise NotFound(f"There is no session {session_id}.")
            plan = self._preparing.pinned(session)
            if len(self._callers) >= KEPT:
                self._callers.clear()
            self._callers[session_id] = Caller(
                project_id=session.project_id, session_id=session.id, agent=plan.name, branch=session.base_branch,
                commit=session.base_commit, grant=plan.grants.connectors, actor=agent_actor(session),
            )  # fmt: skip
        return self._callers[session_id]

    def operator(self, project_id: str, actor: Actor, *, attended: bool) -> Caller:
        """The operator, whom the base branch governs and no grant limits."""
        branch = self._ledger.project(project_id).base_branch
        return Caller(project_id, None, "", branch, None, _ALL, actor, attended)

    # Manifests and catalogues

    async def wanted(self, caller: Caller) -> tuple[Sequence[Wanted], str]:
        """Every connector that the caller may use, and the base branch's commit.

        Raises:
            CallRefused: The base branch cannot be read; what cannot be known is a no.
        """
        pinned, base, commit = await self._sides(caller)
        found = list[Wanted]()
        for connector in pinned.manifest.connectors:
            with contextlib.suppress(CallRefused):
                found.append(calling.find_connector(connector.slug, pinned, base))
        return found, commit

    async def known(self, caller: Caller, slug: str) -> Known:
        """A connector and its actions.

        Raises:
            CallRefused: The caller may not use it, or nobody has read yet what it can do.
        """
        pinned, base, commit = await self._sides(caller)
        return await self.known_of(caller, calling.find_connector(slug, pinned, base), commit)

    async def known_of(self, caller: Caller, wanted: Wanted, commit: str) -> Known:
        """What a connector can do.

        Raises:
            CallRefused: Nobody has read that yet.
        """
        catalogue = await self._catalogue(caller, wanted.connector, commit)
        same = wanted.connector is wanted.current
        return Known(wanted, catalogue, catalogue if same else await self._catalogue(caller, wanted.current, commit))

    async def _sides(self, caller: Caller) -> tuple[Side, Side, str]:
        """What governs the caller: the commit that its session began at, and the base branch now."""
        try:
            now = await self._governing.base(caller.project_id, caller.branch)
            base = _side(now.report, caller)
            if caller.commit is None:
                return base, base, now.commit
            pinned = await self._governing.at(caller.project_id, caller.commit)
        except CallRefused:
            raise
        except KortixError as error:
            why = f"What {caller.branch} allows cannot be read: {error.message}"
            raise CallRefused("base_unreadable", why) from None
        if pinned.manifest is None:
            raise CallRefused("base_unreadable", "The manifest that governs this session cannot be read.")
        return Side(pinned.manifest, caller.grant), base, now.commit

    async def _catalogue(self, caller: Caller, connector: Connector, commit: str) -> Catalogue:
        key = (caller.project_id, connector.slug, self.definition(connector))
        row = self._store.one(
            "SELECT id FROM catalogues WHERE project_id = ? AND connector = ? AND definition = ?"
            " AND state = 'accepted'",
            key,
        )
        state = (row[0] if row else "", commit)
        known = self._catalogues.get(key)
        if known is not None and known[0] == state:
            return known[1]
        try:
            catalogue = await self._reader.current(caller.project_id, connector, commit)
        except KortixError as error:
            raise CallRefused("connector_not_connected", error.message, hint=error.hint) from None
        if catalogue is None:
            raise CallRefused(
                "connector_not_connected", f"What {connector.slug} can do is not known yet.",
                hint=f"A person must do it: kortix connectors connect {connector.slug}",
            )  # fmt: skip
        if row is not None:  # otherwise it was just read; the next call finds its row
            self._catalogues[key] = (state, catalogue)
        return catalogue

    def definition(self, connector: Connector) -> str:
        """The connector's definition hash; made once for each that is read from a manifest."""
        known = self._hashes.get(id(connector))
        if known is None or known[0] is not connector:
            if len(self._hashes) >= KEPT:
                self._hashes.clear()
            known = self._hashes[id(connector)] = (connector, definition_hash(connector))
        return known[1]

    # Calls

    async def prepare(self, caller: Caller, wish: CallWish) -> Prepared:
        """Everything that would be sent for a wish.

        Raises:
            CallRefused: It is not sent, and nobody is asked.
        """
        known = await self.known(caller, wish.connector)
        wanted = known.wanted
        action, risk = calling.find_action(wanted.connector.slug, wish.action, known.catalogue, known.current)
        arguments = await _read(action, wish.arguments)
        first = calling.judge(wanted, action.name, risk, arguments, self.usage(caller))
        if (refusal := calling.blocked(first, wanted.connector.slug, action.name)) is not None:
            raise refusal
        connection = self.connection(caller, known, wish.account)
        request = calling.materialise(
            action, arguments, project_id=caller.project_id, connector=wanted.connector, catalogue=known.catalogue,
            definition_hash=self.definition(wanted.connector),
            credential=connection.id if connection else None, credential_place=place_of(connection),
        )  # fmt: skip
        return Prepared(known, action, risk, arguments, connection.account if connection else None, request, first)

    def judge(self, caller: Caller, prepared: Prepared) -> Decision:
        """What policy says of it at this moment."""
        known = prepared.known
        return calling.judge(
            known.wanted, prepared.action.name, prepared.risk, prepared.arguments, self.usage(caller)
        )  # fmt: skip

    def usage(self, caller: Caller) -> RecordedUsage:
        """What was called before, for limits."""
        return RecordedUsage(self._store, caller.project_id)

    # Connections

    def connection(self, caller: Caller, known: Known, account: str | None) -> Connection | None:
        """The connection that a call uses; `None` where it needs none.

        Raises:
            CallRefused: There is none that can be used.
        """
        try:
            return choose(self._store, caller.project_id, known.wanted.connector, known.catalogue, account)
        except KortixError as error:
            raise CallRefused(error.code, error.message, hint=error.hint) from None

    def accounts(self, caller: Caller, connector: Connector) -> tuple[str, ...]:
        """Names of a connector's accounts."""
        return tuple(row.account for row in connection_rows(self._store, caller.project_id, connector.slug))

    async def why_not(self, caller: Caller, call: Call) -> CallRefused | None:
        """Why a stored call must not be sent any more, although a person was asked about it or has approved it."""
        request = Materialised.model_validate_json(call.request or "")
        try:
            known = await self.known(caller, call.connector)
            action, risk = calling.find_action(call.connector, call.action, known.catalogue, known.current)
            arguments = await _read(action, request.arguments)
            # Limits counted when it was asked; they would count the call itself now.
            unlimited = PastCalls(self._store.clock.now())
            decision = calling.judge(known.wanted, action.name, risk, arguments, unlimited)
            if (refusal := calling.blocked(decision, call.connector, call.action)) is not None:
                return refusal
            connection = self.connection(caller, known, call.account)
        except CallRefused as refusal:
            return refusal
        if connection is not None and connection.created_at > call.created_at:
            return CallRefused("connector_changed", f"The account {connection.account} was connected anew since then.")
        credential = connection.id if connection else None
        now = (self.definition(known.wanted.connector), known.catalogue.document_hash, credential)
        if now != (request.definition_hash, request.document_hash, request.credential):
            return CallRefused("connector_changed", "The connector, its document or its credential has changed.")
        return None


async def _read(action: Action, text: str) -> dict[str, Any]:
    """The arguments as `calling.read` reads them; what takes long does not hold up other sessions."""
    if len(text) <= SHORT:
        return calling.read(action, text)
    return await asyncio.to_thread(calling.read, action, text)


def _side(report: Report, caller: Caller) -> Side:
    if report.manifest is None or report.errors:
        raise CallRefused("base_unreadable", f"kortix.yaml on {caller.branch} is not valid.")
    if caller.session_id is None:
        return Side(report.manifest, _ALL)
    agent, file = report.manifest.agents.get(caller.agent), report.agents.get(caller.agent)
    if agent is None or file is None or not agent.enabled or file.behaviour.disable:
        return Side(report.manifest, Grant())
    return Side(report.manifest, agent.connectors)
