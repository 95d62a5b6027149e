"""What connectors can do: read on the host from documents, routes and servers; kept, compared, accepted by a person.

What stands in the repository takes effect with its merge. What comes from elsewhere takes effect when it is read for
the first time, which a person asks for, and after a change only when a person accepts it.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import KortixError, NotFound, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.text import visible_line
from kortix_tui.broker.connectors.credentials import Attached, check_auth, origin_of
from kortix_tui.broker.connectors.model import Catalogue, CatalogueDifference
from kortix_tui.manifest.vocabulary import UNSERVED_PROVIDERS
from kortix_tui.repository.names import branch_ref
from kortix_tui.runtime.base_manifest import find_connector, valid_manifest
from kortix_tui.runtime.catalogue_reading import CatalogueReader, asks_server, is_remote
from kortix_tui.runtime.catalogue_store import accepted, definition_hash, pack, unpack
from kortix_tui.runtime.connection_choice import NotConnected, choose
from kortix_tui.runtime.connector_views import SyncResult
from kortix_tui.store.audit import SYSTEM, Actor
from kortix_tui.store.database import Transaction

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.mcp_programs import Programs
    from kortix_tui.manifest.connectors import Connector
    from kortix_tui.repository.mirror import Mirror
    from kortix_tui.runtime.context import Context
    from kortix_tui.runtime.host_credentials import HostCredentials
    from kortix_tui.runtime.ledger import Ledger
    from kortix_tui.runtime.preparing import Preparing
    from kortix_tui.store.models import Request

FETCH_S: Final = 60.0
SYNC: Final = "connector.sync"


class SyncConnector(BaseModel):
    """Request `connector.sync`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project_id: str
    connector: str


@dataclass(frozen=True)
class _Place:
    """Which catalogue is meant: one connector as one manifest defines it."""

    project_id: str
    connector: Connector
    definition: str


class Catalogues:
    """Reads and keeps them on the host.

    Args:
        context: The host's.
        ledger: Where they are written, fenced by the term's epoch.
        preparing: Has the mirrors and manifests.
        credentials: For servers that tell what they can do only to those who are signed in; made when it is needed.
        programs: Runs tool servers over stdio; without it, they are refused.
    """

    def __init__(
        self,
        context: Context,
        ledger: Ledger,
        preparing: Preparing,
        credentials: Callable[[], HostCredentials],
        programs: Programs | None = None,
    ) -> None:
        self._context = context
        self._ledger = ledger
        self._preparing = preparing
        self._credentials = credentials
        self._reader = CatalogueReader(context.settings.connectors, programs)
        self._reading = defaultdict[tuple[str, str], asyncio.Lock](asyncio.Lock)
        self._looked_at: dict[tuple[str, str, str], str] = {}
        """The commit at which what the repository says was compared last: git is not asked at each call."""

    async def sync(self, request: Request, actor: Actor) -> SyncResult:
        """Read a connector's document or server anew, as the base branch defines it now.

        Raises:
            NotFound: No such project, connector or document.
            Refused: The provider or kind of auth is not served, or an address is closed.
            NotConnected: The server must be asked with a credential, and there is none.
            KortixError: It could not be read; what was accepted before stays in force.
        """
        wanted = SyncConnector.model_validate_json(request.payload)
        project = self._ledger.project(wanted.project_id)
        mirror = await self._preparing.mirror(project.id)
        await mirror.fetch(project.source, base=project.base_branch, wall_s=FETCH_S)
        commit = await mirror.resolve(branch_ref(project.base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {visible_line(project.base_branch)}.")
        report = await self._preparing.report(project.id, mirror, commit)
        connector = find_connector(valid_manifest(report, project.base_branch), wanted.connector, project.slug)
        place = _Place(project.id, connector, definition_hash(connector))
        async with self._reading[project.id, connector.slug]:
            catalogue = await self._read(place, mirror, commit)
            return await self._keep(place, catalogue, actor)

    async def current(self, project_id: str, connector: Connector, commit: str) -> Catalogue | None:
        """What a connector can do now; `None` when a person has to read or accept it first.

        What stands in the repository is read here when the merge has changed it, so that nobody has to ask for it.

        Args:
            project_id: Whose connector.
            connector: As the manifest at the commit defines it.
            commit: The newest of the base branch.

        Raises:
            KortixError: The repository's document cannot be read.
        """
        place = _Place(project_id, connector, definition_hash(connector))
        known = accepted(self._context.store, project_id, connector.slug, place.definition)
        if is_remote(connector) or connector.provider in UNSERVED_PROVIDERS:
            return known
        key = (project_id, connector.slug, place.definition)
        if known is not None and self._looked_at.get(key) == commit:
            return known
        async with self._reading[project_id, connector.slug]:
            mirror = await self._preparing.mirror(project_id)
            known = accepted(self._context.store, project_id, connector.slug, place.definition)
            if known is None or known.document_hash != await self._reader.local_hash(connector, mirror, commit):
                known = await self._read(place, mirror, commit)
                await self._keep(place, known, SYSTEM)
            self._looked_at[key] = commit
            return known

    # Inside

    async def _read(self, place: _Place, mirror: Mirror, commit: str) -> Catalogue:
        connector = place.connector
        if connector.provider in UNSERVED_PROVIDERS:
            raise Refused(
                f"Provider {connector.provider} is not served here: {UNSERVED_PROVIDERS[connector.provider]}.",
                hint="Declare the service as openapi, http, graphql or mcp.",
            )
        check_auth(connector.auth)
        attached = await self._attached(place) if asks_server(connector) else Attached()
        return await self._reader.read(place.project_id, connector, mirror, commit, attached)

    async def _attached(self, place: _Place) -> Attached:
        """The credential with which a server is asked what it can do; nothing where it needs none."""
        connector = place.connector
        try:
            connection = choose(self._context.store, place.project_id, connector, None)
        except NotConnected as error:
            raise NotConnected(
                f"{connector.slug} tells what it can do only to those who are signed in. {error.message}",
                hint=error.hint,
            ) from None
        origin = origin_of(connector, None)
        return Attached() if connection is None else await self._credentials().attached(connection, origin or "")

    async def _keep(self, place: _Place, catalogue: Catalogue, actor: Actor) -> SyncResult:
        """Put it in force, or park it until a person accepts it."""
        from kortix_tui.broker.connectors.difference import difference

        store, slug = self._context.store, place.connector.slug
        before = accepted(store, place.project_id, slug, place.definition)
        compared = before or self._newest(place)
        same = before is not None and before == catalogue
        changes = difference(compared, catalogue) if compared is not None and compared != catalogue else None
        in_force = same or compared is None or not is_remote(place.connector)
        if not in_force and compared is not None:  # titles and notes may change; what is called, where and how may not
            same_way = (compared.auth, compared.image) == (catalogue.auth, catalogue.image)
            in_force = same_way and changes == CatalogueDifference()
        state = "accepted" if in_force else "pending"
        body = await asyncio.to_thread(pack, catalogue)

        def write(tx: Transaction) -> str:
            where = "project_id = ? AND connector = ? AND definition = ?"
            key = (place.project_id, slug, place.definition)
            past = "('pending')" if same or state == "pending" else "('pending', 'accepted')"
            tx.execute(f"UPDATE catalogues SET state = 'past' WHERE {where} AND state IN {past}", key)
            identity = new_id("cat")
            if same:
                query = f"SELECT id FROM catalogues WHERE {where} AND state = 'accepted'"
                identity = tx.execute(query, key).fetchone()[0]
            else:
                tx.execute(
                    "INSERT INTO catalogues (id, project_id, connector, definition, document, state, actions, body,"
                    " created_by, created_at, decided_by, decided_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                    (
                        identity, *key, catalogue.document_hash, state, len(catalogue.actions), body, actor.label,
                        tx.now_text, actor.label if in_force else None, tx.now_text if in_force else None,
                    ),
                )  # fmt: skip
            tx.audit(
                SYNC, scope=f"connector {slug}", actor=actor, project_id=place.project_id, catalogue=identity,
                document=catalogue.document_hash, state=state, changed=not same, actions=len(catalogue.actions),
                base_url=catalogue.base_url,
            )  # fmt: skip
            return str(identity)

        identity = await self._ledger.write(write)
        return SyncResult(
            connector=slug, catalogue_id=identity, state=state, changed=not same, title=catalogue.title,
            base_url=catalogue.base_url, actions=len(catalogue.actions), notes=catalogue.notes, difference=changes,
        )  # fmt: skip

    def _newest(self, place: _Place) -> Catalogue | None:
        """What was in force under an earlier definition of the connector."""
        row = self._context.store.one(
            "SELECT body FROM catalogues WHERE project_id = ? AND connector = ? AND state = 'accepted'"
            " ORDER BY decided_at DESC, rowid DESC LIMIT 1",
            (place.project_id, place.connector.slug),
        )
        try:
            return None if row is None else unpack(row[0])
        except KortixError:
            return None
