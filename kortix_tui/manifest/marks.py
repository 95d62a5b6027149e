"""Where the pieces of a YAML text stand, to the character: for edits that keep every other byte.

`base.yaml` reads the same text into data and refuses what is not plain; this is only asked about texts that it took.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")


@dataclass(frozen=True, slots=True)
class Scalar:
    """A single value. An empty one, as after `key:`, begins and ends at one place, somewhere before what follows.

    Attributes:
        style: The character that opens it: a quote, `|` or `>`; empty when it is plain.
    """

    start: int
    end: int
    value: str
    style: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """A list; `end` is known to the character only in flow style."""

    start: int
    end: int
    flow: bool
    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping; `end` is known to the character only in flow style."""

    start: int
    end: int
    flow: bool
    entries: tuple[tuple[Scalar, Node], ...]

    def entry(self, key: str) -> tuple[Scalar, Node] | None:
        """A key and its value."""
        return next((entry for entry in self.entries if entry[0].value == key), None)


Node = Scalar | Sequence | Mapping


def last_character(node: Node) -> int | None:
    """Behind the last character of a value; `None` after a block text, which may end in any number of empty lines."""
    match node:
        case Scalar():
            return None if node.style in ("|", ">") else node.end
        case Sequence(flow=False, items=items) if items:
            return last_character(items[-1])
        case Mapping(flow=False, entries=entries) if entries:
            return last_character(entries[-1][1])
        case _:
            return node.end


def mark(text: str) -> Node | None:
    """The root of a text that holds one plain document; `None` when there is nothing in it."""
    import yaml

    loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    events: Iterator[Any] = yaml.parse(text, Loader=loader)
    for event in events:
        if isinstance(event, yaml.DocumentStartEvent):
            return _node(next(events), events)
    return None


def _node(event: Any, events: Iterator[Any]) -> Node:
    import yaml

    start: int = event.start_mark.index
    if isinstance(event, yaml.ScalarEvent):
        return Scalar(start, _end(event), event.value, event.style or "")
    flow = bool(event.flow_style)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(after := next(events), yaml.SequenceEndEvent):
            items.append(_node(after, events))
        return Sequence(start, _end(after), flow, tuple(items))
    entries: list[tuple[Scalar, Node]] = []
    while not isinstance(after := next(events), yaml.MappingEndEvent):
        key = _node(after, events)
        value = _node(next(events), events)
        if isinstance(key, Scalar):
            entries.append((key, value))
    return Mapping(start, _end(after), flow, tuple(entries))


def _end(event: Any) -> int:
    end: int = event.end_mark.index
    return end


class Lines:
    """The lines of a text, by the breaks that YAML knows."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._breaks = [found.span() for found in _BREAK.finditer(text)]
        self._starts = [0, *(end for _, end in self._breaks)]

    def number(self, position: int) -> int:
        """The line of a position, counted from 1."""
        return bisect_right(self._starts, position)

    def start(self, position: int) -> int:
        """Where the line of a position begins."""
        return self._starts[self.number(position) - 1]

    def end(self, position: int) -> int:
        """Where the line of a position ends, before its break."""
        line = self.number(position) - 1
        return self._breaks[line][0] if line < len(self._breaks) else len(self._text)

    def span(self, position: int) -> tuple[int, int]:
        """The line of a position with the break that has to go with it: the one before it for the last line."""
        line = self.number(position) - 1
        if line < len(self._breaks):
            return self._starts[line], self._breaks[line][1]
        return (self._breaks[line - 1][0] if line else 0), len(self._text)

    def newline(self, position: int) -> str:
        """The break that a new line next to this position ends with."""
        if not self._breaks:
            return "\n"
        start, end = self._breaks[min(self.number(position) - 1, len(self._breaks) - 1)]
        return self._text[start:end]
