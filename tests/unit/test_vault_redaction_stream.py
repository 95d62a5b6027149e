"""Redaction of streams: any chunking, no waiting for ordinary text, and values cut at either end."""

from __future__ import annotations

import base64
import json
import re
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.vault.needles import needles
from kortix_tui.vault.redaction import RedactingStream, Redactor

VALUE = b"s3cr3t/Tok\xc3\xa9n+with='quotes' & more"
ENCODINGS = {
    "raw": VALUE,
    "percent": urllib.parse.quote(VALUE, safe="").encode(),
    "json": json.dumps(VALUE.decode())[1:-1].encode(),
    "hex": VALUE.hex().encode(),
    "base64": base64.b64encode(b"user:" + VALUE),
    "base64 url": base64.urlsafe_b64encode(b"no" + VALUE + b"!"),
}
REDACTOR = Redactor.of([("TOKEN", VALUE)])


def fed(stream: RedactingStream, chunks: list[bytes]) -> bytes:
    return b"".join(stream.feed(chunk) for chunk in chunks) + stream.feed(b"", final=True)


def cut(data: bytes, sizes: list[int]) -> list[bytes]:
    chunks, at = [], 0
    for number in range(len(data)):
        if at >= len(data):
            break
        size = sizes[number % len(sizes)]
        chunks.append(data[at : at + size])
        at += size
    return chunks


def assert_nothing_of(value: bytes, shown: bytes, *, size: int = 12) -> None:
    """No window of the value in any spelling."""
    spelled = needles(value)
    left = shown.replace(b"[redacted:TOKEN]", b"\0")
    for at in range(len(left) - size + 1):
        window = left[at : at + size]
        assert not any(window in needle for needle in spelled), window


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_split_offset(encoding: str) -> None:
    text = b"left " + ENCODINGS[encoding] + b" right"
    whole = REDACTOR.data(text)
    for at in range(len(text) + 1):
        shown = fed(REDACTOR.stream(), [text[:at], text[at:]])
        assert_nothing_of(VALUE, shown)
        assert shown.endswith(b" right") and shown.count(b"[redacted:TOKEN]") == 1
        # Fewer than eight bytes may have gone out before it was known what they begin.
        assert len(shown) - len(whole) < 8


@settings(deadline=None)
@given(st.sampled_from(sorted(ENCODINGS)), st.lists(st.integers(1, 8), min_size=1, max_size=40), st.binary(max_size=20))
def test_small_chunks(encoding: str, sizes: list[int], noise: bytes) -> None:
    text = noise + ENCODINGS[encoding] + noise
    shown = fed(REDACTOR.stream(), cut(text, sizes))
    assert_nothing_of(VALUE, shown.removeprefix(noise).removesuffix(noise))
    assert REDACTOR.data(shown) == shown


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=10))
def test_clean_streams_stay_as_they_are(chunks: list[bytes]) -> None:
    text = b"".join(chunks)
    shown = fed(REDACTOR.stream(), chunks)
    assert shown == text


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"s3cr3t/", VALUE[:9], VALUE[:11], VALUE[20:], VALUE, b" ", b"x"]), max_size=12))
def test_nothing_is_lost_or_doubled_around_values(chunks: list[bytes]) -> None:
    """Whatever is not part of a value comes out once and in order."""
    text = b"".join(chunks)
    shown = fed(REDACTOR.stream(), chunks)
    if VALUE not in text and not any(text.endswith(VALUE[:n]) for n in range(12, len(VALUE))):
        assert shown == text
    assert VALUE not in shown


def test_ordinary_text_is_never_held_back() -> None:
    stream = REDACTOR.stream()
    for chunk in (b"$ ", b"s", b"s3cr3t/", b"password: ", b"abc" + VALUE[:7]):
        assert stream.feed(chunk) == chunk
    assert stream.feed(VALUE[7:] + b"!") == b"[redacted:TOKEN]!"


def test_a_beginning_is_held_until_it_is_known() -> None:
    stream = REDACTOR.stream()
    assert stream.feed(b"a " + VALUE[:10]) == b"a "
    assert stream.feed(b"") == b""
    assert stream.feed(b" b") == VALUE[:10] + b" b"


@pytest.mark.parametrize("length", range(len(VALUE)))
def test_a_stream_that_ends_within_a_value(length: int) -> None:
    shown = fed(REDACTOR.stream(), [b"end: ", VALUE[:length]])
    expected = VALUE[:length] if length < 12 else b"[redacted:TOKEN]"
    assert shown == b"end: " + expected


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("size", [1, 3, 8, 100])
def test_a_stream_that_begins_within_a_value(encoding: str, size: int) -> None:
    spelled = ENCODINGS[encoding]
    for at in range(1, len(spelled)):
        rest = spelled[at:]
        shown = fed(REDACTOR.stream(resuming=True), cut(rest + b"\nnext line\n", [size]))
        assert shown.endswith(b"\nnext line\n")
        assert_nothing_of(VALUE, shown)


def test_a_stream_that_begins_and_ends_within_a_value() -> None:
    shown = fed(REDACTOR.stream(resuming=True), [VALUE[3:12], VALUE[12:20]])
    assert shown == b"[redacted:TOKEN]"
    assert fed(REDACTOR.stream(resuming=True), [VALUE[3:9], VALUE[9:13]]) == VALUE[3:13]


def test_resumed_ordinary_text_is_not_held_back() -> None:
    stream = REDACTOR.stream(resuming=True)
    assert stream.feed(b"") == b""
    assert stream.feed(b"T") == b"T"
    assert stream.feed(b"en lines\n") == b"en lines\n"
    assert stream.feed(VALUE[-9:]) == VALUE[-9:]


def test_values_that_follow_each_other_and_overlap_over_chunks() -> None:
    redactor = Redactor.of([("A", b"abcdefgh12345678"), ("B", b"12345678ijklmnopqr"), ("R", b"zzzzzzzzzz")])
    text = b"<abcdefgh12345678ijklmnopqr|" + b"z" * 64 + b"|abcdefgh12345678abcdefgh12345678>"
    for sizes in ([1], [3], [8], [5, 2], [200]):
        shown = fed(redactor.stream(), cut(text, sizes))
        assert not any(value in shown for value in (b"ijklmnop", b"zzzzzzzzz", b"12345678"))
        assert shown.startswith(b"<") and shown.endswith(b">")


def test_a_repeating_value_costs_no_memory_and_no_repetition() -> None:
    redactor = Redactor.of([("R", b"z" * 100)])
    stream = redactor.stream()
    shown = b"".join(stream.feed(b"z" * 64) for _ in range(1000))
    assert len(stream._kept) < 200 and shown.count(b"[redacted:R]") <= 1


def test_values_may_change_while_a_stream_runs() -> None:
    stream = Redactor.none().stream()
    assert stream.feed(b"one " + VALUE[:20]) == b"one " + VALUE[:20]
    stream.redactor = REDACTOR
    assert stream.feed(b" " + VALUE + b" " + VALUE[:20]) == b" [redacted:TOKEN] "
    stream.redactor = Redactor.of([("OTHER", b"quite another")])
    assert stream.feed(b" quite another") == VALUE[:20] + b" [redacted:OTHER]"
    stream.redactor = Redactor.none()
    assert stream.feed(b" end") == b" end"


@settings(deadline=None)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=30), st.data())
def test_several_values_in_any_chunking(sizes: list[int], data: st.DataObject) -> None:
    """A stream shows what redacting the whole shows, but for the few bytes before each marker that may go out first."""
    redactor = Redactor.of([("A", b"alpha-bravo-charlie"), ("B", b"charlie-delta-echo"), ("C", b"delta-ec")])
    pieces = [b"alpha-bravo-charlie", b"charlie-delta-echo", b"delta-ec", b"alpha-", b"charlie-", b" ", b"plain words"]
    text = b"".join(data.draw(st.lists(st.sampled_from(pieces), max_size=6))) + b"."
    shown = fed(redactor.stream(), cut(text, sizes))
    pattern = re.sub(
        rb"\\\[redacted:.\\\]", rb".{0,7}\\[redacted:.\\](?:.{0,7}\\[redacted:.\\])*", re.escape(redactor.data(text))
    )
    assert re.fullmatch(pattern, shown, re.DOTALL), (text, shown)
