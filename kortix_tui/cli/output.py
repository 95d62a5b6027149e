"""What is printed: results on standard output, everything else on standard error, colour only where it is wanted."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Protocol, TextIO

from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.cells import Column, layout

BOLD, DIM, RED, GREEN, YELLOW, CYAN = "1", "2", "31", "32", "33", "36"
_TO_COPY = re.compile(r"`[^`\n]+`|(?:(?<=: )|(?<=\())kortix (?:(?! — |; |, or |\)|\. |\.$).)+")
"""Commands in prose. No line end is put into one: half a command would be copied, and run."""
_KEPT_SPACE = "\ue000"
"""Stands for a space in a command while lines are broken; text that is shown never has it (`visible` replaces it)."""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 file`, `2 files`, `2 boxes` with a plural of its own."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


class Dumpable(Protocol):
    """A view model."""

    def model_dump(self, *, mode: str) -> dict[str, Any]:
        """The model as plain data."""
        ...


def coloured(stream: TextIO) -> bool:
    """Whether the stream wants colour (https://no-color.org: set and not empty means none)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, code: str, stream: TextIO | None = None) -> str:
    """Text in a colour, where the stream (standard output by default) wants colour."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and coloured(stream or sys.stdout) else text


def say(text: str = "") -> None:
    """A line of the result. The text must be safe already."""
    sys.stdout.write(f"{text}\n")


def note(text: str) -> None:
    """Words for the person beside the result."""
    sys.stderr.write(f"{wrapped(f'kortix: {visible(text)}', indent=0, stream=sys.stderr)}\n")
    sys.stderr.flush()


def say_json(value: Dumpable | Sequence[Dumpable]) -> None:
    """A view model, or a list of them, as JSON; ASCII only, so that it is safe on a terminal too."""
    plain = [item.model_dump(mode="json") for item in value] if isinstance(value, Sequence) else _plain(value)
    sys.stdout.write(json.dumps(plain, indent=2) + "\n")


def _plain(value: Dumpable) -> dict[str, Any]:
    return value.model_dump(mode="json")


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """A table; `empty` is said on standard error when there are no rows.

    Cells are made safe here, so that no list can forget it.
    """
    if not rows:
        note(empty)
        return
    safe = [[visible_line(cell) for cell in row] for row in rows]
    width = columns_of_terminal() if sys.stdout.isatty() else None
    sys.stdout.write("\n".join(layout(columns, safe, width=width, colour=coloured(sys.stdout))) + "\n")


def say_fields(fields: Sequence[tuple[str, str]]) -> None:
    """Names and values, lined up; fields without a value are left out."""
    shown = [(name, visible_line(value)) for name, value in fields if value]
    width = max((len(name) for name, _ in shown), default=0)
    for name, value in shown:
        say(f"{paint(name.ljust(width), DIM)}  {wrapped(value, indent=width + 2)}")


def say_prose(text: str, *, indent: int = 0) -> None:
    """A paragraph of the result. The text must be safe already."""
    say(" " * indent + wrapped(text, indent=indent))


def wrapped(text: str, *, indent: int, stream: TextIO | None = None) -> str:
    """Safe prose that begins after `indent` cells, broken between words where the stream is a terminal.

    Commands (in backquotes, or `kortix …` after a colon or a parenthesis) stay on one line, so that they can be copied.
    """
    stream = stream or sys.stdout
    if not stream.isatty():
        return text
    import textwrap

    space, width = " " * indent, columns_of_terminal(stream)
    lines = list[str]()
    for line in text.split("\n"):
        kept = _TO_COPY.sub(lambda command: command.group().replace(" ", _KEPT_SPACE), line)
        broken = textwrap.wrap(kept, width, initial_indent=space, subsequent_indent=space, break_long_words=False,
                               break_on_hyphens=False)  # fmt: skip
        lines.extend(broken or [""])
    return "\n".join(lines).removeprefix(space).replace(_KEPT_SPACE, " ")


def columns_of_terminal(stream: TextIO | None = None) -> int:
    """How many cells a line of the stream (standard output by default) has."""
    try:
        return max(20, os.get_terminal_size((stream or sys.stdout).fileno()).columns)
    except OSError:
        return 80


def matches(text: str, cells: Sequence[str]) -> bool:
    """Whether a row contains the filter's text, whatever the case."""
    return not text or text.casefold() in " ".join(cells).casefold()


def at_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(question: str, *, wanted: str) -> bool:
    """Ask at the terminal; only `wanted` (or, for `y`, also `yes`) means yes."""
    sys.stdout.write(f"{question} ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip().lower()
    return answer == wanted or (wanted == "y" and answer == "yes")


def status_style(words: str) -> str:
    """The colour of a status; the word says the same without it."""
    return _STATUS_STYLES.get(words.split(" ", 1)[0], "")


_STATUS_STYLES = {
    **dict.fromkeys(("running", "working", "open", "finished", "success", "ok"), GREEN),
    **dict.fromkeys(("provisioning", "waiting", "queued", "pending", "denied", "warn"), YELLOW),
    **dict.fromkeys(("failed", "fail", "failure", "unknown"), RED),
    "merged": CYAN,
}
