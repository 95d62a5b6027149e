"""A call's credential at the moment of sending. Values never leave the host's process.

A token that has ended is renewed first, once, however many calls need it: the provider may void the old refresh token
with the first use, and whoever uses it second would lose the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import Conflict
from kortix_tui.base.words import ConnectionState, Exposure
from kortix_tui.broker.connectors import oauth
from kortix_tui.broker.connectors.credentials import Attached, Credential, attach, origin_of_url
from kortix_tui.runtime.connection_choice import NotConnected, again, check_state
from kortix_tui.runtime.connection_keeping import Keeping
from kortix_tui.runtime.connection_rows import ConnectionDetails, connection_of
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Transaction
from kortix_tui.vault.records import PROJECT
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    import httpx

    from kortix_tui.broker.connectors.model import Materialised
    from kortix_tui.runtime.custody import Custody
    from kortix_tui.store.models import Connection

_SPENT: Final = ("invalid_grant", "invalid_client", "unauthorized_client")
log = logging.getLogger(__name__)


class HostCredentials:
    """The host's way from a connection to what a request carries.

    Args:
        custody: Has the vault; knows store, settings and clock.
    """

    def __init__(self, custody: Custody) -> None:
        self._custody = custody
        self._store = custody.context.store
        self._keeping = Keeping(custody)
        self._renewing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        self._http: httpx.AsyncClient | None = None

    @property
    def http(self) -> httpx.AsyncClient:
        """For providers' addresses; the rules on addresses hold for them as for calls."""
        if self._http is None:
            from kortix_tui.broker.network.client import Reach, open_client

            self._http = open_client(Reach.of(self._custody.context.settings.connectors))
        return self._http

    async def close(self) -> None:
        """Let go of open connections. Safe to call again."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    # What is sent

    async def attach(self, request: Materialised) -> Attached:
        """What a request carries beside what was shown; call it right before sending.

        Raises:
            NotConnected: The connection is gone, ended, or was made for another place than the request goes to.
            VaultLocked: The vault is locked; nothing was sent.
            OAuthFailed: The token has ended, and its provider gives no new one now.
        """
        if request.credential is None:
            return Attached()
        connection = connection_of(self._store, request.credential)
        if connection is None or (connection.project_id, connection.connector) != (
            request.project_id, request.connector,
        ):  # fmt: skip
            raise NotConnected("The connection of this call was removed.", hint="See `kortix connections ls`.")
        target = request.call.url if request.call.kind == "http" else request.call.endpoint
        return await self.attached(connection, target)

    async def attached(self, connection: Connection, target: str) -> Attached:
        """As `attach`, for a connection and the URL that it is used for."""
        details = ConnectionDetails.of(connection)
        if (origin_of_url(target) if "://" in target else target) != details.origin:
            raise NotConnected(
                f"The credential of {connection.connector}/{connection.account} is for {details.origin} only.",
                hint="Look at the change, then connect again: kortix connectors connect",
            )
        check_state(connection)
        if self._ended(connection):
            connection = await self._renewed(connection)
            details = ConnectionDetails.of(connection)
        if connection.identifier is None:
            return Attached()
        value = await self.secret(connection.project_id, connection.identifier, "attach it to a call")
        try:
            return attach(details.kind(), Credential(value, connection.username), details.origin)
        finally:
            value.wipe()

    async def rejected(self, connection_id: str) -> None:
        """The server did not accept the credential (401): a token that can be renewed is, before the next call."""
        connection = connection_of(self._store, connection_id)
        if connection is None or not _can_renew(ConnectionDetails.of(connection)):
            return

        def change(tx: Transaction) -> None:
            done = tx.execute(
                "UPDATE connections SET expires_at = ? WHERE id = ? AND version = ?",
                (tx.now_text, connection.id, connection.version),
            )
            if done.rowcount:
                tx.audit(
                    "connection.reject", scope=f"connection {connection.connector}/{connection.account}", actor=SYSTEM,
                    project_id=connection.project_id, connection=connection.id,
                )  # fmt: skip

        await self._custody.ledger.write(change)

    async def secret(self, project_id: str, identifier: str, reason: str) -> Secret:
        """A value that a connection may use: the project's, and of exposure `connector`.

        Raises:
            VaultLocked: The vault is locked.
            NotConnected: It is not there, or is kept for something else.
        """
        await self._custody.settled()
        wanted = identifier.casefold()
        found = next(
            (
                meta
                for meta in self._custody.metas()
                if (meta.project, meta.owner, meta.exposure) == (project_id, PROJECT, Exposure.CONNECTOR)
                and meta.identifier.casefold() == wanted
            ),
            None,
        )
        if found is None:
            raise NotConnected(
                f"There is no secret {identifier} of exposure connector in this project.",
                hint="Connect again: kortix connectors connect",
            )
        return await self._custody.value(found.id, reason)

    # Renewing

    def _ended(self, connection: Connection) -> bool:
        if connection.expires_at is None:
            return False
        left = connection.expires_at - self._custody.context.clock.now()
        # A token that lasts minutes is not renewed early all its life long.
        lasted = connection.expires_at - connection.updated_at
        return left.total_seconds() <= min(oauth.EARLY_S, lasted.total_seconds() / 10)

    async def _renewed(self, connection: Connection) -> Connection:
        """The connection with a token that is good now."""
        async with self._renewing[connection.id]:
            now = connection_of(self._store, connection.id)
            if now is None:
                raise NotConnected("The connection was removed in this moment.", hint="See `kortix connections ls`.")
            check_state(now)
            if not self._ended(now):
                return now  # somebody else did it while this call waited
            return await self._renew(now)

    async def _renew(self, connection: Connection) -> Connection:
        details = ConnectionDetails.of(connection)
        name = f"{connection.connector}/{connection.account}"
        if not _can_renew(details) or details.client is None:
            await self._keeping.mark(connection, ConnectionState.EXPIRED, "its token has ended", SYSTEM)
            raise NotConnected(f"The token of {name} has ended.", hint=again(connection))
        client = details.client
        secret = await self._text(connection, details.client_secret)
        moment = self._custody.context.clock.now()
        try:
            if details.grant == "client_credentials":
                tokens = await oauth.client_credentials(self.http, client, secret or "", moment)
            else:
                token = await self._text(connection, details.refresh)
                tokens = await oauth.refresh(self.http, client, secret, token or "", moment)
        except oauth.OAuthFailed as error:
            if error.error not in _SPENT:
                raise
            newer = connection_of(self._store, connection.id)
            if newer is not None and newer.version != connection.version:
                return newer  # a person connected again meanwhile, and only the old token is void
            await self._keeping.mark(connection, ConnectionState.REVOKED, error.message, SYSTEM)
            raise NotConnected(
                f"The provider does not renew the token of {name} any more. {error.message}", hint=again(connection)
            ) from None
        try:
            return await self._keeping.renew(
                connection,
                token_values(connection.identifier or "", details.refresh, tokens),
                details.model_copy(update={"client": client.model_copy(update={"client_auth": tokens.client_auth})}),
                tokens.expires_at,
                SYSTEM,
            )
        except Conflict:
            newer = connection_of(self._store, connection.id)
            if newer is None:
                raise
            return newer

    async def _text(self, connection: Connection, identifier: str | None) -> str | None:
        if identifier is None:
            return None
        value = await self.secret(connection.project_id, identifier, "renew a token")
        try:
            return value.use("renew a token").decode()
        finally:
            value.wipe()


def token_values(identifier: str, refresh: str | None, tokens: oauth.Tokens) -> dict[str, Secret]:
    """What of a provider's answer is stored, by identifier."""
    values = {identifier: Secret(tokens.access.encode())}
    if refresh is not None and tokens.refresh is not None:
        values[refresh] = Secret(tokens.refresh.encode())
    return values


def _can_renew(details: ConnectionDetails) -> bool:
    return details.client is not None and (details.grant == "client_credentials" or details.refresh is not None)
