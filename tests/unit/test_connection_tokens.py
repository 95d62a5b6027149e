"""OAuth tokens on the host: got, renewed once however many calls need them, revoked, and never lost to a race."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from bank import OPERATOR, Bank, open_bank
from oauth_provider import CLIENT, SECRET, Provider
from shop import ShopDesk
from tls import LOOPBACK, LocalCa

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import Conflict, InvalidInput, KortixError, NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import ConnectorSettings
from kortix_tui.base.words import ConnectionState
from kortix_tui.broker.connectors.oauth import OAuthClient, OAuthFailed
from kortix_tui.manifest.connectors import Auth
from kortix_tui.runtime.connection_choice import NotConnected
from kortix_tui.runtime.connection_keeping import Keeping, Kept
from kortix_tui.runtime.connection_rows import ConnectionDetails, auth_shape, connection_of, identifier_of
from kortix_tui.runtime.host_credentials import HostCredentials
from kortix_tui.store.models import Connection
from kortix_tui.vault.secret import Secret

ORIGIN = "https://api.example:443"
URL = "https://api.example/v1/me"


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest.fixture
def provider(ca: LocalCa) -> Iterator[Provider]:
    with Provider(ca) as made:
        yield made


class Tokens:
    """One OAuth connection of a real vault, and the host's way to its token."""

    def __init__(self, bank: Bank, provider: Provider, ca: LocalCa) -> None:
        self.bank, self.provider = bank, provider
        reach = ConnectorSettings(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))
        bank.custody.context.settings = bank.custody.context.settings.model_copy(update={"connectors": reach})
        self.credentials = HostCredentials(bank.custody)
        self.keeping = Keeping(bank.custody)
        self.id = ""

    async def make(
        self, *, grant: str = "authorization_code", refresh: bool = True, lasts: timedelta = timedelta(0)
    ) -> Connection:
        """A connection whose token lasts so long from now on."""
        client = OAuthClient(token_url=self.provider.url("/token"), client_id=CLIENT)
        auth = Auth.model_validate({"type": "oauth2", "token_url": client.token_url})
        names = {part: identifier_of("shop", "default", part) for part in ("", "refresh", "client")}
        values = {names[""]: "first-access-canary", names["client"]: SECRET}
        if refresh:
            values[names["refresh"]] = self._first_refresh()
        details = ConnectionDetails(
            auth=auth_shape(auth), origin=ORIGIN, client=client, grant=grant, client_secret=names["client"],
            refresh=names["refresh"] if refresh else None,
        )  # fmt: skip
        kept = Kept(
            project_id="prj_acme", connector="shop", account="default", auth="oauth2", details=details,
            identifier=names[""], values={name: Secret(value.encode()) for name, value in values.items()},
            expires_at=self.bank.custody.context.clock.now() + lasts,
        )  # fmt: skip
        made = await self.keeping.keep(kept, OPERATOR)
        self.id = made.id
        return made

    def _first_refresh(self) -> str:
        from oauth_provider import _Client, _Token

        self.provider.refresh["first-refresh-canary"] = _Token(_Client(self.provider), "")
        return "first-refresh-canary"

    @property
    def row(self) -> Connection:
        found = connection_of(self.bank.custody.context.store, self.id)
        assert found is not None
        return found

    async def header(self) -> str:
        return (await self.credentials.attached(self.row, URL)).headers["authorization"]

    def end(self) -> None:
        """Let the token end."""
        now = to_text(self.bank.custody.context.clock.now())
        self.bank.seeded.set("connections", self.id, expires_at=now)


@pytest.fixture
async def tokens(home: Home, tmp_path: Path, provider: Provider, ca: LocalCa) -> AsyncIterator[Tokens]:
    async with open_bank(home, tmp_path) as bank:
        made = Tokens(bank, provider, ca)
        yield made
        await made.credentials.close()


async def test_a_token_that_lasts_is_sent_as_it_is(tokens: Tokens) -> None:
    await tokens.make(lasts=timedelta(hours=1))
    assert await tokens.header() == "Bearer first-access-canary"
    assert not tokens.provider.issued


async def test_a_token_that_ended_is_renewed_once_for_all_who_wait(tokens: Tokens) -> None:
    await tokens.make()
    headers = await asyncio.gather(*(tokens.header() for _ in range(20)))
    assert len(set(headers)) == 1 and headers[0].removeprefix("Bearer ") in tokens.provider.access
    assert tokens.provider.issued == ["refresh_token"]
    assert (tokens.row.version, tokens.row.state) == (2, ConnectionState.READY)


async def test_the_new_refresh_token_is_the_one_that_is_used_next(tokens: Tokens) -> None:
    await tokens.make()
    first = await tokens.header()
    tokens.end()
    second = await tokens.header()
    assert second != first and second.removeprefix("Bearer ") in tokens.provider.access
    assert tokens.provider.issued == ["refresh_token"] * 2


async def test_a_provider_that_keeps_its_refresh_token_is_served(ca: LocalCa, home: Home, tmp_path: Path) -> None:
    with Provider(ca, rotates=False) as provider:
        async with open_bank(home, tmp_path) as bank:
            tokens = Tokens(bank, provider, ca)
            await tokens.make()
            await tokens.header()
            tokens.end()
            assert (await tokens.header()).removeprefix("Bearer ") in provider.access
            await tokens.credentials.close()


async def test_client_credentials_are_asked_for_anew(tokens: Tokens) -> None:
    await tokens.make(grant="client_credentials", refresh=False)
    assert (await tokens.header()).removeprefix("Bearer ") in tokens.provider.access
    assert tokens.provider.issued == ["client_credentials"]


async def test_a_revoked_connection_says_so_and_asks_no_more(tokens: Tokens) -> None:
    await tokens.make()
    tokens.provider.revoke_all()
    with pytest.raises(NotConnected, match="does not renew") as caught:
        await tokens.header()
    assert "canary" not in str(caught.value) and "connectors connect shop" in str(caught.value)
    assert tokens.row.state is ConnectionState.REVOKED
    asked = len(tokens.provider.server.received)
    with pytest.raises(NotConnected, match="revoked"):
        await tokens.header()
    assert len(tokens.provider.server.received) == asked
    again = await tokens.make()
    assert again.state is ConnectionState.READY and await tokens.header()


async def test_the_loser_of_a_race_does_not_end_the_winners_connection(tokens: Tokens) -> None:
    """Another process renewed it: the old refresh token is void, the new one is in the vault."""
    stale = await tokens.make()
    winner = await tokens.header()
    with suppress(KortixError):
        await tokens.credentials._renew(stale)
    assert tokens.row.state is ConnectionState.READY
    assert await tokens.header() == winner


async def test_a_renewal_that_came_too_late_writes_nothing(tokens: Tokens) -> None:
    stale = await tokens.make()
    winner = await tokens.header()
    late = {stale.identifier or "": Secret(b"late-canary")}
    with pytest.raises(Conflict):
        await tokens.keeping.renew(stale, late, ConnectionDetails.of(stale), None, OPERATOR)
    assert await tokens.header() == winner


async def test_a_provider_that_is_away_ends_nothing(tokens: Tokens) -> None:
    await tokens.make()
    tokens.provider.server.close()
    with pytest.raises(KortixError) as caught:
        await tokens.header()
    assert not isinstance(caught.value, NotConnected)
    assert tokens.row.state is ConnectionState.READY


async def test_a_token_without_renewal_ends(tokens: Tokens) -> None:
    await tokens.make(refresh=False)
    with pytest.raises(NotConnected, match="has ended"):
        await tokens.header()
    assert tokens.row.state is ConnectionState.EXPIRED


async def test_a_token_that_the_server_rejected_is_renewed_before_the_next_call(tokens: Tokens) -> None:
    await tokens.make(lasts=timedelta(hours=1))
    await tokens.credentials.rejected(tokens.id)
    assert (await tokens.header()).removeprefix("Bearer ") in tokens.provider.access
    await tokens.credentials.rejected("con_gone")


async def test_the_token_goes_to_its_own_server_only(tokens: Tokens) -> None:
    made = await tokens.make(lasts=timedelta(hours=1))
    for url in (
        "http://api.example/v1/me", "https://api.example:8443/v1/me", "https://api.example.evil.example/",
        "https://evil.example/https://api.example/", "stdio:api.example",
    ):  # fmt: skip
        with pytest.raises(NotConnected, match="only"):
            await tokens.credentials.attached(made, url)


async def test_a_secret_that_is_not_for_connectors_is_not_read(tokens: Tokens) -> None:
    await tokens.bank.store("OTHER", b"environment-canary-5", exposure="environment")
    with pytest.raises(NotConnected):
        await tokens.credentials.secret("prj_acme", "OTHER", "test")
    with pytest.raises(NotConnected):
        await tokens.credentials.secret("prj_other", identifier_of("shop", "default"), "test")


# The person's side: consent by way of the facade, the host and its loopback page


def _manifest(provider: Provider, grant: str) -> str:
    return (
        "connectors:\n  - slug: shop\n    provider: http\n"
        f"    base_url: {provider.url('/api')}\n    routes: [{{name: get_me, path: /me}}]\n"
        f"    auth:\n      type: oauth2\n      grant: {grant}\n      client_id: {CLIENT}\n      scopes: [read]\n"
        f"      token_url: {provider.url('/token')}\n      authorization_url: {provider.url('/authorize')}\n"
        f"      device_authorization_url: {provider.url('/device')}\n"
    )


@pytest.fixture
def desk(home: Home, short_folder: Path, ca: LocalCa) -> Iterator[ShopDesk]:
    made = ShopDesk(home, short_folder / "repo", ca)
    yield made
    made.runtime.close()


def me(desk: ShopDesk) -> int | None:
    return desk.runtime.calls.call(desk.project, "shop", "get_me").status


def test_consent_in_a_browser_connects(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "authorization_code"))
    connections = desk.runtime.connections
    begun = connections.authorize(desk.project, "shop", client_secret=Secret(SECRET.encode()))
    assert begun.redirect_uri is not None and connections.authorization(begun.flow) is None
    httpx.get(provider.agree(begun.url), trust_env=False)
    found = connections.authorization(begun.flow, wait_s=20)
    assert found is not None and (found.auth, found.scopes) == ("oauth2", ("read",))
    assert me(desk) == 200
    with pytest.raises(NotFound):
        connections.authorization(begun.flow)
    stored = [one.identifier for one in desk.runtime.secrets.list()]
    assert stored == ["connection.shop.default", "connection.shop.default.client", "connection.shop.default.refresh"]
    kept = desk.everything()
    assert not [token for token in (*provider.access, *provider.refresh, SECRET) if token.encode() in kept]


def test_the_address_is_pasted_over_ssh(desk: ShopDesk, provider: Provider) -> None:
    provider.methods = {"none"}
    desk.declare(_manifest(provider, "authorization_code"))
    connections = desk.runtime.connections
    begun = connections.authorize(desk.project, "shop")
    with pytest.raises(Refused, match="does not answer"):
        connections.authorization(begun.flow, pasted="http://127.0.0.1:1/callback?code=x&state=y")
    assert connections.authorization(begun.flow) is None, "a wrong one ends nothing"
    found = connections.authorization(begun.flow, pasted=provider.agree(begun.url), wait_s=20)
    assert found is not None and me(desk) == 200


def test_a_device_code_connects(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "device"))
    connections = desk.runtime.connections
    begun = connections.authorize(desk.project, "shop", client_secret=Secret(SECRET.encode()))
    assert begun.user_code is not None and begun.redirect_uri is None
    with pytest.raises(InvalidInput):
        connections.authorization(begun.flow, pasted="x")
    provider.agreed[begun.user_code] = True
    assert connections.authorization(begun.flow, wait_s=20) is not None
    assert me(desk) == 200


def test_client_credentials_connect_without_a_person(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "client_credentials"))
    connections = desk.runtime.connections
    with pytest.raises(Refused, match="no person"):
        connections.authorize(desk.project, "shop")
    with pytest.raises(KortixError, match="refused") as caught:
        connections.connect(desk.project, "shop", Secret(b"wrong-canary"))
    assert "canary" not in str(caught.value) and not connections.list(desk.project)
    made = connections.connect(desk.project, "shop", Secret(SECRET.encode())).connection
    assert made.expires_at is not None and me(desk) == 200


def test_no_is_told_once_and_a_newer_wish_ends_the_older(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "authorization_code"))
    connections = desk.runtime.connections
    older = connections.authorize(desk.project, "shop")
    newer = connections.authorize(desk.project, "shop")
    with pytest.raises(NotFound):
        connections.authorization(older.flow)
    httpx.get(provider.agree(newer.url, deny=True), trust_env=False)
    with pytest.raises(KortixError, match="access_denied"):
        connections.authorization(newer.flow, wait_s=20)
    last = connections.authorize(desk.project, "shop")
    connections.cancel(last.flow)
    connections.cancel(last.flow)
    with pytest.raises(httpx.ConnectError):
        httpx.get(last.redirect_uri or "", trust_env=False)
    assert not connections.list(desk.project)


def test_a_host_that_ends_leaves_no_page_behind(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "authorization_code"))
    begun = desk.runtime.connections.authorize(desk.project, "shop")
    desk.restart()
    with pytest.raises(httpx.ConnectError):
        httpx.get(begun.redirect_uri or "", trust_env=False)
    with pytest.raises(NotFound, match="over"):
        desk.runtime.connections.authorization(begun.flow)


def test_failures_of_a_provider_cross_to_the_person_as_words(desk: ShopDesk, provider: Provider) -> None:
    desk.declare(_manifest(provider, "authorization_code"))
    begun = desk.runtime.connections.authorize(desk.project, "shop", client_secret=Secret(b"wrong-canary"))
    httpx.get(provider.agree(begun.url), trust_env=False)
    with pytest.raises(KortixError, match="invalid_client") as caught:
        desk.runtime.connections.authorization(begun.flow, wait_s=20)
    assert not isinstance(caught.value, OAuthFailed), "it came through the socket"
    assert "canary" not in str(caught.value)
