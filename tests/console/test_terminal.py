"""What the console adapts to, how it reads keys, and where it copies to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kortix_tui.console.clipboard import OSC52_LIMIT, Clipboard
from kortix_tui.console.driver import InputDecoder
from kortix_tui.console.terminal import LOCAL_FRAMES, REMOTE_FRAMES, Terminal


@pytest.mark.parametrize(
    ("environ", "mouse", "frames"),
    [({}, True, LOCAL_FRAMES), ({"SSH_TTY": "/dev/pts/1"}, False, REMOTE_FRAMES)],
)
def test_ssh_turns_the_mouse_off_and_slows_the_ticker(environ: dict[str, str], mouse: bool, frames: float) -> None:
    terminal = Terminal.detect(environ)
    assert (terminal.mouse, terminal.frames_per_second) == (mouse, frames)
    assert Terminal.detect(environ, "on").mouse
    assert not Terminal.detect(environ, "off").mouse


@pytest.mark.parametrize(
    ("environ", "colourless"),
    [({}, False), ({"NO_COLOR": ""}, False), ({"NO_COLOR": "1"}, True), ({"TERM": "dumb"}, True)],
)
def test_no_colour(environ: dict[str, str], colourless: bool) -> None:
    assert Terminal.detect(environ).colourless is colourless


@pytest.mark.parametrize(
    ("environ", "off"),
    [
        ({"TERM_PROGRAM": "iTerm.app"}, True),
        ({"LC_TERMINAL": "iTerm2"}, True),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "x"}, False),
        ({"TERM_PROGRAM": "ghostty"}, False),
    ],
)
def test_kitty_keys_stay_off_in_iterm(environ: dict[str, str], off: bool) -> None:
    Terminal.detect(environ).prepare(environ)
    assert ("TEXTUAL_DISABLE_KITTY_KEY" in environ) is off


def test_the_operators_own_switches_win() -> None:
    environ = {"TEXTUAL_ANIMATIONS": "full", "SSH_TTY": "x", "TEXTUAL_SMOOTH_SCROLL": "1"}
    Terminal.detect(environ).prepare(environ)
    assert (environ["TEXTUAL_ANIMATIONS"], environ["TEXTUAL_SMOOTH_SCROLL"]) == ("full", "1")


@pytest.mark.parametrize("cut", range(1, 9))
def test_x10_mouse_reports_are_harmless_however_they_are_cut(cut: int) -> None:
    data = "é".encode() + b"\x1b[M\x8e\xc3\xff" + "ü".encode() + b"q"
    decoder = InputDecoder()
    text = decoder.feed(data[:cut]) + decoder.feed(data[cut:], final=True)
    assert text == "é\x1b[M   üq"


def test_invalid_bytes_become_marks_and_never_raise() -> None:
    decoder = InputDecoder()
    assert decoder.feed(b"a\xff\xfeb") == "a��b"
    assert decoder.feed(b"\x1b") == "\x1b", "a lone escape is not held back"
    assert decoder.feed(b"[A\xe6\x97") == "[A"
    assert decoder.feed(b"\xa5") == "日"


async def test_copying_prefers_what_works(tmp_path: Path) -> None:
    written: list[str] = []

    def tool(name: str, code: int) -> None:
        path = tmp_path / name
        path.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/{name}.args\ncat > {tmp_path}/{name}.out\nexit {code}\n')
        path.chmod(0o755)

    tool("wl-copy", 0)
    tool("tmux", 0)
    path = f"{tmp_path}:{os.environ['PATH']}"
    board = Clipboard(written.append, environ={"PATH": path, "WAYLAND_DISPLAY": "w", "TMUX": "t"}, folder=tmp_path)
    assert "wl-copy" in (await board.copy("näh")).way
    assert (tmp_path / "wl-copy.out").read_text() == "näh"

    remote = {"PATH": path, "WAYLAND_DISPLAY": "w", "TMUX": "t", "SSH_TTY": "x"}
    assert "tmux" in (await Clipboard(written.append, environ=remote).copy("b")).way
    assert (tmp_path / "tmux.args").read_text() == "load-buffer -w -\n"

    plain = {"PATH": path, "SSH_TTY": "x"}
    assert "OSC 52" in (await Clipboard(written.append, environ=plain).copy("c")).way
    assert written == ["\x1b]52;c;Yw==\x07"]

    long = await Clipboard(written.append, environ=plain, folder=tmp_path).copy("x" * OSC52_LIMIT)
    saved = Path(long.way.removeprefix("saved to "))
    assert saved.read_text() == "x" * OSC52_LIMIT
    assert saved.stat().st_mode & 0o777 == 0o600

    tool("tmux", 1)
    assert "saved to" in (await Clipboard(written.append, environ=remote, folder=tmp_path).copy("d")).way
