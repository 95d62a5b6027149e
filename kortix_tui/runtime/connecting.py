"""What the host does to connections: store, bind, authorize, remove. Runs behind `control.sock`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import DeadlineExceeded, GitFailed, InvalidInput, NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.broker.connectors import oauth
from kortix_tui.broker.connectors.credentials import Credential, attach, auth_of, check_auth, origin_of
from kortix_tui.repository.errors import SourceMissing
from kortix_tui.repository.names import branch_ref
from kortix_tui.runtime.authorizing import Authorizations, Consent
from kortix_tui.runtime.base_manifest import find_connector, valid_manifest
from kortix_tui.runtime.catalogue_store import accepted, definition_hash
from kortix_tui.runtime.connection_calls import (
    AuthorizationState,
    Authorizing,
    AwaitAuthorization,
    BeginAuthorization,
    ConnectAccount,
    DefaultConnection,
    RemoveConnection,
    StoredConnection,
)
from kortix_tui.runtime.connection_keeping import Keeping, Kept
from kortix_tui.runtime.connection_rows import ConnectionDetails, auth_shape, check_account, identifier_of
from kortix_tui.runtime.host_credentials import token_values
from kortix_tui.vault.rules import check_value
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    from kortix_tui.manifest.connectors import Auth, Connector
    from kortix_tui.runtime.custody import Custody
    from kortix_tui.runtime.host_credentials import HostCredentials
    from kortix_tui.runtime.preparing import Preparing
    from kortix_tui.store.audit import Actor

FETCH_S: Final = 20.0


class Connecting:
    """The connection verbs on the host.

    Args:
        custody: Has the vault.
        preparing: Reads the base branch, which says what a connector is.
        credentials: Reads values that connections may use.
    """

    def __init__(self, custody: Custody, preparing: Preparing, credentials: HostCredentials) -> None:
        self._custody = custody
        self._preparing = preparing
        self._credentials = credentials
        self._keeping = Keeping(custody)
        self._authorizations = Authorizations()

    async def close(self) -> None:
        """End what waits for a person in a browser."""
        await self._authorizations.close()

    async def connect(self, wanted: ConnectAccount, value: bytes | None, actor: Actor) -> StoredConnection:
        """Store a credential for a connector, or bind a secret that is there.

        Raises:
            Refused: The connector needs none, or its kind of auth is not served.
            InvalidInput: The value cannot be sent where it would have to stand; says why, never what.
            OAuthFailed: The provider gave no token for the client.
            VaultLocked: The vault is locked.
        """
        self._custody.opened()
        connector, auth, origin = await self._shape(wanted.project_id, wanted.connector)
        if (value is None) == (wanted.secret is None):
            raise InvalidInput("Either a value or the identifier of a secret is needed.")
        if auth.type == "oauth2" and (wanted.client_id or auth.grant == "client_credentials") and value is not None:
            kept = await self._client_credentials(wanted, auth, origin, Secret(value))
            return StoredConnection(connection_id=(await self._keeping.keep(kept, actor)).id)
        secret = (
            Secret(value)
            if value is not None
            else await self._credentials.secret(wanted.project_id, wanted.secret or "", "see whether it can be sent")
        )
        if auth.type == "basic" and wanted.username is None:
            raise InvalidInput("Auth of type basic needs a user name.", hint="Give it: --username NAME")
        warnings = check_value(secret, Exposure.CONNECTOR)
        attach(auth, Credential(secret, wanted.username), origin)
        account = check_account(wanted.account)
        identifier = wanted.secret or identifier_of(connector.slug, account)
        kept = Kept(
            project_id=wanted.project_id, connector=connector.slug, account=account, auth=auth.type,
            details=ConnectionDetails(auth=auth_shape(auth), origin=origin, bound=wanted.secret is not None),
            identifier=identifier, values={identifier: secret} if value is not None else {},
            username=wanted.username if auth.type == "basic" else None, make_default=wanted.make_default,
        )  # fmt: skip
        made = await self._keeping.keep(kept, actor)
        return StoredConnection(connection_id=made.id, warnings=warnings)

    async def authorize(self, wanted: BeginAuthorization, secret: bytes | None, actor: Actor) -> Authorizing:
        """Begin OAuth with a person's consent; the tokens are stored when they come.

        Raises:
            Refused: The connector does not use OAuth.
            InvalidInput: An address of the provider or the client's id is not known.
        """
        self._custody.opened()
        connector, auth, origin = await self._shape(wanted.project_id, wanted.connector)
        if auth.type != "oauth2":
            raise Refused(f"{connector.slug} uses auth of type {auth.type}, not OAuth.")
        grant = wanted.grant or grant_of(auth)
        if grant == "client_credentials":
            raise Refused("Client credentials need no person.", hint="Give the client's id and secret instead.")
        client = _client(auth, wanted.client_id, wanted.scopes)
        account = check_account(wanted.account)
        key = None if secret is None else secret.decode()

        async def done(tokens: oauth.Tokens) -> str:
            kept = self._kept(wanted, account, auth, origin, client, grant, key, tokens)
            return (await self._keeping.keep(kept, actor)).id

        consent = Consent(
            name=(wanted.project_id, connector.slug, account), client=client, secret=key,
            http=self._credentials.http, clock=self._custody.context.clock, done=done,
        )  # fmt: skip
        return await self._authorizations.begin(consent, grant, wanted.port)

    async def authorization(self, wanted: AwaitAuthorization, pasted: bytes | None) -> AuthorizationState:
        """What became of an authorization; as the flow raises where it failed."""
        if wanted.cancel:
            await self._authorizations.cancel(wanted.flow)
            return AuthorizationState()
        text = None if pasted is None else pasted.decode("utf-8", "replace")
        return AuthorizationState(connection_id=await self._authorizations.result(wanted.flow, wanted.wait, text))

    async def remove(self, wanted: RemoveConnection, actor: Actor) -> StoredConnection:
        """Forget a connection and its values."""
        return StoredConnection(connection_id=(await self._keeping.remove(wanted.connection_id, actor)).id)

    async def make_default(self, wanted: DefaultConnection, actor: Actor) -> StoredConnection:
        """Have calls without an account use this one."""
        return StoredConnection(connection_id=(await self._keeping.make_default(wanted.connection_id, actor)).id)

    # Inside

    async def _shape(self, project_id: str, slug: str) -> tuple[Connector, Auth, str]:
        """The connector on the base branch, how it authenticates, and where its credential goes."""
        project = self._custody.ledger.project(project_id)
        mirror = await self._preparing.mirror(project_id)
        with contextlib.suppress(GitFailed, DeadlineExceeded, SourceMissing):
            # A source that cannot be reached now is no reason to refuse: what was fetched last counts.
            await mirror.fetch(project.source, base=project.base_branch, wall_s=FETCH_S)
        commit = await mirror.resolve(branch_ref(project.base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {visible_line(project.base_branch)}.")
        report = await self._preparing.report(project_id, mirror, commit)
        connector = find_connector(valid_manifest(report, project.base_branch), slug, project.slug)
        store = self._custody.context.store
        catalogue = accepted(store, project_id, slug, definition_hash(connector))
        auth = auth_of(connector, catalogue.auth if catalogue is not None else ())
        check_auth(auth)
        if auth.type == "none":
            raise Refused(f"{connector.slug} needs no credential.", hint="If it does, add `auth` to it in kortix.yaml.")
        origin = origin_of(connector, catalogue)
        if origin is None:
            raise Refused(
                f"It is not known yet where {connector.slug} is: its document was not read.",
                hint=f"Read it first: kortix connectors sync {connector.slug}",
            )
        return connector, auth, origin

    async def _client_credentials(self, wanted: ConnectAccount, auth: Auth, origin: str, secret: Secret) -> Kept:
        client = _client(auth, wanted.client_id, wanted.scopes)
        text = secret.use("ask for a token").decode()
        now = self._custody.context.clock.now()
        tokens = await oauth.client_credentials(self._credentials.http, client, text, now)
        account = check_account(wanted.account)
        return self._kept(wanted, account, auth, origin, client, "client_credentials", text, tokens)

    @staticmethod
    def _kept(
        wanted: ConnectAccount | BeginAuthorization,
        account: str,
        auth: Auth,
        origin: str,
        client: oauth.OAuthClient,
        grant: oauth.Grant,
        secret: str | None,
        tokens: oauth.Tokens,
    ) -> Kept:
        identifier = identifier_of(wanted.connector, account)
        refresh = identifier_of(wanted.connector, account, "refresh") if tokens.refresh is not None else None
        own = identifier_of(wanted.connector, account, "client") if secret is not None else None
        values: Mapping[str, Secret] = token_values(identifier, refresh, tokens) | (
            {own: Secret(secret.encode())} if own is not None and secret is not None else {}
        )
        return Kept(
            project_id=wanted.project_id, connector=wanted.connector, account=account, auth=auth.type,
            details=ConnectionDetails(
                auth=auth_shape(auth), origin=origin,
                client=client.model_copy(update={"client_auth": tokens.client_auth}), grant=grant,
                scopes=tokens.scopes, client_secret=own, refresh=refresh,
            ),
            identifier=identifier, values=values, expires_at=tokens.expires_at, make_default=wanted.make_default,
        )  # fmt: skip


def grant_of(auth: Auth) -> oauth.Grant:
    """How tokens are got, where the manifest or document does not say it."""
    if auth.grant is not None:
        return auth.grant
    if auth.authorization_url is not None:
        return "authorization_code"
    return "device" if auth.device_authorization_url is not None else "client_credentials"


def _client(auth: Auth, client_id: str | None, scopes: tuple[str, ...] | None) -> oauth.OAuthClient:
    chosen = client_id or auth.client_id
    if chosen is None:
        raise InvalidInput(
            "The client's id is not known.", hint="Register a client at the provider and give its id: --client-id ID"
        )
    if auth.token_url is None:
        raise InvalidInput("The connector has no token URL.", hint="Add `auth.token_url` to it in kortix.yaml.")
    return oauth.OAuthClient(
        token_url=auth.token_url, client_id=chosen, authorization_url=auth.authorization_url,
        device_authorization_url=auth.device_authorization_url,
        scopes=tuple(auth.scopes if scopes is None else scopes), audience=auth.audience,
    )  # fmt: skip
