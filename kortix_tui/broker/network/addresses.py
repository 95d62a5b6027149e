"""Which addresses the host never connects to, and why.

The tables are spelled out: what `ipaddress` calls global differs between Python versions, and some addresses that it
calls global are doors into a cloud's own machinery.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

IPAddress = IPv4Address | IPv6Address
IPNetwork = IPv4Network | IPv6Network

_METADATA: Final = frozenset(
    ip_address(text)
    for text in (
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.42.42",
        "168.63.129.16",
        "192.0.0.192",
        "100.100.100.200",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd20:ce::254",
        "fd00:42::42",
    )
)
_CLOSED: Final[tuple[tuple[IPNetwork, str], ...]] = tuple(
    (ip_network(text), why)
    for text, why in (
        ("0.0.0.0/8", "an address of this network only"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "an address of a carrier's inner network"),
        ("127.0.0.0/8", "this machine"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "an address for protocols only"),
        ("192.0.2.0/24", "an address for documentation"),
        ("192.88.99.0/24", "a relay's address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "an address for measurements"),
        ("198.51.100.0/24", "an address for documentation"),
        ("203.0.113.0/24", "an address for documentation"),
        ("240.0.0.0/4", "a reserved address"),
        ("::1/128", "this machine"),
        ("::/96", "an address in a form out of use"),
        ("::ffff:0:0:0/96", "an address for translation only"),
        ("64:ff9b:1::/48", "an address for translation inside a network"),
        ("100::/64", "an address that discards"),
        ("2001:2::/48", "an address for measurements"),
        ("2001:10::/28", "an address that is not routed"),
        ("2001:20::/28", "an address that is not routed"),
        ("2001:db8::/32", "an address for documentation"),
        ("3fff::/20", "an address for documentation"),
        ("5f00::/16", "an address for segment routing"),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")
_LOCAL_NAT64: Final = IPv6Network("64:ff9b:1::/48")


def networks(texts: Iterable[str]) -> tuple[IPNetwork, ...]:
    """The networks of a setting, which was checked when it was read."""
    return tuple(ip_network(text) for text in texts)


def is_closed(address: IPAddress, allow_private: Sequence[IPNetwork]) -> str | None:
    """Why the host must not connect to an address, in words that follow "which is"; `None` where it may.

    An IPv4 address inside an IPv6 one counts as itself: what is closed is closed in every spelling.

    Args:
        allow_private: Networks that the operator opened. They open nothing beside what they name, and never a cloud's
            metadata service, a multicast group or the unspecified address.
    """
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    if mapped is not None:
        return is_closed(mapped, allow_private)
    embedded = _embedded(address)
    if any(one in _METADATA for one in (address, *embedded)):
        return "a cloud's metadata service"
    if address.is_multicast:
        return "a multicast address"
    if address.is_unspecified or address == IPv4Address("255.255.255.255"):
        return "no address of one machine"
    if _within(address, allow_private):
        return None
    for network, why in _CLOSED:
        if address in network:
            return why
    if embedded:
        closed = next((why for why in (is_closed(one, ()) for one in embedded) if why is not None), None)
        return None if closed is None else f"a tunnel to {closed}"
    return None if address.is_global else "not a public address"


def is_named(address: IPAddress, allow_private: Sequence[IPNetwork]) -> bool:
    """Whether the operator named the network of this address."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return _within(mapped or address, allow_private)


def _within(address: IPAddress, allowed: Sequence[IPNetwork]) -> bool:
    return any(address.version == network.version and address in network for network in allowed)


def _embedded(address: IPAddress) -> tuple[IPv4Address, ...]:
    """IPv4 addresses that a packet to this one may end at."""
    if isinstance(address, IPv4Address):
        return ()
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    if address in _NAT64:
        return (IPv4Address(address.packed[12:]),)
    if address in _LOCAL_NAT64:
        # RFC 6052 lets a network choose where the address sits, around the byte that stays zero.
        raw = address.packed
        places = (raw[6:8] + raw[9:11], raw[7:8] + raw[9:12], raw[9:13], raw[12:16])
        return tuple(IPv4Address(place) for place in places)
    return ()
