"""OAuth against two real providers: authlib's server, which is strict, and `oauth2-mock-server` from npm."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from node_packages import node_program
from oauth_provider import CLIENT, SECRET, Provider
from tls import LOOPBACK, Answer, LocalCa, TlsServer

from kortix_tui.base.clock import SystemClock
from kortix_tui.base.errors import InvalidInput, KortixError, Refused
from kortix_tui.broker.connectors import oauth
from kortix_tui.broker.connectors.loopback import Loopback
from kortix_tui.broker.connectors.oauth import OAuthClient, OAuthFailed
from kortix_tui.broker.network.client import Reach, open_client

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest.fixture
def provider(ca: LocalCa) -> Iterator[Provider]:
    with Provider(ca) as made:
        yield made


@pytest.fixture
async def http(ca: LocalCa) -> AsyncIterator[httpx.AsyncClient]:
    async with open_client(Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))) as client:
        yield client


def client_of(provider: Provider, **fields: object) -> OAuthClient:
    return OAuthClient.model_validate({
        "token_url": provider.url("/token"), "authorization_url": provider.url("/authorize"),
        "device_authorization_url": provider.url("/device"), "client_id": CLIENT, "scopes": ("invoices:read",),
    } | fields)  # fmt: skip


async def get(address: str) -> str:
    """What a browser shows at an address of this machine."""
    async with httpx.AsyncClient(trust_env=False) as browser:
        return (await browser.get(address)).text


async def test_client_credentials_give_a_token_that_the_server_takes(
    provider: Provider, http: httpx.AsyncClient
) -> None:
    tokens = await oauth.client_credentials(http, client_of(provider), SECRET, NOW)
    assert tokens.access in provider.access and tokens.refresh is None
    assert tokens.scopes == ("invoices:read",)
    assert tokens.expires_at is not None and (tokens.expires_at - NOW).total_seconds() == 3600
    assert tokens.access not in repr(tokens)


async def test_a_provider_that_takes_the_secret_in_the_form_only_is_understood(
    provider: Provider, http: httpx.AsyncClient
) -> None:
    provider.methods = {"client_secret_post"}
    tokens = await oauth.client_credentials(http, client_of(provider), SECRET, NOW)
    assert tokens.client_auth == "post"
    again = await oauth.client_credentials(http, client_of(provider, client_auth="post"), SECRET, NOW)
    assert again.client_auth == "post"
    assert len([one for one in provider.server.received if one.target == "/token"]) == 3


async def test_a_wrong_secret_is_refused_and_never_shown(provider: Provider, http: httpx.AsyncClient) -> None:
    with pytest.raises(OAuthFailed) as caught:
        await oauth.client_credentials(http, client_of(provider), "wrong-canary-secret", NOW)
    assert caught.value.error == "invalid_client"
    assert "canary" not in str(caught.value)


async def test_the_browser_brings_the_code_and_pkce_is_kept(provider: Provider, http: httpx.AsyncClient) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    try:
        query = parse_qs(urlsplit(asked.url).query)
        assert query["code_challenge_method"] == ["S256"] and query["response_type"] == ["code"]
        assert asked.verifier not in asked.url and len(query["state"][0]) >= 43
        page = await get(provider.agree(asked.url))
        assert "close this window" in page
        code = await loopback.code()
        tokens = await oauth.redeem(http, client_of(provider), SECRET, asked, code, NOW)
        assert tokens.access in provider.access and tokens.refresh is not None
        with pytest.raises(OAuthFailed, match="invalid_grant"):
            await oauth.redeem(http, client_of(provider), SECRET, asked, code, NOW)
    finally:
        await loopback.close()


async def test_a_code_without_its_verifier_is_worth_nothing(provider: Provider, http: httpx.AsyncClient) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    try:
        await get(provider.agree(asked.url))
        other = oauth.authorization(client_of(provider), asked.redirect_uri)
        with pytest.raises(OAuthFailed, match="invalid_grant"):
            await oauth.redeem(http, client_of(provider), SECRET, other, await loopback.code(), NOW)
    finally:
        await loopback.close()


async def test_the_address_can_be_pasted_where_the_browser_is_elsewhere(
    provider: Provider, http: httpx.AsyncClient
) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    try:
        loopback.give(f"  {provider.agree(asked.url)}\n")
        tokens = await oauth.redeem(http, client_of(provider), SECRET, asked, await loopback.code(), NOW)
        assert tokens.access in provider.access
    finally:
        await loopback.close()


@pytest.mark.parametrize(
    "target",
    [
        "/callback?code=stolen&state=wrong", "/callback?code=stolen", "/callback", "/callback?state=",
        "/other?code=stolen", "/callback?error=access_denied&state=wrong", "/callback?" + "a=1&" * 60,
    ],
)  # fmt: skip
async def test_who_does_not_know_the_state_changes_nothing(provider: Provider, target: str) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    try:
        origin = asked.redirect_uri.removesuffix("/callback")
        page = await get(origin + target)
        assert "does not answer" in page or "nothing here" in page
        assert not loopback._code.done()
        with pytest.raises((Refused, InvalidInput)):
            loopback.give(origin + target)
        loopback.give(provider.agree(asked.url))
        assert await loopback.code() in provider.codes
    finally:
        await loopback.close()


async def test_a_person_who_says_no_ends_it(provider: Provider) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    try:
        page = await get(provider.agree(asked.url, deny=True))
        assert "not agreed" in page
        with pytest.raises(OAuthFailed) as caught:
            await loopback.code()
        assert caught.value.error == "access_denied"
    finally:
        await loopback.close()


async def test_the_loopback_page_lives_through_nonsense_and_ends(
    provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    port = urlsplit(asked.redirect_uri).port
    assert port is not None
    silent = await asyncio.open_connection("127.0.0.1", port)
    for data in (b"\x00" * 64 + b"\r\n\r\n", b"A" * 100_000, b"POST /callback HTTP/1.1\r\n\r\n"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError):
            writer.write(data)
            await writer.drain()
            await reader.read()
        writer.close()
    await get(provider.agree(asked.url))
    assert await loopback.code() in provider.codes
    await loopback.close()
    await loopback.close()
    silent[1].close()
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)
    assert not caplog.records, "a caller that is cut off is no fault"


async def test_a_taken_port_is_said(provider: Provider) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        loopback = Loopback(client_of(provider))
        with pytest.raises(Refused, match="cannot be used"):
            await loopback.start(taken.getsockname()[1])
        await loopback.close()


async def test_the_device_flow_waits_for_the_person(provider: Provider, http: httpx.AsyncClient) -> None:
    client = client_of(provider)
    begun = await oauth.device_code(http, client, SECRET)
    assert begun.verification_uri == provider.url("/activate") and begun.user_code in (begun.complete_uri or "")
    waiting = asyncio.create_task(oauth.wait_for_device(http, client, SECRET, begun, SystemClock()))
    while not [one for one in provider.server.received if one.target == "/token"]:
        await asyncio.sleep(0.02)
    assert not waiting.done()
    provider.agreed[begun.user_code] = True
    tokens = await waiting
    assert tokens.access in provider.access and tokens.refresh is not None


async def test_the_device_flow_ends_where_it_is_denied(provider: Provider, http: httpx.AsyncClient) -> None:
    begun = await oauth.device_code(http, client_of(provider), SECRET)
    provider.agreed[begun.user_code] = False
    with pytest.raises(OAuthFailed) as caught:
        await oauth.wait_for_device(http, client_of(provider), SECRET, begun, SystemClock())
    assert caught.value.error == "access_denied"


async def test_a_spent_refresh_token_is_told_apart(provider: Provider, http: httpx.AsyncClient) -> None:
    loopback = Loopback(client_of(provider))
    asked = await loopback.start()
    loopback.give(provider.agree(asked.url))
    first = await oauth.redeem(http, client_of(provider), SECRET, asked, await loopback.code(), NOW)
    await loopback.close()
    second = await oauth.refresh(http, client_of(provider), SECRET, first.refresh or "", NOW)
    assert second.access in provider.access and second.refresh not in (None, first.refresh)
    with pytest.raises(OAuthFailed) as caught:
        await oauth.refresh(http, client_of(provider), SECRET, first.refresh or "", NOW)
    assert caught.value.error == "invalid_grant"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Answer(200, b"{}"), "without a token"),
        (Answer(200, b'{"access_token": "x", "token_type": "mac"}'), "type mac"),
        (Answer(200, b'{"access_token": 7}'), "without a token"),
        (Answer(200, b"[1]"), "without a token"),
        (Answer(200, b"[" * 100_000), "without a token"),
        (Answer(500, b"<html>"), "answered 500"),
        (Answer(302, b"", (("location", "http://127.0.0.1/"),)), "answered 302"),
        (Answer(400, b'{"error": "bad\\u001b[31m", "error_description": "\\u202eno"}'), "refused"),
        (Answer(200, b"x" * (300 << 10)), "too long"),
    ],
)
async def test_a_provider_that_answers_nonsense_is_refused(
    ca: LocalCa, http: httpx.AsyncClient, answer: Answer, words: str
) -> None:
    with TlsServer(lambda _: answer, ca=ca) as server:
        client = OAuthClient(token_url=server.url("/token"), client_id=CLIENT)
        with pytest.raises(OAuthFailed, match=words) as caught:
            await oauth.client_credentials(http, client, SECRET, NOW)
    assert "\x1b" not in str(caught.value) and "\u202e" not in str(caught.value)
    assert SECRET not in str(caught.value)


async def test_a_form_for_an_answer_is_understood(ca: LocalCa, http: httpx.AsyncClient) -> None:
    body = Answer(200, b"access_token=abc123&token_type=bearer", (("content-type", "text/plain"),))
    with TlsServer(lambda _: body, ca=ca) as server:
        client = OAuthClient(token_url=server.url("/token"), client_id=CLIENT)
        assert (await oauth.client_credentials(http, client, SECRET, NOW)).access == "abc123"


async def test_token_addresses_obey_the_rules_on_addresses(ca: LocalCa, provider: Provider) -> None:
    async with open_client(Reach(ca_certificates=(str(ca.file),))) as closed:
        with pytest.raises(KortixError) as caught:
            await oauth.client_credentials(closed, client_of(provider), SECRET, NOW)
    assert not provider.server.received and provider.server.accepted == 0
    assert SECRET not in str(caught.value)


@pytest.fixture
def mock_server(ca: LocalCa) -> Iterator[str]:
    """The base URL of `oauth2-mock-server`, which runs as long as the test."""
    program = node_program("oauth2-mock-server", "8.2.3", "oauth2-mock-server")
    certificate, key = ca.issue("localhost", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [str(program), "-a", "localhost", "-p", str(port), "-c", str(certificate), "-k", str(key)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        try:
            _wait_until_it_listens(process, port, ssl.create_default_context(cafile=str(ca.file)))
            yield f"https://localhost:{port}"
        finally:
            process.terminate()
            process.communicate(timeout=30)


def _wait_until_it_listens(process: subprocess.Popen[bytes], port: int, context: ssl.SSLContext) -> None:
    end = time.monotonic() + 60
    while True:
        assert process.poll() is None, process.communicate()[0]
        try:
            with (
                socket.create_connection(("localhost", port), timeout=5) as raw,
                context.wrap_socket(raw, server_hostname="localhost"),
            ):
                return
        except OSError:
            assert time.monotonic() < end, "the provider does not listen"
            time.sleep(0.05)


async def test_a_provider_from_npm_is_spoken_to(mock_server: str, http: httpx.AsyncClient) -> None:
    client = OAuthClient(
        token_url=f"{mock_server}/token", authorization_url=f"{mock_server}/authorize", client_id="any",
        scopes=("openid", "invoices"),
    )  # fmt: skip
    assert (await oauth.client_credentials(http, client, "secret", NOW)).access.count(".") == 2
    loopback = Loopback(client)
    asked = await loopback.start()
    try:
        sent = await http.get(asked.url)
        assert sent.status_code == 302
        await get(sent.headers["location"])
        tokens = await oauth.redeem(http, client, None, asked, await loopback.code(), NOW)
    finally:
        await loopback.close()
    renewed = await oauth.refresh(http, client, None, tokens.refresh or "", NOW)
    assert renewed.access.count(".") == 2
