"""Hand-written routes of a plain HTTP connector become a catalogue.

`parameters` of a route lists its arguments by name: a schema each, or just the name of a type, beside which `in` says
where it goes (`path`, `query`, `header`, `cookie`, `body`) and `required` whether it must be there. Without `in` an
argument goes where it usually belongs: into the path when the path names it, else into the query of a reading or
deleting request and into the JSON body of another. A whole object schema (`type: object`, `properties`) does as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, get_args

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.arguments import TEMPLATE, forbidden_header
from kortix_tui.broker.connectors.model import Action, Body, Catalogue, HttpOperation, Parameter, Place
from kortix_tui.broker.connectors.openapi.mapping import risk_of
from kortix_tui.broker.connectors.openapi.naming import Wanted, action_name, settle
from kortix_tui.broker.connectors.openapi.references import References
from kortix_tui.manifest.connectors import HttpConnector, HttpRoute

_BODILESS: Final = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
_PLACES: Final = (*get_args(Place), "body")
_DEFAULT_STYLE: Final[Mapping[str, tuple[str, bool]]] = {
    "path": ("simple", False), "query": ("form", True), "header": ("simple", False), "cookie": ("form", True)
}  # fmt: skip


class _Argument(NamedTuple):
    name: str
    place: Place | Literal["body"]
    required: bool
    schema: dict[str, Any]


def routes_catalogue(connector: HttpConnector) -> Catalogue:
    """The actions of a connector's routes.

    Raises:
        InvalidInput: A route's parameters cannot be read, or two routes are the same.
    """
    names = settle([_wanted(route) for route in connector.routes])
    shape = [connector.base_url, [route.model_dump(mode="json") for route in connector.routes]]
    return Catalogue(
        title=connector.name or connector.slug,
        document_hash=hashlib.sha256(json.dumps(shape, sort_keys=True).encode()).hexdigest(),
        base_url=connector.base_url.rstrip("/"),
        actions=tuple(_action(name, route) for name, route in zip(names, connector.routes, strict=True)),
    )


def _wanted(route: HttpRoute) -> Wanted:
    name = action_name(route.name) or action_name(f"{route.method} {route.path}")
    return Wanted(name, f"{route.method} {route.path} {route.name}")


def _action(name: str, route: HttpRoute) -> Action:
    arguments = _arguments(route)
    body = tuple(one.name for one in arguments if one.place == "body")
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {one.name: one.schema for one in arguments},
        "additionalProperties": False,
    }
    if required := [one.name for one in arguments if one.required]:
        schema["required"] = required
    return Action(
        name=name,
        title=route.name,
        description=route.description or "",
        risk=Risk(route.risk) if route.risk else risk_of(route.method),
        input_schema=schema,
        operation=HttpOperation(
            method=route.method,
            path=route.path if route.path.startswith("/") else f"/{route.path}",
            parameters=tuple(_parameter(one, one.place) for one in arguments if one.place != "body"),
            body=Body(media_type="application/json", encoding="json", fields=body) if body else None,
        ),
    )


def _arguments(route: HttpRoute) -> list[_Argument]:
    declared = route.parameters
    required: list[Any] = []
    if declared.get("type") == "object" and isinstance(declared.get("properties"), Mapping):
        required = declared["required"] if isinstance(declared.get("required"), list) else []
        declared = declared["properties"]
    named = TEMPLATE.findall(route.path)
    wanted = {name: declared.get(name, "string") for name in named} | dict(declared)
    return [_argument(route, name, one, name in named, name in required) for name, one in wanted.items()]


def _argument(route: HttpRoute, name: str, one: object, in_path: bool, required: bool) -> _Argument:
    node = {"type": one} if isinstance(one, str) else one
    if not isinstance(node, Mapping):
        raise InvalidInput(
            f"The parameter `{name}` of the route `{route.name}` is neither a type nor a schema.",
            hint="Write for example `id: integer`, or `id: {type: integer, in: query}`.",
        )
    usual = "path" if in_path else "query" if route.method in _BODILESS else "body"
    place = node.get("in", usual)
    if place not in _PLACES or (place == "path") != in_path:
        raise InvalidInput(
            f"The parameter `{name}` of the route `{route.name}` cannot go into `{place}`.",
            hint="What the path names goes into `path`; the rest into `query`, `header`, `cookie` or `body`.",
        )
    if place == "header" and forbidden_header(name):
        raise InvalidInput(f"The route `{route.name}` cannot take the header `{name}` from an argument.")
    schema = References({}).inlined({key: value for key, value in node.items() if key != "in"})
    return _Argument(name, place, in_path or required or node.get("required") is True, schema)


def _parameter(one: _Argument, place: Place) -> Parameter:
    style, explode = _DEFAULT_STYLE[place]
    return Parameter(key=one.name, name=one.name, place=place, required=one.required, style=style, explode=explode)
