"""The command line's grammar: argparse with our errors, examples in every help, and a few shared options."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Final, NoReturn

from kortix_tui.base.errors import UsageError
from kortix_tui.base.text import shorten, visible_line

Run = Callable[[argparse.Namespace], int | None]
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)?\Z")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with verbs as a plain list: no heading line of their group, no aliases that break the columns."""

    def __init__(self, prog: str) -> None:
        """As wide as the terminal, up to what reads well."""
        import shutil  # here and below: only help needs it

        super().__init__(prog, max_help_position=26, width=min(shutil.get_terminal_size().columns, 100) - 1)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        import textwrap

        lines = text.splitlines()
        return "\n".join(line if line.startswith("  ") else textwrap.fill(line, width) for line in lines)

    def _format_action(self, action: argparse.Action) -> str:
        if isinstance(action, argparse._SubParsersAction):
            return "".join(self._format_action(verb) for verb in self._iter_indented_subactions(action))
        return super()._format_action(action)

    def _iter_indented_subactions(self, action: argparse.Action) -> Generator[argparse.Action, None, None]:
        if not isinstance(action, argparse._SubParsersAction):
            yield from super()._iter_indented_subactions(action)
            return
        for verb in action._get_subactions():
            # The metavar is the name with its aliases, which the verb's own help tells.
            verb.metavar = verb.dest
            yield verb


class Parser(argparse.ArgumentParser):
    """An argument parser whose faults are `UsageError`s."""

    def __init__(self, *, typed: Sequence[str] | None = None, **options: Any) -> None:
        """As the base class.

        Args:
            typed: The arguments, where only the grammar of the verb that they begin with is wanted.
            options: For the base class.
        """
        super().__init__(allow_abbrev=False, formatter_class=Help, **options | {"add_help": False})
        self.register("type", None, text)
        # Works everywhere and is told once, at the end of `kortix --help`: not a line in every list of options.
        self.add_argument("-h", "--help", action="help", help=argparse.SUPPRESS)
        self.typed = typed
        self.keeps_words = False
        """Whether words out of place are never repeated in messages: they may be values of secrets."""

    def read(self, arguments: Sequence[str]) -> argparse.Namespace:
        """As `parse_args`, but words that are too many are not repeated where they may be values."""
        parsed, rest = self.parse_known_args(arguments)
        if rest and self.keeps_words:
            options = [word.partition("=")[0] for word in rest if word.startswith("--")]
            self.error(f"unknown option {cut(options[0])}" if options else "there are more words than the verb takes")
        if rest:
            self.error(f"unrecognized arguments: {' '.join(rest)}")
        return parsed

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            what = "no such verb" if self.keeps_words else f"no verb «{cut(value)}»"
            raise UsageError(f"`{self.prog}` has {what}.", hint=nearest(value, action.choices, self.prog))
        super()._check_value(action, value)

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing and leaving."""
        raise UsageError(f"{visible_line(message[:1].upper() + message[1:])}.", hint=f"See `{self.prog} --help`.")


class _Unbuilt(Parser):
    """Takes the grammar of a verb that was not typed and forgets it: building it all is a third of a start's cost."""

    def __init__(self) -> None:
        super().__init__(typed=("",))

    def add_argument(self, *names: Any, **options: Any) -> Any:
        """Nothing."""

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """Something that forgets as well."""
        return self


class Verbs:
    """The verbs of a noun."""

    def __init__(self, parser: Parser, *examples: str) -> None:
        """Prepare.

        Args:
            parser: The noun's.
            examples: A few lines that show what its verbs are for.
        """
        self._parser = parser
        self._names: list[str] = []
        self._typed = parser.typed[0] if parser.typed and not parser.typed[0].startswith("-") else None
        self._group = parser.add_subparsers(title="verbs", metavar="VERB", prog=parser.prog)
        self._group.type = str  # it is given all that follows; the verb's own grammar looks at each word
        parser.usage = f"{parser.prog} VERB …"
        parser.epilog = f"{show_examples(examples)}\n\nmore about a verb: {parser.prog} VERB --help"
        parser.set_defaults(run=self._ask)

    def add(
        self, name: str, run: Run, summary: str, *, aliases: Sequence[str] = (), examples: Sequence[str] = ()
    ) -> argparse.ArgumentParser:
        """One verb; `summary` is its line in the noun's help and its description."""
        self._names.append(name)
        if self._typed not in (None, name, *aliases):
            return _Unbuilt()
        also = f" Also called {' and '.join(f'`{alias}`' for alias in aliases)}." if aliases else ""
        parser = self._group.add_parser(
            name, aliases=list(aliases), help=summary, description=sentence(summary) + also,
            epilog=show_examples(examples),
        )  # fmt: skip
        parser.set_defaults(run=run)
        return parser

    def group(self, name: str, summary: str, *examples: str) -> Verbs:
        """Verbs below a verb: `kortix sessions queue ls`."""
        self._names.append(name)
        if self._typed not in (None, name):
            return Verbs(_Unbuilt(), *examples)
        parser = self._group.add_parser(name, help=summary, description=sentence(summary))
        parser.typed = self._parser.typed[1:] if self._parser.typed else None
        return Verbs(parser, *examples)

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
        return grammar(arguments).read(arguments)
    except UsageError:
        # Once more with everything, so that the message names all choices.
        return grammar(None).read(arguments)


def cut(word: str) -> str:
    """A word that somebody typed, safe and short."""
    return shorten(visible_line(word), 40)


def nearest(word: str, choices: Iterable[str], prog: str) -> str:
    """A hint for a word that is none of the choices."""
    import difflib

    near = difflib.get_close_matches(word, list(choices), n=1)
    return f"Did you mean `{prog} {near[0]}`?" if near else f"See `{prog} --help`."


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


def text(word: str) -> str:
    """A word as it was typed; what everything is that has no type of its own.

    Bytes that are no text come as lone surrogates, which neither the store nor JSON takes.
    """
    if not word.isascii() and any("\ud800" <= char <= "\udfff" for char in word):
        raise argparse.ArgumentTypeError("what is given is not text in this terminal's encoding")
    return word


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
