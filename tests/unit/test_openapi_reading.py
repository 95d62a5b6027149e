"""Bytes of documents."""

from __future__ import annotations

import json

import pytest

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.openapi.reading import read_document


def test_json_and_yaml_say_the_same() -> None:
    text = '{"a": [1, -2.5, null, true, "x"], "b": {"c": ""}}'
    assert read_document(text.encode()) == read_document(b"---\n" + text.encode()) == json.loads(text)
    assert read_document(b"\xef\xbb\xbf" + text.encode()) == json.loads(text)


def test_yaml_scalars_are_read_as_authors_mean_them() -> None:
    document = read_document(
        b"on: no\n200: ok\nwhen: 2015-07-20\nat: 12:30\nversion: '1'\nn: ~\nx: 0x1F\nf: 1.50\nt: True\ns: !!str 7\n"
    )
    assert document == {
        "on": "no",
        "200": "ok",
        "when": "2015-07-20",
        "at": "12:30",
        "version": "1",
        "n": None,
        "x": "0x1F",
        "f": 1.5,
        "t": True,
        "s": "7",
    }


def test_aliases_and_merges() -> None:
    document = read_document(b"a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: [*a]\nd: {<<: [*a, {x: 9, z: 4}]}\n")
    assert document["b"] == {"x": 1, "y": 3}
    assert document["c"] == [{"x": 1, "y": 2}]
    assert document["d"] == {"x": 1, "y": 2, "z": 4}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no object"),
        (b"[1]", "no object"),
        (b"- a\n", "no object"),
        (b"{", "not JSON.*line 1"),
        (b"a: [", "not YAML.*line"),
        (b"a: \x07", "control character"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"a": 1, "b": 2, "a": 3}', "`a` stands twice"),
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", "`c` stands twice.*line 4"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": 1e999}', "not finite"),
        (b'{"a": ' + b"9" * 5000 + b"}", "40 digits"),
        (b"a: 1\n---\nb: 2\n", "more than one document"),
        (b"a: !!python/object:os.system x\n", "tag in line 1"),
        (b"? [a]\n: 1\n", "no plain text"),
        (b"a: &a [*a]\n", "before or inside itself"),
        (b"a: {<<: 7}\n", "merges"),
    ],
)
def test_what_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_document(data)


@pytest.mark.parametrize("deep", [100, 100_000])
def test_depth(deep: int) -> None:
    for data in (b'{"a":' * deep + b"1" + b"}" * deep, b"x: " + b"[" * deep + b"]" * deep):
        with pytest.raises(InvalidInput, match=r"64 levels|nesting depth"):
            read_document(data)


def test_size() -> None:
    with pytest.raises(InvalidInput, match="16 MiB"):
        read_document(b'{"a": "' + b"x" * (16 << 20) + b'"}')
    with pytest.raises(InvalidInput, match="1000000 values"):
        read_document(b'{"a": [' + b"1," * 1_000_000 + b"1]}")


def test_a_bomb_of_aliases_ends_at_the_limit() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 30)]
    with pytest.raises(InvalidInput, match="1000000 values"):
        read_document("\n".join(lines).encode())
