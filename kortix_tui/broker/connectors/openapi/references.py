"""References inside a document: followed, limited, and never to anywhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.schemas import DATA, ONE_SCHEMA, SCHEMA_LISTS, SCHEMA_MAPS, modern

DEEPEST_REFERENCE: Final = 32
DEEPEST: Final = 64
"""Levels of a schema whose references are replaced by what they refer to."""

MOST_NODES: Final = 50_000
"""Values in such a schema."""

MOST_NODES_IN_ALL: Final = 500_000
"""Values in all schemas of one document together."""

_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,6})\Z")


class TooLarge(InvalidInput):
    """A schema is too large once its references are replaced."""

    code = "schema_too_large"


class RemoteReference(InvalidInput):
    """A reference leads out of the document."""

    code = "remote_reference"


class References:
    """Follows the references of one document.

    Attributes:
        cut: What was replaced by `{}`, which allows anything, because it leads back to itself or too deep.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._spent = 0
        self._left = 0
        self._open: list[str] = []
        self.cut: dict[str, None] = {}

    def follow(self, node: object) -> dict[str, Any]:
        """What a node refers to, or the node itself; its other keys win over those of what it refers to.

        Raises:
            RemoteReference: A reference leads out of the document.
        InvalidInput: It leads to nothing, round in a circle, or to no object.
        """
        beside: dict[str, Any] = {}
        for _ in range(DEEPEST_REFERENCE):
            if not isinstance(node, Mapping):
                raise InvalidInput("The document has something else where an object belongs.")
            reference = node.get("$ref")
            if not isinstance(reference, str):
                return {**node, **beside}
            beside = {**_without_reference(node), **beside}
            node = self.target(reference)
        raise InvalidInput("A reference in the document leads round in a circle.")

    def target(self, reference: str) -> Any:
        """What a reference refers to.

        Raises:
            RemoteReference: It leads out of the document.
        InvalidInput: It leads to nothing.
        """
        named = f"`{shorten(visible_line(reference), 200)}`"
        if reference == "#":
            return self._document
        if not reference.startswith("#/"):
            raise RemoteReference(
                f"The document refers to {named}, which is not a part of it.",
                hint="Bundle it into one file: only references that begin with `#` are followed.",
            )
        node: Any = self._document
        for part in unquote(reference[2:]).split("/"):
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, Mapping) and key in node:
                node = node[key]
            elif isinstance(node, list) and _INDEX.match(key) and int(key) < len(node):
                node = node[int(key)]
            else:
                raise InvalidInput(f"The document refers to {named}, which it does not have.")
        return node

    def inlined(self, schema: object) -> dict[str, Any]:
        """A copy of a schema, made plain, in which every reference is replaced by what it refers to.

        Raises:
            TooLarge: It would have too many values.
            InvalidInput: As `target`.
        """
        allowed = self._left = min(MOST_NODES, MOST_NODES_IN_ALL - self._spent)
        try:
            found = self._schema(schema, 0)
        finally:
            self._spent += allowed - max(self._left, 0)
            self._open.clear()
        return found if isinstance(found, dict) else {} if found else {"not": {}}

    def _schema(self, node: object, depth: int) -> dict[str, Any] | bool:
        self._spend()
        if isinstance(node, bool):
            return node
        if not isinstance(node, Mapping):
            return {}
        if depth >= DEEPEST:
            self.cut["what is nested too deep"] = None
            return {}
        reference = node.get("$ref")
        if not isinstance(reference, str):
            return self._keywords(node, depth)
        if reference in self._open or len(self._open) >= DEEPEST_REFERENCE:
            self.cut[f"`{shorten(visible_line(reference), 200)}`"] = None
            return {}
        beside = self._keywords(_without_reference(node), depth)
        self._open.append(reference)
        found = self._schema(self.target(reference), depth)
        self._open.pop()
        return {**found, **beside} if isinstance(found, dict) else found

    def _keywords(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in node.items():
            if key == "items" and isinstance(value, list):  # before 2020-12: one schema for each place
                found["prefixItems"] = [self._schema(item, depth + 1) for item in value]
            elif key in ONE_SCHEMA:
                found[key] = self._schema(value, depth + 1)
            elif key in SCHEMA_LISTS:
                # An empty list would be no schema.
                if isinstance(value, list) and value:
                    found[key] = [self._schema(item, depth + 1) for item in value]
            elif key in SCHEMA_MAPS:
                if isinstance(value, Mapping):
                    found[key] = {name: self._schema(item, depth + 1) for name, item in value.items()}
            elif key in DATA:
                found[key] = self._data(value)
        return modern(found)

    def _data(self, value: Any) -> Any:
        self._spend()
        if isinstance(value, Mapping):
            return {key: self._data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._data(item) for item in value]
        return value

    def _spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise TooLarge(
                f"A schema has more than {MOST_NODES} values with all that it refers to, or the document more than "
                f"{MOST_NODES_IN_ALL}."
            )


def self_contained(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that is a document of its own, for example a tool's: made plain, without references.

    Raises:
        InvalidInput: It refers to something outside itself, or is too large.
    """
    return References(schema).inlined(schema)


def _without_reference(node: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in node.items() if key != "$ref"}
