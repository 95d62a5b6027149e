"""What a connector can do, and one call of it, as everything behind the door sees them."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Literal

import rfc8785
from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.words import Risk, Verdict

Place = Literal["path", "query", "header", "cookie"]
Encoding = Literal["json", "form", "multipart", "text", "bytes"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class Parameter(_Model):
    """One input of an HTTP operation that does not travel in the body.

    Attributes:
        key: Its name in the action's arguments; the same as `name` unless two places use one name, or models would not
            take it (`StartTime<` is `StartTime_lt`).
        style: How arrays and objects are written, as OpenAPI names it (`form`, `simple`, `spaceDelimited` …).
    """

    key: str
    name: str
    place: Place
    required: bool = False
    style: str = "form"
    explode: bool = True


class Body(_Model):
    """The body of an HTTP operation.

    Attributes:
        key: Name of the one argument that is the whole body; `None` when the body's fields are arguments themselves.
        fields: Arguments that are fields of the body, when `key` is `None`.
    """

    media_type: str
    encoding: Encoding
    required: bool = False
    key: str | None = None
    fields: tuple[str, ...] = ()


class HttpOperation(_Model):
    """How an action becomes an HTTP request. `path` is a template below the connector's base URL."""

    kind: Literal["http"] = "http"
    method: str
    path: str
    parameters: tuple[Parameter, ...] = ()
    body: Body | None = None


class GraphqlOperation(_Model):
    """How an action becomes a GraphQL request. The whole document is fixed; arguments are its variables."""

    kind: Literal["graphql"] = "graphql"
    document: str
    operation_name: str


class McpTool(_Model):
    """An action that is a tool of an MCP server.

    Attributes:
        tool: The tool's own name.
        fingerprint: SHA-256 over name, description and input schema, as a person accepted them.
    """

    kind: Literal["mcp"] = "mcp"
    tool: str
    fingerprint: str


Operation = Annotated[HttpOperation | GraphqlOperation | McpTool, Field(discriminator="kind")]


class Action(_Model):
    """One callable operation of a connector.

    Attributes:
        name: Relative to its connector: `[A-Za-z0-9_.-]`, at most 64 characters, independent of the document's order.
        input_schema: JSON Schema (2020-12) of the arguments; always an object.
        unavailable: Why it cannot be called (another server than the connector's, an encoding that is not served).
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    title: str
    description: str = ""
    risk: Risk
    input_schema: dict[str, Any]
    operation: Operation
    unavailable: str | None = None


class AuthHint(_Model):
    """A way to authenticate that a document declares. For people and for connectors that declare none themselves."""

    type: Literal["bearer", "basic", "api_key", "oauth2"]
    place: Literal["header", "query", "cookie"] = "header"
    name: str | None = None
    flows: tuple[str, ...] = ()
    token_url: str | None = None
    authorization_url: str | None = None
    scopes: tuple[str, ...] = ()


class Catalogue(_Model):
    """Everything that a connector can do, read from its document, its routes or its server.

    Attributes:
        document_hash: SHA-256 of what it was read from.
        base_url: Where HTTP actions go; scheme, host and port are pinned by it. GraphQL and MCP: the endpoint.
        image: Of a tool server over stdio: the id of the image with its program, as a person accepted it.
        notes: What a person should know: ignored servers, cut cycles, operations that cannot be called.
    """

    title: str
    version: str = ""
    document_hash: str
    base_url: str | None
    image: str | None = None
    actions: tuple[Action, ...]
    auth: tuple[AuthHint, ...] = ()
    notes: tuple[str, ...] = ()

    def action(self, name: str) -> Action | None:
        """The action of that name."""
        return next((action for action in self.actions if action.name == name), None)


class CatalogueDifference(_Model):
    """What a changed document changes, by name of action."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = Field(default=(), description="Another request, schema, description or risk.")
    riskier: tuple[str, ...] = Field(default=(), description="Of the changed ones, those whose risk has grown.")
    base_url: tuple[str | None, str | None] | None = None


class HttpCall(_Model):
    """One HTTP request, whole but for the credential."""

    kind: Literal["http"] = "http"
    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes | None = None


class McpProgram(_Model):
    """The program of a tool server over stdio.

    Attributes:
        image: The id of the image that it runs in.
        hosts: The only ones that it may reach.
    """

    image: str
    command: tuple[str, ...]
    hosts: tuple[str, ...] = ()


class McpCall(_Model):
    """One call of a tool server; over stdio, `program` is what runs."""

    kind: Literal["mcp"] = "mcp"
    endpoint: str
    transport: Literal["http", "sse", "stdio"] = "http"
    program: McpProgram | None = None
    tool: str
    fingerprint: str
    arguments: str = Field(description="Canonical JSON (RFC 8785).")


class Materialised(_Model):
    """Everything that will be sent, as it is shown, approved, stored and executed (invariant I5).

    Attributes:
        definition_hash: Of the connector's entry in the manifest, without its policies.
        document_hash: Of the catalogue that the action comes from.
        credential: Connection id, or `None` without auth. The value is put in while sending and is never stored here.
        credential_place: Where it goes: `header authorization`, `query api_key`, `cookie session`; for the person.
        arguments: Canonical JSON (RFC 8785) of what the caller gave.
    """

    project_id: str
    connector: str
    action: str
    definition_hash: str
    document_hash: str
    credential: str | None
    credential_place: str | None
    arguments: str
    call: Annotated[HttpCall | McpCall, Field(discriminator="kind")]

    def digest(self) -> str:
        """SHA-256 over the canonical JSON (RFC 8785) of the whole, in hexadecimal."""
        return hashlib.sha256(rfc8785.dumps(self.model_dump(mode="json"))).hexdigest()


class Reply(_Model):
    """What came back.

    Attributes:
        status: Of the HTTP answer; 200 for a tool server's result, 500 for its error.
        headers: Only those that an agent may see, names in lower case.
        body: Decoded, at most 8 MiB.
        truncated: Whether there was more.
        size: Bytes of the body before it was cut, as far as they were read.
    """

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    truncated: bool
    size: int


class RuleSource(_Model):
    """Which rule decided a call."""

    source: Literal["project", "connector", "sensitive", "risk_default", "allow_all", "memory", "operator", "host"]
    index: int | None = Field(default=None, description="Place of the rule in its list, from 0.")
    match: str | None = None
    rule_id: str | None = Field(default=None, description="Of approval memory.")

    def says(self) -> str:
        """In words, for a person."""
        match self.source:
            case "project" | "connector":
                return f"{self.source} rule {(self.index or 0) + 1}: match {self.match}"
            case "sensitive":
                return "the connector is marked sensitive"
            case "risk_default":
                return "default_mode: risk (no rule matches)"
            case "allow_all":
                return "default_mode: allow_all (no rule matches; gates are off)"
            case "memory":
                return "a remembered approval"
            case "operator":
                return "called by the operator"
            case "host":
                return "refused before any rule was asked"


class Decision(_Model):
    """What policy says of one call, and why."""

    verdict: Verdict
    rule: RuleSource
