"""A real authorization server (authlib's) over TLS on loopback: strict about secrets, PKCE and spent refresh tokens."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from authlib.common.security import generate_token
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import AuthorizationServer, ClientMixin, OAuth2Payload, OAuth2Request, TokenMixin, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc8628 import DeviceAuthorizationEndpoint, DeviceCodeGrant, DeviceCredentialDict
from tls import Answer, LocalCa, Received, TlsServer

CLIENT, SECRET = "kortix-test", "client/secret+with:signs"


class _Payload(OAuth2Payload):
    def __init__(self, values: dict[str, list[str]]) -> None:
        self._values = values

    @property
    def data(self) -> dict[str, str]:
        return {name: values[0] for name, values in self._values.items()}

    @property
    def datalist(self) -> defaultdict[str, list[str]]:
        return defaultdict(list, self._values)


class _Request(OAuth2Request):
    def __init__(self, method: str, uri: str, form: dict[str, list[str]], headers: dict[str, str]) -> None:
        super().__init__(method, uri, headers=headers)
        query = parse_qs(urlsplit(uri).query)
        self.payload = _Payload({**query, **form})
        self._form = {name: values[0] for name, values in form.items()}
        self._args = {name: values[0] for name, values in query.items()}

    @property
    def args(self) -> dict[str, str]:
        return self._args

    @property
    def form(self) -> dict[str, str]:
        return self._form


@dataclass
class _Client(ClientMixin):
    provider: Provider

    def get_client_id(self) -> str:
        return CLIENT

    def get_default_redirect_uri(self) -> str:
        return ""

    def get_allowed_scope(self, scope: str) -> str:
        return scope or ""

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        return redirect_uri.startswith("http://127.0.0.1:") and redirect_uri.endswith("/callback")

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method in self.provider.methods

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return True


@dataclass
class _Code:
    code: str
    redirect_uri: str
    scope: str
    code_challenge: str
    code_challenge_method: str

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope


@dataclass
class _Token(TokenMixin):
    client: _Client
    scope: str
    revoked: bool = False

    def check_client(self, client: ClientMixin) -> bool:
        return client.get_client_id() == self.client.get_client_id()

    def get_scope(self) -> str:
        return self.scope


@dataclass
class Provider:
    """The server. Use it as a context manager.

    Attributes:
        methods: How clients may prove themselves.
        lasts_s: How long access tokens last.
        access: Access tokens that are good.
        agreed: What the person at the device's page said, by user code.
        issued: Grant types for which a token was given, in order.
    """

    ca: LocalCa
    methods: set[str] = field(default_factory=lambda: {"client_secret_basic"})
    lasts_s: int = 3600
    rotates: bool = True
    interval_s: float = 0.2
    agreed: dict[str, bool] = field(default_factory=dict)
    access: set[str] = field(default_factory=set)
    refresh: dict[str, _Token] = field(default_factory=dict)
    issued: list[str] = field(default_factory=list)
    slow_down_once: bool = False

    def __post_init__(self) -> None:
        self.server = TlsServer(self._answer, ca=self.ca)
        self.codes: dict[str, _Code] = {}
        self.devices: dict[str, dict[str, Any]] = {}
        self._oauth = _server(self)

    def __enter__(self) -> Provider:
        self.server.__enter__()
        return self

    def __exit__(self, *of_it: object) -> None:
        self.server.close()

    def url(self, path: str) -> str:
        return self.server.url(path)

    def agree(self, authorization_url: str, *, deny: bool = False) -> str:
        """What a browser does where the person agrees: the address that it is sent to."""
        target = urlsplit(authorization_url)
        request = _Request("GET", authorization_url, {}, {})
        assert target.path == "/authorize"
        try:
            grant = self._oauth.get_consent_grant(request, end_user="ada")
        except OAuth2Error as error:
            raise AssertionError(f"{error.error}: {error.description}") from error
        status, _, headers = self._oauth.create_authorization_response(
            request, grant_user=None if deny else "ada", grant=grant
        )
        assert status == 302
        return str(dict(headers)["Location"])

    def revoke_all(self) -> None:
        for token in self.refresh.values():
            token.revoked = True
        self.access.clear()

    def _answer(self, request: Received) -> Answer:
        path = urlsplit(request.target).path
        if path == "/api/me":
            token = (request.header("authorization") or "").removeprefix("Bearer ")
            return Answer(200 if token in self.access else 401, json.dumps({"token": token}).encode())
        headers = {name.title(): value for name, value in request.headers}
        made = _Request(request.method, self.server.url(request.target), parse_qs(request.body.decode()), headers)
        if path == "/token":
            status, body, given = self._oauth.create_token_response(made)
        elif path == "/device":
            status, body, given = self._oauth.create_endpoint_response("device_authorization", made)
        else:
            return Answer(404)
        if path == "/token" and status == 200:
            self.issued.append(made.payload.data["grant_type"])
        return Answer(status, json.dumps(body).encode(), tuple((str(name), str(value)) for name, value in given))


def _server(provider: Provider) -> AuthorizationServer:
    client = _Client(provider)

    class Server(AuthorizationServer):  # type: ignore[misc]
        def query_client(self, client_id: str) -> _Client | None:
            return client if client_id == CLIENT else None

        def save_token(self, token: dict[str, Any], request: OAuth2Request) -> None:
            provider.access.add(token["access_token"])
            if "refresh_token" in token:
                provider.refresh[token["refresh_token"]] = _Token(client, token.get("scope", ""))

        def create_oauth2_request(self, request: OAuth2Request) -> OAuth2Request:
            return request

        def handle_response(self, status: int, body: object, headers: object) -> tuple[int, object, object]:
            return status, body, headers

        def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
            return None

    class Code(grants.AuthorizationCodeGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")

        def save_authorization_code(self, code: str, request: OAuth2Request) -> None:
            data = request.payload.data
            provider.codes[code] = _Code(
                code, data["redirect_uri"], data.get("scope", ""), data["code_challenge"],
                data["code_challenge_method"],
            )  # fmt: skip

        def query_authorization_code(self, code: str, client: ClientMixin) -> _Code | None:
            return provider.codes.get(code)

        def delete_authorization_code(self, authorization_code: _Code) -> None:
            del provider.codes[authorization_code.code]

        def authenticate_user(self, authorization_code: _Code) -> str:
            return "ada"

    class Refresh(grants.RefreshTokenGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post", "none")
        INCLUDE_NEW_REFRESH_TOKEN = provider.rotates

        def authenticate_refresh_token(self, refresh_token: str) -> _Token | None:
            token = provider.refresh.get(refresh_token)
            return None if token is None or token.revoked else token

        def authenticate_user(self, refresh_token: _Token) -> str:
            return "ada"

        def revoke_old_credential(self, refresh_token: _Token) -> None:
            refresh_token.revoked = provider.rotates

    class Device(DeviceCodeGrant):  # type: ignore[misc]
        def query_device_credential(self, device_code: str) -> DeviceCredentialDict | None:
            found = provider.devices.get(device_code)
            return DeviceCredentialDict(found) if found else None

        def query_user_grant(self, user_code: str) -> tuple[str, bool] | None:
            return ("ada", provider.agreed[user_code]) if user_code in provider.agreed else None

        def should_slow_down(self, credential: object) -> bool:
            slow, provider.slow_down_once = provider.slow_down_once, False
            return slow

    class DeviceEndpoint(DeviceAuthorizationEndpoint):  # type: ignore[misc]
        INTERVAL = provider.interval_s

        def get_verification_uri(self) -> str:
            return provider.url("/activate")

        def save_device_credential(self, client_id: str, scope: str, data: dict[str, Any]) -> None:
            provider.devices[data["device_code"]] = {
                **data, "client_id": client_id, "scope": scope, "expires_at": time.time() + 600,
            }  # fmt: skip

    class Credentials(grants.ClientCredentialsGrant):  # type: ignore[misc]
        TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "client_secret_post")

    made = Server()

    def bearer(
        grant_type: str, client: object, user: object = None, scope: str = "", expires_in: object = None,
        include_refresh_token: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        token = {"token_type": "Bearer", "access_token": generate_token(40), "expires_in": provider.lasts_s}
        if scope:
            token["scope"] = scope
        return token | ({"refresh_token": generate_token(40)} if include_refresh_token else {})

    made.register_token_generator("default", bearer)
    made.register_grant(Code, [CodeChallenge(required=True)])
    for grant in (Refresh, Device, Credentials):
        made.register_grant(grant)
    made.register_endpoint(DeviceEndpoint)
    return made
