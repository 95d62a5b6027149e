"""From names to addresses: one look-up, every answer judged, and the connection goes to what was judged."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence

import pytest
from tls import LOOPBACK, TlsServer

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.base.settings import settings_file
from kortix_tui.broker.network import resolving
from kortix_tui.broker.network.addresses import networks
from kortix_tui.broker.network.resolving import AddressRefused, Section, Unreachable, checked_host, connect, resolve

OPENED = networks(LOOPBACK)
ODD = (
    "2130706433",
    "0x7f000001",
    "0X7F.1",
    "0177.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.01",
    "127.0.0.1.",
    "1.1.1.1.1",
    "example.0x7f",
    "256.1.1.1",
    "user@example.com",
    "user:word@example.com",
    "example.com:80",
    "example.com/path",
    "example.com\\path",
    "example.com?x",
    "example.com#x",
    "exam ple.com",
    "example.com\r\nx",
    "example.com\x00",
    "%31%32%37.0.0.1",
    "①②⑦.0.0.1",
    "127。0。0。1",
    "bücher.example",
    "example.com.",
    ".example.com",
    "a..b",
    "-a.example",
    "a-.example",
    "x" * 64 + ".example",
    ".".join(["abcdefgh"] * 30),
    "",
    "[::1",
    "::1]",
    "[fe80::1%25eth0]",
    "fe80::1%eth0",
    "[example.com]",
    "[127.0.0.1]",
    "1::2::3",
)


class Answers:
    """A resolver that gives one answer after the other, and counts."""

    def __init__(self, *answers: Sequence[str] | OSError) -> None:
        self.left = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int, /) -> Sequence[str]:
        self.asked.append(host)
        answer = self.left.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


@pytest.mark.parametrize("host", ODD)
async def test_an_oddly_written_host_is_refused_before_a_look_up(host: str) -> None:
    resolver = Answers()
    with pytest.raises(AddressRefused) as refused:
        await resolve(host, 443, allow_private=OPENED, resolver=resolver)
    assert refused.value.code == "address_refused"
    assert refused.value.message.isprintable()
    assert resolver.asked == []


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("Example.COM", "example.com"),
        ("a_b.example", "a_b.example"),
        ("1.1.1.1", "1.1.1.1"),
        ("[::1]", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("3com.com", "3com.com"),
        ("x" * 63, "x" * 63),
    ],
)
def test_a_usual_host_keeps_its_name(host: str, name: str) -> None:
    assert checked_host(host) == name


@pytest.mark.parametrize(
    "answers",
    [
        ["127.0.0.1"],
        ["169.254.169.254"],
        ["1.1.1.1", "10.0.0.1"],
        ["10.0.0.1", "1.1.1.1"],
        ["::ffff:169.254.169.254"],
        ["64:ff9b::a9fe:a9fe"],
        ["2002:7f00:1::"],
        ["100.64.0.1"],
        ["fd00:ec2::254"],
        ["0.0.0.0"],
        ["192.0.0.192"],
        ["168.63.129.16"],
        ["fe80::1%eth0"],
        ["1.1.1.1", "rubbish"],
    ],
)
async def test_one_closed_answer_closes_the_name(answers: list[str]) -> None:
    with pytest.raises(AddressRefused):
        await resolve("api.example", 443, allow_private=(), resolver=Answers(answers))


async def test_open_answers_come_back_in_their_order() -> None:
    resolver = Answers(["2606:4700:4700::1111", "1.1.1.1"])
    found = await resolve("api.example", 443, allow_private=(), resolver=resolver)
    assert found == ("2606:4700:4700::1111", "1.1.1.1")
    assert resolver.asked == ["api.example"]


async def test_an_address_is_judged_without_a_look_up() -> None:
    assert await resolve("1.1.1.1", 443, allow_private=(), resolver=Answers()) == ("1.1.1.1",)
    with pytest.raises(AddressRefused, match=r"127\.0\.0\.1 is this machine"):
        await resolve("127.0.0.1", 443, allow_private=(), resolver=Answers())
    sections: tuple[Section, ...] = ("connectors", "egress")
    for section in sections:
        with pytest.raises(AddressRefused) as refused:
            await resolve("127.0.0.1", 443, allow_private=(), resolver=Answers(), setting=section)
        assert f"under {section}.allow_private in {settings_file()}" in (refused.value.hint or "")
    with pytest.raises(AddressRefused):
        await resolve("[::ffff:7f00:1]", 443, allow_private=(), resolver=Answers())


async def test_named_only_takes_no_public_address() -> None:
    with pytest.raises(AddressRefused, match="https only"):
        await resolve("api.example", 80, allow_private=OPENED, resolver=Answers(["1.1.1.1"]), named_only=True)
    found = await resolve("api.example", 80, allow_private=OPENED, resolver=Answers(["127.0.0.1"]), named_only=True)
    assert found == ("127.0.0.1",)


@pytest.mark.parametrize("port", [0, -1, 65536])
async def test_a_port_that_is_none_is_refused(port: int) -> None:
    with pytest.raises(AddressRefused):
        await resolve("api.example", port, allow_private=(), resolver=Answers())


async def test_a_name_without_an_address_says_so() -> None:
    with pytest.raises(Unreachable, match=r"api\.example"):
        await resolve("api.example", 443, allow_private=(), resolver=Answers(OSError(2, "no such name")))
    with pytest.raises(Unreachable):
        await resolve("api.example", 443, allow_private=(), resolver=Answers([]))


async def test_a_slow_look_up_ends_at_the_deadline() -> None:
    async def slow(host: str, port: int, /) -> Sequence[str]:
        await asyncio.sleep(600)
        return ()

    with pytest.raises(DeadlineExceeded):
        await resolve("api.example", 443, allow_private=(), deadline_s=0.05, resolver=slow)


async def test_the_system_finds_this_machine_by_name() -> None:
    found = await resolve("localhost", 443, allow_private=OPENED)
    assert set(found) <= {"127.0.0.1", "::1"}
    with pytest.raises(AddressRefused):
        await resolve("localhost", 443, allow_private=())


async def test_a_name_that_does_not_exist_is_unreachable() -> None:
    with pytest.raises((Unreachable, DeadlineExceeded)):
        await resolve("nothing-of-that-name.invalid", 443, allow_private=())


async def test_slow_look_ups_are_limited_and_hold_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()

    def stuck(*args: object, **kwargs: object) -> list[object]:
        release.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", stuck)
    monkeypatch.setattr(resolving, "_lookups", threading.BoundedSemaphore(2))
    try:
        for _ in range(2):
            with pytest.raises(DeadlineExceeded):
                await resolve("slow.example", 443, allow_private=(), deadline_s=0.05)
        with pytest.raises(Unreachable, match="too many"):
            await resolve("slow.example", 443, allow_private=(), deadline_s=30)
        await asyncio.to_thread(lambda: None)  # the loop's own threads are free
    finally:
        release.set()


async def test_connect_goes_to_the_judged_address() -> None:
    with TlsServer() as server:
        resolver = Answers(["127.0.0.1"])
        reader, writer, address = await connect("api.example", server.port, allow_private=OPENED, resolver=resolver)
        try:
            writer.write(b"GET /x HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            assert b"200" in await reader.readline()
        finally:
            writer.close()
            await writer.wait_closed()
        assert address == "127.0.0.1"
        assert resolver.asked == ["api.example"]
        assert [request.target for request in server.received] == ["/x"]


async def test_connect_tries_the_next_address_when_one_does_not_answer() -> None:
    with TlsServer() as server:
        resolver = Answers(["127.0.0.9", "127.0.0.1"])  # the server listens on the second one only
        _, writer, address = await connect("api.example", server.port, allow_private=OPENED, resolver=resolver)
        writer.close()
        await writer.wait_closed()
        assert address == "127.0.0.1"


async def test_connect_refuses_before_it_connects() -> None:
    with TlsServer() as server:
        for resolver in (Answers(["127.0.0.1", "1.1.1.1"]), Answers(["::ffff:127.0.0.1"])):
            with pytest.raises(AddressRefused):
                await connect("api.example", server.port, allow_private=(), resolver=resolver)
        assert server.accepted == 0


async def test_connect_says_that_nothing_listens() -> None:
    with TlsServer() as server:
        port = server.port
    with pytest.raises(Unreachable, match=str(port)):
        await connect("127.0.0.1", port, allow_private=OPENED)
