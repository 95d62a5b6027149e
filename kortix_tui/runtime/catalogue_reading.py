"""Reads what one connector can do: from its document, its routes, or the server itself."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.broker.connectors import graphql
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import fetch
from kortix_tui.manifest.connectors import (
    Connector,
    GraphqlConnector,
    HttpConnector,
    McpConnector,
    OpenApiConnector,
    is_url,
)

if TYPE_CHECKING:
    from kortix_tui.base.settings import ConnectorSettings
    from kortix_tui.broker.connectors.credentials import Attached
    from kortix_tui.broker.connectors.mcp_programs import Programs
    from kortix_tui.broker.connectors.model import Catalogue
    from kortix_tui.repository.mirror import Mirror

MAX_DOCUMENT: Final = 16 << 20


def is_remote(connector: Connector) -> bool:
    """Whether what it can do comes from outside the repository, and so changes without a merge."""
    spec = getattr(connector, "spec", None)
    if spec is not None:
        return is_url(spec)
    return isinstance(connector, McpConnector | GraphqlConnector)


def asks_server(connector: Connector) -> bool:
    """Whether the server itself is asked, with the connector's credential."""
    return isinstance(connector, McpConnector) or (isinstance(connector, GraphqlConnector) and connector.spec is None)


class CatalogueReader:
    """Reads catalogues with the operator's settings for connectors.

    Args:
        settings: Which private networks and certificates the operator allows.
        programs: Runs tool servers over stdio; without it, they are refused.
    """

    def __init__(self, settings: ConnectorSettings, programs: Programs | None = None) -> None:
        self._programs = programs
        self._reach = Reach.of(settings)

    async def read(
        self, project_id: str, connector: Connector, mirror: Mirror, commit: str, attached: Attached
    ) -> Catalogue:
        """What a connector can do.

        Args:
            project_id: Whose connector.
            connector: As the manifest defines it.
            mirror: For documents in the repository.
            commit: Where they are read.
            attached: The credential, where the server itself is asked.

        Raises:
            NotFound: The repository has no such document.
            InvalidInput: The document cannot be used; says what is wrong with it.
            KortixError: It cannot be fetched, or the server does not answer as it must.
        """
        match connector:
            case OpenApiConnector(provider="postman"):
                raise Refused(
                    "Postman collections are not served in this edition.",
                    hint="Export the collection as an OpenAPI document, and use provider openapi.",
                )
            case OpenApiConnector():
                data = await self._document(connector.spec, mirror, commit)
                return await asyncio.to_thread(_from_document, data, connector.base_url, connector.spec)
            case HttpConnector():
                given = await self._document(connector.spec, mirror, commit) if connector.spec else None
                return await asyncio.to_thread(_from_routes, connector, given)
            case GraphqlConnector(spec=str() as spec):
                data = await self._document(spec, mirror, commit)
                return await asyncio.to_thread(_from_schema, data, connector.endpoint)
            case GraphqlConnector():
                async with open_client(self._reach) as http:
                    return await graphql.discover(http, connector.endpoint, attached)
            case McpConnector():
                from kortix_tui.broker.connectors.mcp import ToolServers

                servers = ToolServers(self._reach, self._programs)
                if connector.transport == "stdio":
                    return await servers.discover_program(project_id, connector, attached)
                return await servers.discover(connector.url or "", connector.transport, attached)
            case _:
                raise Refused(f"Provider {connector.provider} is not served here.")

    async def local_hash(self, connector: Connector, mirror: Mirror, commit: str) -> str:
        """The hash that a catalogue read from the repository now would have."""
        spec = getattr(connector, "spec", None)
        data = await self._document(spec, mirror, commit) if spec else None
        if isinstance(connector, HttpConnector):
            return _hash_of_routes(connector, data)
        return _hash(data or b"")

    async def _document(self, spec: str, mirror: Mirror, commit: str) -> bytes:
        if is_url(spec):
            async with open_client(self._reach) as http:
                return await fetch(http, spec, limit_bytes=MAX_DOCUMENT)
        data = await mirror.read(commit, spec, limit=MAX_DOCUMENT)
        if data is None:
            raise NotFound(f"{visible_line(spec)} is not on the base branch.", hint="Commit it there first.")
        return data


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _from_document(data: bytes, base_url: str | None, spec: str) -> Catalogue:
    from kortix_tui.broker.connectors.openapi.mapping import catalogue
    from kortix_tui.broker.connectors.openapi.reading import read_document

    source = spec if is_url(spec) else None
    return catalogue(read_document(data), data_hash=_hash(data), base_url=base_url, source_url=source)


def _from_schema(data: bytes, endpoint: str) -> Catalogue:
    # Not the hash of the schema in one spelling: this one is found out without reading it.
    return graphql.catalogue(data, endpoint=endpoint).model_copy(update={"document_hash": _hash(data)})


def _hash_of_routes(connector: HttpConnector, data: bytes | None) -> str:
    from kortix_tui.broker.connectors.openapi.routes import routes_catalogue

    routes = routes_catalogue(connector).document_hash
    return routes if data is None else _hash(f"{routes}\n{_hash(data)}".encode())


def _from_routes(connector: HttpConnector, data: bytes | None) -> Catalogue:
    """Hand-written routes, beside those of a document where there is one; a route hides an action of its name."""
    from kortix_tui.broker.connectors.openapi.routes import routes_catalogue

    routes = routes_catalogue(connector)
    if data is None or connector.spec is None:
        return routes
    read = _from_document(data, connector.base_url, connector.spec)
    named = {action.name for action in routes.actions}
    return read.model_copy(
        update={
            "document_hash": _hash_of_routes(connector, data),
            "actions": (*routes.actions, *(action for action in read.actions if action.name not in named)),
            "notes": (*routes.notes, *read.notes),
        }
    )
