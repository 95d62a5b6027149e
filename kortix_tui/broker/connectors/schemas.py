"""Schemas that somebody else wrote: made plain, and used to check arguments without holding up the host.

Schemas come from documents and tool servers, arguments from agents; together they could ask for unbounded work. So only
known keywords of the right kind are kept, no reference leads elsewhere, equal items are found by their text, and a
regular expression is tried only where it cannot run away. What is not checked here the called server still checks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final

import rfc8785

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator

ONE_SCHEMA: Final = frozenset(
    {
        "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then", "unevaluatedItems",
        "unevaluatedProperties",
    }
)  # fmt: skip
"""Keywords whose value is a schema."""

SCHEMA_LISTS: Final = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
SCHEMA_MAPS: Final = frozenset({"dependentSchemas", "patternProperties", "properties"})

_NUMBER = (int, float)
DATA: Final[Mapping[str, type | tuple[type, ...]]] = {
    "const": object, "default": object, "example": object, "type": (str, list), "enum": list, "examples": list,
    "required": list, "dependentRequired": dict, "title": str, "description": str, "format": str, "pattern": str,
    "contentEncoding": str, "contentMediaType": str, "minimum": _NUMBER, "maximum": _NUMBER, "multipleOf": _NUMBER,
    "exclusiveMinimum": (bool, *_NUMBER), "exclusiveMaximum": (bool, *_NUMBER), "minLength": int, "maxLength": int,
    "minItems": int, "maxItems": int, "minContains": int, "maxContains": int, "minProperties": int,
    "maxProperties": int, "uniqueItems": bool, "nullable": bool, "deprecated": bool, "readOnly": bool,
    "writeOnly": bool,
}  # fmt: skip
"""Keywords whose value is data, and of which kind; every other keyword is left out."""

LONGEST_FOR_PATTERN: Final = 256
"""Characters of a text that a pattern is tried on."""

_TYPES: Final = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})
_REPEATS = re.compile(r"[*+]|\{\d*,\d*\}")
_REPEATED_GROUP = re.compile(r"\)(?:[*+]|\{)")
_CHARACTER_SET = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_LONGEST_PATTERN: Final = 4096


def modern(schema: dict[str, Any]) -> dict[str, Any]:
    """One schema object of any OpenAPI version in the words of JSON Schema 2020-12; its subschemas are so already."""
    found = {key: value for key, value in schema.items() if _keeps(key, value)}
    _types(found)
    for bound, strict in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(found.get(strict), bool):
            exclusive = found.pop(strict)
            if exclusive and bound in found:
                found[strict] = found.pop(bound)
    if "example" in found:
        found.setdefault("examples", [found["example"]])
        del found["example"]
    if "properties" in found:
        _drop_read_only(found)
    # Its patterns would be tried on every name: names that are not listed are let through instead.
    if found.pop("patternProperties", None) is not None:
        found.pop("additionalProperties", None)
        found.pop("unevaluatedProperties", None)
    return found


def _drop_read_only(schema: dict[str, Any]) -> None:
    """Leave out what only answers hold: all schemas here are of requests."""
    hidden = {
        name for name, one in schema["properties"].items() if isinstance(one, dict) and one.get("readOnly") is True
    }
    if hidden:
        schema["properties"] = {name: one for name, one in schema["properties"].items() if name not in hidden}
        schema["required"] = [name for name in schema.get("required", []) if name not in hidden]


def _keeps(key: str, value: object) -> bool:
    kind = DATA.get(key)
    if kind is None:
        return key in ONE_SCHEMA or key in SCHEMA_LISTS or key in SCHEMA_MAPS
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, _NUMBER)):
        return False
    if key == "multipleOf":
        return isinstance(value, _NUMBER) and value > 0
    if key == "required":
        return _are_names(value)
    if key == "dependentRequired":
        return isinstance(value, dict) and all(map(_are_names, value.values()))
    return True


def _are_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _types(schema: dict[str, Any]) -> None:
    """Known types only; a file is a text that stands for bytes; `nullable` is one type more."""
    wanted = schema.pop("type", None)
    types = [one for one in ([wanted] if isinstance(wanted, str) else wanted or []) if isinstance(one, str)]
    if "file" in types:
        types, schema["format"] = ["string"], "binary"
    types = [one for one in types if one in _TYPES]
    if schema.pop("nullable", False) and types:
        types = [*types, "null"] if "null" not in types else types
        if "enum" in schema and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
    if types:
        schema["type"] = types[0] if len(types) == 1 else types


def problems(schema: Mapping[str, Any], value: Any) -> Iterator[ValidationError]:
    """What is wrong with a value. The schema was made plain before; references out of it are never fetched.

    Raises:
        referencing.exceptions.Unresolvable: A reference leads out of it, or to nothing.
    """
    from referencing import Registry

    return _validator_class()(schema, registry=Registry()).iter_errors(value)


@lru_cache(maxsize=1024)
def safe_pattern(pattern: str) -> re.Pattern[str] | None:
    """The compiled pattern, or `None` for one that Python does not read or that could take long.

    One open-ended repeat (two, where the pattern is tied to the beginning) and none over a group: the work grows with
    the square of a short text.
    """
    if len(pattern) > _LONGEST_PATTERN:
        return None
    bare = _CHARACTER_SET.sub("x", pattern)
    most = 2 if bare.startswith("^") and "|" not in bare else 1
    if len(_REPEATS.findall(bare)) > most or _REPEATED_GROUP.search(bare):
        return None
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return None


def _pattern(_validator: Validator, pattern: str, value: object, _schema: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and len(value) <= LONGEST_FOR_PATTERN:
        compiled = safe_pattern(pattern)
        if compiled is not None and not compiled.search(value):
            yield ValidationError(f"does not match {pattern}")


def _unique(_validator: Validator, unique: bool, value: object, _schema: object) -> Iterator[ValidationError]:
    from jsonschema.exceptions import ValidationError

    if unique and isinstance(value, list) and len({rfc8785.dumps(item) for item in value}) < len(value):
        yield ValidationError("has an item twice")


@cache
def _validator_class() -> type[Validator]:
    from jsonschema import Draft202012Validator, validators

    extend: Callable[..., type[Validator]] = validators.extend
    return extend(Draft202012Validator, {"pattern": _pattern, "uniqueItems": _unique})
