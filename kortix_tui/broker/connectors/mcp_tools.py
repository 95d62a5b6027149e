"""Tools as actions, and their results as answers."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

import rfc8785

from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import Action, Catalogue, McpTool, Reply
from kortix_tui.broker.connectors.openapi.naming import Wanted, action_name, settle
from kortix_tui.broker.network.exchange import LONGEST_ANSWER

if TYPE_CHECKING:
    from mcp.types import CallToolResult, ErrorData, Tool

_LONGEST_SCHEMA: Final = 256 << 10


def catalogue(tools: list[Tool], *, title: str, endpoint: str, image: str | None = None) -> Catalogue:
    """Tools as actions.

    Args:
        tools: As the server lists them.
        title: For a person.
        endpoint: Where the server is.
        image: The id of the image that holds its program, over stdio.

    Raises:
        InvalidInput: Two tools have one name.
    """
    notes = list[str]()
    tools = sorted(tools, key=lambda tool: tool.name)
    prints = [fingerprint(tool) for tool in tools]
    names = settle([Wanted(action_name(tool.name), tool.name) for tool in tools])
    actions = []
    for name, tool, pin in zip(names, tools, prints, strict=True):
        schema = dict(tool.inputSchema)
        unavailable = None
        if schema.get("type", "object") != "object" or len(json.dumps(schema)) > _LONGEST_SCHEMA:
            unavailable = "its input schema is no object, or is too large"
            schema = {"type": "object"}
            notes.append(f"{name} cannot be called: {unavailable}.")
        actions.append(
            Action(
                name=name, title=shorten(visible_line(tool.title or tool.name), 200),
                description=shorten(tool.description or "", 4000), risk=_risk(tool), input_schema=schema,
                operation=McpTool(tool=tool.name, fingerprint=pin), unavailable=unavailable,
            )
        )  # fmt: skip
    document = hashlib.sha256("\n".join([*prints, *([image] if image is not None else [])]).encode()).hexdigest()
    return Catalogue(
        title=title, document_hash=document, base_url=endpoint, image=image, actions=tuple(actions), notes=tuple(notes)
    )


def fingerprint(tool: Tool) -> str:
    """SHA-256 over all that says what a tool is: name, description, input schema, hints."""
    whole = {
        "name": tool.name, "description": tool.description, "inputSchema": tool.inputSchema,
        "annotations": tool.annotations.model_dump(mode="json") if tool.annotations else None,
    }  # fmt: skip
    try:
        data = rfc8785.dumps(whole)
    except rfc8785.CanonicalizationError:  # whole numbers above 2^53
        data = json.dumps(whole, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def _risk(tool: Tool) -> Risk:
    """As the server hints; a server that lies is one that a person has connected. Without hints a tool may write."""
    hints = tool.annotations
    if hints is not None and hints.readOnlyHint:
        return Risk.READ
    if hints is not None and hints.destructiveHint:
        return Risk.DESTRUCTIVE
    return Risk.WRITE


def reply(result: CallToolResult) -> Reply:
    """A tool's result as an answer: the text where it is nothing else, otherwise JSON."""
    from mcp.types import TextContent

    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    if len(texts) == len(result.content) and result.structuredContent is None:
        kind, body = "text/plain; charset=utf-8", "\n".join(texts).encode("utf-8", "replace")
    else:
        kind, body = "application/json", result.model_dump_json(exclude_none=True, by_alias=True).encode()
    return _answer(500 if result.isError else 200, kind, body)


def refusal(error: ErrorData) -> Reply:
    """The protocol's own error as an answer: the server has taken the call, and not carried it out."""
    return _answer(500, "application/json", error.model_dump_json(exclude_none=True).encode())


def _answer(status: int, kind: str, body: bytes) -> Reply:
    return Reply(
        status=status, headers=(("content-type", kind),), body=body[:LONGEST_ANSWER],
        truncated=len(body) > LONGEST_ANSWER, size=len(body),
    )  # fmt: skip
