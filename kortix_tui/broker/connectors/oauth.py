"""OAuth 2.0 as a client: client credentials, authorization code with PKCE, device flow, refresh.

Everything here talks to the provider's own addresses through a client that the caller opened, so that the rules on
addresses hold for it too. Tokens and secrets are in no message and no representation.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import parse_qs, quote_plus, urlencode, urlsplit

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import InvalidInput, KortixError, Refused
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.vault.redaction import Redactor

if TYPE_CHECKING:
    import httpx

    from kortix_tui.base.clock import Clock

ASK_S: Final = 30.0
"""Longest wait for one answer of a provider."""
FLOW_S: Final = 300.0
"""How long a person has to agree in the browser."""
LONGEST_FLOW_S: Final = 1800.0
MAX_ANSWER: Final = 256 << 10
EARLY_S: Final = 30.0
"""A token is renewed so long before it ends: a request takes time, and clocks differ."""
_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
_INTERVAL_S: Final = 5.0
_SECRET: Final = ("refresh_token", "code", "code_verifier", "device_code")
_FORM: Final = "application/x-www-form-urlencoded"
Grant = Literal["client_credentials", "authorization_code", "device"]


class OAuthFailed(KortixError):
    """The provider did not give a token.

    Attributes:
        error: Its error code, such as `invalid_grant`.
    """

    code = "oauth_failed"

    def __init__(self, message: str, *, error: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.error = error


class OAuthClient(BaseModel):
    """One registered client at one provider; nothing in it is secret.

    Attributes:
        client_auth: How a confidential client proves itself: in a header, or in the form for providers that want that.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    token_url: str
    client_id: str
    authorization_url: str | None = None
    device_authorization_url: str | None = None
    scopes: tuple[str, ...] = ()
    audience: str | None = None
    client_auth: Literal["basic", "post"] = "basic"


@dataclass(frozen=True)
class Tokens:
    """What a provider gave.

    Attributes:
        client_auth: How the client proved itself in the end.
    """

    access: str = field(repr=False)
    refresh: str | None = field(repr=False)
    expires_at: datetime | None
    scopes: tuple[str, ...]
    client_auth: Literal["basic", "post"]


@dataclass(frozen=True)
class Authorization:
    """A request to the person: open this URL and agree."""

    url: str
    redirect_uri: str
    state: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(frozen=True)
class DeviceCode:
    """A request to the person: open this page on any device and type the code."""

    user_code: str
    verification_uri: str
    complete_uri: str | None
    expires_s: float
    interval_s: float
    device_code: str = field(repr=False)


# Tokens


async def client_credentials(http: httpx.AsyncClient, client: OAuthClient, secret: str, now: datetime) -> Tokens:
    """A token for the client itself.

    Raises:
        OAuthFailed: The provider refused, or did not answer as it must.
    """
    form = {"grant_type": "client_credentials", **_scope(client), **_audience(client)}
    return await _tokens(http, client, secret, form, now)


async def refresh(
    http: httpx.AsyncClient, client: OAuthClient, secret: str | None, token: str, now: datetime
) -> Tokens:
    """A new access token; the provider may give a new refresh token as well, and the old one is void then.

    Raises:
        OAuthFailed: With error `invalid_grant`, the refresh token is spent or revoked.
    """
    return await _tokens(http, client, secret, {"grant_type": "refresh_token", "refresh_token": token}, now)


async def redeem(
    http: httpx.AsyncClient, client: OAuthClient, secret: str | None, asked: Authorization, code: str, now: datetime
) -> Tokens:
    """Tokens for the code that came back from the browser."""
    form = {
        "grant_type": "authorization_code", "code": code, "redirect_uri": asked.redirect_uri,
        "code_verifier": asked.verifier,
    }  # fmt: skip
    return await _tokens(http, client, secret, form, now)


# Authorization code


def authorization(client: OAuthClient, redirect_uri: str) -> Authorization:
    """The URL at which the person agrees, with PKCE (S256) and a state of 256 bits.

    Raises:
        InvalidInput: The provider's authorization URL is not known.
    """
    if client.authorization_url is None:
        raise InvalidInput(
            "The connector has no authorization URL.", hint="Add `auth.authorization_url` to it in kortix.yaml."
        )
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(32)
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).decode().rstrip("=")
    query = {
        "response_type": "code", "client_id": client.client_id, "redirect_uri": redirect_uri, "state": state,
        "code_challenge": challenge, "code_challenge_method": "S256", **_scope(client), **_audience(client),
    }  # fmt: skip
    join = "&" if urlsplit(client.authorization_url).query else "?"
    return Authorization(
        url=f"{client.authorization_url}{join}{urlencode(query)}", redirect_uri=redirect_uri, state=state,
        verifier=verifier,
    )  # fmt: skip


def read_redirect(text: str, asked: Authorization) -> str:
    """The code in the address that the browser was sent to.

    Args:
        text: The whole address, or its path and query.
        asked: What it answers.

    Raises:
        Refused: It answers another request.
        OAuthFailed: The person or the provider said no.
        InvalidInput: It has no code.
    """
    try:
        given = parse_qs(urlsplit(text.strip()).query, max_num_fields=50)
    except ValueError:
        given = {}
    if not hmac.compare_digest(given.get("state", [""])[0].encode(), asked.state.encode()):
        raise Refused(
            "That address does not answer this request.",
            hint="Copy the whole address that the browser shows in the end; it begins with http://127.0.0.1.",
        )
    if "error" in given:
        raise _failed(given["error"][0], given.get("error_description", [""])[0])
    if not given.get("code"):
        raise InvalidInput("That address has no code.", hint="Begin again: kortix connectors connect")
    return given["code"][0]


# Device flow


async def device_code(http: httpx.AsyncClient, client: OAuthClient, secret: str | None) -> DeviceCode:
    """Begin the device flow (RFC 8628).

    Raises:
        InvalidInput: The provider's device authorization URL is not known.
        OAuthFailed: The provider refused.
    """
    if client.device_authorization_url is None:
        raise InvalidInput(
            "The connector has no device authorization URL.",
            hint="Add `auth.device_authorization_url` to it in kortix.yaml.",
        )
    form = {"client_id": client.client_id, **_scope(client), **_audience(client)}
    status, answer = await _ask(http, client.device_authorization_url, client, secret, form, client.client_auth)
    texts = [answer.get(name) for name in ("device_code", "user_code", "verification_uri")]
    if status != 200 or not all(isinstance(one, str) and one for one in texts):
        raise _refusal(status, answer, (secret or "",))
    complete = answer.get("verification_uri_complete")
    return DeviceCode(
        device_code=str(texts[0]), user_code=str(texts[1]), verification_uri=str(texts[2]),
        complete_uri=complete if isinstance(complete, str) else None,
        expires_s=min(_seconds(answer.get("expires_in")) or FLOW_S, LONGEST_FLOW_S),
        interval_s=min(max(_seconds(answer.get("interval")) or _INTERVAL_S, 0.2), 60.0),
    )  # fmt: skip


async def wait_for_device(
    http: httpx.AsyncClient, client: OAuthClient, secret: str | None, begun: DeviceCode, clock: Clock
) -> Tokens:
    """Ask until the person has agreed, as often as the provider allows.

    Raises:
        OAuthFailed: It was denied, or took too long.
    """
    form = {"grant_type": _DEVICE_GRANT, "device_code": begun.device_code}
    interval = begun.interval_s
    try:
        async with asyncio.timeout(begun.expires_s):
            while True:
                await asyncio.sleep(interval)
                try:
                    return await _tokens(http, client, secret, form, clock.now())
                except OAuthFailed as error:
                    if error.error == "slow_down":
                        interval += 5
                    elif error.error != "authorization_pending":
                        raise
    except TimeoutError:
        raise OAuthFailed("Nobody agreed in time.", error="expired_token", hint="Begin again.") from None


# Inside


async def _tokens(
    http: httpx.AsyncClient, client: OAuthClient, secret: str | None, form: Mapping[str, str], now: datetime
) -> Tokens:
    way = client.client_auth
    status, answer = await _ask(http, client.token_url, client, secret, form, way)
    if secret is not None and way == "basic" and answer.get("error") == "invalid_client":
        # Some providers take the secret in the form only, and nothing announces it.
        again, second = await _ask(http, client.token_url, client, secret, form, "post")
        if again == 200:
            status, answer, way = again, second, "post"
    access = answer.get("access_token")
    if status != 200 or not isinstance(access, str) or not access:
        raise _refusal(status, answer, (secret or "", *(form.get(name, "") for name in _SECRET)))
    kind = answer.get("token_type", "bearer")
    if not isinstance(kind, str) or kind.lower() != "bearer":
        raise OAuthFailed(
            f"The provider gave a token of type {_shown(kind)}; only bearer tokens are served.", error="token_type"
        )
    lasts, scope, renewal = _seconds(answer.get("expires_in")), answer.get("scope"), answer.get("refresh_token")
    return Tokens(
        access=access,
        refresh=renewal if isinstance(renewal, str) and renewal else None,
        expires_at=now + timedelta(seconds=lasts) if lasts else None,
        scopes=tuple(scope.split()) if isinstance(scope, str) else client.scopes,
        client_auth=way,
    )


async def _ask(
    http: httpx.AsyncClient,
    url: str,
    client: OAuthClient,
    secret: str | None,
    form: Mapping[str, str],
    way: Literal["basic", "post"],
) -> tuple[int, dict[str, Any]]:
    import httpx

    headers = {"accept": "application/json", "content-type": _FORM}
    fields = dict(form)
    if secret is not None and way == "basic":
        pair = f"{quote_plus(client.client_id)}:{quote_plus(secret)}"
        headers["authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    else:
        fields["client_id"] = client.client_id
        if secret is not None:
            fields["client_secret"] = secret
    body = bytearray()
    try:
        async with (
            asyncio.timeout(ASK_S),
            http.stream("POST", url, content=urlencode(fields).encode(), headers=headers) as answer,
        ):
            async for piece in answer.aiter_bytes():
                body += piece
                if len(body) > MAX_ANSWER:
                    raise OAuthFailed("The provider's answer is too long.", error="answer")
            return answer.status_code, _object(bytes(body))
    except TimeoutError:
        raise OAuthFailed(f"{_host(url)} did not answer within {ASK_S:.0f} s.", error="timeout") from None
    except httpx.HTTPError as error:
        raise OAuthFailed(f"{_host(url)} cannot be reached ({type(error).__name__}).", error="unreachable") from None


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        # GitHub's oldest endpoints answer with a form whatever is accepted.
        try:
            found = {name: values[0] for name, values in parse_qs(body.decode(), max_num_fields=50).items()}
        except ValueError:
            found = {}
    return found if isinstance(found, dict) else {}


def _refusal(status: int, answer: Mapping[str, Any], sent: tuple[str, ...] = ()) -> OAuthFailed:
    """Why there is no token, in the provider's words without what it was `sent`."""
    error = answer.get("error")
    if isinstance(error, str) and error:
        hide = Redactor.of(("credential", one.encode()) for one in sent)
        description = answer.get("error_description")
        return _failed(hide.text(error), hide.text(description) if isinstance(description, str) else None)
    return OAuthFailed(f"The provider answered {status} without a token.", error="answer")


def _failed(error: str, description: object) -> OAuthFailed:
    said = f": {_shown(description)}" if isinstance(description, str) and description else ""
    return OAuthFailed(f"The provider refused ({_shown(error)}){said.removesuffix('.')}.", error=error)


def _seconds(value: object) -> float | None:
    try:
        seconds = float(value)  # type: ignore[arg-type]  # some providers write it as a string
    except (TypeError, ValueError):
        return None
    return seconds if 0 < seconds < 10 * 365 * 86400 else None


def _scope(client: OAuthClient) -> dict[str, str]:
    return {"scope": " ".join(client.scopes)} if client.scopes else {}


def _audience(client: OAuthClient) -> dict[str, str]:
    return {"audience": client.audience} if client.audience else {}


def _host(url: str) -> str:
    return visible_line(urlsplit(url).hostname or "")


def _shown(text: object) -> str:
    return shorten(visible_line(str(text)), 200)
