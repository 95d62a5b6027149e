"""Swagger 2.0 in the shape of OpenAPI 3.0."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.bodies import COMMA_STYLE
from kortix_tui.broker.connectors.openapi.references import References, RemoteReference

METHODS: Final = ("get", "head", "options", "post", "put", "patch", "delete")

_STYLES: Final = {
    "csv": ("form", False),
    "multi": ("form", True),
    "ssv": ("spaceDelimited", False),
    "tsv": ("tabDelimited", False),
    "pipes": ("pipeDelimited", False),
}
_FLOWS: Final = {"accessCode": "authorizationCode", "application": "clientCredentials"}
_NOT_SCHEMA: Final = frozenset({"name", "in", "required", "collectionFormat", "allowEmptyValue", "$ref"})
_FORM: Final = "application/x-www-form-urlencoded"
_MULTIPART: Final = "multipart/form-data"


def converted(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same document for a reader of OpenAPI 3.0. Schemas stay where they are, so that references still lead there.

    Raises:
        RemoteReference: A reference to a parameter or a path leads out of the document.
        InvalidInput: A reference to a path leads nowhere.
    """
    references = References(document)
    schemes = _mapping(document.get("securityDefinitions"))
    return {
        **document,
        "openapi": "3.0.3",
        "servers": _servers(document),
        "paths": {
            path: _item(references.follow(item), document, references)
            for path, item in _mapping(document.get("paths")).items()
            if not path.startswith("x-")
        },
        "components": {"securitySchemes": {name: _scheme(_mapping(scheme)) for name, scheme in schemes.items()}},
    }


def _servers(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    host, path = document.get("host"), document.get("basePath") or "/"
    if not host:
        return [{"url": path}]
    return [{"url": f"{scheme}://{host}{path}"} for scheme in _list(document.get("schemes")) or ["https"]]


def _item(item: dict[str, Any], document: Mapping[str, Any], references: References) -> dict[str, Any]:
    shared = _list(item.get("parameters"))
    operations = {
        method: _operation(item[method], shared, document, references)
        for method in METHODS
        if isinstance(item.get(method), Mapping)
    }
    return {**{key: value for key, value in item.items() if key not in (*METHODS, "parameters")}, **operations}


def _operation(
    operation: Mapping[str, Any], shared: list[Any], document: Mapping[str, Any], references: References
) -> dict[str, Any]:
    given = [*shared, *_list(operation.get("parameters"))]
    try:
        own = _unique(map(references.follow, given))
    except RemoteReference:
        raise
    except InvalidInput:  # left as it is, so that this operation alone cannot be called
        return {**operation, "parameters": given}
    changed = {**operation, "parameters": [_parameter(one) for one in own if one.get("in") not in ("body", "formData")]}
    listed = _list(operation.get("consumes", document.get("consumes")))
    consumes = [media_type for media_type in listed if isinstance(media_type, str)]
    fields = [one for one in own if one.get("in") == "formData"]
    if fields:
        changed["requestBody"] = _form(fields, consumes)
    for one in own:
        if one.get("in") == "body":
            content = {kind: {"schema": one.get("schema", {})} for kind in consumes or ["application/json"]}
            changed["requestBody"] = {"required": one.get("required") is True, "content": content}
    return changed


def _unique(parameters: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operation's own win over those of its path."""
    unique: dict[tuple[str, str], dict[str, Any]] = {}
    for one in parameters:
        name, place = one.get("name"), one.get("in")
        if not isinstance(name, str) or not isinstance(place, str):
            raise InvalidInput("A parameter has no name or no place.")
        unique[name, place] = one
    return list(unique.values())


def _parameter(one: dict[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in one.items() if key in ("name", "in", "required", "description")}
    style, explode = _STYLES.get(str(one.get("collectionFormat")), ("form", False))
    if one.get("in") != "query":
        style = "simple"
    return {**found, "schema": _schema(one), "style": style, "explode": explode}


def _form(fields: list[dict[str, Any]], consumes: list[str]) -> dict[str, Any]:
    files = any(one.get("type") == "file" for one in fields)
    media_type = _MULTIPART if files or (_MULTIPART in consumes and _FORM not in consumes) else _FORM
    separate = {
        str(one.get("name")): {"style": COMMA_STYLE}
        for one in fields
        if one.get("type") == "array" and one.get("collectionFormat", "csv") == "csv"
    }
    schema = {
        "type": "object",
        "properties": {str(one.get("name")): _schema(one) for one in fields},
        "required": [str(one.get("name")) for one in fields if one.get("required") is True],
    }
    required = bool(schema["required"])
    return {"required": required, "content": {media_type: {"schema": schema, "encoding": separate}}}


def _schema(one: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in one.items() if key not in _NOT_SCHEMA}


def _scheme(scheme: Mapping[str, Any]) -> dict[str, Any]:
    match scheme.get("type"):
        case "basic":
            return {"type": "http", "scheme": "basic"}
        case "oauth2":
            flow = str(scheme.get("flow"))
            parts = {key: scheme[key] for key in ("authorizationUrl", "tokenUrl", "scopes") if key in scheme}
            return {"type": "oauth2", "flows": {_FLOWS.get(flow, flow): parts}}
        case _:
            return dict(scheme)


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
