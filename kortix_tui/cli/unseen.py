"""Words that must not be seen: typed without echo, or read from a pipe. They are never arguments or variables."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import InvalidInput, Refused, UsageError
from kortix_tui.base.text import visible_line
from kortix_tui.cli.output import note

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_sources import Secret

MAX_VALUE: Final = 64 << 10
MAX_WORDS: Final = 16 << 10
MIN_PASSPHRASE: Final = 8


def can_ask() -> bool:
    """Whether a person can type something unseen, be it that the result goes into a pipe."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def ask_unseen(what: str, *, twice: bool = False, needed: bool = True) -> Secret:
    """Have a person type one line without echo.

    Args:
        what: What is asked for, without a colon.
        twice: Whether it is typed again and compared, because nobody could see a typing error.
        needed: Whether nothing is no answer.

    Raises:
        Refused: Nothing was typed, or three times not the same.
    """
    from kortix_tui.runtime.secret_sources import Secret

    for left in (2, 1, 0):
        first = _typed(what)
        if needed and not first:
            raise Refused("Nothing was typed; nothing was changed.")
        if not twice or _typed(f"{what}, once more") == first:
            return Secret(first.encode("utf-8", "surrogateescape"))
        if left:  # whoever types on must not type into the shell
            note("The two did not match. Once more, or ctrl-c to leave:")
    raise Refused(
        "The two did not match; nothing was changed.", hint="A value of several lines: give it on standard input."
    )


def require_person(what: str) -> None:
    """Check that somebody can be asked.

    Args:
        what: What for: `for the passphrase`.

    Raises:
        Refused: Nobody can.
    """
    if not can_ask():
        raise Refused(
            f"Nobody can be asked {what} here.", hint="At a terminal it works; or name a descriptor: --passphrase-fd N"
        )


def new_passphrase(lines: Lines | None = None, of_what: str = "") -> Secret:
    """Have a person choose a passphrase; or take it from the first line of a descriptor.

    Args:
        lines: Where it comes from when nobody is asked.
        of_what: What it opens, for the question: `of the export`.

    Raises:
        Refused: It is too short, was not typed twice alike, or nobody can be asked.
    """
    if lines is not None:
        return long_enough(lines.line(1, "the new passphrase"))
    require_person("for a passphrase")
    return long_enough(ask_unseen(f"New passphrase {of_what}".strip(), twice=True))


def long_enough(passphrase: Secret) -> Secret:
    """A new passphrase, where it is not so short that it can be tried out.

    Raises:
        Refused: It is.
    """
    if len(passphrase) < MIN_PASSPHRASE:
        raise Refused(
            f"The passphrase has fewer than {MIN_PASSPHRASE} characters; nothing was changed.",
            hint="Take a few words that belong to nothing of yours.",
        )
    return passphrase


def _typed(what: str) -> str:
    import getpass

    try:
        return getpass.getpass(f"{visible_line(what)}: ", stream=sys.stderr)
    except EOFError:
        sys.stderr.write("\n")
        raise Refused("Nothing was typed; nothing was changed.") from None
    except UnicodeDecodeError:
        # Its text has what was typed, so it must not be the cause of anything.
        raise Refused("What was typed is not text in this terminal's encoding.") from None


def read_value(what: str) -> Secret:
    """A value from standard input without its last line end; at a terminal it is asked for instead.

    Raises:
        InvalidInput: It is empty or too long.
    """
    from kortix_tui.runtime.secret_sources import Secret

    if sys.stdin.isatty():
        return ask_unseen(what, twice=True)
    data = sys.stdin.buffer.read(MAX_VALUE + 3)
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    if not data:
        raise InvalidInput("There is no value on standard input.")
    if len(data) > MAX_VALUE:
        raise InvalidInput(f"The value on standard input is longer than {MAX_VALUE} bytes.")
    return Secret(data)


def value_of(what: str) -> Secret:
    """A value typed unseen, or from standard input where that is no terminal."""
    if sys.stdin.isatty() and not can_ask():
        raise UsageError("Nobody can be asked for the value.", hint="Give it on standard input.")
    return read_value(what)


class Lines:
    """Lines on a descriptor that the caller opened for us, such as `3<file`; read when the first is wanted."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lines: list[bytes] | None = None

    @classmethod
    def at(cls, text: str) -> Lines:
        """From a command line's word; the type of an argument."""
        if not text.isdecimal() or len(text) > 6:
            raise argparse.ArgumentTypeError("a descriptor is a number, such as 3")
        return cls(int(text))

    def line(self, number: int, what: str, *, needed: bool = True) -> Secret:
        """One of the lines, counted from 1.

        Raises:
            UsageError: There is no such descriptor, or the line is missing or empty though it is needed.
        """
        from kortix_tui.runtime.secret_sources import Secret

        if self._lines is None:
            self._lines = self._read()
        text = self._lines[number - 1] if number <= len(self._lines) else b""
        if needed and not text:
            raise UsageError(f"Line {number} on descriptor {self._descriptor} is empty; it should have {what}.")
        return Secret(text)

    def _read(self) -> list[bytes]:
        data = bytearray()
        try:
            while len(data) <= MAX_WORDS and (piece := os.read(self._descriptor, MAX_WORDS)):
                data += piece
        except OSError as error:
            raise UsageError(
                f"Descriptor {self._descriptor} cannot be read: {error.strerror}.",
                hint="Open it in the shell: kortix … --passphrase-fd 3 3<file",
            ) from None
        if len(data) > MAX_WORDS:
            raise UsageError(f"What descriptor {self._descriptor} gives is too long.")
        return [line.removesuffix(b"\r") for line in bytes(data).split(b"\n")]


def warn_of_history() -> None:
    """Say what a value on the command line means, and how to avoid it."""
    note(
        "A value on the command line stays in the shell's history, and other programs of yours could see it. Without "
        "that: `kortix secrets set NAME` asks for it unseen, `NAME=-` reads standard input."
    )
