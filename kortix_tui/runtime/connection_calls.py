"""The calls about connections: what each is asked with, and what it gives. Values travel as the call's secrets."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.runtime.vault_calls import VaultCall

Account = Annotated[str, Field(min_length=1, max_length=40)]
LONGEST_WAIT_S = 20.0


class _Account(VaultCall):
    project_id: str
    connector: Annotated[str, Field(max_length=128)]
    account: Account = "default"
    make_default: bool = False


class ConnectAccount(_Account):
    """Store a credential for a connector. Secrets: the value, unless an existing secret is named.

    Attributes:
        username: For auth `basic`.
        secret: Identifier of a secret of exposure `connector` that holds the value, and goes on doing so.
        client_id: For OAuth client credentials: then the value is the client's secret.
        scopes: What is asked for; else what the connector declares.
    """

    verb: ClassVar[str] = "connection.create"
    username: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    secret: Annotated[str, Field(max_length=128)] | None = None
    client_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    scopes: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None = None


class BeginAuthorization(_Account):
    """Begin OAuth with a person's consent. Secrets: the client's own secret, where it has one.

    Attributes:
        grant: `authorization_code` or `device`; else what the connector declares.
        port: Of the loopback address that the browser comes back to; 0 for any.
    """

    verb: ClassVar[str] = "connection.authorize"
    client_id: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    grant: Literal["authorization_code", "device"] | None = None
    scopes: tuple[Annotated[str, Field(min_length=1, max_length=256)], ...] | None = None
    port: Annotated[int, Field(ge=0, le=65535)] = 0


class AwaitAuthorization(VaultCall):
    """Look what became of it. Secrets: the address that the browser was sent to, where the person pasted it."""

    verb: ClassVar[str] = "connection.authorization"
    flow: str
    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 0
    cancel: bool = False


class RemoveConnection(VaultCall):
    """Forget a connection and its values."""

    verb: ClassVar[str] = "connection.delete"
    connection_id: str


class DefaultConnection(VaultCall):
    """Have calls without an account use this one."""

    verb: ClassVar[str] = "connection.default"
    connection_id: str


class StoredConnection(BaseModel):
    """Which connection a call made or changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection_id: str
    warnings: tuple[str, ...] = ()


class Authorizing(BaseModel):
    """What the person has to do.

    Attributes:
        url: Where to agree.
        user_code: What to type there; of the device flow only.
        redirect_uri: Where the browser comes back to; of the authorization code only.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    flow: str
    url: str
    user_code: str | None = None
    redirect_uri: str | None = None
    expires_at: datetime


class AuthorizationState(BaseModel):
    """What became of it; without a connection, it still waits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    connection_id: str | None = None
