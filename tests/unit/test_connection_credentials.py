"""Where each kind of auth puts its credential: golden bytes as a real server gets them, and what is refused."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tls import LOOPBACK, LocalCa, Received, TlsServer

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.broker.connectors.credentials import (
    Attached,
    Credential,
    attach,
    auth_of,
    describe_place,
    origin_of,
    origin_of_url,
)
from kortix_tui.broker.connectors.model import AuthHint, Catalogue, HttpCall
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import send
from kortix_tui.manifest.connectors import Auth, GraphqlConnector, HttpConnector, McpConnector, OpenApiConnector
from kortix_tui.vault.secret import Secret

VALUE = "s3cret+canary/=&%?"


def auth(**fields: object) -> Auth:
    return Auth.model_validate(fields)


def credential(value: str = VALUE, username: str | None = None) -> Credential:
    return Credential(Secret(value.encode()), username)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    with TlsServer(ca=LocalCa(tmp_path / "ca")) as made:
        yield made


@pytest.fixture
async def http(server: TlsServer, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(Reach(allow_private=LOOPBACK, ca_certificates=(str(tmp_path / "ca" / "ca.pem"),))) as client:
        yield client


async def sent(http: httpx.AsyncClient, server: TlsServer, attached: Attached) -> Received:
    await send(
        http, HttpCall(method="GET", url=server.url("/v1/items?page=2")), credential_headers=attached.headers,
        credential_query=attached.query, credential_cookies=attached.cookies,
    )  # fmt: skip
    return server.received[-1]


@pytest.mark.parametrize(
    ("kind", "user", "line"),
    [
        (auth(type="bearer"), None, f"authorization: Bearer {VALUE}"),
        (auth(type="bearer", prefix="Token"), None, f"authorization: Token {VALUE}"),
        (auth(type="bearer", name="X-Access"), None, f"x-access: Bearer {VALUE}"),
        (auth(type="oauth2"), None, f"authorization: Bearer {VALUE}"),
        (auth(type="api_key", name="X-API-Key"), None, f"x-api-key: {VALUE}"),
        (auth(type="custom", name="X-Shop", prefix="key"), None, f"x-shop: key {VALUE}"),
        (
            auth(type="basic"), "Ada Löf",
            "authorization: Basic " + base64.b64encode(f"Ada Löf:{VALUE}".encode()).decode(),
        ),
    ],
)  # fmt: skip
async def test_headers_on_the_wire(
    http: httpx.AsyncClient, server: TlsServer, kind: Auth, user: str | None, line: str
) -> None:
    request = await sent(http, server, attach(kind, credential(username=user)))
    lines = [one for one in request.head.decode("latin-1").split("\r\n") if one.lower().startswith(line.split(":")[0])]
    assert [one.partition(":")[0].lower() + ":" + one.partition(":")[2] for one in lines] == [line]
    assert request.target == "/v1/items?page=2"


async def test_a_query_key_on_the_wire(http: httpx.AsyncClient, server: TlsServer) -> None:
    attached = attach(auth(**{"type": "api_key", "in": "query", "name": "api_key"}), credential())
    request = await sent(http, server, attached)
    assert parse_qs(urlsplit(request.target).query) == {"page": ["2"], "api_key": [VALUE]}
    spelled = request.target.rpartition("api_key=")[2]
    assert spelled in attached.secrets, "what an answer may echo is known for redaction"


async def test_a_cookie_on_the_wire(http: httpx.AsyncClient, server: TlsServer) -> None:
    attached = attach(auth(**{"type": "api_key", "in": "cookie", "name": "session"}), credential("abc+/=DEF"))
    request = await sent(http, server, attached)
    assert request.header("cookie") == "session=abc+/=DEF"


async def test_without_auth_nothing_is_added(http: httpx.AsyncClient, server: TlsServer) -> None:
    request = await sent(http, server, attach(auth(), None))
    assert request.header("authorization") is None and request.header("cookie") is None


def test_a_program_gets_a_variable() -> None:
    attached = attach(auth(type="api_key", name="SHOP_KEY"), credential(), "stdio:shop:1")
    assert dict(attached.environment) == {"SHOP_KEY": VALUE} and not attached.headers
    assert dict(attach(auth(type="bearer"), credential(), "stdio:shop:1").environment) == {"API_TOKEN": VALUE}
    assert describe_place(auth(type="api_key", name="SHOP_KEY"), "stdio:shop:1") == "environment SHOP_KEY"
    with pytest.raises(InvalidInput, match="variable"):
        attach(auth(type="api_key", name="X-Key"), credential(), "stdio:shop:1")


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        (auth(), None), (auth(type="bearer"), "header authorization"),
        (auth(type="api_key", name="X-API-Key"), "header x-api-key"),
        (auth(**{"type": "api_key", "in": "query", "name": "Key"}), "query Key"),
        (auth(**{"type": "api_key", "in": "cookie", "name": "session"}), "cookie session"),
    ],
)  # fmt: skip
def test_the_place_in_words(kind: Auth, place: str | None) -> None:
    assert describe_place(kind) == place


@pytest.mark.parametrize(
    ("kind", "value", "user"),
    [
        (auth(type="bearer"), "a\r\nx-admin: 1", None),
        (auth(type="bearer"), "a\0b", None),
        (auth(type="bearer"), " padded", None),
        (auth(type="bearer"), "not äscii", None),
        (auth(type="bearer"), "", None),
        (auth(type="bearer"), "x" * 20_000, None),
        (auth(type="basic"), "fine", "with:colon"),
        (auth(type="basic"), "fine", "with\nline"),
        (auth(**{"type": "api_key", "in": "cookie", "name": "s"}), "a; admin=1", None),
        (auth(**{"type": "api_key", "in": "cookie", "name": "s"}), 'a"b', None),
        (auth(**{"type": "api_key", "in": "query", "name": "s"}), "a\nb", None),
        (auth(type="api_key", name="Host"), "evil.example", None),
        (auth(type="api_key", name="content-length"), "0", None),
        (auth(type="api_key", name="bad name"), "fine", None),
    ],
)
def test_what_cannot_stand_there_is_refused_unseen(kind: Auth, value: str, user: str | None) -> None:
    with pytest.raises(InvalidInput) as caught:
        attach(kind, credential(value, user))
    assert not value or value not in str(caught.value) or kind.name in ("Host", "content-length", "bad name")


def test_kinds_that_are_not_served_are_refused() -> None:
    with pytest.raises(Refused, match="aws_sigv4"):
        attach(auth(type="aws_sigv4"), credential())
    with pytest.raises(Refused, match="no credential"):
        attach(auth(type="bearer"), None)


def test_nothing_shows_itself() -> None:
    attached = attach(auth(type="basic"), credential(username="ada"))
    assert VALUE not in repr(attached) and VALUE not in repr(credential())
    assert base64.b64encode(f"ada:{VALUE}".encode()).decode() in attached.secrets and VALUE in attached.secrets


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=80))
def test_any_printable_value_comes_out_as_it_is(value: str) -> None:
    assert attach(auth(type="bearer"), credential(value)).headers["authorization"] == f"Bearer {value}"


# Which auth, and where


def _openapi(**fields: object) -> OpenApiConnector:
    return OpenApiConnector.model_validate(
        {"slug": "a", "provider": "openapi", "spec": "https://a.example/o.json"} | fields
    )


def test_the_document_says_the_auth_where_the_manifest_does_not() -> None:
    hints = (AuthHint(type="api_key", place="query", name="key"), AuthHint(type="bearer"))
    assert auth_of(_openapi(), hints) == auth(**{"type": "api_key", "in": "query", "name": "key"})
    assert auth_of(_openapi(auth={"type": "none"}), hints).type == "none"
    assert auth_of(_openapi(auth={"type": "basic"}), hints).type == "basic"
    assert auth_of(_openapi()).type == "none"
    assert auth_of(_openapi(), (AuthHint(type="api_key"), AuthHint(type="bearer"))).type == "bearer"


def test_flows_of_the_document_become_a_grant() -> None:
    hint = AuthHint(
        type="oauth2", flows=("authorizationCode", "clientCredentials"), token_url="https://a.example/token",
        authorization_url="https://a.example/authorize", scopes=("r",),
    )  # fmt: skip
    found = auth_of(_openapi(), (hint,))
    assert (found.grant, found.token_url, found.scopes) == ("authorization_code", "https://a.example/token", ("r",))
    only = auth_of(_openapi(), (hint.model_copy(update={"flows": ("clientCredentials",)}),))
    assert only.grant == "client_credentials"


def test_where_a_credential_may_go() -> None:
    catalogue = Catalogue(title="", document_hash="", base_url="https://api.a.example/v1", actions=())
    assert origin_of(_openapi(), None) is None
    assert origin_of(_openapi(), catalogue) == "https://api.a.example:443"
    assert origin_of(_openapi(base_url="https://b.example:8443/x"), catalogue) == "https://b.example:8443"
    http = HttpConnector.model_validate({"slug": "h", "provider": "http", "base_url": "http://h.example/x"})
    graphql = GraphqlConnector.model_validate({"slug": "g", "provider": "graphql", "endpoint": "https://g.example/q"})
    mcp = McpConnector.model_validate({"slug": "m", "provider": "mcp", "url": "https://m.example/mcp"})
    stdio = McpConnector.model_validate(
        {"slug": "s", "provider": "mcp", "transport": "stdio", "command": ["run"], "image": "shop:1"}
    )
    found = [origin_of(one, None) for one in (http, graphql, mcp, stdio)]
    assert found == ["http://h.example:80", "https://g.example:443", "https://m.example:443", "stdio:shop:1"]
    assert origin_of_url("https://[2001:db8::1]/x") == "https://[2001:db8::1]:443"
