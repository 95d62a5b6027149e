"""Values that fit a schema."""

from __future__ import annotations

import random
import re
from typing import Any

_TEXTS = {
    "uri": "https://example.com/a?b=c&d=%20",
    "date": "2026-02-03",
    "date-time": "2026-02-03T04:05:06Z",
    "uuid": "3fa85f64-5717-4562-b3fc-2c963f66afa6",
    "binary": "AP8=",
}
_IDENTIFIER = re.compile(r"\^\(?([A-Z]{2})(?:\|[A-Z]{2}\))?\[0-9a-fA-F\]\{32\}\$")
_PLAIN = "aé ../%2F&=+?#ß"


def sample(schema: dict[str, Any], rng: random.Random, *, all_of_it: bool) -> Any:
    """A value that fits; with or without what is optional."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if "const" in schema:
        return schema["const"]
    for key in ("oneOf", "anyOf"):
        if key in schema:
            return sample(rng.choice(schema[key]), rng, all_of_it=all_of_it)
    kinds = schema.get("type", "object" if "properties" in schema else "string")
    match kinds[0] if isinstance(kinds, list) else kinds:
        case "object":
            required = schema.get("required", [])
            return {
                name: sample(one, rng, all_of_it=all_of_it)
                for name, one in schema.get("properties", {}).items()
                if all_of_it or name in required
            }
        case "array":
            count = max(schema.get("minItems", 0), min(2, schema.get("maxItems", 2)))
            return [sample(schema.get("items", {}), rng, all_of_it=all_of_it) for _ in range(count)]
        case "integer":
            return rng.randint(schema.get("minimum", 0), schema.get("maximum", schema.get("minimum", 0) + 50))
        case "number":
            return rng.choice([0.5, 2, 1e-3]) + schema.get("minimum", 0)
        case "boolean":
            return rng.random() < 0.5
        case "null":
            return None
        case _:
            return _text(schema, rng)


def _text(schema: dict[str, Any], rng: random.Random) -> str:
    if named := _IDENTIFIER.fullmatch(schema.get("pattern", "")):
        return named[1] + "".join(rng.choices("0123456789abcdefABCDEF", k=32))
    if schema.get("format") in _TEXTS:
        return _TEXTS[schema["format"]]
    text = "".join(rng.choices(_PLAIN.replace("/", "").replace(".", ""), k=8))
    text = text.ljust(schema.get("minLength", 0), "x")
    return text[: schema.get("maxLength", len(text))]
