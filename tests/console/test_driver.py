"""The real driver at a pseudo-terminal: odd bytes, modes, hang-ups and signals."""

from __future__ import annotations

import signal

import pytest
from pseudo_terminal import PseudoTerminal

from kortix_tui.console.driver import RESET

ENTER_ALT, LEAVE_ALT = b"\x1b[?1049h", b"\x1b[?1049l"


def is_reset(output: bytes) -> bool:
    return output.rfind(LEAVE_ALT) > output.rfind(ENTER_ALT) and RESET.encode() in output


def test_x10_mouse_reports_do_not_end_the_input() -> None:
    # https://github.com/Textualize/textual/issues/6668
    with PseudoTerminal("day") as terminal:
        terminal.until("41 passed")
        terminal.type(b"\x1b[M\x8e\xc3\xa0")
        terminal.type(b"\xff\xfe\xc3")
        terminal.quiet(0.2)
        place = terminal.quiet(0.2)
        terminal.type("3")
        terminal.until("not read yet", since=place)
        assert terminal.process.poll() is None


def test_leaving_gives_the_terminal_back() -> None:
    with PseudoTerminal("day") as terminal:
        terminal.until("41 passed")
        terminal.quiet()
        place = len(terminal.output)
        terminal.type("\x11")
        terminal.until("Leave the console", since=place)
        terminal.quiet(1.0)
        terminal.type("b")
        assert terminal.ended() == 0
        assert is_reset(terminal.output)
        assert b"left with background" in terminal.output
        assert terminal.strangers() == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_it_in_order(number: signal.Signals) -> None:
    with PseudoTerminal("day") as terminal:
        terminal.until("41 passed")
        terminal.process.send_signal(number)
        assert terminal.ended() == 0
        assert is_reset(terminal.output)
        assert b"left with background" in terminal.output


def test_a_lost_terminal_ends_it() -> None:
    with PseudoTerminal("day") as terminal:
        terminal.until("41 passed")
        terminal.hang_up()
        terminal.ended(30)


@pytest.mark.parametrize(
    ("environment", "mouse", "kitty"),
    [
        ({}, True, True),
        ({"SSH_TTY": "/dev/pts/9"}, False, True),
        ({"TERM_PROGRAM": "iTerm.app"}, True, False),
        ({"TERM_PROGRAM": "iTerm.app", "TMUX": "/tmp/x,1,0"}, True, True),
    ],
)
def test_modes_follow_the_terminal(environment: dict[str, str], mouse: bool, kitty: bool) -> None:
    with PseudoTerminal("day", **environment) as terminal:
        terminal.until("41 passed")
        assert (b"\x1b[?1003h" in terminal.output) is mouse
        assert (b"\x1b[>25u" in terminal.output) is kitty


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colour_means_none(environment: dict[str, str]) -> None:
    with PseudoTerminal("day", **environment) as terminal:
        terminal.until("41 passed")
        terminal.quiet()
        assert b"\x1b[38;" not in terminal.output
        assert b"\x1b[48;" not in terminal.output
        assert b";38;" not in terminal.output
        assert b"\x1b[7m" in terminal.output or b";7m" in terminal.output, "the cursor is seen by its attribute"


def test_the_terminal_itself_says_its_size() -> None:
    import fcntl
    import struct
    import termios

    with PseudoTerminal("day", rows=30, columns=110, COLUMNS="60", LINES="14") as terminal:
        terminal.until("41 passed")
        terminal.quiet()
        assert b"\x1b[30;1H" in terminal.output, "the lowest line was painted"
        place = len(terminal.output)
        fcntl.ioctl(terminal._master, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        terminal.process.send_signal(signal.SIGWINCH)
        terminal.until("\x1b[40;1H", since=place)


def test_a_storm_of_sizes_is_survived() -> None:
    import fcntl
    import struct
    import termios

    with PseudoTerminal("day") as terminal:
        terminal.until("41 passed")
        for step in range(60):
            size = struct.pack("HHHH", 1 + step % 50, 1 + (step * 7) % 200, 0, 0)
            fcntl.ioctl(terminal._master, termios.TIOCSWINSZ, size)
            terminal.process.send_signal(signal.SIGWINCH)
            terminal.read(0.01)
        fcntl.ioctl(terminal._master, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        terminal.process.send_signal(signal.SIGWINCH)
        place = terminal.quiet()
        terminal.type("3")
        terminal.until("not read yet", since=place)
