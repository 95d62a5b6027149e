"""`connectors:` declared ways to reach outside systems. Credentials are never written here."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from kortix_tui.base.validation import Many, Part, wrong
from kortix_tui.manifest.advice import NO_CREDENTIAL
from kortix_tui.manifest.egress import HostName
from kortix_tui.manifest.fields import Command, HttpMethod, NonEmpty, Slug, path_problem
from kortix_tui.manifest.policies import PolicyRule
from kortix_tui.manifest.vocabulary import RESERVED_CONNECTORS

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
_CREDENTIAL_HEADERS = frozenset(
    {"authorization", "proxy-authorization", "cookie", "x-api-key", "api-key", "x-auth-token"}
)


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL rather than a path."""
    return "://" in text


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        valid = parts.scheme in ("https", "http") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
        parts = urlsplit("")
    if not valid or any(ord(char) <= 32 or ord(char) == 127 for char in text):
        raise wrong(f"`{text}` is not a URL", "Write `https://host/path`.")
    if parts.username is not None or parts.password is not None:
        raise wrong("the URL holds a user name or password", NO_CREDENTIAL)
    return text


def _check_document(text: str) -> str:
    if is_url(text):
        return _check_url(text)
    problem = path_problem(text)
    if problem:
        raise wrong(f"the path `{text}` {problem}", "Write a path in the repository, or an https URL.")
    return text


Url = Annotated[str, AfterValidator(_check_url)]
DocumentPlace = Annotated[str, AfterValidator(_check_document)]


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not _HEADER_NAME.match(name):
            raise wrong(f"`{name}` is not a header name", "Use letters, digits and `-`.", at=name)
        if name.casefold() in _CREDENTIAL_HEADERS:
            raise wrong(f"the header `{name}` carries a credential", NO_CREDENTIAL, at=name)
        if len(value) > 2048 or "\r" in value or "\n" in value:
            raise wrong(f"the value of `{name}` is longer than 2048 characters or has a line break", at=name)
    return headers


Headers = Annotated[dict[str, str], Field(max_length=32), AfterValidator(_check_headers)]


class Auth(Part):
    """How the host proves who it is. Only the shape: the credential is a connection, kept in the vault."""

    type: Literal["none", "bearer", "basic", "custom", "api_key", "oauth1", "oauth2", "hmac", "aws_sigv4", "mtls"] = (
        "none"
    )
    place: Annotated[Literal["header", "query", "cookie"], Field(alias="in")] = "header"
    name: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    prefix: Annotated[str, Field(max_length=64)] | None = None
    grant: Literal["client_credentials", "authorization_code", "device"] | None = None
    authorization_url: Url | None = None
    token_url: Url | None = None
    device_authorization_url: Url | None = None
    client_id: NonEmpty | None = None
    audience: NonEmpty | None = None
    scopes: Many[NonEmpty] = ()
    region: NonEmpty | None = None
    service: NonEmpty | None = None
    algorithm: NonEmpty | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.type in ("custom", "api_key") and not self.name:
            raise wrong(
                f"`name` is missing for auth of type {self.type}", "Name the header, parameter or cookie.", at="name"
            )
        if self.type == "oauth2" and self.grant == "client_credentials" and not self.token_url:
            raise wrong(
                "`token_url` is missing for client credentials", "Add the provider's token URL.", at="token_url"
            )
        if self.type != "oauth2" and self.grant:
            raise wrong("`grant` goes with `type: oauth2` only", at="grant")
        return self


def _check_connector_slug(slug: str) -> str:
    if slug in RESERVED_CONNECTORS:
        raise wrong(f"the connector name `{slug}` is reserved", "Choose another name.")
    return slug


class _Connector(Part):
    slug: Annotated[Slug, AfterValidator(_check_connector_slug)]
    name: str | None = None
    enabled: bool = True
    authorization_strategy: Literal["project", "user"] = "project"
    credential: Literal["shared"] = "shared"
    sensitive: bool = False
    auth: Auth = Auth()
    headers: Headers = Field(default_factory=dict)
    policies: Many[PolicyRule] = ()

    @model_validator(mode="after")
    def _auth_fits(self) -> Self:
        provider = getattr(self, "provider", "")
        if self.auth.type == "oauth1" and provider not in ("openapi", "postman", "http"):
            raise wrong("`oauth1` works with openapi, postman and http only", at="auth")
        return self


class OpenApiConnector(_Connector):
    """Actions from an OpenAPI document or a Postman collection."""

    provider: Literal["openapi", "postman"]
    spec: DocumentPlace
    base_url: Url | None = None


class GraphqlConnector(_Connector):
    """Actions from a GraphQL schema."""

    provider: Literal["graphql"]
    endpoint: Url
    spec: DocumentPlace | None = None


class HttpRoute(Part):
    """One hand-written action."""

    name: NonEmpty
    method: HttpMethod = "GET"
    path: NonEmpty
    description: str | None = None
    risk: Literal["read", "write", "destructive"] | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)


class HttpConnector(_Connector):
    """Plain HTTP, with routes named here or in a document."""

    provider: Literal["http"]
    base_url: Url
    spec: DocumentPlace | None = None
    routes: Many[HttpRoute] = ()


class McpConnector(_Connector):
    """A tool server that speaks the Model Context Protocol: remote, or a program in a sandbox of its own."""

    provider: Literal["mcp"]
    transport: Literal["http", "sse", "stdio"] = "http"
    url: Url | None = None
    command: Command | None = None
    image: NonEmpty | None = None
    hosts: Many[HostName] = ()

    @model_validator(mode="after")
    def _reachable(self) -> Self:
        if self.transport == "stdio":
            if self.command is None:
                raise wrong("`command` is missing for `transport: stdio`", "Name the program to start.", at="command")
            if self.image is None:
                raise wrong(
                    "`image` is missing for `transport: stdio`", "Pin the image that holds the program.", at="image"
                )
            if self.url is not None:
                raise wrong("`url` does not go with `transport: stdio`", "Remove one of them.", at="url")
            return self
        if self.url is None:
            raise wrong("`url` is missing", "Add the tool server's URL.", at="url")
        if self.command is not None or self.image is not None or self.hosts:
            raise wrong("`command`, `image` and `hosts` go with `transport: stdio` only", "Add `transport: stdio`.")
        return self


class CatalogueConnector(_Connector):
    """A hosted catalogue of Kortix; parses, but is not served in this edition."""

    provider: Literal["pipedream", "composio"]
    app: NonEmpty


class ChannelConnector(_Connector):
    """A chat channel of Kortix; parses, but is not served in this edition."""

    provider: Literal["channel"]
    platform: Literal["slack", "teams", "email"]


Connector = Annotated[
    OpenApiConnector | GraphqlConnector | HttpConnector | McpConnector | CatalogueConnector | ChannelConnector,
    Field(discriminator="provider"),
]
