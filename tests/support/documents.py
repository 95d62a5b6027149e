"""The OpenAPI documents for tests, and documents that are made for one."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

from kortix_tui.broker.connectors.model import Action, Catalogue
from kortix_tui.broker.connectors.openapi.mapping import catalogue
from kortix_tui.broker.connectors.openapi.reading import read_document

FOLDER = Path(__file__).parent.parent / "data" / "openapi"
NAMES = tuple(sorted(path.name for path in FOLDER.iterdir() if path.suffix != ".md"))


def document_bytes(name: str) -> bytes:
    """The bytes of a document in `tests/data/openapi`, unpacked."""
    data = (FOLDER / name).read_bytes()
    return gzip.decompress(data) if name.endswith(".gz") else data


def loaded(name: str, *, base_url: str | None = None, source_url: str | None = None) -> Catalogue:
    """The catalogue of such a document."""
    data = document_bytes(name)
    return catalogue(
        read_document(data), data_hash=hashlib.sha256(data).hexdigest(), base_url=base_url, source_url=source_url
    )


def document(paths: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A small document of OpenAPI 3.1."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Made for a test", "version": "1"},
        "servers": [{"url": "https://api.example.com/v1"}],
        "paths": paths,
    } | more


def mapped(made: dict[str, Any], *, base_url: str | None = None, source_url: str | None = None) -> Catalogue:
    """The catalogue of a document that is made for a test."""
    return catalogue(made, data_hash="0" * 64, base_url=base_url, source_url=source_url)


def only(operation: dict[str, Any], path: str = "/things", method: str = "post", **more: Any) -> Action:
    """The one action of a document with one operation."""
    (action,) = mapped(document({path: {method: operation}}, **more)).actions
    return action


def many_operations(count: int) -> dict[str, Any]:
    """A document with so many operations, each with parameters and a body that refers to shared schemas."""
    address = {
        "type": "object",
        "properties": {key: {"type": "string"} for key in ("street", "town", "zip", "country")},
    }
    person = {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "maxLength": 200},
            "mail": {"type": "string", "format": "email"},
            "address": {"$ref": "#/components/schemas/Address"},
            "friends": {"type": "array", "items": {"$ref": "#/components/schemas/Person"}},
        },
    }
    limit = {"name": "limit", "in": "query", "schema": {"type": "integer", "minimum": 1}}
    paths: dict[str, Any] = {}
    for number in range(count // 2):
        paths[f"/teams/{{team}}/people{number}"] = {
            "parameters": [{"name": "team", "in": "path", "required": True, "schema": {"type": "string"}}],
            "get": {
                "operationId": f"listPeople{number}",
                "summary": f"People {number}",
                "parameters": [{"$ref": "#/components/parameters/Limit"}],
                "responses": {"200": {"description": "ok"}},
            },
            "post": {
                "operationId": f"createPerson{number}",
                "summary": f"Add a person {number}",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Person"}}}},
                "responses": {"201": {"description": "ok"}},
            },
        }
    return document(
        paths, components={"schemas": {"Address": address, "Person": person}, "parameters": {"Limit": limit}}
    )
