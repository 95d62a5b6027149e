"""The command line's grammar: argparse with our errors, examples in every help, and a few shared options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from kortix_tui.base.errors import UsageError
from kortix_tui.base.text import visible_line

Run = Callable[[argparse.Namespace], int | None]
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?\Z")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Parser(argparse.ArgumentParser):
    """An argument parser whose faults are `UsageError`s."""

    def __init__(self, *, typed: Sequence[str] | None = None, **options: Any) -> None:
        """As the base class.

        Args:
            typed: The arguments, where only the grammar of the verb that they begin with is wanted.
            options: For the base class.
        """
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self.typed = typed

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise UsageError(f"{visible_line(message[:1].upper() + message[1:])}.", hint=f"See `{self.prog} --help`.")


class _Unbuilt(Parser):
    """Takes the grammar of a verb that was not typed and forgets it: building it all is a third of a start's cost."""

    def __init__(self) -> None:
        super().__init__(add_help=False, typed=("",))

    def add_argument(self, *names: Any, **options: Any) -> Any:
        """Nothing."""

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """Something that forgets as well."""
        return self


class Verbs:
    """The verbs of a noun."""

    def __init__(self, parser: Parser) -> None:
        self._parser = parser
        self._names: list[str] = []
        self._typed = parser.typed[0] if parser.typed and not parser.typed[0].startswith("-") else None
        self._group = parser.add_subparsers(title="verbs", metavar="VERB", prog=parser.prog)
        parser.set_defaults(run=self._ask)

    def add(
        self, name: str, run: Run, summary: str, *, aliases: Sequence[str] = (), examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """One verb; `summary` is its line in the noun's help and its description."""
        self._names.append(name)
        if self._typed not in (None, name, *aliases):
            return _Unbuilt()
        parser = self._group.add_parser(
            name, aliases=list(aliases), help=summary, description=sentence(summary), epilog=show_examples(examples)
        )
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, summary: str) -> Verbs:
        """Verbs below a verb: `kortix sessions queue ls`."""
        self._names.append(name)
        if self._typed not in (None, name):
            return Verbs(_Unbuilt())
        parser = self._group.add_parser(name, help=summary, description=sentence(summary))
        parser.typed = self._parser.typed[1:] if self._parser.typed else None
        return Verbs(parser)

    def _ask(self, arguments: argparse.Namespace) -> int:
        names = ", ".join(self._names)
        raise UsageError(f"`{self._parser.prog}` needs a verb: {names}.", hint=f"See `{self._parser.prog} --help`.")


def parse(name: str, summary: str, add: Callable[[Parser], None], arguments: Sequence[str]) -> argparse.Namespace:
    """Read the arguments of one noun; its module adds the rest of the grammar."""

    def grammar(typed: Sequence[str] | None) -> Parser:
        parser = Parser(prog=f"kortix {name}", description=sentence(summary), typed=typed)
        add(parser)
        return parser

    try:
        return grammar(arguments).parse_args(arguments)
    except UsageError:
        # Once more with everything, so that the message names all choices.
        return grammar(None).parse_args(arguments)


def sentence(summary: str) -> str:
    """A summary as a sentence."""
    return f"{summary[:1].upper()}{summary[1:]}."


def show_examples(lines: Sequence[str]) -> str | None:
    """The examples below a help text; `kortix` is put before those that do not have it."""
    shown = [line if "kortix " in line else f"kortix {line}" for line in lines]
    return "examples:\n" + "\n".join(f"  {line}" for line in shown) if lines else None


def add_json(parser: argparse.ArgumentParser) -> None:
    """`--json`."""
    parser.add_argument("--json", action="store_true", help="print the result as JSON, in a stable shape")


def add_filter(parser: argparse.ArgumentParser) -> None:
    """`--filter`."""
    parser.add_argument("--filter", metavar="TEXT", default="", help="only rows that contain this text")


def add_project(parser: argparse.ArgumentParser) -> None:
    """`--project`."""
    parser.add_argument(
        "--project", metavar="SLUG", help="default: KORTIX_PROJECT_ID, the current folder's project, the only one"
    )


def add_yes(parser: argparse.ArgumentParser, what: str) -> None:
    """`--yes`."""
    parser.add_argument("-y", "--yes", action="store_true", help=what)


def duration(text: str) -> float:
    """Seconds from `90`, `90s`, `10m`, `2h` or `1d`."""
    found = _DURATION.match(text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"«{text}» is no duration; write 90, 90s, 10m or 2h")
    return float(found[1]) * _UNITS[found[2] or "s"]


def count(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or not 0 < int(text) < 10**9:
        raise argparse.ArgumentTypeError(f"«{text}» is no number of at least 1")
    return int(text)
