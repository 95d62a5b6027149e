"""Attempts to reach through an allowed name what nobody allowed."""

from __future__ import annotations

import ssl

import pytest

from kortix_tui.broker.client_hello import Hello, server_name


def hello(name: str) -> bytes:
    """What a real TLS client sends first."""
    out = ssl.MemoryBIO()
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


@pytest.mark.parametrize(
    "first",
    [b"\x15\x03\x01\x00\x02\x01\x5a", b"\x15\x03\x03\x00\x00", b"\x14\x03\x03\x00\x01\x01", b"\x17\x03\x01\x00\x00"],
)
def test_a_record_before_the_first_message_does_not_hide_the_name(first: bytes) -> None:
    """Some servers (those in Go) pass over a warning that comes first, and take the message behind it."""
    whole = first + hello("not-allowed.example")
    assert all(server_name(whole[:at]) in (Hello.MORE, Hello.NAMELESS) for at in range(1, len(whole)))
    assert server_name(whole) is Hello.NAMELESS
