"""Rules on connector calls: the language of `match`, and which rules can never be reached."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from kortix_tui.base.validation import Many, Part, wrong

Action = Literal["always_run", "require_approval", "block"]
DefaultMode = Literal["risk", "allow_all"]
_FLAGS = "dgimsuvy"


def as_regex(match: str) -> str | None:
    """The regular expression inside `/…/flags`; `None` when the text is a glob."""
    if len(match) < 2 or not match.startswith("/"):
        return None
    body, slash, flags = match[1:].rpartition("/")
    return body if slash and all(flag in _FLAGS for flag in flags) else None


def glob_matches(pattern: str, text: str) -> bool:
    """Whether an anchored glob, in which only `*` is special and case is ignored, matches.

    The parts between the stars are looked for from left to right, so a hostile pattern costs nothing.
    """
    first, *parts = pattern.casefold().split("*")
    text = text.casefold()
    if not parts:
        return first == text
    last = parts.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in parts:
        found = text.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def covers(first: str, second: str) -> bool:
    """Whether every name that `second` matches is certainly matched by `first`.

    A `*` of `second` can only be taken up by a `*` of `first`; treating it as one more character says so.
    Regular expressions are not compared, except that everything is covered by `*`.
    """
    if as_regex(first) is not None:
        return first == second
    if set(first) == {"*"}:
        return True
    return as_regex(second) is None and glob_matches(first, second)


def _check_match(match: str) -> str:
    if not match.strip() or match != match.strip():
        raise wrong("`match` is empty or has spaces around it", 'Write a glob such as `"get_*"`.')
    body = as_regex(match)
    if body is None:
        return match
    try:
        re.compile(body)
    except (re.error, RecursionError, OverflowError) as error:
        raise wrong(f"the regular expression is invalid: {error}", 'Use a glob such as `"get_*"`.') from error
    if nested_quantifier(body):
        raise wrong(
            "the regular expression repeats a group that repeats or has a choice in it",
            "Such a match can take for ever; use a glob.",
        )
    return match


def nested_quantifier(body: str) -> bool:
    """Whether a repeated group holds a repetition or a choice, as `(a+)*` and `(a|aa)*` do: those can run for ever."""
    open_groups: list[bool] = []
    index = 0
    while index < len(body):
        char = body[index]
        if char == "\\":
            index += 1
        elif char == "[":
            index = _class_end(body, index)
        elif char == "(":
            open_groups.append(False)
            if body[index + 1 : index + 2] == "?":
                index += 1
        elif char == ")" and open_groups:
            inner = open_groups.pop()
            repeated = body[index + 1 : index + 2] in ("*", "+", "{")
            if inner and repeated:
                return True
            if open_groups:
                open_groups[-1] = open_groups[-1] or inner or repeated
        elif char in "*+{|" and open_groups:
            open_groups[-1] = True
        index += 1
    return False


def _class_end(body: str, start: int) -> int:
    index = start + 1
    if body[index : index + 1] == "^":
        index += 1
    if body[index : index + 1] == "]":
        index += 1
    while index < len(body) and body[index] != "]":
        index += 2 if body[index] == "\\" else 1
    return index


Match = Annotated[str, AfterValidator(_check_match), Field(max_length=512)]
_ARGUMENT = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\Z")


class Condition(Part):
    """Something that must hold beside the name: an argument's value, or a limit on rate or amount."""

    arg: str | None = None
    match: Match | None = None
    negate: bool = False
    max_calls: Annotated[int, Field(ge=1)] | None = None
    max_sum: Annotated[float, Field(gt=0)] | None = None
    per: Literal["minute", "hour", "day"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.arg is not None:
            steps = self.arg.split(".")
            if not _ARGUMENT.match(self.arg) or {"__proto__", "constructor", "prototype"} & set(steps):
                raise wrong(
                    f"`{self.arg}` is not an argument's path", "Write names with dots, such as `customer.id`.", at="arg"
                )
        kinds = [
            self.arg is not None and self.match is not None and self.max_sum is None,
            self.max_calls is not None and self.arg is None,
            self.max_sum is not None and self.arg is not None and self.match is None,
        ]
        if sum(kinds) != 1:
            raise wrong(
                "is not a condition",
                "Write `{arg, match}`, `{max_calls, per}` or `{arg, max_sum, per}`.",
            )
        if (self.match is None) != (self.per is not None) or (self.negate and self.match is None):
            raise wrong(
                "`per` goes with a limit and `negate` with a match", "A limit needs `per: minute`, `hour` or `day`."
            )
        return self


class PolicyRule(Part):
    """One ordered rule. The first rule that matches decides."""

    match: Match
    action: Action
    conditions: Annotated[Many[Condition], Field(max_length=10)] = ()


class Policy(Part):
    """What happens when no rule matches."""

    default_mode: DefaultMode = "allow_all"


def unreachable(rules: Sequence[PolicyRule]) -> list[tuple[int, int]]:
    """Pairs of (rule that can never decide, earlier rule without conditions that decides before it)."""
    found: list[tuple[int, int]] = []
    for later, rule in enumerate(rules):
        for earlier in range(later):
            if not rules[earlier].conditions and covers(rules[earlier].match, rule.match):
                found.append((later, earlier))
                break
    return found
