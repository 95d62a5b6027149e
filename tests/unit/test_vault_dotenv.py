"""`.env` files: read as elsewhere, with nothing lost in silence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import InvalidInput
from kortix_tui.vault.dotenv_file import read_dotenv

FILE = b"""\xef\xbb\xbf# a comment
STRIPE_KEY=sk_live_1   # the live one

export QUOTED="two words # kept"
SINGLE='a\\nb'
ESCAPED="a\\nb"
MULTI="-----BEGIN KEY-----
line
-----END KEY-----"
  lower = x
DSN=postgres://u:p@h/db?x=1#frag
"""


def values(data: bytes) -> dict[str, bytes]:
    return {entry.name: entry.value.use("test") for entry in read_dotenv(data).entries}


def test_the_usual_forms() -> None:
    assert values(FILE) == {
        "STRIPE_KEY": b"sk_live_1",
        "QUOTED": b"two words # kept",
        "SINGLE": b"a\\nb",
        "ESCAPED": b"a\nb",
        "MULTI": b"-----BEGIN KEY-----\nline\n-----END KEY-----",
        "lower": b"x",
        "DSN": b"postgres://u:p@h/db?x=1#frag",
    }
    read = read_dotenv(FILE)
    assert [entry.line for entry in read.entries] == [2, 4, 5, 6, 7, 10, 11] and read.notes == ()


def test_windows_line_ends() -> None:
    assert values(b"A=1\r\n\r\nB=two\r\n") == {"A": b"1", "B": b"two"}


def test_what_a_person_should_know() -> None:
    read = read_dotenv(b"\nEMPTY=\nBARE\nA=first-value\nURL=https://${HOST}/x\nA=second\n")
    assert {entry.name: entry.value.use("test") for entry in read.entries} == {
        "A": b"second",
        "URL": b"https://${HOST}/x",
    }
    assert [(note.line, note.message.split(" ", 1)[1]) for note in read.notes] == [
        (2, "has no value and is left out."),
        (3, "has no value and is left out."),
        (5, "has `${…}` in it, which is kept as it stands."),
        (6, "is set again; the later value counts."),
    ]


def test_nothing_is_expanded_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOST", "from-outside")
    assert values(b"URL=${HOST}\n") == {"URL": b"${HOST}"}


def test_an_empty_file() -> None:
    assert read_dotenv(b"").entries == () and read_dotenv(b"# nothing\n\n").notes == ()


@pytest.mark.parametrize("data", [b'A=1\n\nB="never-closed-canary\n', b"A=1\n\n=canary\n", b"A=1\n\nB='x' canary\n"])
def test_a_line_that_cannot_be_read_is_named_and_not_quoted(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="Line 3 ") as caught:
        read_dotenv(data)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(("data", "words"), [(b"A=\xff\xfe\n", "UTF-8"), (b"A" * ((4 << 20) + 1), "larger")])
def test_what_is_no_such_file(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        read_dotenv(data)


@given(st.binary(max_size=200))
def test_anything_is_read_or_refused(data: bytes) -> None:
    try:
        read = read_dotenv(data)
    except InvalidInput:
        return
    assert len({entry.name for entry in read.entries}) == len(read.entries)
