"""Secrets as the operator handles them. Names and exposures are read from the store; values go to the host and stay."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import Ambiguous, NotFound
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Exposure, SecretRequestState, SessionStatus
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_client import call
from kortix_tui.runtime.control_frames import MAX_SECRETS
from kortix_tui.runtime.secret_views import (
    HeldBy,
    SecretChange,
    SecretDetail,
    SecretRequestView,
    SecretView,
)
from kortix_tui.runtime.secret_words import change_says
from kortix_tui.runtime.vault_calls import (
    DeclineRequest,
    Done,
    ExposeSecret,
    ProvideSecret,
    Redact,
    SetSecret,
    SetSecrets,
    ShareSecret,
    StoredSecret,
    StoredSecrets,
    UnsetSecret,
)
from kortix_tui.store.models import Delivery, Project, SecretRequest, SecretRow
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    from kortix_tui.runtime.reach import Grants, ReadGrants

CALL_S: Final = 60.0
_ROWS = (
    f"SELECT {', '.join('s.' + name for name in SecretRow.model_fields)}, p.slug"
    " FROM secrets s JOIN projects p ON p.id = s.project_id WHERE s.removed_at IS NULL"
)
_HOLDERS = (
    f"SELECT {', '.join('d.' + name for name in Delivery.model_fields)}, x.title, x.status"
    " FROM deliveries d JOIN sessions x ON x.id = d.session_id WHERE x.removed_at IS NULL AND d.version ="
    " (SELECT max(version) FROM deliveries y WHERE y.session_id = d.session_id AND y.secret_id = d.secret_id)"
    " ORDER BY d.at DESC"
)


class Secrets:
    """The secret verbs. A personal secret is seen by its owner only; a home has one person for now."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reading: ReadGrants | None = None

    # Reading

    def list(self, *, project: Project | None = None) -> list[SecretView]:
        """Secrets by project and identifier."""
        self._context.reading("secret.list", scope=f"project {project.slug}" if project else "all projects")
        return [*self._views("AND s.project_id = ?" if project else "", (project.id,) if project else ())]

    def find(self, project: Project, identifier: str) -> SecretView:
        """The secret of an identifier, whatever its case; one's own before the project's.

        Raises:
            NotFound: There is none; the message names close ones.
        """
        found = self._views(
            "AND s.project_id = ? AND s.identifier = ? COLLATE NOCASE AND s.owner IN ('project', ?)",
            (project.id, identifier, self._context.actor.name),
        )
        if not found:
            names = [row[0] for row in self._context.store.all(
                "SELECT identifier FROM secrets WHERE project_id = ? AND removed_at IS NULL", (project.id,)
            )]  # fmt: skip
            near = get_close_matches(identifier[:128].upper(), names, 1)
            hint = f"Did you mean {near[0]}?" if near else f"See `kortix secrets ls --project {project.slug}`."
            raise NotFound(f"Project {project.slug} has no secret {_shown(identifier)}.", hint=hint)
        return sorted(found, key=lambda view: view.owner == "project")[0]

    def show(self, project: Project, identifier: str) -> SecretDetail:
        """A secret, who may have it and why, and who holds it. Never its value."""
        view = self.find(project, identifier)
        self._context.reading("secret.read", scope=f"secret {project.slug}/{view.identifier}", project_id=project.id)
        grants = self._grants(project)
        return SecretDetail(
            secret=view, reach=grants.reach(view.identifier, view.exposure), manifest_fault=grants.fault
        )

    def requests(self) -> Sequence[SecretRequestView]:
        """Open requests of agents for values, oldest first."""
        rows = self._context.store.all(
            f"SELECT {', '.join('r.' + name for name in SecretRequest.model_fields)}, p.slug, x.title, x.agent,"
            " (SELECT s.exposure FROM secrets s WHERE s.project_id = r.project_id AND s.owner = 'project'"
            " AND s.identifier = r.identifier COLLATE NOCASE AND s.removed_at IS NULL)"
            " FROM secret_requests r JOIN projects p ON p.id = r.project_id JOIN sessions x ON x.id = r.session_id"
            " WHERE r.state = ? ORDER BY r.created_at, r.id",
            (SecretRequestState.OPEN,),
        )
        views = []
        for row in rows:
            request, (slug, title, agent, stored) = SecretRequest.of(row[:-4]), row[-4:]
            there = Exposure(stored) if stored else None
            granted = agent in self._grants_of(request.project_id).agents(request.identifier, there or request.exposure)
            views.append(
                SecretRequestView(
                    **request.model_dump(), project=slug, session_title=title, agent=agent, granted=granted,
                    stored=there,
                )
            )  # fmt: skip
        return views

    def request(self, reference: str) -> SecretRequestView:
        """The open request of an id or of a unique beginning of one.

        Raises:
            NotFound: None is open of that id.
            Ambiguous: Several are.
        """
        found = [view for view in self.requests() if view.id.startswith(reference)]
        if not found or not reference:
            raise NotFound(f"No open request {_shown(reference)}.", hint="See `kortix review ls`.")
        if len(found) > 1:
            raise Ambiguous(f"{reference} fits {', '.join(view.id for view in found[:5])}.", hint="Give more of it.")
        return found[0]

    # Writing; everything below goes to the host, which alone has the vault open

    def set(
        self,
        project: Project,
        identifier: str,
        value: Secret,
        *,
        name: str | None = None,
        exposure: Exposure | None = None,
        hosts: tuple[str, ...] | None = None,
        only_me: bool | None = None,
        create: bool | None = None,
    ) -> SecretChange:
        """Store a value: a new secret, or a new version of one that is there.

        Args:
            project: Whose.
            identifier: What grants name; the environment name too unless `name` is given.
            value: What is stored.
            name: The environment variable.
            exposure: Where it may go; `None` leaves it, and for a new one means the operator's default.
            hosts: Where an egress-enforced value may be sent.
            only_me: Whether it is personal; `None` leaves it.
            create: `True` refuses one that exists, `False` one that does not.

        Raises:
            VaultLocked: The vault is locked.
            InvalidInput: Name, identifier or value cannot be taken; says why, never what.
        """
        arguments = SetSecret(
            project_id=project.id, identifier=identifier, name=name, exposure=exposure, hosts=hosts, only_me=only_me,
            create=create,
        )  # fmt: skip
        return self._changed(project, SetSecret.verb, arguments, value)

    def set_many(
        self,
        project: Project,
        values: Sequence[tuple[str, Secret]],
        *,
        exposure: Exposure | None = None,
        only_me: bool | None = None,
    ) -> tuple[StoredSecret, ...]:
        """Store many values, in few writes of the vault; each write takes all of its values or none. As `set`."""
        stored = list[StoredSecret]()
        for start in range(0, len(values), MAX_SECRETS):
            some = values[start : start + MAX_SECRETS]
            items = tuple(
                SetSecret(project_id=project.id, identifier=name, exposure=exposure, only_me=only_me)
                for name, _ in some
            )
            secrets = tuple(value.use("sent to the host") for _, value in some)
            answer, _ = call(
                self._context, SetSecrets.verb, SetSecrets(items=items), StoredSecrets, secrets=secrets,
                deadline_s=CALL_S,
            )  # fmt: skip
            stored += answer.stored
        return tuple(stored)

    def rotate(self, project: Project, identifier: str, value: Secret) -> SecretChange:
        """A new value for a secret that exists; sandboxes that hold the old one are stale from now on."""
        view = self.find(project, identifier)
        return self.set(project, view.identifier, value, only_me=view.owner != "project", create=False)

    def unset(self, project: Project, identifier: str) -> SecretView:
        """Forget a secret. Sandboxes that hold it keep what they have until they end."""
        view = self.find(project, identifier)
        call(self._context, UnsetSecret.verb, UnsetSecret(secret_id=view.id), Done, deadline_s=CALL_S)
        return view

    def share(self, project: Project, identifier: str, *, only_me: bool) -> SecretChange:
        """Give a personal secret to the project, or make a project's secret personal."""
        view = self.find(project, identifier)
        return self._changed(project, ShareSecret.verb, ShareSecret(secret_id=view.id, only_me=only_me))

    def expose(
        self,
        project: Project,
        identifier: str,
        exposure: Exposure,
        *,
        hosts: tuple[str, ...] = (),
        gateway: bool = False,
    ) -> SecretChange:
        """Change where a value may go."""
        view = self.find(project, identifier)
        arguments = ExposeSecret(secret_id=view.id, exposure=exposure, hosts=hosts, gateway=gateway)
        return self._changed(project, ExposeSecret.verb, arguments)

    def provide(
        self, reference: str, value: Secret, *, exposure: Exposure | None = None, only_me: bool = False
    ) -> SecretChange:
        """Answer an agent's request with a value; the agent still needs the grant.

        Args:
            reference: The request.
            value: What is stored.
            exposure: Where it may go; `None` leaves a secret that is there as it is, and for a new one means what the
                agent wished for, except for a model provider's key.
            only_me: Whether it is personal.
        """
        request = self.request(reference)
        project = self._project(request.project_id)
        arguments = ProvideSecret(request_id=request.id, exposure=exposure, only_me=only_me)
        return self._changed(project, ProvideSecret.verb, arguments, value)

    def decline(self, reference: str) -> SecretRequestView:
        """Answer an agent's request with no."""
        request = self.request(reference)
        call(self._context, DeclineRequest.verb, DeclineRequest(request_id=request.id), Done, deadline_s=CALL_S)
        return request

    def redact(self, text: str) -> str:
        """A text without any value that the vault knows; as it is where there is no vault, or it is locked."""
        _, given = call(self._context, Redact.verb, Redact(), Done, secrets=(text.encode("utf-8", "surrogatepass"),))
        return given.decode("utf-8", "surrogatepass")

    # Inside

    def _changed(
        self,
        project: Project,
        verb: str,
        arguments: SetSecret | ShareSecret | ExposeSecret | ProvideSecret,
        *values: Secret,
    ) -> SecretChange:
        secrets = tuple(value.use("sent to the host") for value in values)
        stored, _ = call(self._context, verb, arguments, StoredSecret, secrets=secrets, deadline_s=CALL_S)
        view = self._views("AND s.id = ?", (stored.secret_id,))[0]
        return SecretChange(
            secret=view, created=stored.created, says=(*stored.warnings, *change_says(view, self._grants(project)))
        )

    def _project(self, project_id: str) -> Project:
        row = self._context.store.one(f"SELECT {Project.columns()} FROM projects WHERE id = ?", (project_id,))
        assert row is not None  # noqa: S101 - rows of projects are never deleted
        return Project.of(row)

    def _grants(self, project: Project) -> Grants:
        from kortix_tui.runtime.reach import ReadGrants

        self._reading = self._reading or ReadGrants(self._context)
        return self._reading.of(project)

    def _grants_of(self, project_id: str) -> Grants:
        return self._grants(self._project(project_id))

    def _views(self, clause: str, values: tuple[str, ...]) -> tuple[SecretView, ...]:
        rows = self._context.store.all(
            f"{_ROWS} {clause} ORDER BY p.slug, s.identifier COLLATE NOCASE, s.owner", values
        )
        if not rows:
            return ()
        holders: dict[str, list[tuple[Delivery, str, SessionStatus]]] = {}
        for row in self._context.store.all(_HOLDERS):
            delivery = Delivery.of(row[:-2])
            holders.setdefault(delivery.secret_id, []).append((delivery, row[-2], SessionStatus(row[-1])))
        grants: dict[str, Grants] = {}
        views = []
        for row in rows:
            secret = SecretRow.of(row[:-1])
            if secret.owner not in ("project", self._context.actor.name):
                continue
            if secret.project_id not in grants:
                grants[secret.project_id] = self._grants_of(secret.project_id)
            held = tuple(
                HeldBy(
                    session_id=one.session_id, title=title, status=status, version=one.version, at=one.at,
                    stale=status is SessionStatus.RUNNING and one.version < secret.version,
                )
                for one, title, status in holders.get(secret.id, [])
            )  # fmt: skip
            views.append(
                SecretView(
                    **secret.model_dump(),
                    project=row[-1],
                    agents=grants[secret.project_id].agents(secret.identifier, secret.exposure),
                    held_by=held,
                    plain=secret.plain_at is not None,
                    stale=sum(one.stale for one in held),
                )
            )
        return tuple(views)


def _shown(identifier: str) -> str:
    """What somebody typed, safe and short: it may be a value in the wrong place, or anything."""
    return shorten(visible_line(identifier), 80)
