"""Which addresses the host connects to: what is closed is closed in every spelling, and nothing opens metadata."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.broker.network.addresses import is_closed, is_named, networks

CLOSED = (
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "169.254.170.2",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.9",
    "192.0.0.192",
    "192.0.2.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.7",
    "203.0.113.7",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b::7f00:1",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:1:a9fe:a9:fe00::",
    "2002:7f00:1::",
    "2002:a9fe:a9fe::1",
    "2002:c0a8:101::1",
    "2001:0:7f00:1::",
    "2001:0:808:808:0:0:80ff:fffe",
    "2001:db8::1",
    "100::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%1",
    "fec0::1",
    "ff02::1",
)
OPEN = ("1.1.1.1", "93.184.216.34", "100.128.0.1", "172.32.0.1", "2606:4700:4700::1111", "2a00:1450:4001:831::200e")
EMBEDDED_OPEN = ("::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1")
METADATA = ("169.254.169.254", "fd00:ec2::254", "168.63.129.16", "192.0.0.192", "100.100.100.200")
EVERYTHING = networks(("0.0.0.0/0", "::/0"))


@pytest.mark.parametrize("text", CLOSED)
def test_an_address_that_is_not_public_is_closed(text: str) -> None:
    assert is_closed(ip_address(text), ())


@pytest.mark.parametrize("text", [*OPEN, *EMBEDDED_OPEN])
def test_a_public_address_is_open(text: str) -> None:
    assert is_closed(ip_address(text), ()) is None


@pytest.mark.parametrize("text", METADATA)
def test_nothing_opens_a_metadata_service(text: str) -> None:
    address = ip_address(text)
    spellings: list[IPv4Address | IPv6Address] = [address]
    if isinstance(address, IPv4Address):
        number = int(address)
        spellings += [
            IPv6Address((0xFFFF << 32) | number),
            IPv6Address((0x64FF9B << 96) | number),
            IPv6Address((0x2002 << 112) | (number << 80)),
            IPv6Address((0x64FF9B0001 << 80) | number),
            IPv6Address((0x64FF9B0001 << 80) | (number >> 16 << 64) | ((number & 0xFFFF) << 40)),
        ]
    for spelling in spellings:
        assert is_closed(spelling, (*EVERYTHING, *networks([f"{address}/{address.max_prefixlen}"]))), spelling


@pytest.mark.parametrize("text", ["0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"])
def test_nothing_opens_what_is_no_address_of_one_machine(text: str) -> None:
    assert is_closed(ip_address(text), EVERYTHING)


def test_allow_private_opens_only_what_it_names() -> None:
    allowed = networks(("10.1.0.0/16", "fd12::/16"))
    assert is_closed(ip_address("10.1.2.3"), allowed) is None
    assert is_closed(ip_address("::ffff:10.1.2.3"), allowed) is None
    assert is_closed(ip_address("fd12::1"), allowed) is None
    for text in ("10.2.0.1", "::ffff:10.2.0.1", "127.0.0.1", "fd13::1", "::1"):
        assert is_closed(ip_address(text), allowed), text


def test_a_tunnel_to_an_opened_network_stays_closed() -> None:
    """A packet to such an address goes to a relay first, which is not what the operator named."""
    allowed = networks(("127.0.0.0/8", "10.0.0.0/8"))
    for text in ("64:ff9b::7f00:1", "2002:7f00:1::", "64:ff9b::10.0.0.1", "2001:0:7f00:1::"):
        assert is_closed(ip_address(text), allowed), text


def test_named_means_named() -> None:
    allowed = networks(("127.0.0.0/8",))
    assert is_named(ip_address("127.0.0.1"), allowed)
    assert is_named(ip_address("::ffff:127.0.0.1"), allowed)
    assert not is_named(ip_address("1.1.1.1"), allowed)
    assert not is_named(ip_address("::1"), allowed)


@given(st.integers(min_value=0, max_value=2**32 - 1))
def test_an_embedded_address_is_never_more_open_than_itself(number: int) -> None:
    plain = IPv4Address(number)
    closed = is_closed(plain, ())
    if not plain.is_global:
        assert closed
    for base in (0xFFFF << 32, 0x64FF9B << 96):
        assert bool(is_closed(IPv6Address(base | number), ())) == bool(closed)
    assert bool(is_closed(IPv6Address((0x2002 << 112) | (number << 80) | 1), ())) == bool(closed)


@given(st.integers(min_value=0, max_value=2**128 - 1))
def test_no_ipv6_address_that_python_calls_private_is_open(number: int) -> None:
    address = IPv6Address(number)
    if not address.is_global and address.sixtofour is None and address.ipv4_mapped is None:
        assert is_closed(address, ())
