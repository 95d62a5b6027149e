"""What an agent may know of secrets, and how it asks a person for one. No value is anywhere in here."""

from __future__ import annotations

import json
from typing import Final

from kortix_tui.base.errors import InvalidInput, NotFound, Refused, VaultLocked
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.broker.services import SecretInfo, SecretReport, SecretState, SecretWish
from kortix_tui.runtime.delivery import Custodian, Delivery, Standing, choose
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Note
from kortix_tui.store.models import SecretRequest, SecretRow, Session

_KEPT: Final = {
    Exposure.EGRESS: SecretState.EGRESS,
    Exposure.CONNECTOR: SecretState.CONNECTOR,
    Exposure.NONE: SecretState.KEPT,
}
_HAS_IT: Final = {
    SecretState.DELIVERED: "It is in this sandbox as ${name}.",
    SecretState.GRANTED: "It comes as ${name} with the next prompt.",
    SecretState.SHADOWED: "Another secret has the same name, ${name}.",
    SecretState.EGRESS: "Its value stays outside the sandbox.",
    SecretState.CONNECTOR: "Its value stays outside the sandbox: connectors use it.",
    SecretState.KEPT: "Its value stays outside the sandbox.",
}


class AgentSecrets:
    """The secret verbs behind one session's door; the broker's `SecretService`.

    Args:
        session_id: Whose door.
        ledger: Where requests are written.
        delivery: Knows what the session gets.
        note: Writes a line into the session's record.
    """

    def __init__(self, session_id: str, ledger: Ledger, delivery: Delivery, note: Note) -> None:
        self._session_id = session_id
        self._ledger = ledger
        self._delivery = delivery
        self._note = note

    async def list(self) -> list[SecretInfo]:
        """Every secret that the session may know of; by the index, so also while the vault is locked."""
        session = self._session()
        standing = await self._delivery.standing(session)
        rows = self._known(session, standing)
        states = self._states(rows, standing)
        found = [
            SecretInfo(identifier=row.identifier, name=row.name, exposure=row.exposure, state=states[row.id])
            for row in rows
        ]
        there = {row.identifier.casefold() for row in rows}
        wanted = {name.casefold(): name for name in standing.pinned.names if standing.base.allows(name)}
        found += [
            SecretInfo(identifier=name, name=None, exposure=None, state=SecretState.MISSING)
            for key, name in wanted.items()
            if key not in there
        ]
        return sorted(found, key=lambda info: (info.identifier.casefold(), info.state))

    async def request(self, wish: SecretWish) -> SecretReport:
        """Ask a person for a value; the same identifier again is the same request while it is open.

        Raises:
            InvalidInput: The identifier spells a value; it would be stored, and shown to people, as it is.
            Refused: The session has it, or has asked for too many.
            VaultLocked: The request might hold a value that cannot be recognised now.
        """
        session = self._session()
        if storable(self._delivery.custodian, session.id, wish.identifier) != wish.identifier:
            raise InvalidInput("The identifier has the value of a secret in it.", hint="Ask by the secret's name.")
        reason = visible_line(storable(self._delivery.custodian, session.id, wish.reason.strip()))
        standing = await self._delivery.standing(session)
        rows = self._known(session, standing)
        states = self._states(rows, standing)
        for row in rows:
            same = row.identifier.casefold() == wish.identifier.casefold()
            if same and (words := _HAS_IT.get(states[row.id])) is not None:
                raise Refused(f"{row.identifier} is stored and granted.", hint=words.replace("{name}", row.name))
        request, new = await self._ledger.ask_secret(session, wish.identifier, wish.exposure, reason)
        if new:
            self._note(f"The agent asks for the secret {request.identifier}" + (f": {reason}" if reason else "."))
        return _report(request)

    async def report(self, request_id: str) -> SecretReport:
        """What became of a request of this session.

        Raises:
            NotFound: It made no such request.
        """
        row = self._ledger.store.one(
            f"SELECT {SecretRequest.columns()} FROM secret_requests WHERE id = ? AND session_id = ?",
            (request_id, self._session_id),
        )
        if row is None:
            raise NotFound("This session made no such request.", hint="kortix secrets request NAME")
        return _report(SecretRequest.of(row))

    def _session(self) -> Session:
        session = self._ledger.session(self._session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session

    def _known(self, session: Session, standing: Standing) -> tuple[SecretRow, ...]:
        return tuple(row for row in self._delivery.custodian.known(session.project_id) if standing.knows(row))

    def _states(self, rows: tuple[SecretRow, ...], standing: Standing) -> dict[str, SecretState]:
        chosen = {row.id for row in choose(rows, standing).chosen}
        query = "SELECT secret_id, max(version) FROM deliveries WHERE session_id = ? GROUP BY secret_id"
        delivered = dict(self._ledger.store.all(query, (self._session_id,)))
        states = {}
        for row in rows:
            if not standing.admits(row):
                states[row.id] = SecretState.NOT_GRANTED
            elif row.exposure is not Exposure.ENVIRONMENT:
                states[row.id] = _KEPT[row.exposure]
            elif row.id not in chosen:
                states[row.id] = SecretState.SHADOWED
            else:
                there = delivered.get(row.id) == row.version
                states[row.id] = SecretState.DELIVERED if there else SecretState.GRANTED
        return states


def storable(custodian: Custodian, session_id: str, text: str) -> str:
    """An agent's text without any value that the vault knows.

    Raises:
        VaultLocked: The session holds values, and the vault is not open to recognise them.
    """
    if (why := custodian.holding(session_id)) is not None:
        raise VaultLocked(
            f"Nothing that this session says can be stored now: {why}.", hint="A person must unlock the vault first."
        )
    return custodian.redactor.text(text)


def unescaped(text: str) -> str:
    """JSON without the escapes that could hide a value; what is no JSON stays as it is."""
    try:
        return json.dumps(json.loads(text), ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _report(request: SecretRequest) -> SecretReport:
    return SecretReport(id=request.id, identifier=request.identifier, exposure=request.exposure, state=request.state)
