"""The filter language of lists.

Words are AND-ed substrings, smart-case (a capital makes a word exact). `!word` excludes, `a|b` is either,
`~expr` a regular expression, `state:wait` looks into one field only. Nothing a person types is an error: what
is not a valid expression is searched for as it stands, with a hint.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

MATCH_LIMIT = 4000
"""Characters of one field that are looked at: a pattern must not freeze the console on a huge line."""

_Test = Callable[[str], bool]


def searcher(text: str) -> tuple[_Test, str]:
    """A smart-case test for one word, or for a regular expression after `~`; and a hint or an empty text."""
    if text.startswith("~") and len(text) > 1:
        pattern, hint = compile_smart(text[1:])
        return (lambda value: pattern.search(value[:MATCH_LIMIT]) is not None), hint
    if text != text.lower():
        return (lambda value: text in value), ""
    return (lambda value: text in value.lower()), ""


def compile_smart(text: str) -> tuple[re.Pattern[str], str]:
    """A smart-case pattern; what does not compile is taken literally, with a hint."""
    flags = re.NOFLAG if text != text.lower() else re.IGNORECASE
    try:
        return re.compile(text, flags), ""
    except (re.error, RecursionError, OverflowError) as error:
        return re.compile(re.escape(text), flags), f"taken literally: {error}"


@dataclass(frozen=True)
class Filter:
    """A parsed filter."""

    text: str = ""
    hint: str = ""
    _terms: tuple[tuple[bool, str, tuple[_Test, ...]], ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def parse(cls, text: str) -> Filter:
        """Read what was typed; never fails."""
        terms: list[tuple[bool, str, tuple[_Test, ...]]] = []
        hints: list[str] = []
        for word in text.split():
            wanted = not (word.startswith("!") and len(word) > 1)
            body = word if wanted else word[1:]
            name, colon, value = body.partition(":")
            if colon and value and name.isalpha():
                body = value
            else:
                name = ""
            # An expression keeps its `|`; otherwise it separates alternatives.
            parts = [body] if body.startswith("~") else [part for part in body.split("|") if part]
            tests = []
            for part in parts:
                test, hint = searcher(part)
                tests.append(test)
                if hint:
                    hints.append(hint)
            if tests:
                terms.append((wanted, name, tuple(tests)))
        return cls(text=text.strip(), hint="; ".join(hints), _terms=tuple(terms))

    def __bool__(self) -> bool:
        return bool(self._terms)

    def matches(self, fields: Mapping[str, str], everything: str) -> bool:
        """Whether a row passes.

        Args:
            fields: The row's fields by name, for `name:value`.
            everything: All that a bare word looks at.
        """
        for wanted, name, tests in self._terms:
            named = (text for key, text in fields.items() if key.startswith(name))
            value = next(named, "") if name else everything
            if any(test(value) for test in tests) is not wanted:
                return False
        return True
