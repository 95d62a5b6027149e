"""Connectors as the operator sees them: what the base branch declares, what is known of them, what is missing."""

from __future__ import annotations

import builtins
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pydantic import Field

from kortix_tui.base.errors import Conflict, KortixError, NotFound, Refused, StoreFailed
from kortix_tui.base.words import Level, Outcome, Risk, Verdict
from kortix_tui.broker.connectors.credentials import auth_of, check_auth, describe_place, origin_of
from kortix_tui.broker.connectors.model import Action, Catalogue, CatalogueDifference
from kortix_tui.broker.policy import PolicySet, explain
from kortix_tui.manifest.connectors import McpConnector
from kortix_tui.manifest.vocabulary import UNSERVED_PROVIDERS
from kortix_tui.runtime.base_manifest import BaseManifest, BaseManifests
from kortix_tui.runtime.call_usage import RecordedUsage
from kortix_tui.runtime.catalogue_store import accepted, definition_hash, unpack
from kortix_tui.runtime.catalogues import SYNC, SyncConnector
from kortix_tui.runtime.connection_choice import choose
from kortix_tui.runtime.connection_rows import connection_rows, view_of
from kortix_tui.runtime.connector_views import ConnectorView, SyncResult
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.decisions import check_decision
from kortix_tui.runtime.views import View

if TYPE_CHECKING:
    from kortix_tui.manifest.connectors import Auth, Connector
    from kortix_tui.manifest.model import Manifest
    from kortix_tui.store.models import Project

SYNC_S: Final = 300.0
"""Pulling the image of a tool server takes a while."""


class AuthNeeds(View):
    """What a connector needs to prove who calls, so that a person can be asked for it."""

    type: str
    place: str | None = Field(description="Where the credential goes: `header authorization`, `query key`.")
    origin: str | None = Field(description="The only place that it is sent to: scheme, host and port.")
    grant: str | None = Field(description="For OAuth: `client_credentials`, `authorization_code` or `device`.")
    client_id: str | None
    scopes: tuple[str, ...]
    from_document: bool = Field(description="Whether the document says so, and not the manifest.")


class PendingCatalogue(View):
    """A changed document or server that waits for a person to accept it."""

    connector: str
    catalogue_id: str
    title: str
    base_url: str | None
    actions: int
    notes: tuple[str, ...]
    difference: CatalogueDifference
    auth: tuple[str, str] | None = Field(description="What it was and what it would be, where that changes.")
    image: tuple[str, str] | None = Field(description="Likewise the image of a tool server's program.")
    created_by: str
    created_at: datetime


class ConnectorCheck(View):
    """One step of a test."""

    name: str
    level: Level
    message: str


class ConnectorTest(View):
    """What testing a connector found."""

    connector: str
    checks: tuple[ConnectorCheck, ...]

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return all(check.level is not Level.FAIL for check in self.checks)


class Connectors:
    """The connector verbs that look, read and accept."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._manifests = BaseManifests(context)

    # Reading

    def refresh(self, project: Project) -> None:
        """Look at the source first: a person who has just committed to kortix.yaml means what it says now."""
        self._manifests.refresh(project)

    def list(self, project: Project) -> builtins.list[ConnectorView]:
        """A project's connectors in the manifest's order.

        Raises:
            InvalidInput: The manifest on the base branch cannot be read or is not valid.
        """
        self._context.reading("connector.list", scope=f"project {project.slug}", project_id=project.id)
        base = self._manifests.of(project)
        manifest = self._manifests.valid(project)
        return [self._view(project, base, manifest, connector) for connector in manifest.connectors]

    def show(self, project: Project, slug: str) -> ConnectorView:
        """One of them.

        Raises:
            InvalidInput: The manifest cannot be read or is not valid.
            NotFound: It declares no such connector.
        """
        manifest, connector = self._manifests.connector(project, slug)
        self._context.reading("connector.read", scope=f"connector {project.slug}/{slug}", project_id=project.id)
        return self._view(project, self._manifests.of(project), manifest, connector)

    def catalogue(self, project: Project, slug: str) -> Catalogue | None:
        """What it can do, as it is in force; `None` while that is not known."""
        _, connector = self._manifests.connector(project, slug)
        return accepted(self._context.store, project.id, slug, definition_hash(connector))

    def auth(self, project: Project, slug: str) -> AuthNeeds:
        """What a person has to give to connect it.

        Raises:
            Refused: The kind of auth is not served.
        """
        _, connector = self._manifests.connector(project, slug)
        catalogue = accepted(self._context.store, project.id, slug, definition_hash(connector))
        auth = _auth(connector, catalogue)
        check_auth(auth)
        origin = origin_of(connector, catalogue)
        return AuthNeeds(
            type=auth.type, place=describe_place(auth, origin), origin=origin, grant=_grant(auth),
            client_id=auth.client_id, scopes=tuple(auth.scopes), from_document=auth is not connector.auth,
        )  # fmt: skip

    def pending(self, project: Project, slug: str) -> PendingCatalogue | None:
        """What waits to be accepted, and what it would change."""
        from kortix_tui.broker.connectors.difference import difference

        _, connector = self._manifests.connector(project, slug)
        definition = definition_hash(connector)
        row = self._context.store.one(
            "SELECT id, body, created_by, created_at FROM catalogues WHERE project_id = ? AND connector = ?"
            " AND definition = ? AND state = 'pending'",
            (project.id, slug, definition),
        )
        if row is None:
            return None
        new = unpack(row[1])
        old = accepted(self._context.store, project.id, slug, definition) or self._before(project.id, slug)
        empty = Catalogue(title="", document_hash="", base_url=new.base_url, actions=())
        return PendingCatalogue(
            connector=slug, catalogue_id=row[0], title=new.title, base_url=new.base_url, actions=len(new.actions),
            notes=new.notes, difference=difference(old or empty, new), created_by=row[2], created_at=row[3],
            auth=None if old is None or old.auth == new.auth else (_way(connector, old), _way(connector, new)),
            image=None if old is None or old.image == new.image else (old.image or "", new.image or ""),
        )  # fmt: skip

    # Acting

    def sync(self, project: Project, slug: str) -> SyncResult:
        """Have the host read its document or ask its server anew.

        What comes from outside and changed is parked: see `pending` and `accept`.

        Raises:
            KortixError: It could not be read; what was accepted before stays in force.
        """
        return self._context.request(
            SYNC, SyncConnector(project_id=project.id, connector=slug), SyncResult,
            scope=f"connector {project.slug}/{slug[:128]}", deadline_s=SYNC_S, project_id=project.id,
        )  # fmt: skip

    def accept(
        self, project: Project, slug: str, catalogue_id: str, *, terminal: bool, pinned: bool = True
    ) -> ConnectorView:
        """Put a changed document in force: what its actions are and where they go counts from the next call on.

        Args:
            project: Whose connector.
            slug: Its slug.
            catalogue_id: Which catalogue was looked at; a newer one needs a new look.
            terminal: Whether a person can be asked.
            pinned: Whether the exact catalogue was named beforehand.

        Raises:
            Refused: No person decides.
            Conflict: It is not what waits now.
        """
        scope = f"connector {project.slug}/{slug[:128]}"
        try:
            check_decision("Accepting", settings=self._context.settings, terminal=terminal, pinned=pinned)
        except Refused as refusal:
            with self._context.store.write() as tx:
                tx.audit(
                    "connector.accept", scope=scope, actor=self._context.actor, outcome=Outcome.DENIED,
                    project_id=project.id, reason=refusal.message,
                )  # fmt: skip
            raise
        actor = self._context.actor
        with self._context.store.write() as tx:
            row = tx.execute(
                "SELECT definition, document FROM catalogues WHERE id = ? AND project_id = ? AND connector = ?"
                " AND state = 'pending'",
                (catalogue_id, project.id, slug),
            ).fetchone()
            if row is None:
                raise Conflict(
                    "That is not what waits to be accepted.", hint=f"Look again: kortix connectors show {slug[:128]}"
                )
            tx.execute(
                "UPDATE catalogues SET state = 'past' WHERE project_id = ? AND connector = ? AND definition = ?"
                " AND state = 'accepted'",
                (project.id, slug, row[0]),
            )
            tx.execute(
                "UPDATE catalogues SET state = 'accepted', decided_by = ?, decided_at = ? WHERE id = ?",
                (actor.label, tx.now_text, catalogue_id),
            )
            tx.audit(
                "connector.accept", scope=scope, actor=actor, project_id=project.id, catalogue=catalogue_id,
                document=row[1],
            )  # fmt: skip
        return self.show(project, slug)

    def check(self, project: Project, slug: str, account: str | None = None) -> tuple[ConnectorTest, Action | None]:
        """Look whether calls can work, and choose a read that shows it: one that policy runs and needs no argument.

        Raises:
            NotFound: There is no such connector.
        """
        manifest, connector = self._manifests.connector(project, slug)
        checks = list[ConnectorCheck]()
        try:
            catalogue = self.catalogue(project, slug)
        except StoreFailed as error:
            catalogue = None
            checks.append(_fail("actions", error))
        if catalogue is not None:
            checks.append(_passed("actions", f"{len(catalogue.actions)} known, at {catalogue.base_url}"))
        elif not checks:
            checks.append(_fail("actions", _unknown(connector)))
        try:
            connection = choose(self._context.store, project.id, connector, catalogue, account)
        except KortixError as error:
            checks.append(_fail("connection", error))
        else:
            said = "none is needed" if connection is None else f"{connection.account}, auth {connection.auth}"
            checks.append(_passed("connection", said))
        test = ConnectorTest(connector=slug, checks=tuple(checks))
        reads = _harmless(catalogue) if catalogue is not None and test.passed else []
        explained = explain(
            PolicySet.of(manifest, connector), slug, reads, RecordedUsage(self._context.store, project.id)
        )
        running = [one.action for one in explained.actions if one.decision.verdict is Verdict.RUN]
        if reads and not running:
            asked = all(one.decision.verdict is Verdict.ASK for one in explained.actions)
            why = f"not tried: policy {'asks about' if asked else 'asks about or blocks'} every read"
            check = ConnectorCheck(name="call", level=Level.WARN, message=why)
            test = test.model_copy(update={"checks": (*test.checks, check)})
        return test, next(iter(running), None)

    # Inside

    def _before(self, project_id: str, slug: str) -> Catalogue | None:
        row = self._context.store.one(
            "SELECT body FROM catalogues WHERE project_id = ? AND connector = ? AND state = 'accepted'"
            " ORDER BY decided_at DESC, rowid DESC LIMIT 1",
            (project_id, slug),
        )
        return None if row is None else unpack(row[0])

    def _view(self, project: Project, base: BaseManifest, manifest: Manifest, connector: Connector) -> ConnectorView:
        store, slug, definition = self._context.store, connector.slug, definition_hash(connector)
        problem: str | None = None
        try:
            catalogue = accepted(store, project.id, slug, definition)
        except StoreFailed as error:
            catalogue, problem = None, str(error)
        waiting = store.one(
            "SELECT 1 FROM catalogues WHERE project_id = ? AND connector = ? AND definition = ? AND state = 'pending'",
            (project.id, slug, definition),
        )
        policy = PolicySet.of(manifest, connector)
        problem = problem or self._problem(project, connector, catalogue, waiting is not None)
        return ConnectorView(
            project=project.slug, slug=slug, name=connector.name, provider=connector.provider,
            enabled=connector.enabled, sensitive=connector.sensitive, auth=_auth(connector, catalogue).type,
            place=_place(connector, catalogue), default_mode=policy.default_mode, gates_off=policy.gates_off,
            connected=problem is None, problem=problem,
            actions=None if catalogue is None else len(catalogue.actions), pending=waiting is not None,
            agents=base.agents_of(slug),
            connections=tuple(view_of(row) for row in connection_rows(store, project.id, slug)),
        )  # fmt: skip

    def _problem(
        self, project: Project, connector: Connector, catalogue: Catalogue | None, waiting: bool
    ) -> str | None:
        if connector.provider in UNSERVED_PROVIDERS:
            return f"Not served here: {UNSERVED_PROVIDERS[connector.provider]}."
        if not connector.enabled:
            return "It is switched off in kortix.yaml."
        if catalogue is None and waiting:
            return f"Its actions wait to be accepted: kortix connectors accept {connector.slug}"
        try:
            check_auth(connector.auth)
            if catalogue is None and connector.auth.type == "none":
                return str(_unknown(connector))
            choose(self._context.store, project.id, connector, catalogue)
        except KortixError as error:
            return str(error)
        return None if catalogue is not None else str(_unknown(connector))


def _auth(connector: Connector, catalogue: Catalogue | None) -> Auth:
    return auth_of(connector, catalogue.auth if catalogue is not None else ())


def _way(connector: Connector, catalogue: Catalogue) -> str:
    auth = _auth(connector, catalogue)
    return " in ".join(filter(None, (auth.type, describe_place(auth))))


def _grant(auth: Auth) -> str | None:
    if auth.type != "oauth2":
        return None
    from kortix_tui.runtime.connecting import grant_of

    return grant_of(auth)


def _place(connector: Connector, catalogue: Catalogue | None) -> str:
    if isinstance(connector, McpConnector) and connector.transport == "stdio":
        command = connector.command
        return command if isinstance(command, str) else " ".join(command or ())
    declared = next(
        (
            text
            for name in ("base_url", "endpoint", "url")
            if isinstance(text := getattr(connector, name, None), str)
        ),
        None,
    )  # fmt: skip
    found = declared or (catalogue.base_url if catalogue is not None else None)
    return found or str(getattr(connector, "spec", None) or getattr(connector, "app", "") or "")


def _unknown(connector: Connector) -> NotFound:
    return NotFound("Its actions are not known yet.", hint=f"Read them: kortix connectors sync {connector.slug}")


def _harmless(catalogue: Catalogue) -> list[Action]:
    """The reads that need no argument, the most usual first."""
    able = [
        action
        for action in catalogue.actions
        if action.risk is Risk.READ and action.unavailable is None and not action.input_schema.get("required")
    ]
    return sorted(able, key=lambda action: (not action.name.startswith(("get_", "list_", "query.")), action.name))


def _passed(name: str, message: str) -> ConnectorCheck:
    return ConnectorCheck(name=name, level=Level.OK, message=message)


def _fail(name: str, error: KortixError) -> ConnectorCheck:
    return ConnectorCheck(name=name, level=Level.FAIL, message=str(error))
