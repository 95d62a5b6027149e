"""What a rule's match and its conditions say of one call: yes, no, or that it cannot be told."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

import rfc8785

from kortix_tui.manifest.policies import Condition, PolicyRule, as_regex, glob_matches

LONGEST_FOR_REGEX: Final = (256, 256, 256, 64, 32, 24)
"""Characters of a value that a regular expression is tried on, by how many repetitions it has (the last: or more). What
is longer cannot be told: several `.*` over a text that an agent chose could hold up the host for minutes."""

MOST_FOR_REGEX: Final = 16
"""All values of a list together may be so many times as long as one."""

LONGEST_FOR_GLOB: Final = 1 << 20

PERIODS: Final = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1), "day": timedelta(days=1)}
"""How far back a limit looks: always this long before the call, never a calendar's hour or day."""

_MISSING: Final = object()
_REPEATS = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|([*+{])", re.DOTALL)
_DOLLAR = re.compile(r"(\\.|\[\^?\]?(?:\\.|[^\]\\])*\])|\$", re.DOTALL)
_MOST_EXACT: Final = 1 << 53


class Answer(Enum):
    """Whether something holds."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    @classmethod
    def of(cls, value: bool) -> Answer:
        """From a plain truth."""
        return cls.YES if value else cls.NO


class Counted(NamedTuple):
    """The calls that a limit counts: those that its rule's match and its other conditions take in.

    Attributes:
        connector: Whose calls, for a connector's own rule; `None` for a project's rule, which counts over all of them.
    """

    connector: str | None
    rule: PolicyRule

    def takes(self, connector: str, action: str, arguments: Mapping[str, Any] | None) -> bool:
        """Whether a recorded call counts; one of which that cannot be told does."""
        if self.connector is not None and self.connector != connector:
            return False
        name = action if self.connector is not None else f"{connector}.{action}"
        if name_answer(self.rule.match, name) is not Answer.YES:
            return False
        found = [
            argument_answer(condition, arguments)
            for condition in self.rule.conditions
            if condition.match is not None or (condition.max_calls is None and condition.max_sum is None)
        ]
        return Answer.NO not in found


class Usage(Protocol):
    """How much was called before. Counts over all sessions of the project, and only what ran or may still run:
    calls that were refused, denied, expired or superseded do not count. The call that is decided is not in it."""

    @property
    def now(self) -> datetime:
        """The moment of the call that is decided."""
        ...

    def calls(self, counted: Counted, since: datetime, /) -> int | None:
        """How many calls there were since; `None` when that is not known."""
        ...

    def total(self, counted: Counted, arg: str, since: datetime, /) -> Decimal | None:
        """The sum of their amounts at a path (see `amount`); `None` when one of them has none, or none is known."""
        ...


def name_answer(match: str, name: str) -> Answer:
    """Whether a name is matched. An invalid regular expression matches no name.

    Names are short and come from what a person accepted, so that every regular expression is tried on them.
    """
    body = as_regex(match)
    if body is None:
        return text_answer(match, name)
    pattern = _compiled(body, match.rpartition("/")[2])
    return Answer.of(pattern is not None and pattern.search(name) is not None)


def text_answer(match: str, text: str) -> Answer:
    """Whether a value matches a glob (as a whole) or a `/regular expression/` (anywhere); case is ignored by both."""
    body = as_regex(match)
    if body is None:
        if set(match) == {"*"}:
            return Answer.YES
        return Answer.UNKNOWN if len(text) > LONGEST_FOR_GLOB else Answer.of(glob_matches(match, text))
    pattern = _compiled(body, match.rpartition("/")[2])
    if pattern is None or len(text) > _longest(body):
        return Answer.UNKNOWN
    return Answer.of(pattern.search(text) is not None)


def _longest(body: str) -> int:
    repeats = sum(1 for found in _REPEATS.finditer(body) if found[1])
    return LONGEST_FOR_REGEX[min(repeats, len(LONGEST_FOR_REGEX) - 1)]


@lru_cache(maxsize=512)
def _compiled(body: str, flags: str) -> re.Pattern[str] | None:
    """A regular expression as Kortix reads it: `$` is the very end, where Python's lets a line break follow."""
    options = re.IGNORECASE
    options |= re.MULTILINE if "m" in flags else 0
    options |= re.DOTALL if "s" in flags else 0
    try:
        pattern = re.compile(body, options)
        if pattern.flags & re.MULTILINE:
            return pattern
        return re.compile(_DOLLAR.sub(lambda found: found[1] or r"\Z", body), options)
    except (re.error, RecursionError, OverflowError):
        return None


def values_at(arguments: Any, path: str) -> list[Any]:
    """Everything at a dotted path; a list on the way stands for each of its elements.

    Names may hold dots themselves, so every way to read the path is followed. What is missing, or null, is not among
    the values: an empty list means that there is nothing at all.
    """
    return [value for value in _walk(arguments, path.split(".")) if value is not _MISSING]


def _walk(value: Any, steps: Sequence[str]) -> list[Any]:
    if isinstance(value, list):
        if steps and steps[0].isdecimal():
            index = int(steps[0]) if len(steps[0]) < 10 else len(value)
            return _walk(value[index], steps[1:]) if index < len(value) else [_MISSING]
        return [found for element in value for found in _walk(element, steps)]
    if not steps:
        return [_MISSING if value is None else value]
    if not isinstance(value, Mapping):
        return [_MISSING]
    ways = [n for n in range(1, len(steps) + 1) if ".".join(steps[:n]) in value]
    if not ways:
        return [_MISSING]
    return [found for n in ways for found in _walk(value[".".join(steps[:n])], steps[n:])]


def argument_answer(condition: Condition, arguments: Mapping[str, Any] | None) -> Answer:
    """Whether an argument's value is as a condition wants it.

    A missing value never matches, negated or not. A list matches only if every element does; one of which only some do
    is neither a match nor none, so that it opens no gate and evades none either.
    """
    if condition.arg is None or condition.match is None or arguments is None:
        return Answer.UNKNOWN
    found = _walk(arguments, condition.arg.split("."))
    if all(value is _MISSING for value in found):
        return Answer.NO
    if (body := as_regex(condition.match)) is not None:
        characters = sum(len(value) for value in found if isinstance(value, str))
        if max(characters, len(found)) > MOST_FOR_REGEX * _longest(body):
            return Answer.UNKNOWN
    answers = {_value_answer(condition, value) for value in found}
    return answers.pop() if len(answers) == 1 else Answer.UNKNOWN


def _value_answer(condition: Condition, value: Any) -> Answer:
    if value is _MISSING:
        return Answer.NO
    text = value_text(value)
    if text is None or condition.match is None:
        return Answer.UNKNOWN
    answer = text_answer(condition.match, text)
    if answer is Answer.UNKNOWN or not condition.negate:
        return answer
    return Answer.of(answer is Answer.NO)


def value_text(value: Any) -> str | None:
    """A value as conditions compare it: texts as they are, numbers and truths as canonical JSON writes them."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() if abs(value) >= _MOST_EXACT:
            return str(value)
        case int() | float():
            try:
                return rfc8785.dumps(value).decode()
            except rfc8785.CanonicalizationError:
                return None
        case _:
            return None


def amount(arguments: Mapping[str, Any] | None, arg: str) -> Decimal | None:
    """The sum of what stands at a path; `None` unless it is one number or more, none of them negative."""
    if arguments is None:
        return None
    total = Decimal(0)
    found = _walk(arguments, arg.split("."))
    for value in found:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            return None
        number = Decimal(str(value))
        if not number.is_finite() or number < 0:
            return None
        total += number
    return total if found else None


def within(condition: Condition, counted: Counted, arguments: Mapping[str, Any] | None, usage: Usage) -> Answer:
    """Whether a call stays within a limit."""
    period = PERIODS.get(condition.per or "")
    if period is None:
        return Answer.UNKNOWN
    since = usage.now - period
    if condition.max_calls is not None:
        calls = usage.calls(counted, since)
        return Answer.UNKNOWN if calls is None else Answer.of(calls + 1 <= condition.max_calls)
    if condition.max_sum is None or condition.arg is None:
        return Answer.UNKNOWN
    more = amount(arguments, condition.arg)
    total = usage.total(counted, condition.arg, since) if more is not None else None
    if more is None or total is None:
        return Answer.UNKNOWN
    return Answer.of(total + more <= Decimal(str(condition.max_sum)))
