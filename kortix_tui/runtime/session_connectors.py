"""The connector verbs behind one session's door; the broker's `ConnectorService`."""

from __future__ import annotations

import contextlib

from kortix_tui.base.errors import NotFound, Refused
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.calling import CallRefused, Wanted, judge
from kortix_tui.broker.connectors.model import Action
from kortix_tui.broker.services import ActionInfo, CallReport, CallWish, ConnectorInfo
from kortix_tui.runtime.call_making import Caller, Known
from kortix_tui.runtime.call_reports import media_type
from kortix_tui.runtime.calls import Calls
from kortix_tui.runtime.preparing import Note


class SessionConnectors:
    """What one session may call.

    Args:
        session_id: Whose door.
        calls: The term's calls.
        note: Writes a line into the session's record.
    """

    def __init__(self, session_id: str, calls: Calls, note: Note) -> None:
        self._session_id = session_id
        self._calls = calls
        calls.notes_to(session_id, note)

    def close(self) -> None:
        """The session's record is closed; what becomes of its calls is noted when it is open again."""
        self._calls.notes_to(self._session_id, None)

    async def connectors(self) -> list[ConnectorInfo]:
        """Connectors that the agent's grant names."""
        caller = self._caller()
        try:
            found, commit = await self._calls.making.wanted(caller)
        except CallRefused as refusal:
            raise Refused(refusal.message, hint=refusal.hint) from None
        return [await self._info(caller, wanted, commit) for wanted in found]

    async def actions(self, connector: str | None = None) -> list[ActionInfo]:
        """Actions of one of them, or of all that are known.

        Raises:
            NotFound: The session may not use that connector.
        """
        caller, making = self._caller(), self._calls.making
        if connector is not None:
            try:
                return self._actions(caller, await making.known(caller, connector))
            except CallRefused as refusal:
                raise NotFound(refusal.message, hint=refusal.hint) from None
        try:
            connectors, commit = await making.wanted(caller)
        except CallRefused as refusal:
            raise Refused(refusal.message, hint=refusal.hint) from None
        found = list[ActionInfo]()
        for wanted in connectors:
            with contextlib.suppress(CallRefused):
                found += self._actions(caller, await making.known_of(caller, wanted, commit))
        return found

    async def call(self, wish: CallWish) -> CallReport:
        """Call an action, or join the call of that key."""
        return await self._calls.call(self._caller(), wish)

    async def report(self, call_id: str, wait: float, leave: bool) -> CallReport:
        """What became of a call of this session."""
        return await self._calls.report(self._session_id, call_id, wait, leave=leave)

    async def output(self, call_id: str) -> tuple[bytes, str]:
        """The whole stored answer, and its media type.

        Raises:
            NotFound: There is none, or it had to go.
        """
        call = await self._calls.settled(self._session_id, call_id)
        data = await self._calls.output(call)
        if data is None:
            shown = visible_line(shorten(call_id, 40))
            raise NotFound(f"There is no answer of {shown}.", hint="Old ones go when there are too many.")
        return data, media_type(call)

    async def lost(self, call_id: str) -> None:
        """The answer to a call did not reach its caller."""
        await self._calls.lost(call_id)

    def _caller(self) -> Caller:
        return self._calls.making.caller(self._session_id)

    async def _info(self, caller: Caller, wanted: Wanted, commit: str) -> ConnectorInfo:
        making, connector = self._calls.making, wanted.connector
        problem: str | None = None
        actions = 0
        try:
            known = await making.known_of(caller, wanted, commit)
            actions = len(known.catalogue.actions)
            making.connection(caller, known, None)
        except CallRefused as refusal:
            problem = str(refusal)
        return ConnectorInfo(
            slug=connector.slug, name=connector.name, provider=connector.provider, actions=actions,
            connected=problem is None, problem=problem, accounts=making.accounts(caller, connector),
        )  # fmt: skip

    def _actions(self, caller: Caller, known: Known) -> list[ActionInfo]:
        slug = known.wanted.connector.slug
        current = {action.name: action for action in known.current.actions}
        return [
            self._action(caller, known, slug, action)
            for action in known.catalogue.actions
            if action.unavailable is None and action.name in current
        ]

    def _action(self, caller: Caller, known: Known, slug: str, action: Action) -> ActionInfo:
        decision = judge(known.wanted, action.name, action.risk, None, self._calls.making.usage(caller))
        return ActionInfo(
            name=f"{slug}.{action.name}", title=visible_line(action.title), description=action.description,
            risk=action.risk, verdict=decision.verdict, input_schema=action.input_schema,
        )  # fmt: skip
