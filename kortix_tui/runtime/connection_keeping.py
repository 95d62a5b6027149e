"""Puts a connection's values into the vault and its row into the store, in one change. Runs on the host."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import Conflict, InvalidInput, NotFound
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import ConnectionState, Exposure
from kortix_tui.runtime.connection_rows import ConnectionDetails, connection_of, connection_rows, users_of
from kortix_tui.runtime.retiring import forget_retired, retire
from kortix_tui.runtime.vault_index import remove_secret, write_secret
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Connection
from kortix_tui.vault.records import MAX_VALUE_BYTES, PROJECT, SHARED, RecordMeta
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    from kortix_tui.runtime.custody import Custody
    from kortix_tui.vault.draft import Draft


@dataclass(frozen=True)
class Kept:
    """A connection as it shall be.

    Attributes:
        values: By identifier, what is written into the vault; a bound secret is not.
        identifier: Of the secret with the value.
    """

    project_id: str
    connector: str
    account: str
    auth: str
    details: ConnectionDetails
    identifier: str | None
    values: Mapping[str, Secret]
    username: str | None = None
    expires_at: datetime | None = None
    make_default: bool = False


class Keeping:
    """Writes and removes connections.

    Args:
        custody: Has the vault.
    """

    def __init__(self, custody: Custody) -> None:
        self._custody = custody

    async def keep(self, wanted: Kept, actor: Actor) -> Connection:
        """Make a connection, or give the one of that account other values.

        Raises:
            VaultLocked: The vault is locked.
            InvalidInput: A value is empty or too long.
        """
        store = self._custody.context.store
        self._custody.opened()
        await self._custody.catch_up()
        for value in wanted.values.values():
            if not 1 <= len(value) <= MAX_VALUE_BYTES:
                raise InvalidInput("The credential is empty or too long.", hint="Give another.")
        found: list[tuple[str, bool, bool]] = []

        def edit(draft: Draft) -> tuple[list[RecordMeta], list[RecordMeta]]:
            # Here, where nobody else changes the vault: two that connect one account at once are one connection.
            known = connection_rows(store, wanted.project_id, wanted.connector)
            before = next((row for row in known if row.account == wanted.account), None)
            is_default = wanted.make_default or not known or (before is not None and before.is_default)
            identity = before.id if before is not None else new_id("con")
            found.append((identity, before is None, is_default))
            unused = [] if before is None else [one for one in _identifiers(before) if one not in wanted.values]
            return self._put(draft, wanted), self._drop(draft, wanted.project_id, unused, identity)

        def record(tx: Transaction, done: tuple[list[RecordMeta], list[RecordMeta]]) -> None:
            identity, new, is_default = found[-1]
            self._index(tx, done, actor)
            if is_default:
                tx.execute(
                    "UPDATE connections SET is_default = 0 WHERE project_id = ? AND connector = ? AND removed_at IS"
                    " NULL",
                    (wanted.project_id, wanted.connector),
                )
            _write_row(tx, identity, wanted, is_default=is_default, new=new, actor=actor)
            tx.audit(
                "connection.create" if new else "connection.renew",
                scope=f"connection {wanted.connector}/{wanted.account}", actor=actor, project_id=wanted.project_id,
                connection=identity, auth=wanted.auth, origin=wanted.details.origin, bound=wanted.details.bound,
                secret=wanted.identifier,
            )  # fmt: skip

        await self._custody.change(edit, record)
        made = connection_of(store, found[-1][0])
        if made is None:
            raise Conflict("The connection was removed in this moment.", hint="Connect again.")
        return made

    async def renew(self, connection: Connection, values: Mapping[str, Secret], details: ConnectionDetails,
                    expires_at: datetime | None, actor: Actor) -> Connection:  # fmt: skip
        """New tokens for a connection, unless somebody else renewed it since it was read.

        Raises:
            Conflict: It was renewed or removed meanwhile; nothing was written.
        """
        store = self._custody.context.store

        def check() -> None:
            now = connection_of(store, connection.id)
            if now is None or now.version != connection.version:
                raise Conflict("The connection changed meanwhile.", hint="Try again.")

        def edit(draft: Draft) -> list[RecordMeta]:
            check()  # before the vault is written: a token that was given out since must not be overwritten
            kept = Kept(
                project_id=connection.project_id, connector=connection.connector, account=connection.account,
                auth=connection.auth, details=details, identifier=connection.identifier, values=values,
            )  # fmt: skip
            return self._put(draft, kept)

        def record(tx: Transaction, metas: list[RecordMeta]) -> None:
            self._index(tx, (metas, []), actor)
            done = tx.execute(
                "UPDATE connections SET version = version + 1, state = ?, details = ?, expires_at = ?, updated_at = ?"
                " WHERE id = ? AND version = ? AND removed_at IS NULL",
                (
                    ConnectionState.READY, details.model_dump_json(), to_text(expires_at) if expires_at else None,
                    tx.now_text, connection.id, connection.version,
                ),
            )  # fmt: skip
            if not done.rowcount:
                raise Conflict("The connection changed meanwhile.", hint="Try again.")
            tx.audit(
                "connection.refresh", scope=f"connection {connection.connector}/{connection.account}", actor=actor,
                project_id=connection.project_id, connection=connection.id, version=connection.version + 1,
            )  # fmt: skip

        await self._custody.change(edit, record)
        renewed = connection_of(store, connection.id)
        if renewed is None:
            raise Conflict("The connection was removed in this moment.", hint="Connect again.")
        return renewed

    async def remove(self, connection_id: str, actor: Actor) -> Connection:
        """Forget a connection and its values; a bound secret stays.

        No other account becomes the default by itself: calls would go to a place that nobody chose.

        Raises:
            NotFound: It is gone.
        """
        store = self._custody.context.store
        connection = connection_of(store, connection_id)
        if connection is None:
            raise NotFound("That connection is gone.", hint="See `kortix connections ls`.")
        self._custody.opened()
        gone = _identifiers(connection)

        def edit(draft: Draft) -> list[RecordMeta]:
            return self._drop(draft, connection.project_id, gone, connection.id)

        def record(tx: Transaction, metas: list[RecordMeta]) -> None:
            self._index(tx, ([], metas), actor)
            tx.execute(
                "UPDATE connections SET removed_at = ?, is_default = 0 WHERE id = ?", (tx.now_text, connection.id)
            )
            tx.audit(
                "connection.delete", scope=f"connection {connection.connector}/{connection.account}", actor=actor,
                project_id=connection.project_id, connection=connection.id,
            )  # fmt: skip

        await self._custody.change(edit, record)
        return connection

    async def mark(self, connection: Connection, state: ConnectionState, reason: str, actor: Actor) -> None:
        """Say that a connection cannot be used, unless it was renewed since it was read."""

        def change(tx: Transaction) -> None:
            done = tx.execute(
                "UPDATE connections SET state = ?, updated_at = ? WHERE id = ? AND version = ? AND removed_at IS NULL",
                (state, tx.now_text, connection.id, connection.version),
            )
            if done.rowcount:
                tx.audit(
                    f"connection.{'revoke' if state is ConnectionState.REVOKED else 'expire'}",
                    scope=f"connection {connection.connector}/{connection.account}", actor=actor,
                    project_id=connection.project_id, connection=connection.id, reason=reason,
                )  # fmt: skip

        await self._custody.ledger.write(change)

    async def make_default(self, connection_id: str, actor: Actor) -> Connection:
        """Have calls without an account use this one."""
        connection = connection_of(self._custody.context.store, connection_id)
        if connection is None:
            raise NotFound("That connection is gone.", hint="See `kortix connections ls`.")

        def change(tx: Transaction) -> None:
            tx.execute(
                "UPDATE connections SET is_default = 0 WHERE project_id = ? AND connector = ? AND removed_at IS NULL",
                (connection.project_id, connection.connector),
            )
            tx.execute(
                "UPDATE connections SET is_default = 1, updated_at = ? WHERE id = ? AND removed_at IS NULL",
                (tx.now_text, connection.id),
            )
            tx.audit(
                "connection.default", scope=f"connection {connection.connector}/{connection.account}", actor=actor,
                project_id=connection.project_id, connection=connection.id,
            )  # fmt: skip

        await self._custody.ledger.write(change)
        return connection.model_copy(update={"is_default": True})

    # Inside

    def _put(self, draft: Draft, wanted: Kept) -> list[RecordMeta]:
        store, now = self._custody.context.store, self._custody.context.clock.now()
        known = _by_identifier(draft, wanted.project_id)
        metas = []
        for identifier, value in wanted.values.items():
            old = known.get(identifier.casefold())
            if old is not None:
                retire(draft, store, old.id)
            meta = RecordMeta(
                id=old.id if old else new_id("sec"), project=wanted.project_id, identifier=identifier,
                name=re.sub(r"[^A-Z0-9_]", "_", identifier.upper())[:64], scope=SHARED, owner=PROJECT,
                exposure=Exposure.CONNECTOR, connectors=(wanted.connector,), version=old.version + 1 if old else 1,
                created=now,
            )  # fmt: skip
            draft.put(meta, value)
            metas.append(meta)
        forget_retired(draft, store)
        return metas

    def _drop(self, draft: Draft, project_id: str, identifiers: list[str], connection_id: str) -> list[RecordMeta]:
        """Delete values that only this connection needed."""
        store = self._custody.context.store
        known = _by_identifier(draft, project_id)
        own = connection_of(store, connection_id)
        mine = f"{own.connector}/{own.account}" if own else ""
        gone = []
        for identifier in identifiers:
            meta = known.get(identifier.casefold())
            if meta is not None and set(users_of(store, project_id, identifier)) <= {mine}:
                retire(draft, store, meta.id)
                draft.delete(meta.id)
                gone.append(meta)
        return gone

    @staticmethod
    def _index(tx: Transaction, done: tuple[list[RecordMeta], list[RecordMeta]], actor: Actor) -> None:
        for meta in done[0]:
            write_secret(tx, meta, actor)
        for meta in done[1]:
            remove_secret(tx, meta.id)


def _identifiers(connection: Connection) -> list[str]:
    """Identifiers of the values that are the connection's own."""
    details = ConnectionDetails.of(connection)
    own = None if details.bound else connection.identifier
    return [one for one in (own, details.refresh, details.client_secret) if one is not None]


def _by_identifier(draft: Draft, project_id: str) -> dict[str, RecordMeta]:
    return {
        meta.identifier.casefold(): meta
        for meta in draft.metas()
        if meta.project == project_id and meta.owner == PROJECT and not meta.retired
    }


def _write_row(tx: Transaction, identity: str, wanted: Kept, *, is_default: bool, new: bool, actor: Actor) -> None:
    expires = to_text(wanted.expires_at) if wanted.expires_at else None
    if new:
        tx.execute(
            "INSERT INTO connections (id, project_id, connector, account, is_default, auth, username, identifier,"
            " details, state, version, expires_at, created_by, created_at, updated_at)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,1,?,?,?,?)",
            (
                identity, wanted.project_id, wanted.connector, wanted.account, int(is_default), wanted.auth,
                wanted.username, wanted.identifier, wanted.details.model_dump_json(), ConnectionState.READY, expires,
                actor.label, tx.now_text, tx.now_text,
            ),
        )  # fmt: skip
        return
    tx.execute(
        # Made anew: the value may be another person's. What was approved with the one before is not sent with it.
        "UPDATE connections SET is_default = ?, auth = ?, username = ?, identifier = ?, details = ?, state = ?,"
        " version = version + 1, expires_at = ?, created_by = ?, created_at = ?, updated_at = ? WHERE id = ?",
        (
            int(is_default), wanted.auth, wanted.username, wanted.identifier, wanted.details.model_dump_json(),
            ConnectionState.READY, expires, actor.label, tx.now_text, tx.now_text, identity,
        ),
    )  # fmt: skip
