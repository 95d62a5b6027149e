"""JSON texts as people read them. No value is turned into a number: what is shown has the characters that are sent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
INDENT: Final = "  "


class _Numeral(str):
    """A number as it was written."""

    __slots__ = ()


def is_json(text: str) -> bool:
    """Whether the text is JSON."""
    try:
        json.loads(text, parse_int=_Numeral, parse_float=_Numeral)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str) -> str:
    """A JSON text with one value or key a line; every scalar keeps its characters.

    Args:
        text: Must be JSON.
    """
    return "".join(_indented(text))


def _indented(text: str) -> Iterator[str]:
    depth, opened = 0, False
    for match in _TOKEN.finditer(text):
        word = match[0]
        closing = word in "}]"
        if opened and not closing:
            yield "\n" + INDENT * depth
        if closing:
            depth -= 1
            if not opened:
                yield "\n" + INDENT * depth
        yield word
        opened = word in "{["
        if opened:
            depth += 1
        elif word == ",":
            yield "\n" + INDENT * depth
        elif word == ":":
            yield " "


def leaves(text: str) -> dict[str, str]:
    """Every scalar and empty container of a JSON text by its dotted path: `customer.name`, `lines[0].amount`.

    Values are as JSON writes them. The path of a text that is one scalar is empty.

    Args:
        text: Must be JSON.
    """
    return dict(_leaves(json.loads(text, parse_int=_Numeral, parse_float=_Numeral), ""))


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            name = key if _PLAIN_KEY.match(key) else json.dumps(key, ensure_ascii=False)
            yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, f"{path}[{place}]")
    else:
        yield path, str(value) if isinstance(value, _Numeral) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Differing:
    """One value that two JSON texts do not have in common."""

    kind: Literal["added", "removed", "changed"]
    path: str
    old: str | None
    new: str | None


def difference(old: str, new: str) -> tuple[list[Differing], int]:
    """What differs between two JSON texts, in the order of the newer one, then what is gone; and how many are the same.

    Args:
        old: Must be JSON.
        new: Must be JSON.
    """
    before, after = leaves(old), leaves(new)
    found = [
        Differing("changed" if path in before else "added", path, before.get(path), value)
        for path, value in after.items()
        if before.get(path) != value
    ]
    same = len(after) - len(found)
    found += [Differing("removed", path, value, None) for path, value in before.items() if path not in after]
    return found, same
