"""Connections as the store has them: one row an account, never a value."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.oauth import OAuthClient
from kortix_tui.manifest.connectors import Auth
from kortix_tui.runtime.connector_views import ConnectionView
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Connection

DEFAULT_ACCOUNT: Final = "default"
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
_LONGEST_SLUG: Final = 60


class ConnectionDetails(BaseModel):
    """What belongs to a connection and is not secret.

    Attributes:
        auth: The kind of auth that it was made for, as `auth` stands in a manifest.
        origin: Where its value may be sent: scheme, host and port. Anything else needs the person to connect again.
        client: For OAuth, who we are to the provider; none for a token that a person pasted.
        grant: How OAuth tokens are got.
        client_secret: Identifier of the secret that holds the client's own secret.
        refresh: Identifier of the secret that holds the refresh token.
        bound: The value is a secret that the person keeps under a name of their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    auth: dict[str, object]
    origin: str
    client: OAuthClient | None = None
    grant: str | None = None
    scopes: tuple[str, ...] = ()
    client_secret: str | None = None
    refresh: str | None = None
    bound: bool = False

    @classmethod
    def of(cls, connection: Connection) -> ConnectionDetails:
        """Those of a row."""
        return cls.model_validate_json(connection.details)

    def kind(self) -> Auth:
        """The kind of auth, typed."""
        return Auth.model_validate(self.auth)


def auth_shape(auth: Auth) -> dict[str, object]:
    """A kind of auth as plain data, as short as a person would write it."""
    return auth.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def check_account(text: str) -> str:
    """The name of an account.

    Raises:
        InvalidInput: It does not have the shape.
    """
    if not _ACCOUNT.match(text):
        raise InvalidInput(
            f"`{shorten(visible_line(text), 60)}` is not the name of an account.",
            hint="Use letters, digits, `_` and `-`, at most 40, beginning with a letter or digit.",
        )
    return text


def identifier_of(connector: str, account: str, part: str = "") -> str:
    """The identifier of the secret that holds a connection's value, or its `refresh` or `client` part."""
    if len(connector) > _LONGEST_SLUG:
        connector = f"{connector[: _LONGEST_SLUG - 9]}-{hashlib.sha256(connector.encode()).hexdigest()[:8]}"
    return ".".join(filter(None, ("connection", connector, account, part)))


def connection_rows(store: Store, project_id: str, connector: str | None = None) -> tuple[Connection, ...]:
    """A project's connections, the default one of each connector first."""
    clause, values = ("AND connector = ?", (project_id, connector)) if connector else ("", (project_id,))
    query = (
        f"SELECT {Connection.columns()} FROM connections WHERE project_id = ? {clause} AND removed_at IS NULL"
        " ORDER BY connector, is_default DESC, account"
    )
    return tuple(Connection.of(row) for row in store.all(query, values))


def connection_of(store: Store, connection_id: str) -> Connection | None:
    """One that was not removed."""
    row = store.one(
        f"SELECT {Connection.columns()} FROM connections WHERE id = ? AND removed_at IS NULL", (connection_id,)
    )
    return Connection.of(row) if row else None


def users_of(store: Store, project_id: str, identifier: str) -> tuple[str, ...]:
    """Connections, as `connector/account`, that need a secret of the project."""
    wanted = identifier.casefold()
    found = []
    for row in connection_rows(store, project_id):
        details = ConnectionDetails.of(row)
        if wanted in {(one or "").casefold() for one in (row.identifier, details.refresh, details.client_secret)}:
            found.append(f"{row.connector}/{row.account}")
    return tuple(found)


def note_use(tx: Transaction, connection_id: str) -> None:
    """Say in the transaction of a call's result that a connection was used."""
    tx.execute("UPDATE connections SET used_at = ? WHERE id = ?", (tx.now_text, connection_id))


def view_of(connection: Connection) -> ConnectionView:
    """A connection as it is shown."""
    return ConnectionView(
        **connection.model_dump(include=set(ConnectionView.model_fields)),
        scopes=ConnectionDetails.of(connection).scopes,
    )
