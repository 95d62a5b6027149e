"""Prose on a terminal: broken between words, with commands that can be copied as they stand."""

from __future__ import annotations

import io

import pytest

from kortix_tui.cli import output


class Terminal(io.StringIO):
    """Text that is a terminal's; its width is what a terminal without one is taken for."""

    def isatty(self) -> bool:
        return True


def lines(text: str, *, indent: int = 0) -> list[str]:
    return output.wrapped(text, indent=indent, stream=Terminal()).split("\n")


def test_prose_is_broken_between_words() -> None:
    text = "word " * 40
    assert all(len(line) <= 80 and line.split() == ["word"] * len(line.split()) for line in lines(text))
    assert lines("word " * 20, indent=4)[1].startswith("    word")
    assert output.wrapped(text, indent=0, stream=io.StringIO()) == text, "a pipe gets it as it is"


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("No agent has it, as no grant names it (kortix secrets grant AN_IDENTIFIER --agent NAME --project shop).",
         "kortix secrets grant AN_IDENTIFIER --agent NAME --project shop"),
        ("Tighter, kept on the host where it is: kortix secrets expose AN_IDENTIFIER connector --project shop",
         "kortix secrets expose AN_IDENTIFIER connector --project shop"),
        ("Process 17 (serve) has the vault of this home open, and it stays so until: kortix vault lock, or 60 minutes",
         "kortix vault lock"),
        ("It is longer than a line: say so, and then run `kortix secrets ls --project shop --filter SOMETHING`",
         "`kortix secrets ls --project shop --filter SOMETHING`"),
    ],
)  # fmt: skip
def test_no_line_ends_in_a_command(text: str, command: str) -> None:
    shown = lines(text, indent=2)
    assert len(shown) == 2
    assert any(command in line for line in shown)
    assert " ".join(map(str.strip, shown)) == text


def test_lines_and_empty_lines_stay() -> None:
    assert lines("one\n\ntwo") == ["one", "", "two"]


def test_a_command_that_is_longer_than_the_terminal_is_whole() -> None:
    command = "kortix vault unlock " + "--keyfile x" * 12
    assert lines(f"Open it: {command}") == ["Open it:", command]
