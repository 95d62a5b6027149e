"""What an operation takes: its parameters and its body become one flat set of arguments with a schema."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast, get_args

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.arguments import TEMPLATE, forbidden_header
from kortix_tui.broker.connectors.bodies import COMMA_STYLE, STYLE_KEY
from kortix_tui.broker.connectors.model import Body, Encoding, Parameter, Place
from kortix_tui.broker.connectors.openapi.references import References
from kortix_tui.broker.connectors.writing import DEEP_STYLE, JSON_STYLE

BODY_KEY: Final = "body"

_STYLES: Final[Mapping[str, tuple[str, ...]]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "tabDelimited", DEEP_STYLE),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each place; the first is the one that a parameter has which names none."""

_PLACES: Final = frozenset(get_args(Place))
_KEY = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_NOT_KEY = re.compile(r"[^A-Za-z0-9_.-]+")
_MEDIA_TYPE = re.compile(
    r"[A-Za-z0-9!#$&^_.+*-]{1,80}/[A-Za-z0-9!#$&^_.+*-]{1,120}(?:;[ A-Za-z0-9!#$&^_.+=\"-]{1,80})*\Z"
)
_NOT_FLAT: Final = (
    "anyOf",
    "oneOf",
    "not",
    "if",
    "minProperties",
    "maxProperties",
    "propertyNames",
    "dependentRequired",
)
_FOR_DOCUMENTATION: Final = ("accept", "content-type", "authorization")


class Inputs(NamedTuple):
    """The arguments of one operation."""

    schema: dict[str, Any]
    parameters: tuple[Parameter, ...]
    body: Body | None


class _Field(NamedTuple):
    name: str
    place: Place
    required: bool
    style: str
    explode: bool
    schema: dict[str, Any]


def read_inputs(
    path: str,
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
    references: References,
    filled_in: frozenset[tuple[str, str]],
) -> Inputs:
    """The arguments of an operation.

    Args:
        path: Its template; a parameter that it names and nothing declares is a text.
        item: The path's part of the document, whose parameters all its operations share.
        operation: The operation's part.
        references: Of the document.
        filled_in: `(place, name)` of the keys that the host fills in: they are no arguments.

    Raises:
        InvalidInput: A part of it does not have the shape that OpenAPI asks for.
    """
    fields = _fields(path, item, operation, references, filled_in)
    body, body_schemas, needed = _body(operation, references)
    keys = _keys(fields, body_schemas)
    properties = {key: field.schema for key, field in zip(keys, fields, strict=True)} | body_schemas
    required = [key for key, field in zip(keys, fields, strict=True) if field.required] + needed
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    parameters = tuple(
        Parameter(key=key, name=one.name, place=one.place, required=one.required, style=one.style, explode=one.explode)
        for key, one in zip(keys, fields, strict=True)
    )
    return Inputs(schema, parameters, body)


def _fields(
    path: str,
    item: Mapping[str, Any],
    operation: Mapping[str, Any],
    references: References,
    filled_in: frozenset[tuple[str, str]],
) -> list[_Field]:
    declared: dict[tuple[str, str], dict[str, Any]] = {}
    for node in [*_list(item.get("parameters")), *_list(operation.get("parameters"))]:
        one = references.follow(node)
        name, place = one.get("name"), one.get("in")
        if not isinstance(name, str) or not isinstance(place, str) or place not in _PLACES:
            raise InvalidInput("A parameter has no name or no place that is known.")
        declared[place, name] = one
    named = TEMPLATE.findall(path)
    for name in named:
        if not _KEY.match(name) and ("path", name) not in declared:
            raise InvalidInput("Its path has a part in braces that names no parameter.")
        declared.setdefault(("path", name), {"schema": {"type": "string"}})
    return [
        _field(name, cast("Place", place), one, references)
        for (place, name), one in declared.items()
        if (place, name.casefold()) not in filled_in
        and not (place == "header" and (forbidden_header(name) or name.casefold() in _FOR_DOCUMENTATION))
        and (place != "path" or name in named)
    ]


def _field(name: str, place: Place, one: Mapping[str, Any], references: References) -> _Field:
    content = one.get("content")
    if isinstance(content, Mapping) and content:
        media = next(iter(content.values()))
        schema = references.inlined(media.get("schema", {}) if isinstance(media, Mapping) else {})
        style, explode = JSON_STYLE, False
    else:
        schema = references.inlined(one.get("schema", {}))
        style = one["style"] if one.get("style") in _STYLES[place] else _STYLES[place][0]
        explode = one["explode"] if isinstance(one.get("explode"), bool) else style == "form"
    description = one.get("description")
    if isinstance(description, str):
        schema = {**schema, "description": description}
    return _Field(name, place, place == "path" or one.get("required") is True, style, explode, schema)


def _keys(fields: list[_Field], body: Iterable[str]) -> list[str]:
    """A name for each parameter among the arguments: models take letters, digits and `_.-` only, and each name once."""
    plain = [_plain_key(field.name) for field in fields]
    count = Counter([*plain, *body])
    keys = [key if count[key] == 1 else f"{field.place}_{key}"[:64] for key, field in zip(plain, fields, strict=True)]
    count = Counter([*keys, *body])
    return [
        key
        if count[key] == 1
        else f"{key[:57]}_{hashlib.sha256(f'{field.place} {field.name}'.encode()).hexdigest()[:6]}"
        for key, field in zip(keys, fields, strict=True)
    ]


def _plain_key(name: str) -> str:
    if _KEY.match(name):
        return name
    # Twilio and others compare with parameters such as `DateCreated<`.
    spelled = name.replace("<", "_lt").replace(">", "_gt")
    return _NOT_KEY.sub("_", spelled).strip("_")[:64] or "value"


def _body(operation: Mapping[str, Any], references: References) -> tuple[Body | None, dict[str, Any], list[str]]:
    """The body, the schemas of the arguments that make it, and which of them are needed."""
    if operation.get("requestBody") is None:
        return None, {}, []
    node = references.follow(operation["requestBody"])
    content = node.get("content")
    choices = [
        (media_type, media)
        for media_type, media in (content.items() if isinstance(content, Mapping) else [])
        if _MEDIA_TYPE.match(media_type)
    ]
    if not choices:
        raise InvalidInput("Its body has no media type that can be sent.")
    media_type, media = min(choices, key=lambda choice: _rank(choice[0]))
    media = media if isinstance(media, Mapping) else {}
    required = node.get("required") is True
    encoding = _encoding(media_type)
    if "*" in media_type:
        media_type = "application/json"
    if encoding in ("text", "bytes"):
        words = "The body." if encoding == "text" else "The body's bytes, as base64."
        body = Body(media_type=media_type, encoding=encoding, required=required, key=BODY_KEY)
        return body, {BODY_KEY: {"type": "string", "description": words}}, [BODY_KEY] if required else []
    schema = _merged(references.inlined(media.get("schema", {})))
    if encoding != "json":
        schema = _form_schema(schema, media, multipart=encoding == "multipart")
    properties = schema.get("properties", {})
    if not _is_flat(schema):
        body = Body(media_type=media_type, encoding=encoding, required=required, key=BODY_KEY)
        return body, {BODY_KEY: schema}, [BODY_KEY] if required else []
    body = Body(media_type=media_type, encoding=encoding, required=required, fields=tuple(properties))
    # Many documents forget that the body is required when its fields are.
    return body, properties, [name for name in schema.get("required", []) if name in properties]


def _rank(media_type: str) -> int:
    bare = media_type.partition(";")[0].strip().casefold()
    order: dict[Encoding, int] = {"json": 1, "form": 3, "multipart": 4, "text": 5, "bytes": 6}
    if bare == "application/json":
        return 0
    return 2 if "*" in bare else order[_encoding(media_type)]


def _encoding(media_type: str) -> Encoding:
    bare = media_type.partition(";")[0].strip().casefold()
    if bare in ("application/json", "*/*", "application/*") or bare.endswith("+json"):
        return "json"
    if bare == "application/x-www-form-urlencoded":
        return "form"
    if bare == "multipart/form-data":
        return "multipart"
    return "text" if bare.startswith("text/") or bare.endswith(("/xml", "+xml", "yaml", "graphql")) else "bytes"


def _merged(schema: dict[str, Any]) -> dict[str, Any]:
    """An object that is written as `allOf` of plain objects, as one object."""
    parts = schema.get("allOf")
    rest = {key: value for key, value in schema.items() if key != "allOf"}
    if not parts:
        return schema
    properties: dict[str, Any] = {}
    required: list[str] = []
    for part in [*map(_merged, (part for part in parts if isinstance(part, dict))), rest]:
        if any(key in part for key in ("allOf", "additionalProperties", *_NOT_FLAT)):
            return schema
        if properties.keys() & part.get("properties", {}).keys():
            return schema
        properties |= part.get("properties", {})
        required += [name for name in part.get("required", []) if name not in required]
    merged = {**rest, "properties": properties} if properties else schema
    return {**merged, "required": required} if properties and required else merged


def _is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether its properties can be arguments themselves."""
    properties = schema.get("properties")
    return (
        bool(properties)
        and schema.get("type", "object") == "object"
        and schema.get("additionalProperties", False) is False
        and not any(key in schema for key in ("allOf", *_NOT_FLAT))
        and all(_KEY.match(name) for name in properties or ())
    )


def _form_schema(schema: dict[str, Any], media: Mapping[str, Any], *, multipart: bool) -> dict[str, Any]:
    """Mark the fields that are written in a style of their own, and those that are files."""
    encoding = media.get("encoding")
    styles = encoding if isinstance(encoding, Mapping) else {}
    properties = {}
    for name, one in schema.get("properties", {}).items():
        marked = dict(one) if isinstance(one, dict) else {}
        if multipart and "contentMediaType" in marked and "contentEncoding" not in marked:
            marked["format"] = "binary"
        if marked.get("format") == "binary":
            marked["description"] = f"{marked.get('description', '')} (base64 of the bytes)".strip()
        style = styles[name].get("style") if isinstance(styles.get(name), Mapping) else None
        if style in (DEEP_STYLE, COMMA_STYLE):
            marked[STYLE_KEY] = style
        properties[name] = marked
    return {**schema, "properties": properties} if properties else schema


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
