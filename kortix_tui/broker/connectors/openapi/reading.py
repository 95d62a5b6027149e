"""A document's bytes, as JSON or YAML, read without surprises.

Documents come from the network. YAML is read as what JSON could say too: scalars by the core schema of YAML 1.2, keys
as text (`200:` is the text `200`), aliases within limits, no tags but that of a text.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line

MOST_BYTES: Final = 16 << 20
DEEPEST: Final = 64
MOST_VALUES: Final = 1_000_000

_LONGEST_NUMBER: Final = 40
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUTH: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]+\Z")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_TEXT_TAG: Final = "tag:yaml.org,2002:str"


def read_document(data: bytes) -> dict[str, Any]:
    """The object that a document holds.

    Raises:
        InvalidInput: It is neither JSON nor YAML, no object, has a key twice, or is larger than 16 MiB, a million
            values or 64 levels.
    """
    if len(data) > MOST_BYTES:
        raise InvalidInput(f"The document is larger than {MOST_BYTES >> 20} MiB.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The document is not UTF-8 text.") from None
    document = _json(text) if text.lstrip()[:1] == "{" else _yaml(text)
    if not isinstance(document, dict):
        raise InvalidInput("The document is no object.", hint="An OpenAPI document begins with `openapi:`.")
    _measure(document)
    return document


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite, parse_int=_whole)
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The document is not JSON: {error.msg} in line {error.lineno}, column {error.colno}."
        ) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [key for key, _ in pairs]
        raise _twice(next(key for key in names if names.count(key) > 1))
    return found


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidInput(f"The document has a number that is not finite: {shorten(text, 40)}.")
    return value


def _whole(text: str) -> int:
    if len(text) > _LONGEST_NUMBER:
        raise InvalidInput("The document has a number of more than 40 digits.")
    return int(text)


def _yaml(text: str) -> Any:
    import yaml

    loader: type = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _Builder(yaml.parse(text, Loader=loader)).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f" in line {mark.line + 1}" if mark else ""
        raise InvalidInput(f"The document is not YAML: {error.problem or 'it cannot be read'}{line}.") from None
    except yaml.YAMLError:
        raise InvalidInput("The document is not YAML: it holds a control character.") from None


class _Builder:
    """Builds plain data from PyYAML's events, which are `Any`: its two parsers have classes of their own for them."""

    def __init__(self, events: Iterator[Any]) -> None:
        import yaml

        self._events = events
        self._anchors: dict[str, Any] = {}
        self._values = 0
        self._scalar: Any = yaml.ScalarEvent
        self._alias: Any = yaml.AliasEvent
        self._sequence: Any = yaml.SequenceStartEvent
        self._end: Any = (yaml.SequenceEndEvent, yaml.MappingEndEvent)
        self._start: Any = yaml.DocumentStartEvent

    def document(self) -> Any:
        data: Any = None
        documents = 0
        for event in self._events:
            if isinstance(event, self._start):
                documents += 1
                if documents > 1:
                    raise InvalidInput("The file holds more than one document.", hint="Keep one of them.")
                data = self._node(next(self._events), 0)
        return data

    def _node(self, event: Any, depth: int) -> Any:
        self._values += 1
        if self._values > MOST_VALUES:
            raise _too_many()
        if depth > DEEPEST:
            raise _too_deep()
        if isinstance(event, self._alias):
            if event.anchor not in self._anchors:
                raise InvalidInput(f"The document refers to `{visible_line(event.anchor)}` before or inside itself.")
            return self._anchors[event.anchor]
        value: Any
        if isinstance(event, self._scalar):
            value = self._plain(event)
        elif isinstance(event, self._sequence):
            value = []
            while not isinstance(item := next(self._events), self._end):
                value.append(self._node(item, depth + 1))
        else:
            value = self._mapping(depth)
        if event.anchor:
            self._anchors[event.anchor] = value
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        merged: list[Any] = []
        while not isinstance(event := next(self._events), self._end):
            if not isinstance(event, self._scalar):
                raise InvalidInput(f"A key in line {event.start_mark.line + 1} of the document is no plain text.")
            key: str = event.value
            value = self._node(next(self._events), depth + 1)
            if key == "<<" and event.implicit[0]:
                merged += value if isinstance(value, list) else [value]
            elif key in mapping:
                raise _twice(key, event.start_mark.line + 1)
            else:
                mapping[key] = value
        for other in merged:  # earlier ones and own keys win
            if not isinstance(other, dict):
                raise InvalidInput("The document merges (`<<`) something that is no object.")
            mapping = {**other, **mapping}
        return mapping

    def _plain(self, event: Any) -> Any:
        text: str = event.value
        if event.tag not in (None, _TEXT_TAG):
            raise InvalidInput(f"The document has a tag in line {event.start_mark.line + 1}, which is not read.")
        if not event.implicit[0]:
            return text
        if text in _NULL:
            return None
        if text in _TRUTH:
            return _TRUTH[text]
        if text[0] in "+-.0123456789":
            if _INTEGER.match(text):
                return _whole(text)
            if _NUMBER.match(text):
                return _finite(text)
        return text


def _measure(document: dict[str, Any]) -> None:
    """Count with aliases written out, level by level: a bomb ends at the limit."""
    level: list[Any] = [document]
    values = 0
    for _ in range(DEEPEST + 1):
        values += len(level)
        if values > MOST_VALUES:
            raise _too_many()
        below: list[Any] = []
        for node in level:
            below += node.values() if isinstance(node, dict) else node
            if len(below) > MOST_VALUES:
                raise _too_many()
        level = [node for node in below if isinstance(node, dict | list)]
        values += len(below) - len(level)
        if not level:
            return
    raise _too_deep()


def _twice(key: str, line: int | None = None) -> InvalidInput:
    place = f" in line {line}" if line else ""
    return InvalidInput(
        f"The key `{shorten(visible_line(key), 100)}` stands twice in one object of the document{place}.",
        hint="Keep one of them.",
    )


def _too_many() -> InvalidInput:
    return InvalidInput(f"The document holds more than {MOST_VALUES} values.")


def _too_deep() -> InvalidInput:
    return InvalidInput(f"The document is nested deeper than {DEEPEST} levels.")
