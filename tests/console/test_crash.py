"""A console that fails says where, and nothing of what it held (invariant I2).

Textual's own screen for it has a panel with the values of variables:
https://github.com/Textualize/textual/issues/6155 shows one.
"""

from __future__ import annotations

import base64
import html
import json
import logging
import urllib.parse
from pathlib import Path

import pytest
from pseudo_terminal import PROGRAM, PseudoTerminal

from kortix_tui.base.crash import PlaceFormatter, describe
from kortix_tui.console.driver import RESET
from kortix_tui.console.terminal import Terminal

CRASHING = PROGRAM.with_name("crashing_console.py")
VALUE = 'c4nary!/Kx7=<Zq9>&"Wé'


def spellings(value: str) -> dict[str, bytes]:
    """The value in nine encodings, written without the vault's own list of them."""
    raw = value.encode()
    found = {
        "raw": raw,
        "percent": urllib.parse.quote(value, safe="").encode(),
        "json": json.dumps(value)[1:-1].encode(),
        "html": html.escape(value).encode(),
        "repr": ascii(value)[1:-1].encode(),
        "hex": raw.hex().encode(),
        "HEX": raw.hex().upper().encode(),
        "base64": base64.b64encode(raw)[:-4],
        "base64url": base64.urlsafe_b64encode(raw)[:-4],
    }
    assert len(found) == 9
    return found


def assert_nowhere(value: str, output: bytes, folder: Path) -> None:
    texts = {"the terminal": output} | {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    for where, text in texts.items():
        for name, spelling in spellings(value).items():
            assert spelling not in text, f"{name} in {where}"
        # No piece of it either: a screen of variables cuts long values.
        assert not [at for at in range(len(value) - 7) if value[at : at + 8].encode() in text], where


def open_rotate(terminal: PseudoTerminal) -> int:
    """To the form for a new value, and past the moment in which it takes no key."""
    terminal.until("Add a currency")
    terminal.type("4")
    place = terminal.until("DATABASE_URL")
    terminal.type("r")
    place = terminal.until("never shown", since=place)
    return terminal.quiet(0.8)


@pytest.mark.parametrize("where", ["submit", "paste", "input"])
def test_a_crash_shows_no_value(short_folder: Path, where: str) -> None:
    log = short_folder / "console.log"
    environment = {"TEXTUAL_LOG": str(short_folder / "textual.log"), "TEXTUAL_DEBUG": "1", "TEXTUAL": "debug"}
    with PseudoTerminal(where, str(log), program=CRASHING, **environment) as terminal:
        place = open_rotate(terminal)
        terminal.type(f"\x1b[200~{VALUE}\x1b[201~")
        if where == "submit":
            terminal.until("••••", since=place)
            terminal.type("\r")
        assert terminal.ended() == 1
        after = terminal.output[terminal.output.rindex(RESET.encode()) :]
    assert_nowhere(VALUE, terminal.output, short_folder)
    assert b"the console failed unexpectedly" in after, "told after the terminal was put back"
    assert b"Broken" in after
    assert b"crashing_console.py:" in after
    assert b"cannot use" not in after, "a message may quote a value"
    assert b"crashing_console.py:" in log.read_bytes()
    assert not (short_folder / "textual.log").exists()


def test_an_act_that_fails_shows_no_value(short_folder: Path) -> None:
    log = short_folder / "console.log"
    with PseudoTerminal("worker", str(log), program=CRASHING) as terminal:
        place = open_rotate(terminal)
        terminal.type(f"\x1b[200~{VALUE}\x1b[201~")
        terminal.until("••••", since=place)
        terminal.type("\r")
        terminal.until("Something went wrong", since=place)
        assert terminal.process.poll() is None, "the console goes on"
    assert_nowhere(VALUE, terminal.output, short_folder)
    assert b"Broken" in log.read_bytes()


def test_every_cause_is_named_once() -> None:
    def inner(value: str) -> None:
        raise KeyError(value)

    try:
        try:
            inner("a value")
        except KeyError as error:
            raise ExceptionGroup("a value", [ValueError("a value"), error]) from error
    except ExceptionGroup as error:
        text = describe(error)
    assert "a value" not in text
    assert [line for line in text.splitlines() if not line.startswith("  ")] == [
        "KeyError", "then:", "ExceptionGroup", "one of several:", "ValueError", "one of several:",
    ]  # fmt: skip
    assert "in inner" in text


def test_a_log_has_places_and_no_messages() -> None:
    try:
        raise ValueError("a value")
    except ValueError as error:
        info = (type(error), error, error.__traceback__)
        record = logging.LogRecord("kortix", logging.ERROR, __file__, 1, "it failed", (), info)
    text = PlaceFormatter("%(message)s").format(record)
    assert text.startswith("it failed\nValueError\n  ")
    assert "a value" not in text


def test_switches_that_log_keys_are_taken_away() -> None:
    environ = {"TEXTUAL": "devtools", "TEXTUAL_LOG": "/tmp/log", "TEXTUAL_DEBUG": "1", "TEXTUAL_FPS": "30"}
    Terminal.detect(environ).prepare(environ)
    assert environ == {"TEXTUAL_ANIMATIONS": "none", "TEXTUAL_FPS": "30"}
