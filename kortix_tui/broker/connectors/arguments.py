"""An agent's arguments: read strictly, checked against the action's schema, and turned into one HTTP request."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.bodies import write_body
from kortix_tui.broker.connectors.model import (
    Action,
    GraphqlOperation,
    HttpCall,
    HttpOperation,
    McpTool,
    Parameter,
    Place,
)
from kortix_tui.broker.connectors.openapi.references import self_contained
from kortix_tui.broker.connectors.schemas import problems
from kortix_tui.broker.connectors.writing import (
    canonical,
    checked_header,
    cookie_text,
    header_text,
    path_text,
    query_texts,
)

MOST_BYTES: Final = 4 << 20
DEEPEST: Final = 64
MOST_VALUES: Final = 50_000
LONGEST_URL: Final = 16 << 10
_MOST_EXACT: Final = (1 << 53) - 1

TEMPLATE: Final = re.compile(r"\{([^{}]*)\}")
"""A parameter in the path of an operation."""

_LITERAL_SAFE: Final = "/:@!$&'()*+,;=-._~%"
_OPEN_SCHEMA: Final = ("additionalProperties", "allOf", "anyOf", "oneOf", "if", "unevaluatedProperties")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
_FORBIDDEN_HEADERS: Final = frozenset(
    {
        "host", "authorization", "cookie", "set-cookie", "content-length", "transfer-encoding", "connection",
        "keep-alive", "te", "trailer", "upgrade", "expect", "forwarded", "via", "accept-encoding", "content-encoding",
        "x-real-ip", "x-http-method", "x-http-method-override", "x-method-override", "x-original-url", "x-rewrite-url",
    }
)  # fmt: skip


def read_arguments(text: str) -> dict[str, Any]:
    """The JSON object that a caller wrote, read so that every reader would read the same.

    Raises:
        InvalidInput: It is no JSON object; a key stands twice; a number is not finite or a whole number above 2^53; a
            text has half a character; it is nested deeper than 64 levels, or larger than 4 MiB or 50,000 values.
    """
    if len(text) > MOST_BYTES or len(text.encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise InvalidInput(f"The arguments are larger than {MOST_BYTES >> 20} MiB.")
    try:
        value = json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_not_a_number,
            parse_float=_finite,
            parse_int=_exact,
        )
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The arguments are not JSON: {error.msg} in line {error.lineno}, column {error.colno}.",
            hint='Write one object, for example {"id": 7}.',
        ) from None
    if not isinstance(value, dict):
        raise InvalidInput("The arguments are no JSON object.", hint='Write one object, for example {"id": 7}.')
    _measure(value)
    return value


def check_arguments(action: Action, arguments: Mapping[str, Any]) -> None:
    """Check arguments against the action's schema. Large ones take a while: do it outside the event loop.

    Raises:
        InvalidInput: They do not fit; the message names the place.
    """
    schema = action.input_schema
    if isinstance(action.operation, McpTool):  # as its server wrote it
        schema = self_contained(schema)
    properties = schema.get("properties", {})
    if not any(schema.get(key) for key in _OPEN_SCHEMA):
        for name in arguments:
            if name not in properties:
                known = ", ".join(sorted(properties)[:30])
                raise InvalidInput(
                    f"{action.name} has no argument `{_shown(name)}`.",
                    hint=f"It takes: {known}." if known else "It takes none.",
                )
    from referencing.exceptions import Unresolvable

    try:
        problem = next(problems(schema, arguments), None)
    except Unresolvable:
        raise InvalidInput(f"The schema of {action.name} refers to something that is not a part of it.") from None
    except RecursionError:
        raise InvalidInput("The arguments and their schema are nested too deep to be checked.") from None
    if problem is not None:
        place = ".".join(["arguments", *(str(part) for part in problem.absolute_path)])
        raise InvalidInput(
            f"{shorten(visible_line(place), 200)}: {shorten(visible_line(problem.message), 300)}.",
            hint="Show the action to see what it takes.",
        )


def build(action: Action, arguments: Mapping[str, Any], *, base_url: str, headers: Mapping[str, str]) -> HttpCall:
    """The whole request but for the credential. The same arguments always make the same request.

    Args:
        action: An HTTP or GraphQL action.
        arguments: As `check_arguments` accepted them.
        base_url: Where the connector's requests go.
        headers: What the connector always sends; no argument can replace one of them.

    Raises:
        InvalidInput: A value cannot be written where it belongs.
        Refused: The action cannot be called.
        TypeError: It is a tool server's action.
    """
    if action.unavailable:
        raise Refused(f"{action.name} cannot be called: {action.unavailable}")
    match action.operation:
        case HttpOperation() as operation:
            return _request(operation, arguments, action.input_schema.get("properties", {}), base_url, headers)
        case GraphqlOperation(document=document, operation_name=name):
            body = canonical({"query": document, "variables": dict(arguments), "operationName": name}).encode()
            wanted = [("accept", "application/graphql-response+json, application/json"), ("content-type", _JSON)]
            return HttpCall(method="POST", url=base_url, headers=_all_headers(headers, wanted), body=body)
        case McpTool():
            raise TypeError("a tool server's action is no HTTP request")


def forbidden_header(name: str) -> bool:
    """Whether no argument may set this header: it would change where a request goes, what it does or who makes it."""
    folded = name.casefold()
    return (
        folded in _FORBIDDEN_HEADERS
        or folded.startswith(("proxy-", "x-forwarded-", "sec-"))
        or not _HEADER_NAME.match(name)
    )


_JSON: Final = "application/json"


def _request(
    operation: HttpOperation,
    arguments: Mapping[str, Any],
    schemas: Mapping[str, Any],
    base_url: str,
    fixed: Mapping[str, str],
) -> HttpCall:
    given = list(_given(operation, arguments))
    base = urlsplit(base_url)
    path = base.path.rstrip("/") + _path(operation.path, given)
    query = [text for parameter, value in given if parameter.place == "query" for text in query_texts(parameter, value)]
    url = urlunsplit((base.scheme, base.netloc, path, "&".join([*([base.query] if base.query else []), *query]), ""))
    _check_url(url, base)
    headers = [("accept", "application/json, */*;q=0.8")]
    for parameter, value in _at("header", given):
        if forbidden_header(parameter.name) or parameter.name.casefold() in {name.casefold() for name in fixed}:
            raise InvalidInput(f"The header `{_shown(parameter.name)}` cannot be set by an argument.")
        headers.append((parameter.name.lower(), header_text(parameter, value)))
    if cookies := [cookie_text(parameter, value) for parameter, value in _at("cookie", given)]:
        headers.append(("cookie", "; ".join(cookies)))
    body = write_body(operation.body, arguments, schemas) if operation.body else None
    if body is not None:
        headers.append(("content-type", checked_header("content-type", body.content_type)))
    return HttpCall(
        method=operation.method, url=url, headers=_all_headers(fixed, headers), body=body.data if body else None
    )


def _given(operation: HttpOperation, arguments: Mapping[str, Any]) -> Iterator[tuple[Parameter, Any]]:
    """The parameters that have a value; nothing is sent for an optional one that is null."""
    for parameter in operation.parameters:
        value = arguments.get(parameter.key)
        if value is not None:
            yield parameter, value
        elif parameter.required or parameter.place == "path":
            raise InvalidInput(f"The argument `{_shown(parameter.key)}` is missing.")


def _at(place: Place, given: list[tuple[Parameter, Any]]) -> list[tuple[Parameter, Any]]:
    return [(parameter, value) for parameter, value in given if parameter.place == place]


def _path(template: str, given: list[tuple[Parameter, Any]]) -> str:
    texts = {parameter.name: path_text(parameter, value) for parameter, value in _at("path", given)}
    shape, path, end = "", "", 0
    for match in TEMPLATE.finditer(template):
        literal = quote(template[end : match.start()], safe=_LITERAL_SAFE)
        if match[1] not in texts:
            raise InvalidInput(f"The argument `{_shown(match[1])}` is missing.")
        shape += re.escape(literal) + "[^/?#]+"
        path += literal + texts[match[1]]
        end = match.end()
    literal = quote(template[end:], safe=_LITERAL_SAFE)
    path, shape = path + literal, shape + re.escape(literal)
    climbs = any(unquote(segment) in (".", "..") for segment in path.split("/"))
    if climbs or not path.startswith("/") or not re.fullmatch(shape, path):
        raise InvalidInput("The arguments would make the request go to another path than the action's.")
    return path


def _check_url(url: str, base: SplitResult) -> None:
    made = urlsplit(url)
    if (made.scheme, made.netloc) != (base.scheme, base.netloc) or "@" in made.netloc or made.fragment:
        raise InvalidInput("The arguments would make the request go to another host than the connector's.")
    if len(url) > LONGEST_URL:
        raise InvalidInput(f"The request's address would be longer than {LONGEST_URL >> 10} KiB.")


def _all_headers(fixed: Mapping[str, str], wanted: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    names = {name.casefold() for name in fixed}
    always = [(name.lower(), checked_header(name, value)) for name, value in fixed.items()]
    return (*always, *((name, value) for name, value in wanted if name not in names))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise InvalidInput(f"The key `{_shown(key)}` stands twice in the arguments.", hint="Keep one of them.")
            seen.add(key)
    return found


def _not_a_number(text: str) -> float:
    raise InvalidInput(f"`{text}` is no JSON number.", hint="Leave the argument out, or write it as text.")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_a_number(shorten(text, 40))


def _exact(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > _MOST_EXACT:
        raise InvalidInput(
            f"The whole number {shorten(text, 40)} is above 2^53: programs would read it differently.",
            hint="Write it as text if the action takes text.",
        )
    return int(text)


def _measure(value: object) -> None:
    level, values = [value], 0
    for _ in range(DEEPEST + 1):
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                below += item.values()
                below += item
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str) and not item.isascii() and _has_half_character(item):
                raise InvalidInput("A text in the arguments has half a character (a lone surrogate).")
        values += len(below)
        if values > MOST_VALUES:
            raise InvalidInput(f"The arguments hold more than {MOST_VALUES} keys and values.")
        if not below:
            return
        level = below
    raise _too_deep()


def _has_half_character(text: str) -> bool:
    return any("\ud800" <= char <= "\udfff" for char in text)


def _too_deep() -> InvalidInput:
    return InvalidInput(f"The arguments are nested deeper than {DEEPEST} levels.")


def _shown(name: str) -> str:
    return shorten(visible_line(name), 100)
