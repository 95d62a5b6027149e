"""What `kortix secrets set` is given: names, and values from where they are least seen."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from kortix_tui.base.errors import UsageError
from kortix_tui.cli.unseen import ask_unseen, can_ask, read_value, warn_of_history

if TYPE_CHECKING:
    from kortix_tui.base.words import Exposure
    from kortix_tui.runtime.secret_sources import Secret

NAME: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,63}\Z")


class Wanted(NamedTuple):
    """One word of the command line."""

    name: str
    given: str | None
    """The value; `-` for standard input, and nothing where it is to be asked for."""


def read_words(words: list[str]) -> list[Wanted]:
    """Names and values from the command line.

    A word that is no name is never repeated in a message: it may be a value that slipped out of its place.

    Raises:
        UsageError: A word is not `NAME`, `NAME=VALUE` or `NAME=-`, or a name comes twice.
        InvalidInput: A secret may not have that name.
    """
    from kortix_tui.runtime.secret_sources import check_name

    wanted = list[Wanted]()
    for place, word in enumerate(words, 1):
        name, equals, value = word.partition("=")
        if not NAME.match(name):
            raise UsageError(
                f"Word {place} after `set` does not begin with the name of an environment variable, such as API_KEY.",
                hint="Write NAME to be asked, NAME=- for standard input, or NAME=VALUE, in quotes where it has spaces.",
            )
        check_name(name)
        if equals and not value:
            raise UsageError(f"{name} has no value.", hint=f"To be asked for it: kortix secrets set {name}")
        if name in [one.name for one in wanted]:
            raise UsageError(f"{name} is named twice.")
        wanted.append(Wanted(name, value if equals else None))
    if len([one for one in wanted if one.given == "-"]) > 1:
        raise UsageError("Standard input has one value only.", hint="Set them one by one.")
    return wanted


def take_values(wanted: list[Wanted]) -> list[tuple[str, Secret]]:
    """The values, asked for where they were not given.

    Raises:
        UsageError: Nobody can be asked.
        Refused: Nothing was typed, or not the same twice.
        InvalidInput: Standard input has no value.
    """
    from kortix_tui.runtime.secret_sources import Secret

    if any(one.given not in (None, "-") for one in wanted):
        warn_of_history()
    values = list[tuple[str, Secret]]()
    for name, given in wanted:
        if given is None:
            if not can_ask():
                raise UsageError(
                    f"Nobody can be asked for the value of {name} here.",
                    hint=f"Give it on standard input: {name}=-",
                )
            values.append((name, ask_unseen(f"Value of {name}", twice=True)))
        elif given == "-":
            values.append((name, read_value(f"Value of {name}")))
        else:
            values.append((name, Secret(given.encode("utf-8", "surrogateescape"))))
    return values


def exposure(text: str) -> Exposure:
    """An exposure, in our words or Kortix's; the type of an argument."""
    from kortix_tui.base.errors import InvalidInput
    from kortix_tui.runtime.secret_sources import read_exposure

    try:
        return read_exposure(text)
    except InvalidInput as error:
        raise argparse.ArgumentTypeError(f"{error.message.removesuffix('.')} ({error.hint})") from None


def add_exposure(parser: argparse.ArgumentParser) -> None:
    """`--scope`."""
    parser.add_argument(
        "--scope", "--exposure", metavar="EXPOSURE", type=exposure, dest="exposure",
        help="where the value may go: environment (into sandboxes), egress-enforced (experimental), connector or none "
        "(stays on the host); default: as it is, for a new one as your settings say",
    )  # fmt: skip


def add_hosts(parser: argparse.ArgumentParser) -> None:
    """`--allow-host`."""
    parser.add_argument(
        "--allow-host", metavar="HOST", action="append", dest="hosts",
        help="a host that an egress-enforced value may be sent to; may be repeated",
    )  # fmt: skip
