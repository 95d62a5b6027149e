"""Redaction of whole texts: every spelling of a value is found, and nothing else is touched."""

from __future__ import annotations

import base64
import html
import json
import random
import re
import shlex
import string
import subprocess
import urllib.parse
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.base.text import without_sgr
from kortix_tui.vault.needles import needles
from kortix_tui.vault.redaction import Hit, Redactor
from kortix_tui.vault.secret import Secret

NASTY = "p&ss<w>ö\"rd' $x/y+z=\\n\t`€"
TOKEN = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
KEY = "-----BEGIN TEST KEY-----\nMIIBVgIBADANBgkqhkiG9w0B\nAQEFAASCAUAwggE8+/a=\n-----END TEST KEY-----\n"

SPELLINGS: dict[str, Callable[[str], str]] = {
    "raw": lambda v: v,
    "quote": lambda v: urllib.parse.quote(v),
    "quote all": lambda v: urllib.parse.quote(v, safe=""),
    "quote plus": urllib.parse.quote_plus,
    "quote lower": lambda v: re.sub("%..", lambda found: found[0].lower(), urllib.parse.quote(v)),
    "json": json.dumps,
    "json utf-8": lambda v: json.dumps(v, ensure_ascii=False),
    "json twice": lambda v: json.dumps(json.dumps({"v": v})),
    "json utf-8 twice": lambda v: json.dumps(json.dumps({"v": v}, ensure_ascii=False), ensure_ascii=False),
    "html": html.escape,
    "html text": lambda v: html.escape(v, quote=False),
    "repr": repr,
    "repr of bytes": lambda v: repr(v.encode()),
    "shell": shlex.quote,
    "hex": lambda v: v.encode().hex(),
    "hex upper": lambda v: v.encode().hex().upper(),
    "base64": lambda v: base64.b64encode(v.encode()).decode(),
    "basic": lambda v: "Basic " + base64.b64encode(f"user:{v}".encode()).decode(),
    "bearer pair": lambda v: base64.b64encode(f"x:{v}:y".encode()).decode(),
    "base64 third": lambda v: base64.b64encode(f"no {v} z".encode()).decode(),
    "base64 url": lambda v: base64.urlsafe_b64encode(f"a{v}b".encode()).decode(),
    "base64 wrapped": lambda v: base64.encodebytes(v.encode()).decode(),
    "crlf": lambda v: v.replace("\n", "\r\n"),
    "utf-16": lambda v: v.encode("utf-16-le").decode("latin-1"),
}  # fmt: skip


def windows(text: bytes, size: int = 12) -> set[bytes]:
    return {text[at : at + size] for at in range(len(text) - size + 1)}


@pytest.mark.parametrize("value", [TOKEN, NASTY, KEY], ids=["token", "nasty", "key"])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_each_spelling_is_replaced(value: str, spelling: str) -> None:
    spelled = SPELLINGS[spelling](value.strip() if spelling in ("base64 wrapped",) else value)
    text = f"before {spelled} after".encode("latin-1" if spelling == "utf-16" else "utf-8")
    shown = Redactor.of([("THE-NAME", Secret(value.encode()))]).data(text)
    assert b"[redacted:THE-NAME]" in shown
    assert shown.startswith(b"before ") and shown.endswith(b" after")
    left = shown.replace(b"[redacted:THE-NAME]", b"\0").removeprefix(b"before ").removesuffix(b" after")
    inside = needles(value.encode())
    assert not any(window in needle for window in windows(left) for needle in inside)


def test_what_a_shell_prints_when_it_traces() -> None:
    script = f'v={shlex.quote(NASTY)}; set -x; : "$v"; printf \'%q\\n\' "$v"; declare -p v'
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    printed = done.stdout + done.stderr
    shown = Redactor.of([("N", NASTY.encode())]).data(printed)
    assert shown.count(b"[redacted:N]") >= 1 and NASTY.encode() not in shown


@pytest.mark.parametrize("lines", ["\n", "\r\n", "\n    "])
def test_lines_of_a_value_are_found_one_by_one(lines: str) -> None:
    redactor = Redactor.of([("K", KEY.encode())])
    shown = redactor.text("key: |\n    " + lines.join(KEY.split("\n")))
    assert "MIIBVgIBADAN" not in shown and "AQEFAASCAUAw" not in shown


def test_the_frame_of_a_key_is_everybodys() -> None:
    text = "-----BEGIN TEST KEY-----\nsomebody else's\n-----END TEST KEY-----"
    assert Redactor.of([("K", KEY.encode())]).text(text) == text


@pytest.mark.parametrize("value", [b"", b"1", b"1234567"])
def test_short_values_are_not_replaced(value: bytes) -> None:
    redactor = Redactor.of([("S", value)])
    assert not redactor and redactor.data(b"a 1234567 b") == b"a 1234567 b"


def test_white_space_around_a_value_does_not_hide_it() -> None:
    assert Redactor.of([("N", b"  hunter22hunter22\n")]).text("x=hunter22hunter22;") == "x=[redacted:N];"


def test_overlapping_and_nested_values() -> None:
    redactor = Redactor.of([("A", b"abcdefgh12345678"), ("B", b"12345678ijklmnopqr"), ("C", b"ijklmnop")])
    assert redactor.text("<abcdefgh12345678ijklmnopqr>") == "<[redacted:B]>"
    assert redactor.text("<abcdefgh12345678>") == "<[redacted:A]>"
    assert redactor.text("<ijklmnop>") == "<[redacted:C]>"
    assert redactor.hits(b"ijklmnop-ijklmnop") == [Hit("C", 0, 8), Hit("C", 9, 17)]


def test_the_marker_never_shows_a_value() -> None:
    """An identifier may hold a value, another's or its own; and a value may look like a marker."""
    cases = [
        [("hunter22hunter22", b"hunter22hunter22")],
        [("a-sesame-open-b", b"correct horse"), ("B", b"sesame-open")],
        [("R", b"redacted"), ("S", b"[redacted:S]"), ("T", b"secret[***]secret")],
        [("R", b"]password"), ("S", b"password["), ("T", b"hunter22"), ("U", b">password"), ("V", b"password<")],
    ]
    for values in cases:
        redactor = Redactor.of(values)
        text = b" ".join(value for _, value in values) + b"password".join(value for _, value in values)
        shown = redactor.data(text)
        assert not any(value in shown for _, value in values), shown
        assert redactor.data(shown) == shown


def test_a_value_that_repeats_itself_in_much_text() -> None:
    redactor = Redactor.of([("R", b"a" * 40)])
    assert redactor.data(b"<" + b"a" * (600 << 10) + b">") == b"<[redacted:R]>"


def test_values_far_apart_and_at_the_edges_of_what_is_searched_at_once() -> None:
    redactor = Redactor.of([("T", TOKEN.encode())])
    for at in range((256 << 10) - 41, (256 << 10) + 2):
        text = b"." * at + TOKEN.encode() + b"." * 100
        assert redactor.data(text) == b"." * at + b"[redacted:T]" + b"." * 100


def test_nothing_shows_a_value_by_accident() -> None:
    assert TOKEN not in repr(Redactor.of([("T", TOKEN.encode())]))


values = st.lists(
    st.one_of(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=8, max_size=60),
        st.text("ab[]<>*", min_size=8, max_size=14),
        st.text(string.ascii_letters + string.digits + "+/=-_", min_size=8, max_size=60),
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(values, st.sampled_from(sorted(SPELLINGS)), st.text(max_size=30), st.text(max_size=30))
def test_no_spelling_of_any_value_passes(found: list[str], spelling: str, before: str, after: str) -> None:
    secrets = [(f"N{number}", value.encode()) for number, value in enumerate(found)]
    redactor = Redactor.of(secrets)
    text = "".join(f"{before}{SPELLINGS[spelling](value)}{after}" for value in found).encode("utf-8", "replace")
    shown = redactor.data(text)
    for _, value in secrets:
        if len(value.strip()) >= 8:
            assert value.strip() not in shown
    assert redactor.hits(shown) == []
    assert redactor.data(shown) == shown


@settings(deadline=None)
@given(values, st.binary(max_size=300))
def test_clean_bytes_stay_as_they_are(found: list[str], data: bytes) -> None:
    redactor = Redactor.of([("N", value.encode()) for value in found])
    if not any(needle in data for value in found for needle in needles(value.encode())):
        assert redactor.data(data) is data


@settings(deadline=None)
@given(values, st.text())
def test_text_stays_text(found: list[str], text: str) -> None:
    redactor = Redactor.of([("N", value.encode()) for value in found])
    both = redactor.text(text + "\ud800" + text)
    assert both.encode("utf-8", "surrogatepass") == redactor.data(
        (text + "\ud800" + text).encode("utf-8", "surrogatepass")
    )


def test_a_value_that_is_painted_part_by_part() -> None:
    """`env | grep --color=always ghp`, and a highlighter that takes a value for several words."""
    redactor = Redactor.of([("T", TOKEN.encode()), ("U", b"abc-def+ghi")])
    found = redactor.text(f"KEY=\x1b[01;31mghp\x1b[m{TOKEN[3:]} \x1b[1mX\x1b[0m")
    assert found == "KEY=\x1b[01;31m[redacted:T]\x1b[m \x1b[1mX\x1b[0m"
    words = redactor.text("\x1b[3mé\x1b[m \x1b[31mabc\x1b[0m-\x1b[32mdef\x1b[0m+\x1b[33mghi\x1b[0m.")
    assert words == "\x1b[3mé\x1b[m \x1b[31m[redacted:U]\x1b[0m\x1b[32m\x1b[0m\x1b[33m\x1b[0m."
    assert redactor.text(words) == words


@settings(deadline=None)
@given(st.text(), st.lists(st.sampled_from([TOKEN, "x", "\x1b[31m", "\x1b[0m", TOKEN[:20], TOKEN[20:]]), max_size=12))
def test_colours_neither_hide_nor_change_anything_else(before: str, pieces: list[str]) -> None:
    redactor = Redactor.of([("T", TOKEN.encode())])
    text = before + "".join(pieces)
    shown = redactor.text(text)
    assert without_sgr(shown) == redactor.text(without_sgr(text))
    assert re.findall("\x1b\\[[0-9;]*m", shown) == re.findall("\x1b\\[[0-9;]*m", text)


def test_thousands_of_values_are_ready_soon_and_each_is_found() -> None:
    rng = random.Random(1)
    found = [(f"N{n}", "".join(rng.choices(string.ascii_letters, k=40)).encode()) for n in range(2000)]
    redactor = Redactor.of(found)
    text = b" ".join(value for _, value in found)
    assert redactor.data(text) == b" ".join(f"[redacted:{label}]".encode() for label, _ in found)
