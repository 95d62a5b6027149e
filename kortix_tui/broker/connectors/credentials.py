"""Where a credential goes in a request: every kind of auth that is served, and nothing of how it was got."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.broker.network.client import server_of
from kortix_tui.manifest.connectors import Auth, McpConnector

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.model import AuthHint, Catalogue
    from kortix_tui.manifest.connectors import Connector
    from kortix_tui.vault.secret import Secret

SERVED: Final = ("bearer", "basic", "api_key", "custom", "oauth2")
"""Kinds of auth that take a credential and work here."""
MAX_VALUE: Final = 16 * 1024
"""Longest value that goes into a header, a query or a cookie, in bytes."""
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
_HEADER_VALUE: Final = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?\Z")
_COOKIE_NAME: Final = _HEADER_NAME
_COOKIE_VALUE: Final = re.compile(r"[\x21\x23-\x2b\x2d-\x3a\x3c-\x5b\x5d-\x7e]+\Z")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}\Z")
_FRAMING: Final = frozenset(
    {
        "connection", "content-encoding", "content-length", "content-type", "host", "keep-alive", "te", "trailer",
        "transfer-encoding", "upgrade",
    }
)  # fmt: skip
DEFAULT_VARIABLE: Final = "API_TOKEN"


@dataclass(frozen=True)
class Credential:
    """What proves who calls.

    Attributes:
        value: The token, key or password; for OAuth the access token.
        username: With auth `basic` only.
    """

    value: Secret
    username: str | None = None


@dataclass(frozen=True)
class Attached:
    """What one request carries beside what was shown and approved. Lives as short as sending takes.

    Attributes:
        environment: Of a program that is started for it (a tool server over stdio), instead of a request's parts.
        secrets: Every spelling that was sent and that an answer may echo; for redaction.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    cookies: Mapping[str, str] = field(default_factory=dict, repr=False)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)


def auth_of(connector: Connector, hints: Sequence[AuthHint] = ()) -> Auth:
    """How a connector authenticates: as the manifest says, else as its document declares.

    Args:
        connector: As the manifest has it. One that says `auth: {type: none}` itself needs no credential.
        hints: Of the accepted catalogue, most wanted first.
    """
    if connector.auth.type != "none" or "auth" in connector.model_fields_set:
        return connector.auth
    found = next((one for one in hints if one.type != "api_key" or one.name), None)
    if found is None:
        return connector.auth
    if found.type != "oauth2":
        return Auth.model_validate({"type": found.type, "in": found.place, "name": found.name})
    flows = {
        "authorizationCode": ("authorization_code", found.authorization_url and found.token_url),
        "clientCredentials": ("client_credentials", found.token_url),
    }
    grant = next((name for flow, (name, known) in flows.items() if flow in found.flows and known), None)
    return Auth.model_validate(
        {
            "type": "oauth2", "grant": grant, "token_url": found.token_url,
            "authorization_url": found.authorization_url, "scopes": list(found.scopes),
        }
    )  # fmt: skip


def check_auth(auth: Auth) -> None:
    """Whether this kind of auth works here.

    Raises:
        Refused: It parses, but is not served.
    """
    if auth.type not in ("none", *SERVED):
        raise Refused(
            f"Auth of type {auth.type} is not served in this edition.",
            hint=f"Served are {', '.join(SERVED)}. Change `auth` in kortix.yaml.",
        )


def origin_of(connector: Connector, catalogue: Catalogue | None) -> str | None:
    """Where a credential of this connector may go: scheme, host and port, or the program of a tool server.

    `None` while that is unknown, because its document was not read yet.
    """
    if isinstance(connector, McpConnector) and connector.transport == "stdio":
        return f"stdio:{connector.image}"
    url = next(
        (
            url
            for name in ("base_url", "endpoint", "url")
            if isinstance(url := getattr(connector, name, None), str)
        ),
        catalogue.base_url if catalogue is not None else None,
    )  # fmt: skip
    return None if url is None else origin_of_url(url)


def origin_of_url(url: str) -> str:
    """Scheme, host and port of a URL, the port always written."""
    scheme, host, port = server_of(url)
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def describe_place(auth: Auth, origin: str | None = None) -> str | None:
    """Where the credential goes, for a person: `header authorization`, `query api_key`; `None` without one."""
    match auth.type:
        case "none":
            return None
        case "bearer" | "basic" | "oauth2":
            kind, name = "header", auth.name or "authorization"
        case _:
            kind, name = auth.place, auth.name or ""
    if origin is not None and origin.startswith("stdio:"):
        return f"environment {variable_of(auth)}"
    return f"{kind} {name.lower() if kind == 'header' else name}"


def variable_of(auth: Auth) -> str:
    """The environment variable that carries the credential to a tool server's program."""
    return auth.name or DEFAULT_VARIABLE


def attach(auth: Auth, credential: Credential | None, origin: str | None = None) -> Attached:
    """Put a credential where its kind says.

    Args:
        auth: The kind, the place and the name.
        credential: The values; none with auth `none` only.
        origin: Where it goes, from `origin_of`: a program gets it as a variable.

    Raises:
        InvalidInput: It cannot stand there; the message never shows it.
        Refused: The kind is not served.
    """
    check_auth(auth)
    if auth.type == "none":
        return Attached()
    if credential is None:
        raise Refused("There is no credential for this connector.", hint="Store one: kortix connectors connect")
    value = _text(credential)
    if origin is not None and origin.startswith("stdio:"):
        return _variable(auth, value)
    match auth.type:
        case "bearer" | "oauth2":
            return _header(auth.name or "authorization", auth.prefix or "Bearer", value)
        case "basic":
            return _basic(auth, credential.username or "", value)
        case _ if auth.place == "query":
            return Attached(
                query={auth.name or "": value}, secrets=_spellings(value, quote(value, safe=""), quote_plus(value))
            )
        case _ if auth.place == "cookie":
            if not _COOKIE_NAME.match(auth.name or "") or not _COOKIE_VALUE.match(value):
                raise InvalidInput(
                    "The credential has a character that a cookie cannot carry.",
                    hint="Cookies take no space, quote, comma, semicolon or backslash. Store it encoded.",
                )
            return Attached(cookies={auth.name or "": value}, secrets=(value,))
        case _:
            return _header(auth.name or "", auth.prefix or "", value)


def _text(credential: Credential) -> str:
    data = credential.value.use("attach it to a request")
    if not data or len(data) > MAX_VALUE:
        raise InvalidInput(
            f"The credential is empty or longer than {MAX_VALUE >> 10} KiB.", hint="Store another: kortix connectors"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidInput("The credential is not text.", hint="Store it encoded, for example as base64.") from None
    if any(char in text for char in "\r\n\0"):
        raise InvalidInput("The credential has a line break in it.", hint="Store it again, without the line break.")
    return text


def _header(name: str, prefix: str, value: str) -> Attached:
    if not _HEADER_NAME.match(name) or name.lower() in _FRAMING:
        raise InvalidInput(
            f"A credential cannot go into the header `{visible_line(name)}`.", hint="Change `auth.name` in kortix.yaml."
        )
    whole = f"{prefix} {value}" if prefix else value
    if not (_HEADER_VALUE.match(value) and _HEADER_VALUE.match(whole)):
        raise InvalidInput(
            "The credential has a character that a header cannot carry, or begins or ends with a space.",
            hint="Headers take printable ASCII. Store it again.",
        )
    return Attached(headers={name.lower(): whole}, secrets=(value,))


def _basic(auth: Auth, username: str, password: str) -> Attached:
    if ":" in username or any(ord(char) < 32 or ord(char) == 127 for char in username + password):
        raise InvalidInput(
            "The user name has a colon, or one of both has a control character.", hint="Connect again with others."
        )
    encoded = base64.b64encode(f"{username}:{password}".encode()).decode()
    made = _header(auth.name or "authorization", auth.prefix or "Basic", encoded)
    return Attached(headers=made.headers, secrets=_spellings(password, encoded))


def _variable(auth: Auth, value: str) -> Attached:
    name = variable_of(auth)
    if not _VARIABLE.match(name):
        raise InvalidInput(
            f"`{visible_line(name)}` is not the name of a variable.",
            hint="`auth.name` of a stdio server names the environment variable that its program reads.",
        )
    return Attached(environment={name: value}, secrets=(value,))


def _spellings(*texts: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts))
