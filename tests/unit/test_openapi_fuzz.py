"""Malformed documents and schemas: whatever stands where something else belongs, the only failure is `InvalidInput`."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from documents import document_bytes, mapped

from kortix_tui.base.errors import InvalidInput, KortixError
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.arguments import build, check_arguments
from kortix_tui.broker.connectors.model import Action, McpTool
from kortix_tui.broker.connectors.openapi.reading import read_document
from kortix_tui.broker.connectors.schemas import DATA, ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS

SMALL = (
    "v2.0-petstore-expanded.json",
    "v2.0-uber.yaml",
    "v3.0-petstore-expanded.json",
    "v3.0-uspto.yaml",
    "v3.1-tictactoe.yaml",
)
TIMES = 200
KEYWORDS = sorted({*DATA, *ONE_SCHEMA, *SCHEMA_LISTS, *SCHEMA_MAPS, "$ref", "$defs", "$dynamicRef"})
PLAIN = (None, True, False, 0, -1, 2, 0.5, "", "a", "object", "array", "#/paths", "#", "^a*$", "((")


def junk(rng: random.Random, keys: tuple[str, ...] | list[str], depth: int = 3) -> Any:
    """Any JSON, with keys that mean something."""
    kind = rng.random()
    if depth == 0 or kind < 0.4:
        return rng.choice(PLAIN)
    if kind < 0.6:
        return [junk(rng, keys, depth - 1) for _ in range(rng.randint(0, 3))]
    return {rng.choice(keys): junk(rng, keys, depth - 1) for _ in range(rng.randint(0, 4))}


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Every value of a document, as its container and key."""
    for key in list(node) if isinstance(node, dict) else range(len(node)):
        yield node, key
        if isinstance(node[key], dict | list):
            yield from places(node[key])


@pytest.mark.parametrize("name", SMALL)
def test_a_document_with_something_else_in_its_place(name: str) -> None:
    whole, rng, loaded = read_document(document_bytes(name)), random.Random(5), 0
    keys = ("$ref", "type", "name", "in", "schema", "url", "get", "post", "style", "properties", "content", "x")
    for _ in range(TIMES):
        made = copy.deepcopy(whole)
        for container, key in rng.sample(list(places(made)), rng.randint(1, 3)):
            container[key] = junk(rng, keys)
        try:
            catalogue = mapped(made, source_url="https://docs.example.com/openapi.json")
        except InvalidInput:
            continue
        loaded += 1
        json.dumps([action.model_dump(mode="json") for action in catalogue.actions])
        for action in catalogue.actions:
            arguments = {key: junk(rng, ["a"], 2) for key in action.input_schema["properties"]}
            try:
                check_arguments(action, arguments)
                call = build(action, arguments, base_url="https://api.example.com/v1", headers={})
            except KortixError:
                continue
            assert call.url.startswith("https://api.example.com/v1/")
    assert loaded > TIMES // 2


def test_a_tool_with_any_schema() -> None:
    rng, passed = random.Random(6), 0
    for _ in range(TIMES * 5):
        schema = {"type": "object", "properties": {"a": junk(rng, [*KEYWORDS, "a"], 5)}}
        action = Action(
            name="act", title="", risk=Risk.WRITE, input_schema=schema, operation=McpTool(tool="t", fingerprint="f")
        )
        try:
            check_arguments(action, {"a": junk(rng, ["a"], 3)})
        except InvalidInput:
            continue
        passed += 1
    assert TIMES < passed < TIMES * 5
