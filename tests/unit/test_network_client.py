"""The host's HTTP client against real servers: it connects only where it may, and takes nothing from around it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import pytest
from tls import LOOPBACK, Answer, LocalCa, TlsServer

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.network.client import Reach, open_client, watching
from kortix_tui.broker.network.resolving import AddressRefused


class Rebinding:
    """A name server under a stranger's control: each look-up has another answer."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.left = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        self.asked.append(host)
        return self.left.pop(0)


@pytest.fixture
def ca(tmp_path: Path) -> LocalCa:
    return LocalCa(tmp_path / "ca")


@pytest.fixture
def server(ca: LocalCa) -> Iterator[TlsServer]:
    with TlsServer(ca=ca, names=("localhost", "127.0.0.1", "api.example")) as made:
        yield made


@pytest.fixture
def reach(ca: LocalCa) -> Reach:
    return Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))


async def test_a_request_reaches_an_opened_server(server: TlsServer, reach: Reach) -> None:
    async with open_client(reach) as client:
        response = await client.get(server.url("/x?y=1"))
    assert response.json() == {}
    assert server.received[0].target == "/x?y=1"
    assert server.received[0].header("host") == f"localhost:{server.port}"
    assert server.received[0].header("accept-encoding") == "gzip, deflate"


async def test_nothing_private_is_reached_unless_opened(server: TlsServer, ca: LocalCa) -> None:
    async with open_client(Reach(ca_certificates=(str(ca.file),))) as client:
        for host in ("localhost", "127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "0.0.0.0"):
            with pytest.raises(AddressRefused), watching() as departure:
                await client.get(server.url(host=host))
            assert not departure.begun
    assert server.accepted == 0


@pytest.mark.parametrize(
    "host", ["2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1.", "localhost.", "LOCALHOST。", "①27.0.0.1"]
)
async def test_odd_spellings_of_an_opened_host_are_refused(server: TlsServer, reach: Reach, host: str) -> None:
    async with open_client(reach) as client:
        with pytest.raises((AddressRefused, httpx.InvalidURL)):
            await client.get(server.url(host=host))
    assert server.accepted == 0


async def test_a_url_with_a_user_is_refused(server: TlsServer, reach: Reach) -> None:
    async with open_client(reach) as client:
        for user in ("user:word@", "user@", "api.example:443@"):
            with pytest.raises(AddressRefused):
                await client.get(f"https://{user}localhost:{server.port}/")
    assert server.accepted == 0


async def test_the_connection_goes_to_the_judged_address_under_the_name(server: TlsServer, reach: Reach) -> None:
    """The name exists for our resolver only: any second look-up by another would fail."""
    resolver = Rebinding(["127.0.0.1"])
    async with open_client(reach, resolver=resolver) as client:
        await client.get(server.url(host="api.example"))
        await client.get(server.url(host="api.example"))
    assert resolver.asked == ["api.example"]
    assert server.accepted == 1
    assert server.server_names == ["api.example"]
    assert {request.header("host") for request in server.received} == {f"api.example:{server.port}"}


@pytest.mark.parametrize("second", ["169.254.169.254", "10.0.0.1", "::ffff:a9fe:a9fe", "64:ff9b::a9fe:a9fe"])
async def test_a_name_that_moves_is_refused_at_its_second_look_up(server: TlsServer, reach: Reach, second: str) -> None:
    resolver = Rebinding(["127.0.0.1"], [second])
    async with open_client(reach, resolver=resolver) as client:
        await client.get(server.url(host="api.example"), headers={"connection": "close"})
        with pytest.raises(AddressRefused):
            await client.get(server.url(host="api.example"))
    assert server.accepted == 1


async def test_mixed_answers_are_refused_whole(server: TlsServer, ca: LocalCa) -> None:
    reach = Reach(allow_private=("127.0.0.1/32",), ca_certificates=(str(ca.file),))
    async with open_client(reach, resolver=Rebinding(["127.0.0.1", "127.0.0.2"])) as client:
        with pytest.raises(AddressRefused, match=r"127\.0\.0\.2"):
            await client.get(server.url(host="api.example"))
    assert server.accepted == 0


async def test_a_pinned_client_goes_nowhere_else(server: TlsServer, reach: Reach) -> None:
    pinned = frozenset({("https", "localhost", server.port)})
    with TlsServer() as other:
        async with open_client(reach, pinned=pinned) as client:
            assert (await client.get(server.url())).status_code == 200
            for url in (
                f"https://localhost:{other.port}/",
                f"http://localhost:{server.port}/",
                f"https://127.0.0.1:{server.port}/",
                f"https://api.example:{server.port}/",
                "https://localhost/",
            ):
                with pytest.raises(AddressRefused):
                    await client.get(url)
            with pytest.raises(AddressRefused, match="another host"):
                await client.get(server.url(), headers={"host": "inner.example"})
            with pytest.raises(AddressRefused, match="certificate"):
                await client.get(server.url(), extensions={"sni_hostname": "api.example"})
        assert other.accepted == 0
    assert len(server.received) == 1


async def test_a_default_port_is_pinned_too(reach: Reach) -> None:
    async with open_client(reach, pinned=frozenset({("https", "localhost", 443)})) as client:
        with pytest.raises(httpx.ConnectError):  # pinned, but nothing listens there
            await client.get("https://localhost/")
        with pytest.raises(AddressRefused):
            await client.get("http://localhost/")


async def test_plain_http_is_for_opened_networks_or_a_pinned_server() -> None:
    with TlsServer() as plain:
        async with open_client(Reach(allow_private=LOOPBACK)) as client:
            assert (await client.get(plain.url())).status_code == 200
        async with open_client(Reach(), resolver=Rebinding(["1.1.1.1"])) as client:
            with pytest.raises(AddressRefused, match="https only"):
                await client.get(plain.url(host="api.example"))
        pinned = frozenset({("http", "api.example", plain.port)})
        resolver = Rebinding(["127.0.0.1"])
        async with open_client(Reach(allow_private=LOOPBACK), pinned=pinned, resolver=resolver) as client:
            assert (await client.get(plain.url(host="api.example"))).status_code == 200
        assert plain.accepted == 2


@pytest.mark.parametrize("scheme", ["ftp", "file", "ws", "wss"])
async def test_other_schemes_are_refused(server: TlsServer, reach: Reach, scheme: str) -> None:
    async with open_client(reach) as client:
        with pytest.raises(AddressRefused):
            await client.get(f"{scheme}://localhost:{server.port}/etc/passwd")
    assert server.accepted == 0


async def test_a_certificate_must_be_right(server: TlsServer, reach: Reach, ca: LocalCa, tmp_path: Path) -> None:
    stranger = LocalCa(tmp_path / "stranger", "A stranger")
    expired = ca.server_context("localhost", valid_days=-1)
    with TlsServer(ca=stranger) as foreign, TlsServer(context=expired) as old:
        async with open_client(reach) as client:
            for url in (
                foreign.url(),
                old.url(),
                server.url(host="127.0.0.2"),  # no such name in its certificate, and nothing listens there
            ):
                with pytest.raises(httpx.ConnectError), watching() as departure:
                    await client.get(url)
                assert not departure.begun
        assert not foreign.received + old.received
    async with open_client(Reach(allow_private=LOOPBACK)) as client:
        with pytest.raises(httpx.ConnectError, match="verify failed"):
            await client.get(server.url())


async def test_a_certificate_for_another_name_is_refused(ca: LocalCa, reach: Reach) -> None:
    with TlsServer(ca=ca, names=("other.example",)) as server:
        async with open_client(reach) as client:
            with pytest.raises(httpx.ConnectError, match="localhost"):
                await client.get(server.url())
        assert server.received == []


def test_unreadable_certificates_name_their_file(tmp_path: Path) -> None:
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("no certificate")
    for path in (rubbish, tmp_path / "missing.pem"):
        with pytest.raises(InvalidInput, match=str(path)):
            open_client(Reach(ca_certificates=(str(path),)))


async def test_nothing_is_taken_from_the_environment(
    server: TlsServer, reach: Reach, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine localhost login someone password canary\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    with TlsServer() as proxy:
        for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
            monkeypatch.setenv(name, proxy.url())
        async with open_client(reach) as client:
            await client.get(server.url())
        assert proxy.accepted == 0
    assert server.received[0].header("authorization") is None
    assert not (tmp_path / "keys").exists()


async def test_cookies_are_not_kept(ca: LocalCa, reach: Reach) -> None:
    answer = Answer(headers=(("set-cookie", "session=canary; Path=/"),))
    with TlsServer(lambda request: answer, ca=ca) as server:
        async with open_client(reach) as client:
            await client.get(server.url())
            await client.get(server.url())
        assert [request.header("cookie") for request in server.received] == [None, None]


async def test_redirects_are_not_followed(ca: LocalCa, reach: Reach) -> None:
    answer = Answer(302, headers=(("location", "/other"),))
    with TlsServer(lambda request: answer, ca=ca) as server:
        async with open_client(reach) as client:
            assert (await client.get(server.url())).status_code == 302
        assert len(server.received) == 1


async def test_nothing_is_logged_that_a_request_holds(
    server: TlsServer, reach: Reach, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_client(reach) as client:
        await client.get(server.url("/?key=canary"), headers={"x-key": "canary"})
    assert "canary" not in caplog.text
