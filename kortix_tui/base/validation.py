"""From plain data to a typed model, with every fault named by place, in words that a person can act on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from kortix_tui.base.faults import Fault, Path, Place, choose, nearest

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

Many = Annotated[tuple[T, ...], Field(strict=False)]
"""A list in the file, a tuple in the model; nothing but a list is taken."""


class Part(BaseModel):
    """A piece of a file that people write: frozen, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Places(Protocol):
    """Where the pieces of the data stand; see `yaml.Document`."""

    def key_place(self, path: Path) -> Place:
        """The place of a key."""
        ...

    def value_place(self, path: Path) -> Place:
        """The place of a value."""
        ...


def wrong(message: str, hint: str | None = None, *, at: str | None = None, code: str = "value") -> PydanticCustomError:
    """What a validator raises.

    Args:
        message: What is wrong; untrusted text in it is fine.
        hint: What to do.
        at: The key below the validated place that is to blame.
        code: The fault's code.
    """
    return PydanticCustomError("wrong", "{message}", {"message": message, "hint": hint, "at": at, "code": code})


class Advice(NamedTuple):
    """Better words for an unknown key that people are known to write."""

    message: str
    hint: str
    code: str = "unknown_key"


Adviser = Callable[[Path], Advice | None]


def _no_advice(path: Path) -> None:
    return None


def validate(
    model: type[M], data: object, places: Places, *, advise: Adviser = _no_advice
) -> tuple[M | None, list[Fault]]:
    """Check data against a model.

    Args:
        model: What is expected.
        data: Plain data, as `yaml.load` gives it.
        places: Where the data stands in its files.
        advise: Asked about every unknown key by its path.

    Returns:
        The model and no fault, or `None` and at least one.
    """
    try:
        return model.model_validate(data), []
    except ValidationError as error:
        found = [
            _fault(model, data, places, details, advise)
            for details in error.errors(include_url=False, include_input=True, include_context=True)
        ]
    # Two branches of a union can blame the same place for the same reason.
    return None, sorted(dict.fromkeys(found), key=lambda fault: (fault.file, fault.line, fault.column))


def _fault(model: type[BaseModel], data: object, places: Places, details: Any, advise: Adviser) -> Fault:
    kind: str = details["type"]
    context: Mapping[str, Any] = details.get("ctx") or {}
    path = _path(data, details["loc"], kind)
    name = str(path[-1]) if path else ""
    if kind == "wrong":
        if context["at"] is not None:
            path = (*path, context["at"])
        return _at(places, path, context["message"], context["hint"], context["code"], key=False)
    if kind == "extra_forbidden":
        advice = advise(path)
        if advice is not None:
            return _at(places, path, advice.message, advice.hint, advice.code, key=True)
        known = known_keys(model, data, path[:-1])
        return _at(places, path, f"unknown key `{name}`", choose(name, known), "unknown_key", key=True)
    if kind in ("missing", "union_tag_not_found"):
        if kind == "union_tag_not_found":
            name = str(context["discriminator"]).strip("'")
            path = (*path, name)
        return _at(places, path, f"`{name}` is missing", f"Add `{name}:` here.", "missing", key=False)
    if kind == "union_tag_invalid":
        choices = re.findall(r"'([^']*)'", str(context["expected_tags"]))
        path = (*path, str(context["discriminator"]).strip("'"))
        return _at(
            places, path, f"`{context['tag']}` is not known", choose(str(context["tag"]), choices), "choice", key=False
        )
    if kind == "literal_error":
        return _at(places, path, *_choice(str(context["expected"]), details["input"]), "choice", key=False)
    message, hint = _wording(kind, context, details)
    return _at(places, path, message, hint, "type" if kind.endswith("_type") else "value", key=False)


def _at(places: Places, path: Path, message: str, hint: str | None, code: str, *, key: bool) -> Fault:
    place = places.key_place(path) if key else places.value_place(path)
    return Fault.at(place, path, message, code=code, hint=hint)


def _path(data: Any, location: Sequence[str | int], kind: str) -> Path:
    """The part of pydantic's location that is in the data: names of union branches are left out."""
    path: list[str | int] = []
    here = data
    for index, step in enumerate(location):
        last = index == len(location) - 1
        if _leads_on(here, step):
            here = here[step]
        elif not (last and kind == "missing"):
            continue
        path.append(step)
    return tuple(path)


def _leads_on(here: object, step: str | int) -> bool:
    if isinstance(here, Mapping):
        return step in here and step not in (here.get("provider"), here.get("type"))
    return isinstance(here, list) and isinstance(step, int) and step < len(here)


def _choice(expected: str, given: object) -> tuple[str, str | None]:
    choices = re.findall(r"'([^']*)'", expected)
    if not choices:
        return f"must be {expected}", None
    if not isinstance(given, str):
        return f"must be one of: {', '.join(choices)}", None
    guess = nearest(given, choices)
    return f"`{given}` is not one of: {', '.join(choices)}", f"Did you mean `{guess}`?" if guess else None


def _wording(kind: str, context: Mapping[str, Any], details: Any) -> tuple[str, str | None]:
    given = details["input"]
    match kind:
        case "string_type":
            hint = "Put it in quotes." if isinstance(given, bool | int | float) else None
            return "must be a text", "Write a value, or remove the key." if given is None else hint
        case "bool_type":
            return "must be true or false", "YAML's yes, no, on and off are texts here." if isinstance(
                given, str
            ) else None
        case "int_type" | "int_from_float":
            return "must be a whole number", "Remove the quotes." if isinstance(given, str) else None
        case "float_type":
            return "must be a number", "Remove the quotes." if isinstance(given, str) else None
        case "list_type" | "tuple_type":
            return "must be a list", "Write `[a, b]`, or one `- item` a line."
        case "dict_type" | "model_type" | "model_attributes_type":
            return "must be a mapping", "Write `key: value`, one a line."
        case "greater_than_equal":
            return f"must be at least {context['ge']}", None
        case "greater_than":
            return f"must be more than {context['gt']}", None
        case "less_than_equal":
            return f"must be at most {context['le']}", None
        case "too_short":
            return f"needs at least {context['min_length']} entries", None
        case "too_long":
            return f"has more than {context['max_length']} entries", None
        case "string_too_short":
            return "must not be empty", None
        case "string_too_long":
            return f"is longer than {context['max_length']} characters", None
        case _:
            return str(details["msg"]), None


def known_keys(model: type[BaseModel], data: object, path: Path) -> list[str]:
    """The keys that the model knows at a place, found by walking its JSON schema along the data."""
    schema = model.model_json_schema()
    node: Mapping[str, Any] = schema
    here = data
    for step in path:
        node = _resolve(schema, node, here)
        if isinstance(step, int):
            node = node.get("items", {})
        else:
            below = node.get("properties", {}).get(step) or node.get("additionalProperties")
            node = below if isinstance(below, Mapping) else {}
        here = here[step] if isinstance(here, list | Mapping) else None  # type: ignore[index]
    return [
        name
        for name, field in _resolve(schema, node, here).get("properties", {}).items()
        if not field.get("deprecated")
    ]


def _resolve(schema: Mapping[str, Any], node: Mapping[str, Any], here: object) -> Mapping[str, Any]:
    while True:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[-1]]
        elif "discriminator" in node and isinstance(here, Mapping):
            tag = here.get(node["discriminator"]["propertyName"])
            branches = node["discriminator"]["mapping"]
            node = {"$ref": branches[tag]} if tag in branches else {}
        elif "anyOf" in node:
            shape = "array" if isinstance(here, list) else "object"
            fitting = [one for one in node["anyOf"] if "$ref" in one or one.get("type") == shape]
            node = fitting[0] if fitting else {}
        else:
            return node
