"""References: followed inside the document, limited, and never out of it."""

from __future__ import annotations

from typing import Any

import pytest

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.openapi.references import References, RemoteReference, TooLarge, self_contained


def document(**schemas: Any) -> dict[str, Any]:
    return {"components": {"schemas": schemas}}


def ref(name: str, **beside: Any) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}", **beside}


def test_a_chain_with_words_beside_it() -> None:
    references = References(document(A=ref("B", description="mine"), B={"type": "string", "description": "theirs"}))
    assert references.inlined({"properties": {"a": ref("A")}}) == {
        "properties": {"a": {"type": "string", "description": "mine"}}
    }
    assert not references.cut


def test_escapes_and_places_in_lists() -> None:
    references = References({"a/b": {"c~d": [{"type": "null"}, {"type": "string"}]}, "e f": {"type": "integer"}})
    assert references.inlined({"$ref": "#/a~1b/c~0d/1"}) == {"type": "string"}
    assert references.inlined({"$ref": "#/e%20f"}) == {"type": "integer"}


def test_a_circle_is_cut_and_told() -> None:
    node = {"type": "object", "properties": {"next": ref("Node"), "name": {"type": "string"}}}
    references = References(document(Node=node))
    assert references.inlined(ref("Node"))["properties"] == {"next": {}, "name": {"type": "string"}}
    assert list(references.cut) == ["`#/components/schemas/Node`"]


def test_a_circle_of_nothing_but_references() -> None:
    references = References(document(A=ref("B"), B=ref("A")))
    assert references.inlined(ref("A")) == {}
    with pytest.raises(InvalidInput, match="round in a circle"):
        references.follow(ref("A"))


def test_a_long_chain_is_cut() -> None:
    chain = {f"S{n}": {"items": ref(f"S{n + 1}")} for n in range(60)}
    references = References(document(**chain, S60={"type": "string"}))
    references.inlined(ref("S0"))
    assert list(references.cut) == ["`#/components/schemas/S32`"]


def test_what_is_nested_too_deep_is_cut() -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100):
        schema = {"items": schema}
    references = References({})
    references.inlined(schema)
    assert list(references.cut) == ["what is nested too deep"]


@pytest.mark.parametrize(
    "reference",
    ["https://evil.example/x.json#/A", "other.yaml#/A", "//host/x", "file:///etc/passwd", "#anchor", "", "\x1b[2Jx"],
)
def test_a_reference_out_of_the_document_is_refused_by_name(reference: str) -> None:
    with pytest.raises(RemoteReference) as caught:
        References({}).inlined({"properties": {"a": {"$ref": reference}}})
    assert "\x1b" not in str(caught.value)
    assert reference.replace("\x1b", "␛") in caught.value.message


@pytest.mark.parametrize(
    "reference", ["#/components/schemas/Missing", "#/list/7", "#/list/-1", "#/list/01", "#/text/0"]
)
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    with pytest.raises(InvalidInput, match="does not have"):
        References({"list": [1], "text": "abc"}).target(reference)


def test_examples_and_properties_of_such_names_are_no_references() -> None:
    schema = {
        "properties": {"$ref": {"type": "string"}, "example": {"type": "integer"}, "enum": {"type": "boolean"}},
        "example": {"$ref": "https://evil.example"},
        "default": {"$ref": "https://evil.example"},
    }
    found = References({}).inlined(schema)
    assert found["properties"] == schema["properties"]
    assert found["examples"] == [{"$ref": "https://evil.example"}]


def test_a_bomb_ends_at_the_limit() -> None:
    bomb = {f"S{n}": {"allOf": [ref(f"S{n + 1}")] * 10} for n in range(20)}
    references = References(document(**bomb, S20={"type": "string"}))
    with pytest.raises(TooLarge):
        references.inlined(ref("S0"))
    assert references.inlined({"type": "string"}) == {"type": "string"}


def test_all_schemas_of_a_document_have_a_limit_together() -> None:
    wide = {"properties": {f"p{n}": {"type": "string"} for n in range(10_000)}}
    references = References(document(Wide=wide))
    with pytest.raises(TooLarge):
        for _ in range(100):
            references.inlined(ref("Wide"))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        ({"type": "string", "nullable": True, "enum": ["a"]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"exclusiveMinimum": 3}, {"exclusiveMinimum": 3}),
        ({"type": "file"}, {"type": "string", "format": "binary"}),
        ({"type": "string", "example": "x", "xml": {}, "x-own": 1, "externalDocs": {}, "discriminator": {}},
         {"type": "string", "examples": ["x"]}),
        ({"items": [{"type": "string"}, {}]}, {"prefixItems": [{"type": "string"}, {}]}),
        ({"properties": {"id": {"readOnly": True}, "a": {}}, "required": ["id", "a"]},
         {"properties": {"a": {}}, "required": ["a"]}),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {}),
        ({"multipleOf": 0, "minLength": True, "type": "int", "enum": "a", "allOf": [], "required": True}, {}),
        ({"additionalProperties": False, "not": True}, {"additionalProperties": False, "not": True}),
    ],
)  # fmt: skip
def test_schemas_of_every_version_become_the_same(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert self_contained(old) == new
