"""Which host a TLS client asks for: real first messages, cut anywhere, and what is none."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.broker.client_hello import LONGEST, Hello, server_name


def hello(name: str | None) -> bytes:
    """What a real TLS client sends first."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if name is None:
        context.check_hostname = False
    out = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname=name)
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return out.read()


REAL = hello("Api.Example.com")


def test_a_real_client_names_its_host() -> None:
    assert server_name(REAL) == "api.example.com"
    assert server_name(hello(None)) is Hello.NAMELESS


@given(st.integers(min_value=0, max_value=len(REAL) - 1))
def test_what_is_cut_anywhere_wants_more(at: int) -> None:
    assert server_name(REAL[:at]) is Hello.MORE


@given(st.integers(min_value=1, max_value=200))
def test_a_message_in_many_records_is_put_together(size: int) -> None:
    body = REAL[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    cut = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert server_name(cut) == "api.example.com"
    assert server_name(cut[:-1]) is Hello.MORE


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"SSH-2.0-x\r\n", b"\x80\x2e\x01", b"\x16\x00\x00", b"\x00"])
def test_other_protocols_are_none_of_tls(data: bytes) -> None:
    assert server_name(data) is Hello.NOT_TLS


def test_tls_that_is_not_well_formed_has_no_name() -> None:
    assert server_name(b"\x16\x03\x01\x00\x04\x02\x00\x00\x00") is Hello.NAMELESS  # a server's message
    assert server_name(b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00") is Hello.NAMELESS
    assert server_name(b"\x16\x03\x01\x00\x04\x01\xff\xff\xff") is Hello.NAMELESS
    assert server_name(b"\x16\x03\x01\x00\x00" * (LONGEST // 5 + 1)) is Hello.NAMELESS
    assert server_name(b"\x16\x03\x01\x00\x01\x01\x17\x03\x03\x00\x01x") is Hello.NAMELESS


@given(st.binary(max_size=600), st.integers(min_value=0, max_value=len(REAL) - 1), st.binary(min_size=1, max_size=20))
def test_nothing_that_is_sent_raises(junk: bytes, at: int, patch: bytes) -> None:
    server_name(junk)
    server_name(b"\x16\x03\x01" + junk)
    found = server_name(REAL[:at] + patch + REAL[at + len(patch) :])
    assert isinstance(found, str | Hello)
