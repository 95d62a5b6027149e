"""The body of an HTTP request, from arguments."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.model import Body
from kortix_tui.broker.connectors.writing import DEEP_STYLE, bracketed, canonical, encoded, scalar

STYLE_KEY: Final = "x-style"
"""In the schema of a form's field: how nested values are written, where not as usual: `deepObject` or `simple`."""

COMMA_STYLE: Final = "simple"
"""A list is one field, its items joined by commas."""

_ABSENT: Final = object()


class Written(NamedTuple):
    """A body as it is sent."""

    content_type: str
    data: bytes


def write_body(body: Body, arguments: Mapping[str, Any], schemas: Mapping[str, Any]) -> Written | None:
    """The body that the arguments make, or `None` when they make none and none is needed.

    Args:
        body: How it is made.
        arguments: All arguments of the call.
        schemas: The schema of each argument: a text of format `binary` is base64 of the bytes to send.

    Raises:
        InvalidInput: A value does not fit the encoding, or a needed body is missing.
    """
    value: Any
    if body.key is not None:
        value = arguments.get(body.key, _ABSENT)
    else:
        value = {name: arguments[name] for name in body.fields if name in arguments}
    if value is _ABSENT or (body.key is None and not value):
        if not body.required:
            return None
        if value is _ABSENT:
            raise InvalidInput(f"The argument `{_shown(body.key or '')}` is missing.")
    if body.key is not None and isinstance(schema := schemas.get(body.key), Mapping):
        schemas = schema.get("properties", {})
    match body.encoding:
        case "json":
            return Written(body.media_type, canonical(value).encode())
        case "form":
            return Written(body.media_type, _form(_fields(value), schemas))
        case "multipart":
            return _multipart(body.media_type, _fields(value), schemas)
        case "text":
            return Written(_with_charset(body.media_type), _text(value).encode())
        case "bytes":
            return Written(body.media_type, _bytes(value, body.key or "body"))


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput("The body of a form is an object: one value for each field.")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput("The body is a text.", hint="Write it as one JSON string.")
    return value


def _bytes(value: object, name: str) -> bytes:
    try:
        return base64.b64decode(value if isinstance(value, str) else "!", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidInput(
            f"The argument `{_shown(name)}` is not base64.", hint="Encode its bytes as base64."
        ) from None


def _with_charset(media_type: str) -> str:
    wanted = media_type.startswith("text/") and "charset" not in media_type
    return f"{media_type}; charset=utf-8" if wanted else media_type


def _form(fields: Mapping[str, Any], schemas: Mapping[str, Any]) -> bytes:
    pairs: list[str] = []
    for name, value in fields.items():
        style = _style(schemas.get(name))
        if style == DEEP_STYLE and isinstance(value, Mapping | list):
            pairs += bracketed(name, value)
        elif style == COMMA_STYLE and isinstance(value, list):
            pairs.append(f"{encoded(name)}={','.join(encoded(scalar(item, name)) for item in value)}")
        else:
            pairs += [f"{encoded(name)}={encoded(text)}" for text in _texts(name, value)]
    return "&".join(pairs).encode()


def _texts(name: str, value: object) -> Iterator[str]:
    """What a field holds: a list of scalars is the field several times, another nested value is JSON."""
    if isinstance(value, list) and not any(isinstance(item, Mapping | list | None) for item in value):
        yield from (scalar(item, name) for item in value)
    elif isinstance(value, Mapping | list):
        yield canonical(value)
    elif value is not None:
        yield scalar(value, name)


def _multipart(media_type: str, fields: Mapping[str, Any], schemas: Mapping[str, Any]) -> Written:
    parts: list[bytes] = []
    for name, value in fields.items():
        if _is_binary(schemas.get(name)):
            parts += [
                _part(name, _bytes(item, name), "application/octet-stream", file=True)
                for item in (value if isinstance(value, list) else [value])
            ]
        else:
            kind = "application/json" if isinstance(value, Mapping) else None
            parts += [_part(name, text.encode(), kind) for text in _texts(name, value)]
    boundary = _boundary(parts)
    mark = f"--{boundary}".encode()
    data = b"".join(mark + b"\r\n" + part + b"\r\n" for part in parts) + mark + b"--\r\n"
    return Written(f"{media_type}; boundary={boundary}", data)


def _boundary(parts: list[bytes]) -> str:
    """A text that is in no part; the same for the same parts, so that the same call has the same digest."""
    whole = b"\r\n".join(parts)
    boundary = hashlib.sha256(whole).hexdigest()[:32]
    while boundary.encode() in whole:
        boundary = hashlib.sha256(boundary.encode()).hexdigest()[:32]
    return boundary


def _part(name: str, data: bytes, content_type: str | None, *, file: bool = False) -> bytes:
    quoted = name.replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = f'content-disposition: form-data; name="{quoted}"' + (f'; filename="{quoted}"' if file else "")
    if content_type:
        head += f"\r\ncontent-type: {content_type}"
    return head.encode() + b"\r\n\r\n" + data


def _style(schema: object) -> object:
    return schema.get(STYLE_KEY) if isinstance(schema, Mapping) else None


def _is_binary(schema: object) -> bool:
    if not isinstance(schema, Mapping):
        return False
    return schema.get("format") == "binary" or _is_binary(schema.get("items"))


def _shown(name: str) -> str:
    return shorten(visible_line(name), 100)
