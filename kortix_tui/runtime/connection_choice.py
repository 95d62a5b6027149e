"""Which account a call uses. Read from the store alone: nothing is asked of the vault."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kortix_tui.base.errors import Refused
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import ConnectionState
from kortix_tui.broker.connectors.credentials import auth_of, check_auth, describe_place, origin_of
from kortix_tui.runtime.connection_rows import DEFAULT_ACCOUNT, ConnectionDetails, auth_shape, connection_rows

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.model import Catalogue
    from kortix_tui.manifest.connectors import Connector
    from kortix_tui.store.database import Store
    from kortix_tui.store.models import Connection


class NotConnected(Refused):
    """There is no credential that can be used; a person has to connect."""

    code: ClassVar[str] = "not_connected"


class AccountRequired(Refused):
    """Several accounts, and none is the default or of the name that was given."""

    code: ClassVar[str] = "account_required"


def choose(
    store: Store, project_id: str, connector: Connector, catalogue: Catalogue | None, account: str | None = None
) -> Connection | None:
    """The connection that a call uses; `None` where the connector needs no credential.

    Raises:
        Refused: The kind of auth is not served.
        AccountRequired: No such account, or several and none is the default.
        NotConnected: There is none, it ended, or it was made for another kind of auth or another place.
    """
    auth = auth_of(connector, catalogue.auth if catalogue is not None else ())
    check_auth(auth)
    if auth.type == "none":
        return None
    rows = connection_rows(store, project_id, connector.slug)
    if not rows:
        raise NotConnected(
            f"Nobody has connected {connector.slug} yet.",
            hint=f"A person must do it: kortix connectors connect {connector.slug}",
        )
    chosen = next((row for row in rows if (row.account == account if account is not None else row.is_default)), None)
    if chosen is None:
        names = ", ".join(row.account for row in rows)
        said = "has several accounts and no default"
        if account is not None:
            said = f"has no account {visible_line(account)}"
        raise AccountRequired(f"{connector.slug} {said}.", hint=f"Name one of: {names}.")
    details = ConnectionDetails.of(chosen)
    origin = origin_of(connector, catalogue)
    if details.auth != auth_shape(auth) or (origin is not None and details.origin != origin):
        what = f"auth {chosen.auth}" if details.auth != auth_shape(auth) else details.origin
        raise NotConnected(
            f"The connection {connector.slug}/{chosen.account} was made for {what}, which the connector does not"
            " use any more.",
            hint=f"A person must look at the change and connect again: kortix connectors connect {connector.slug}",
        )
    check_state(chosen)
    return chosen


def place_of(connection: Connection | None) -> str | None:
    """Where its value goes, for the person who is asked: `header authorization`."""
    if connection is None:
        return None
    details = ConnectionDetails.of(connection)
    return describe_place(details.kind(), details.origin)


def check_state(connection: Connection) -> None:
    """Whether it can be used.

    Raises:
        NotConnected: It ended, or was revoked.
    """
    if connection.state is not ConnectionState.READY:
        raise NotConnected(
            f"The connection {connection.connector}/{connection.account} is {connection.state.value}.",
            hint=again(connection),
        )


def again(connection: Connection) -> str:
    """What to do about a connection that cannot be used."""
    account = "" if connection.account == DEFAULT_ACCOUNT else f" --account {connection.account}"
    return f"A person must connect again: kortix connectors connect {connection.connector}{account}"
