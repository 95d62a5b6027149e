"""Values in the words of HTTP: in paths, queries, headers and cookies, by the styles that OpenAPI names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import rfc8785

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.model import Parameter

_HEADER_VALUE = re.compile(r"(?:[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?)?\Z")
_CLIMBS = re.compile(r"(?:^|[/\\])\.{1,2}(?:[/\\]|$)")
_LINE_ENDS = re.compile(r"[\r\n\0]")
_DELIMITERS: Final = {"spaceDelimited": "%20", "tabDelimited": "%09", "pipeDelimited": "%7C"}
_DEEPEST_BRACKETS: Final = 8

JSON_STYLE: Final = "json"
"""Style of a parameter that the document describes by a media type: its value is written as JSON."""

DEEP_STYLE: Final = "deepObject"


def encoded(text: str) -> str:
    """Percent-encoded, with nothing but letters, digits and `-._~` left as they are."""
    return quote(text, safe="")


def canonical(value: Any) -> str:
    """Canonical JSON (RFC 8785): the same for the same value, whatever the order of its keys.

    Raises:
        InvalidInput: A number is too large to be exact, or a text is not Unicode.
    """
    try:
        return rfc8785.dumps(value).decode()
    except ValueError:
        raise InvalidInput(
            "A value is no exact JSON: a whole number above 2^53, or a text with half a character.",
            hint="Write large numbers as text.",
        ) from None


def scalar(value: object, name: str) -> str:
    """A text, number or truth value as text.

    Raises:
        InvalidInput: It is nothing of these.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return canonical(value)
    raise InvalidInput(
        f"The argument `{_shown(name)}` has a nested or empty value where only a text, number or true and false fit."
    )


def path_text(parameter: Parameter, value: object) -> str:
    """What stands in a path for a parameter.

    Raises:
        InvalidInput: It is empty, has a segment `.` or `..`, a line break, or is nested.
    """
    pieces = [_path_piece(piece, parameter.key) for piece in _flat(parameter, value)]
    if not pieces:
        raise InvalidInput(f"The argument `{_shown(parameter.key)}` is empty, which a path cannot hold.")
    name = encoded(parameter.name)
    match parameter.style:
        case "label":
            return "." + ("." if parameter.explode else ",").join(pieces)
        case "matrix" if not parameter.explode:
            return f";{name}={','.join(pieces)}"
        case "matrix" if isinstance(value, Mapping):
            return "".join(f";{piece}" for piece in pieces)
        case "matrix":
            return "".join(f";{name}={piece}" for piece in pieces)
        case _:
            return ",".join(pieces)


def query_texts(parameter: Parameter, value: object) -> list[str]:
    """The `name=value` pairs of a query that stand for a parameter, encoded.

    Raises:
        InvalidInput: The value is nested deeper than its style can write.
    """
    name = encoded(parameter.name)
    if parameter.style == DEEP_STYLE and isinstance(value, Mapping | list):
        return bracketed(parameter.name, value)
    pieces = [_joined(piece) for piece in _flat(parameter, value)]
    if not isinstance(value, Mapping | list) or parameter.style == JSON_STYLE:
        return [f"{name}={piece}" for piece in pieces]
    if parameter.explode:
        return pieces if isinstance(value, Mapping) else [f"{name}={piece}" for piece in pieces]
    return [f"{name}={_DELIMITERS.get(parameter.style, ',').join(pieces)}"] if pieces else []


def header_text(parameter: Parameter, value: object) -> str:
    """The value of a header.

    Raises:
        InvalidInput: It has a line break or a character that a header cannot carry, or is nested.
    """
    return checked_header(parameter.name, ",".join(_plain(piece) for piece in _flat(parameter, value)))


def cookie_text(parameter: Parameter, value: object) -> str:
    """One `name=value` of a cookie header.

    Raises:
        InvalidInput: The value is nested.
    """
    return f"{encoded(parameter.name)}={','.join(_joined(piece) for piece in _flat(parameter, value))}"


def checked_header(name: str, value: str) -> str:
    """The value, when a header can carry it.

    Raises:
        InvalidInput: It cannot.
    """
    if not _HEADER_VALUE.match(value):
        raise InvalidInput(
            f"The value for the header `{_shown(name)}` has a line break, another control character, a letter outside "
            "ASCII, or blanks around it.",
            hint="Headers carry plain ASCII text in one line.",
        )
    return value


def bracketed(name: str, value: object, depth: int = 0) -> list[str]:
    """Nested values as `name[key]=value` pairs, encoded; lists as `name[]=value`, of objects as `name[0][key]=value`.

    Raises:
        InvalidInput: It is nested too deep.
    """
    if depth > _DEEPEST_BRACKETS:
        raise InvalidInput(f"The argument `{_shown(name)}` is nested deeper than {_DEEPEST_BRACKETS} levels.")
    if isinstance(value, Mapping):
        return [pair for key, item in value.items() for pair in bracketed(f"{name}[{key}]", item, depth + 1)]
    if isinstance(value, list):
        nested = any(isinstance(item, Mapping | list) for item in value)
        keys = (f"{name}[{index if nested else ''}]" for index in range(len(value)))
        return [pair for key, item in zip(keys, value, strict=True) for pair in bracketed(key, item, depth + 1)]
    return [] if value is None else [f"{encoded(name)}={encoded(scalar(value, name))}"]


_Piece = str | tuple[str, str]


def _flat(parameter: Parameter, value: object) -> Iterator[_Piece]:
    """The scalars of a value, as text; `(key, text)` where a key is joined to it."""
    if parameter.style == JSON_STYLE:
        yield canonical(value)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if parameter.explode:
                yield key, scalar(item, parameter.key)
            else:
                yield key
                yield scalar(item, parameter.key)
    elif isinstance(value, list):
        for item in value:
            yield scalar(item, parameter.key)
    else:
        yield scalar(value, parameter.key)


def _path_piece(piece: _Piece, name: str) -> str:
    for text in (piece,) if isinstance(piece, str) else piece:
        if not text or _CLIMBS.search(text) or _LINE_ENDS.search(text):
            raise InvalidInput(
                f"The argument `{_shown(name)}` is empty, has a segment `.` or `..`, or a line break, which a path "
                "cannot hold."
            )
    return _joined(piece)


def _joined(piece: _Piece) -> str:
    return encoded(piece) if isinstance(piece, str) else f"{encoded(piece[0])}={encoded(piece[1])}"


def _plain(piece: _Piece) -> str:
    return piece if isinstance(piece, str) else f"{piece[0]}={piece[1]}"


def _shown(name: str) -> str:
    return shorten(visible_line(name), 100)
