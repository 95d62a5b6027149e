"""Which secrets go into a session's sandbox: chosen by rule, read when they are needed, on record before they are sent.

The plan that the session is pinned to and the same agent's grant on the base branch must both admit a secret (invariant
I3): what a person tightens counts from the next turn on. What cannot be known is a no.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from kortix_tui.base.errors import InvalidInput, KortixError, Refused, VaultFailed, VaultLocked
from kortix_tui.base.words import Exposure
from kortix_tui.manifest.fields import SecretGrant
from kortix_tui.repository.value_scan import ValueFinder, ValueScan
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Note, Preparing
from kortix_tui.runtime.reach import admits, grants_of
from kortix_tui.store.models import SecretRow, Session
from kortix_tui.vault.records import PROJECT
from kortix_tui.vault.rules import check_name, check_value

if TYPE_CHECKING:
    from kortix_tui.vault.records import RecordMeta
    from kortix_tui.vault.redaction import Redactor
    from kortix_tui.vault.secret import Secret

MAX_BYTES: Final = 256 * 1024
"""Of all values together as they are sent, in JSON: an order has to fit a frame beside a piece of its prompt."""
LOOK_S: Final = 5.0
"""How often a session that waits for the vault finds out anew whether it still needs it."""


class Custodian(Protocol):
    """Who has the vault. It wakes whoever waits when the vault is opened, locked or changed."""

    @property
    def unlocked(self) -> bool:
        """Whether values can be read."""
        ...

    @property
    def exists(self) -> bool:
        """Whether there is a vault, whatever its state."""
        ...

    @property
    def redactor(self) -> Redactor:
        """Finds every value that the vault knows."""
        ...

    @property
    def steady(self) -> asyncio.Lock:
        """While somebody holds it, no value changes."""
        ...

    def metas(self) -> tuple[RecordMeta, ...]:
        """Secrets in use as the vault's authenticated body has them.

        Raises:
            VaultLocked: It is locked.
        """
        ...

    def known(self, project_id: str) -> tuple[SecretRow, ...]:
        """A project's secrets as the store's index has them; also while the vault is locked."""
        ...

    def holding(self, session_id: str) -> str | None:
        """Why nothing that comes out of this session may be stored now."""
        ...

    async def value(self, record_id: str, reason: str) -> Secret:
        """One value.

        Raises:
            VaultFailed: It cannot be read now.
        """
        ...

    async def settled(self) -> None:
        """Wait until it is known whether the vault opens without a person."""
        ...


class Described(Protocol):
    """A secret without its value: a record of the vault, or a row of its index."""

    @property
    def id(self) -> str:
        """The record."""
        ...

    @property
    def identifier(self) -> str:
        """What grants name."""
        ...

    @property
    def name(self) -> str:
        """The environment variable."""
        ...

    @property
    def owner(self) -> str:
        """`project`, or a person."""
        ...

    @property
    def exposure(self) -> Exposure:
        """Where the value may go."""
        ...


D = TypeVar("D", bound=Described)


@dataclass(frozen=True)
class Standing:
    """What a session may have at this moment.

    Attributes:
        owner: The person who started it.
        attended: Whether that person alone has sent its prompts, at a terminal.
        pinned: The agent's grant in the plan that the session runs under.
        base: The same agent's grant on the base branch now; nothing where it cannot be known.
        fault: Why it cannot be known.
    """

    owner: str
    attended: bool
    pinned: SecretGrant
    base: SecretGrant
    fault: str | None = None

    def knows(self, secret: Described) -> bool:
        """Whether the session may know that this secret exists: the project's, and the own of a person who is there."""
        return secret.owner == PROJECT or (self.attended and secret.owner == self.owner)

    def admits(self, secret: Described) -> bool:
        """Whether both grants admit it."""
        return all(admits(grant, secret.identifier, secret.exposure) for grant in (self.pinned, self.base))

    def names(self, secret: Described) -> bool:
        """Whether a grant names it, other than by `all`."""
        return self.pinned.names_it(secret.identifier) or self.base.names_it(secret.identifier)


@dataclass(frozen=True)
class Choice(Generic[D]):
    """What goes along, ordered by environment name, and what a person should be told about it."""

    chosen: tuple[D, ...]
    notes: tuple[str, ...]


def choose(secrets: Iterable[D], standing: Standing) -> Choice[D]:
    """The secrets that a session gets: one for each environment name.

    A person's own stands before the project's of the same name. Of several that are left, a named one stands before one
    that only `all` covers, then the alphabet decides, and a note says so.
    """
    notes = [f"No secret goes along: {standing.fault}"] if standing.fault is not None else []
    rivals: dict[str, list[D]] = {}
    for secret in secrets:
        if secret.exposure is Exposure.ENVIRONMENT and standing.knows(secret) and standing.admits(secret):
            try:
                check_name(secret.name)
            except InvalidInput as error:
                notes.append(f"{secret.identifier} does not go along: {error.message}")
            else:
                rivals.setdefault(secret.name, []).append(secret)
    chosen = []
    for name, several in sorted(rivals.items()):
        own = [secret for secret in several if secret.owner != PROJECT] or several
        own.sort(key=lambda one: (not standing.names(one), one.identifier.casefold(), one.identifier, one.id))
        chosen.append(own[0])
        if len(own) > 1 and standing.names(own[0]) == standing.names(own[1]):
            others = ", ".join(one.identifier for one in own[1:])
            notes.append(f"{name} is the value of {own[0].identifier}; {others} would have the same name.")
    return Choice(tuple(chosen), tuple(notes))


@dataclass(frozen=True)
class Parcel:
    """What goes along with a turn or a shell. Lives as short as sending takes."""

    secrets: tuple[RecordMeta, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)


class Delivery:
    """Makes one session's parcels.

    Args:
        ledger: Where it is written down.
        preparing: Knows plans and the base branch.
        custodian: Who has the vault.
    """

    def __init__(self, ledger: Ledger, preparing: Preparing, custodian: Custodian) -> None:
        self.custodian = custodian
        self._ledger = ledger
        self._preparing = preparing
        self._said: tuple[str, ...] = ()
        self._waits_for = ""
        self._look_at = 0.0

    async def standing(self, session: Session, note: Note | None = None) -> Standing:
        """What the session may have now.

        Args:
            session: The session.
            note: Told when the source cannot be read; without it, the base branch is taken as it was fetched last.
        """
        plan = self._preparing.pinned(session)
        fault: str | None
        try:
            report = await self._preparing.base_report(session, note)
        except KortixError as error:
            base, fault = SecretGrant(), error.message
        else:
            grants = grants_of(report, session.base_branch)
            base, fault = grants.by_agent.get(plan.name, SecretGrant()), grants.fault
            if fault is None and plan.name not in grants.by_agent:
                fault = f"{session.base_branch} has no agent {plan.name} any more, or it is switched off."
        return Standing(session.owner, session.attended, plan.grants.secrets, base, fault)

    async def parcel(self, session: Session, note: Note) -> Parcel:
        """What the session gets now. Costs next to nothing where nothing can be granted.

        Raises:
            VaultLocked: Something is granted, and the vault cannot be read.
            VaultFailed: The same for another reason, which may pass.
            Refused: It is more than a sandbox takes.
        """
        custodian = self.custodian
        pinned = self._preparing.pinned(session).grants.secrets
        rows = {
            row.id: row
            for row in (custodian.known(session.project_id) if pinned else ())
            if row.exposure is Exposure.ENVIRONMENT and admits(pinned, row.identifier, row.exposure)
        }
        if not rows:
            return Parcel()
        await custodian.settled()
        if not custodian.unlocked:
            await self._check_need(session, rows.values(), note)
            return Parcel()
        standing = await self.standing(session, note)
        # The row decides nothing; but a record whose row is not written yet could not be put on record either.
        metas = [meta for meta in custodian.metas() if meta.project == session.project_id and meta.id in rows]
        choice = choose(metas, standing)
        return await self._fill(session, choice, note)

    async def _check_need(self, session: Session, rows: Iterable[SecretRow], note: Note) -> None:
        """Return when the session gets nothing anyway; by the index, as the vault is not open."""
        now = self._ledger.store.clock.monotonic()
        if now >= self._look_at:
            choice = choose(rows, await self.standing(session))
            names, notes = ", ".join(row.identifier for row in choice.chosen), choice.notes
            if names and not self.custodian.exists:
                names, notes = "", (*notes, f"There is no vault any more: {names} cannot go along.")
            if not names:
                self._say(note, notes)
            self._waits_for, self._look_at = names, now + LOOK_S if names else 0.0
        if self._waits_for:
            raise VaultLocked(
                f"The agent gets {self._waits_for}, and the vault is not open.",
                hint="Unlock it: kortix vault unlock. The prompt waits until then.",
            )

    async def _fill(self, session: Session, choice: Choice[RecordMeta], note: Note) -> Parcel:
        self._look_at = 0.0
        secrets, environment, notes = list["RecordMeta"](), dict[str, str](), list(choice.notes)
        for meta in choice.chosen:
            secret = await self.custodian.value(meta.id, f"goes to session {session.id}")
            value = secret.use(f"goes to session {session.id}")
            secret.wipe()
            try:
                check_value(value, meta.exposure)
            except InvalidInput as error:
                notes.append(f"{meta.identifier} does not go along: {error.message}")
                continue
            environment[meta.name] = value.decode()
            secrets.append(meta)
        size = len(json.dumps(list(environment.values())))
        if size > MAX_BYTES:
            raise Refused(
                f"The secrets that the agent gets take {size >> 10} KiB; a sandbox takes {MAX_BYTES >> 10} KiB.",
                hint="Grant the agent fewer of them, or store smaller values.",
            )
        self._say(note, tuple(notes))
        return Parcel(tuple(secrets), environment)

    def _say(self, note: Note, notes: tuple[str, ...]) -> None:
        """Say what has not been said at the turn before."""
        for text in notes:
            if text not in self._said:
                note(text)
        self._said = notes

    async def held(self, session: Session) -> str | None:
        """Why nothing that the session says could be stored, once it is known whether the vault opens by itself."""
        if self.custodian.holding(session.id) is not None:
            await self.custodian.settled()
        return self.custodian.holding(session.id)

    async def record(self, session: Session, parcel: Parcel, **to: str) -> None:
        """Write down what is about to be sent; nothing may be sent otherwise.

        Args:
            session: Who gets it.
            parcel: What.
            to: What it goes along with, for the record.

        Raises:
            VaultFailed: A value changed since it was read, or could not be found in what the sandbox says.
        """
        if not parcel.secrets:
            return
        async with self.custodian.steady:
            current, redactor = self.custodian.metas(), self.custodian.redactor
            for meta in parcel.secrets:
                if meta not in current or not redactor.hits(parcel.environment[meta.name].encode()):
                    raise VaultFailed(
                        f"{meta.identifier} changed in this moment.",
                        hint="It is tried again; if this stays, lock and unlock the vault.",
                    )
            await self._ledger.deliver(session, parcel.secrets, to)


def value_scan(custodian: Custodian, session_id: str) -> ValueScan:
    """What is looked for in commits before they get onto a session's branch."""

    def finder() -> ValueFinder | None:
        redactor = custodian.redactor
        return redactor.hits if redactor else None

    return ValueScan(finder, lambda: custodian.holding(session_id))
