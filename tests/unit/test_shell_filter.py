"""The allow-list between a sandbox's shell and the operator's terminal (I10)."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.runtime.terminal_filter import MAX_SEQUENCE, MAX_STRING, DetachKey, TerminalFilter


def filtered(data: bytes) -> bytes:
    return TerminalFilter().feed(data)


@pytest.mark.parametrize(
    "data",
    [
        b"plain text\r\n",
        b"a\tb\x08c\x07",
        "ünïcode 漢字 é 👩‍💻 ☺️".encode(),
        b"\x1b[m\x1b[0m\x1b[1;31mred\x1b[38;5;208m\x1b[48;2;1;2;3m\x1b[4:3m\x1b[38:2::1:2:3m",
        b"\x1b[A\x1b[2B\x1b[10C\x1b[D\x1b[5;10H\x1b[2;3f\x1b[7G\x1b[4d\x1b[E\x1b[F\x1b[I\x1b[Z",
        b"\x1b7\x1b8\x1b[s\x1b[u\x1bD\x1bE\x1bM",
        b"\x1b[J\x1b[0J\x1b[1J\x1b[2J\x1b[K\x1b[1K\x1b[2K\x1b[4X",
        b"\x1b[2;20r\x1b[r\x1b[3S\x1b[T",
        b"\x1b[L\x1b[2M\x1b[3@\x1b[4P\x1b[10b",
        b"\x1b[?1049h\x1b[?1049l\x1b[?47h\x1b[?47l\x1b[?1047h\x1b[?1047l\x1b[?1048h",
        b"\x1b[?25l\x1b[?25h\x1b[?2004h\x1b[?2004l\x1b[?1h\x1b[?1l",
        b"\x1b[?1000h\x1b[?1002h\x1b[?1003h\x1b[?1005h\x1b[?1006h\x1b[?1015h\x1b[?9h\x1b[?1000;1006l",
        b"\x1b[c\x1b[0c\x1b[>c\x1b[>0c\x1b[6n",
    ],
)
def test_what_the_list_names_passes_unchanged(data: bytes) -> None:
    assert filtered(data) == data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\x1b]0;title\x07", id="title"),
        pytest.param(b"\x1b]52;c;aGVsbG8=\x1b\\", id="clipboard"),
        pytest.param(b"\x1b]8;;http://evil\x1b\\", id="link"),
        pytest.param(b"\x1b]11;?\x07", id="colour query"),
        pytest.param(b"\x1bPq#0;2;0;0;0~-~\n~\x1b\\", id="sixel"),
        pytest.param(b"\x1bP+q544e\x1b\\", id="terminfo query"),
        pytest.param(b"\x1b_Gf=100;AAAA\x1b\\", id="kitty graphics"),
        pytest.param(b"\x1b^private\x1b\\", id="privacy message"),
        pytest.param(b"\x1bXstart of string\x1b\\", id="SOS"),
        pytest.param(b"\x1b[5n", id="status report"),
        pytest.param(b"\x1b[?6n", id="extended position"),
        pytest.param(b"\x1b[=c", id="DA3"),
        pytest.param(b"\x1b[>q", id="version query"),
        pytest.param(b"\x1b[21t", id="title query"),
        pytest.param(b"\x1b[8;10;10t", id="resize"),
        pytest.param(b"\x1b[?2026$p", id="mode query"),
        pytest.param(b"\x1b[?u", id="keyboard query"),
        pytest.param(b"\x1b[>4;2m", id="modify other keys"),
        pytest.param(b"\x1b[>1u", id="kitty keys"),
        pytest.param(b"\x1b[i", id="print screen"),
        pytest.param(b"\x1b[5i", id="printer on"),
        pytest.param(b"\x1b[3J", id="wipe scrollback"),
        pytest.param(b"\x1b[?1;3J", id="wipe by two parameters"),
        pytest.param(b"\x1b[!p", id="soft reset"),
        pytest.param(b"\x1bc", id="full reset"),
        pytest.param(b"\x1bH", id="set tab stop"),
        pytest.param(b"\x1b[3g", id="clear tab stops"),
        pytest.param(b"\x1b[4h", id="insert mode"),
        pytest.param(b"\x1b[?7l", id="no wrapping"),
        pytest.param(b"\x1b[?1004h", id="focus reports"),
        pytest.param(b"\x1b[?5h", id="reverse screen"),
        pytest.param(b"\x1b[?1001h", id="highlight tracking"),
        pytest.param(b"\x1b[1;2;3;4;5T", id="start of highlight tracking"),
        pytest.param(b"\x1b[1;10s", id="left and right margins"),
        pytest.param(b"\x1b[ q", id="cursor style"),
        pytest.param(b"\x1b[99999999999b", id="endless repeat"),
        pytest.param(b"\x1b#8", id="alignment screen"),
        pytest.param(b"\x1b%G", id="character set switch"),
        pytest.param(b"\x1bZ", id="old identify"),
        pytest.param(b"\x1bn\x1bo\x1b~", id="locking shifts"),
        pytest.param(b"\x0e\x0f\x05\x00\x7f\x0b\x0c", id="C0"),
        pytest.param("\u009b31m\u009d0;x\u0007"[:1].encode(), id="C1 as UTF-8"),
        pytest.param("\u202e\u2066\u200e\u061c\U000e0041".encode(), id="bidirectional and tags"),
    ],
)
def test_everything_else_is_dropped_whole(data: bytes) -> None:
    assert filtered(b"<" + data + b">") == b"<>"


def test_8_bit_controls_are_no_controls() -> None:
    assert filtered(b"\x9b31m\x9d52;c;x\x07\x90q\x9c") == "�31m�52;c;x\x07�q�".encode()


def test_a_mode_list_keeps_its_allowed_part() -> None:
    assert filtered(b"\x1b[?7;25;1004;2004h") == b"\x1b[?25;2004h"


def test_a_cut_sequence_waits_and_never_leaves_in_part() -> None:
    screen = TerminalFilter()
    assert screen.feed(b"a\x1b") == b"a"
    assert screen.feed(b"[3") == b""
    assert screen.feed(b"1") == b""
    assert screen.feed(b"mred") == b"\x1b[31mred"


def test_cancel_ends_a_sequence_and_a_string() -> None:
    assert filtered(b"\x1b[3\x18mA\x1b]0;t\x1aB") == b"mAB"


def test_a_new_escape_ends_a_string() -> None:
    assert filtered(b"\x1b]0;title\x1b[31mred") == b"\x1b[31mred"


def test_controls_inside_a_sequence_act_as_terminals_do() -> None:
    assert filtered(b"\x1b[3\r\n1mx") == b"\r\n\x1b[31mx"


def test_a_sequence_without_end_is_swallowed_without_growing() -> None:
    screen = TerminalFilter()
    assert screen.feed(b"\x1b[" + b"1;" * MAX_SEQUENCE * 10) == b""
    assert screen.feed(b"Hok") == b"ok"


def test_a_string_that_is_never_closed_does_not_hang_the_shell() -> None:
    screen = TerminalFilter()
    assert screen.feed(b"\x1b]0;" + b"x" * (MAX_STRING // 2)) == b""
    screen.feed(b"x" * MAX_STRING)
    assert screen.feed(b"$ ls\r\n") == b"$ ls\r\n"


def test_lines_of_the_second_alphabet_come_as_unicode() -> None:
    assert filtered(b"\x1b(0lqqk\x1b(Bq\x1b)0") == "┌──┐q".encode()


def test_a_terminal_without_utf8_gets_ascii_only() -> None:
    # U+00DB is C3 9B: the second byte is a control of an 8-bit terminal.
    assert TerminalFilter(utf8=False).feed("aÛb".encode()) == b"a?b"


def test_reset_undoes_what_is_left_and_only_that() -> None:
    screen = TerminalFilter()
    screen.feed(b"\x1b[?1049h\x1b[?25l\x1b[?1000;1006h\x1b[?2004h\x1b[2;5r")
    assert screen.reset() == b"\x1b[?1000l\x1b[?1006l\x1b[?1049l\x1b[?2004l\x1b[?25h\x1b7\x1b[r\x1b8\x1b[0m"
    assert screen.reset() == b""


def test_reset_after_a_tidy_program_only_ends_colours() -> None:
    screen = TerminalFilter()
    screen.feed(b"\x1b[?1049h\x1b[?25l\x1b[?25h\x1b[?1049l")
    assert screen.reset() == b"\x1b[0m"


ALPHABET = st.sampled_from(
    [b"\x1b", b"[", b"]", b"P", b"_", b"\\", b"\x07", b"?", b">", b";", b":", b"0", b"1", b"25", b"1049", b"6", b"h",
     b"l", b"m", b"n", b"c", b"H", b"J", b"q", b"$", b" ", b"(", b"\x18", b"\x9b", b"\xc2", b"\x9d", b"x", b"\n",
     "漢".encode(), "\u202e".encode()]
)  # fmt: skip
STREAMS = st.one_of(st.binary(max_size=400), st.lists(ALPHABET, max_size=120).map(b"".join))

ALLOWED = re.compile(
    "(?:[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\r\n\t\b\a]|\x1b[78DEM]"
    r"|\x1b\[[0-9;:]*m|\x1b\[[0-9;]*[ABCDEFGHIJKLMPSTXZ`abdefru@s]|\x1b\[\?[0-9;]+[hl]"
    r"|\x1b\[6n|\x1b\[>?0?c)*\Z"
)


@settings(max_examples=400, deadline=None)
@given(STREAMS, st.data())
def test_any_stream_in_any_chunking_gives_the_same_safe_output(stream: bytes, data: st.DataObject) -> None:
    whole = filtered(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    screen = TerminalFilter()
    parts = [screen.feed(stream[start:end]) for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert b"".join(parts) == whole
    assert ALLOWED.match(whole.decode())


def test_detach_is_the_prefix_and_q_also_across_reads() -> None:
    keys = DetachKey()
    assert keys.feed(b"ls\r\x1d") == (b"ls\r", False)
    assert keys.feed(b"q rest") == (b"", True)


def test_the_prefix_twice_types_it_once_and_others_keep_it() -> None:
    keys = DetachKey()
    assert keys.feed(b"\x1d\x1da\x1db") == (b"\x1da\x1db", False)
