"""Connections as the operator handles them: read from the store; values go to the host and stay."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Final, Literal

from pydantic import Field

from kortix_tui.base.errors import NotFound
from kortix_tui.base.text import shorten, visible_line
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
from kortix_tui.runtime.connection_rows import DEFAULT_ACCOUNT, connection_of, connection_rows, view_of
from kortix_tui.runtime.connector_views import ConnectionView
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_client import call
from kortix_tui.runtime.views import View

if TYPE_CHECKING:
    from kortix_tui.runtime.vault_calls import VaultCall
    from kortix_tui.store.models import Project
    from kortix_tui.vault.secret import Secret

CALL_S: Final = 120.0
"""A provider may be asked for a token on the way."""


class ConnectionChange(View):
    """What storing or changing a connection did."""

    connection: ConnectionView
    warnings: tuple[str, ...] = Field(description="What a person should know of the value, in sentences.")


class Connections:
    """The connection verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    # Reading

    def list(self, project: Project, *, connector: str | None = None) -> builtins.list[ConnectionView]:
        """A project's accounts by connector, the default one first; never a value."""
        self._context.reading("connection.list", scope=f"project {project.slug}", project_id=project.id)
        return [view_of(row) for row in connection_rows(self._context.store, project.id, connector)]

    def find(self, project: Project, connector: str, account: str = DEFAULT_ACCOUNT) -> ConnectionView:
        """One account of a connector.

        Raises:
            NotFound: There is none; the hint names what there is.
        """
        rows = connection_rows(self._context.store, project.id, connector)
        found = next((row for row in rows if row.account == account), None)
        if found is None:
            shown = shorten(visible_line(f"{connector}/{account}"), 80)
            names = ", ".join(row.account for row in rows)
            hint = f"Its accounts: {names}." if names else f"Make one: kortix connectors connect {connector[:80]}"
            raise NotFound(f"Project {project.slug} has no connection {shown}.", hint=hint)
        return view_of(found)

    # Writing; everything below goes to the host, which alone has the vault open

    def connect(
        self,
        project: Project,
        connector: str,
        value: Secret | None,
        *,
        account: str = DEFAULT_ACCOUNT,
        username: str | None = None,
        secret: str | None = None,
        client_id: str | None = None,
        scopes: tuple[str, ...] | None = None,
        make_default: bool = False,
    ) -> ConnectionChange:
        """Store a credential for a connector, or bind a secret that is there; an account that exists gets another.

        Args:
            project: Whose connector.
            connector: Its slug.
            value: Token, key or password; with `client_id` the client's secret. None with `secret`.
            account: Which of several.
            username: For auth `basic`.
            secret: Identifier of a secret of exposure `connector`.
            client_id: For OAuth client credentials, where the connector does not say it.
            scopes: For OAuth, other ones than the connector declares.
            make_default: Have calls without an account use it.

        Raises:
            VaultLocked: The vault is locked.
            Refused: The connector needs no credential, or its kind of auth is not served.
            InvalidInput: The value cannot be sent; says why, never what.
        """
        arguments = ConnectAccount(
            project_id=project.id, connector=connector, account=account, make_default=make_default,
            username=username, secret=secret, client_id=client_id, scopes=scopes,
        )  # fmt: skip
        return self._changed(arguments, value)

    def authorize(
        self,
        project: Project,
        connector: str,
        *,
        account: str = DEFAULT_ACCOUNT,
        client_id: str | None = None,
        client_secret: Secret | None = None,
        grant: Literal["authorization_code", "device"] | None = None,
        scopes: tuple[str, ...] | None = None,
        port: int = 0,
        make_default: bool = False,
    ) -> Authorizing:
        """Begin OAuth; the person opens the URL, and `authorization` tells what became of it.

        Args:
            project: Whose connector.
            connector: Its slug.
            account: Which of several.
            client_id: Where the connector does not say it.
            client_secret: Of a client that has one.
            grant: Where the connector does not say it.
            scopes: Other ones than the connector declares.
            port: Of the loopback address, for providers that want it registered; 0 for any.
            make_default: Have calls without an account use it.
        """
        arguments = BeginAuthorization(
            project_id=project.id, connector=connector, account=account, make_default=make_default,
            client_id=client_id, grant=grant, scopes=scopes, port=port,
        )  # fmt: skip
        answer, _ = call(
            self._context, arguments.verb, arguments, Authorizing, secrets=_bytes(client_secret), deadline_s=CALL_S
        )
        return answer

    def authorization(self, flow: str, *, wait_s: float = 0, pasted: str | None = None) -> ConnectionView | None:
        """What became of an authorization; `None` while it waits.

        Args:
            flow: Its id.
            wait_s: How long to wait for it, in seconds, at most `LONGEST_WAIT_S`.
            pasted: The address that the browser was sent to, copied by the person: over SSH it reaches nobody.

        Raises:
            KortixError: It failed, was denied, or took too long; this is told once.
        """
        arguments = AwaitAuthorization(flow=flow, wait=wait_s)
        secrets = () if pasted is None else (pasted.encode("utf-8", "replace"),)
        state, _ = call(
            self._context, arguments.verb, arguments, AuthorizationState, secrets=secrets, deadline_s=CALL_S
        )
        return None if state.connection_id is None else self._view(state.connection_id)

    def cancel(self, flow: str) -> None:
        """End an authorization that nobody wants any more."""
        arguments = AwaitAuthorization(flow=flow, cancel=True)
        call(self._context, arguments.verb, arguments, AuthorizationState, deadline_s=CALL_S)

    def remove(self, project: Project, connector: str, account: str = DEFAULT_ACCOUNT) -> ConnectionView:
        """Forget a connection and its values; a secret that was bound stays."""
        found = self.find(project, connector, account)
        arguments = RemoveConnection(connection_id=found.id)
        call(self._context, arguments.verb, arguments, StoredConnection, deadline_s=CALL_S)
        return found

    def make_default(self, project: Project, connector: str, account: str) -> ConnectionView:
        """Have calls without an account use this one."""
        arguments = DefaultConnection(connection_id=self.find(project, connector, account).id)
        return self._changed(arguments, None).connection

    # Inside

    def _changed(self, arguments: VaultCall, value: Secret | None) -> ConnectionChange:
        stored, _ = call(
            self._context, arguments.verb, arguments, StoredConnection, secrets=_bytes(value), deadline_s=CALL_S
        )
        return ConnectionChange(connection=self._view(stored.connection_id), warnings=stored.warnings)

    def _view(self, connection_id: str) -> ConnectionView:
        row = connection_of(self._context.store, connection_id)
        if row is None:
            raise NotFound("The connection was removed in this moment.", hint="See `kortix connections ls`.")
        return view_of(row)


def _bytes(value: Secret | None) -> tuple[bytes, ...]:
    return () if value is None else (value.use("sent to the host"),)
