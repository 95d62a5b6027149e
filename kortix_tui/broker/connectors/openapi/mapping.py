"""A document becomes a catalogue: one action an operation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import Action, Catalogue, HttpOperation
from kortix_tui.broker.connectors.openapi.inputs import Inputs, read_inputs
from kortix_tui.broker.connectors.openapi.naming import Wanted, action_name, settle
from kortix_tui.broker.connectors.openapi.references import References, RemoteReference
from kortix_tui.broker.connectors.openapi.security import Security
from kortix_tui.broker.connectors.openapi.servers import Servers
from kortix_tui.broker.connectors.openapi.swagger2 import METHODS, converted

MOST_ACTIONS: Final = 5000
_MOST_NOTES: Final = 50
_LONGEST_TITLE: Final = 200
_LONGEST_DESCRIPTION: Final = 4000
_RISKS: Final = {"get": Risk.READ, "head": Risk.READ, "options": Risk.READ, "delete": Risk.DESTRUCTIVE}


class _Operation(NamedTuple):
    method: str
    path: str
    item: Mapping[str, Any]
    node: Mapping[str, Any]

    def wanted(self) -> Wanted:
        """By its id, else by method and path."""
        given = self.node.get("operationId")
        words = action_name(given) if isinstance(given, str) else ""
        name = words or action_name(f"{self.method} {self.path}")
        return Wanted(name, f"{self.method.upper()} {self.path} {given if isinstance(given, str) else ''}".rstrip())


def risk_of(method: str) -> Risk:
    """What an HTTP method may do, unless somebody says otherwise."""
    return _RISKS.get(method.lower(), Risk.WRITE)


def catalogue(
    document: Mapping[str, Any], *, data_hash: str, base_url: str | None, source_url: str | None
) -> Catalogue:
    """Everything that the document's service can do.

    Args:
        document: OpenAPI 3.0 or 3.1, or Swagger 2.0.
        data_hash: SHA-256 of the bytes that it was read from.
        base_url: The connector's own, which wins over what the document says.
        source_url: Where the document came from: its relative URLs are below it.

    Raises:
        InvalidInput: It is no such document, has no operation, or refers to something outside itself.
    """
    version = _version(document)
    if version.startswith("2."):
        document = converted(document)
    references = References(document)
    servers = Servers(document, base_url, source_url)
    security = Security(document, references, servers)
    operations = list(_operations(document, references))
    if not operations:
        raise InvalidInput("The document has no operation.", hint="Its `paths` should list what can be called.")
    if len(operations) > MOST_ACTIONS:
        raise InvalidInput(f"The document has more than {MOST_ACTIONS} operations.")
    names = settle([operation.wanted() for operation in operations])
    actions = tuple(
        _action(name, operation, references, servers, security)
        for name, operation in zip(names, operations, strict=True)
    )
    information = document.get("info")
    information = information if isinstance(information, Mapping) else {}
    return Catalogue(
        title=_line(information.get("title")) or "Untitled",
        version=_line(information.get("version")),
        document_hash=data_hash,
        base_url=servers.base_url,
        actions=actions,
        auth=security.hints,
        notes=tuple(_notes(servers, security, references, actions)),
    )


def _version(document: Mapping[str, Any]) -> str:
    version = str(document.get("openapi", document.get("swagger", "")))
    if version.startswith(("3.0", "3.1")) or version in ("2.0", "2"):
        return version if version != "2" else "2.0"
    known = "It is read in the versions 3.0 and 3.1, and Swagger 2.0."
    if version:
        raise InvalidInput(f"The document is OpenAPI {shorten(visible_line(version), 40)}.", hint=known)
    raise InvalidInput("The document is no OpenAPI document: it names no version.", hint=known)


def _operations(document: Mapping[str, Any], references: References) -> Iterator[_Operation]:
    paths = document.get("paths")
    for path, node in paths.items() if isinstance(paths, Mapping) else []:
        if path.startswith("x-"):
            continue
        item = references.follow(node)
        for method in METHODS:
            if isinstance(item.get(method), Mapping):
                yield _Operation(method, path, item, item[method])


def _action(name: str, operation: _Operation, references: References, servers: Servers, security: Security) -> Action:
    node = operation.node
    path, unavailable = servers.place(operation.path, node.get("servers"), operation.item.get("servers"))
    if any(char in path for char in "?#\\") or any(ord(char) <= 32 or ord(char) == 127 for char in path):
        unavailable = unavailable or "Its path has a character that no path can have."
    inputs = Inputs({"type": "object", "properties": {}}, (), None)
    try:
        if operation.method in ("get", "head"):
            node = _without_body(node, references)
        inputs = read_inputs(operation.path, operation.item, node, references, security.places)
    except RemoteReference:
        raise
    except InvalidInput as error:
        unavailable = unavailable or error.message
    title = _line(node.get("summary")) or _line(node.get("operationId"))
    description = node.get("description")
    return Action(
        name=name,
        title=title or shorten(visible_line(f"{operation.method.upper()} {operation.path}"), _LONGEST_TITLE),
        description=description[:_LONGEST_DESCRIPTION] if isinstance(description, str) else "",
        risk=risk_of(operation.method),
        input_schema=inputs.schema,
        operation=HttpOperation(
            method=operation.method.upper(), path=path, parameters=inputs.parameters, body=inputs.body
        ),
        unavailable=unavailable,
    )


def _without_body(node: Mapping[str, Any], references: References) -> Mapping[str, Any]:
    """A reading request carries no body; one that needs it cannot be sent."""
    if node.get("requestBody") is not None and references.follow(node["requestBody"]).get("required") is True:
        raise InvalidInput("It needs a body, which a reading request does not carry.")
    return {key: value for key, value in node.items() if key != "requestBody"}


def _notes(servers: Servers, security: Security, references: References, actions: tuple[Action, ...]) -> Iterator[str]:
    yield from servers.notes
    yield from security.notes[:_MOST_NOTES]
    for cut in list(references.cut)[:_MOST_NOTES]:
        yield f"Anything is accepted in place of {cut}: it leads back to itself or too deep."
    if servers.base_url is None:
        return
    off = [action for action in actions if action.unavailable]
    for action in off[:_MOST_NOTES]:
        yield f"{action.name} cannot be called: {action.unavailable}"
    if len(off) > _MOST_NOTES:
        yield f"{len(off) - _MOST_NOTES} more actions cannot be called."


def _line(value: object) -> str:
    """One line of text, from a text or a number."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return ""
    return shorten(" ".join(visible_line(str(value).replace("\n", " ")).split()), _LONGEST_TITLE)
