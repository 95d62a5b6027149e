"""What is wrong in a file that a person wrote: where, what, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from kortix_tui.base.text import shorten, visible_line

Path = tuple[str | int, ...]
"""A place inside a document: keys and list indexes from the root."""

_LONGEST_TEXT = 400


class FaultLevel(StrEnum):
    """How bad it is: only an error makes a file invalid."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Place:
    """A spot in a file. Lines and columns count from 1; line 0 stands for the file as a whole."""

    file: str
    line: int = 0
    column: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong. All texts are safe to show: untrusted parts were made visible and short.

    Attributes:
        code: A stable word for programs, such as `unknown_key`.
        path: The place inside the document in words, such as `agents.builder.secrets[0]`; empty at the root.
    """

    file: str
    line: int
    column: int
    path: str
    code: str
    message: str
    hint: str | None = None
    level: FaultLevel = FaultLevel.ERROR

    @classmethod
    def at(
        cls,
        place: Place,
        path: Path,
        message: str,
        *,
        code: str,
        hint: str | None = None,
        level: FaultLevel = FaultLevel.ERROR,
    ) -> Fault:
        """Make a fault from untrusted pieces."""
        return cls(
            file=_safe(place.file),
            line=place.line,
            column=place.column,
            path=_safe(path_text(path)),
            code=code,
            message=_safe(message),
            hint=None if hint is None else _safe(hint),
            level=level,
        )

    @property
    def is_error(self) -> bool:
        """Whether it makes the file invalid."""
        return self.level is FaultLevel.ERROR

    @property
    def location(self) -> str:
        """`kortix.yaml:12:5`, or only the file where no line is to blame."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file

    def __str__(self) -> str:
        where = f" {self.path}:" if self.path else ""
        hint = f" {self.hint}" if self.hint else ""
        return f"{self.location}:{where} {self.message}.{hint}"


def _safe(text: str) -> str:
    return shorten(visible_line(text), _LONGEST_TEXT)


def path_text(path: Path) -> str:
    """Write a path as people do: `agents.builder.secrets[0]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """The choice that was probably meant, if any."""
    import difflib  # only a wrong word needs it, and every command loads this module

    by_folded = {choice.casefold(): choice for choice in choices}
    found = difflib.get_close_matches(word.casefold()[:100], by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def choose(word: str, choices: Iterable[str], *, none: str = "There is none.") -> str:
    """A hint that names what was probably meant and what else there is."""
    names = sorted(choices)
    if not names:
        return none
    guess = nearest(word, names)
    listed = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return (f"Did you mean `{guess}`? " if guess else "") + f"There is: {listed}."
