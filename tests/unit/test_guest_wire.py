"""Frames survive any way of arriving, and impossible ones are refused before memory is taken for them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.guest import wire

FRAMES = st.lists(
    st.tuples(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=3), st.binary(max_size=300)),
    max_size=8,
)


@given(FRAMES, st.lists(st.integers(1, 50), min_size=1, max_size=30))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    frames: list[tuple[dict[str, str], bytes]], cuts: list[int]
) -> None:
    stream = b"".join(wire.encode({**header, "type": "x"}, body) for header, body in frames)
    decoder, found, start, turn = wire.Decoder(), [], 0, 0
    while start < len(stream):
        size = cuts[turn % len(cuts)]
        found += [(wire.parse_header(header), body) for header, body in decoder.feed(stream[start : start + size])]
        start, turn = start + size, turn + 1
    assert found == [({**header, "type": "x"}, body) for header, body in frames]


@pytest.mark.parametrize(
    "lengths",
    [(wire.MAX_FRAME + 1, 0), (0xFFFFFFFF, 0), (3, 0), (0, 0), (10, 7), (10, 0xFFFFFFFF)],
)
def test_impossible_lengths_are_refused_at_once(lengths: tuple[int, int]) -> None:
    with pytest.raises(wire.FrameError):
        list(wire.Decoder().feed(struct.pack(">II", *lengths)))


def test_the_largest_frame_fits_and_one_byte_more_does_not() -> None:
    header = b'{"type":"x"}'
    room = wire.MAX_FRAME - 4 - len(header)
    assert [len(body) for _, body in wire.Decoder().feed(wire.pack(header, b"b" * room))] == [room]
    with pytest.raises(wire.FrameError):
        wire.pack(header, b"b" * (room + 1))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"1", b'{"type":1}', b"{}", b"\xff", b"[" * 100_000])
def test_a_header_is_a_json_object_with_a_type(raw: bytes) -> None:
    with pytest.raises(wire.FrameError):
        wire.parse_header(raw)


def test_lone_surrogates_travel() -> None:
    ((header, _),) = wire.Decoder().feed(wire.encode({"type": "x", "name": "a\udcff"}))
    assert wire.parse_header(header)["name"] == "a\udcff"
