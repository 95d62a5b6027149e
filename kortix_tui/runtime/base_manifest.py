"""The manifest on a project's base branch, for processes that only read: as the mirror has it, nothing is fetched."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import InvalidInput, KortixError, NotFound
from kortix_tui.base.faults import choose
from kortix_tui.runtime.context import Context

if TYPE_CHECKING:
    from kortix_tui.manifest.check import Report
    from kortix_tui.manifest.connectors import Connector
    from kortix_tui.manifest.model import Manifest
    from kortix_tui.store.models import Project

READ_S: Final = 30.0
FETCH_S: Final = 20.0
KEPT: Final = 64


@dataclass(frozen=True)
class BaseManifest:
    """What governs a project now.

    Attributes:
        manifest: `None` while it cannot be read or is not valid; then `fault` says why.
    """

    commit: str
    report: Report | None
    manifest: Manifest | None
    fault: str | None

    def agents_of(self, connector: str) -> tuple[str, ...]:
        """Enabled agents that may use a connector, by their grants."""
        if self.manifest is None:
            return ()
        agents = self.manifest.agents
        return tuple(
            name for name in sorted(self.manifest.enabled_agents()) if agents[name].connectors.allows(connector)
        )


def valid_manifest(report: Report, base_branch: str) -> Manifest:
    """The manifest of a report.

    Raises:
        InvalidInput: It is missing or has errors; the first is named.
    """
    if report.manifest is None or report.errors:
        raise InvalidInput(
            f"kortix.yaml on {base_branch} is not valid: {report.errors[0].message}", hint="See: kortix validate"
        )
    return report.manifest


def find_connector(manifest: Manifest, slug: str, project: str) -> Connector:
    """The connector of a slug.

    Raises:
        NotFound: There is none; the hint names close ones.
    """
    found = manifest.connector(slug)
    if found is None:
        raise NotFound(
            f"Project {project} has no connector {slug[:128]!r} on its base branch.",
            hint=choose(slug, [one.slug for one in manifest.connectors]) or "Declare one in kortix.yaml.",
        )
    return found


class BaseManifests:
    """Reads manifests from mirrors, once for each base commit."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[str, str], BaseManifest] = {}

    def refresh(self, project: Project) -> None:
        """Fetch what the operator has committed since; what cannot be reached stays as it was fetched last."""
        with contextlib.suppress(KortixError):
            self._context.loop.call(self._fetch(project), deadline_s=READ_S)

    def of(self, project: Project) -> BaseManifest:
        """A project's manifest; never raises for what is wrong with it."""
        try:
            return self._context.loop.call(self._read(project.id, project.base_branch), deadline_s=READ_S)
        except KortixError as error:
            return BaseManifest("", None, None, str(error))

    def valid(self, project: Project) -> Manifest:
        """A project's manifest.

        Raises:
            InvalidInput: It cannot be read or is not valid.
        """
        base = self.of(project)
        if base.manifest is None:
            raise InvalidInput(base.fault or "The manifest cannot be read.", hint="See: kortix validate")
        return base.manifest

    def connector(self, project: Project, slug: str) -> tuple[Manifest, Connector]:
        """A connector and the manifest that declares it.

        Raises:
            InvalidInput: The manifest cannot be read or is not valid.
            NotFound: It declares no such connector.
        """
        manifest = self.valid(project)
        return manifest, find_connector(manifest, slug, project.slug)

    async def _fetch(self, project: Project) -> None:
        from kortix_tui.repository.mirror import Mirror

        mirror = await Mirror.open(self._context.home.mirror(project.id))
        await mirror.fetch(project.source, base=project.base_branch, wall_s=FETCH_S)

    async def _read(self, project_id: str, base_branch: str) -> BaseManifest:
        from kortix_tui.repository.mirror import Mirror
        from kortix_tui.repository.names import branch_ref
        from kortix_tui.runtime.preparing import read_manifest

        mirror = await Mirror.open(self._context.home.mirror(project_id))
        commit = await mirror.resolve(branch_ref(base_branch))
        if commit is None:
            raise NotFound(f"The mirror has no branch {base_branch}.")
        if (known := self._known.get((project_id, commit))) is not None:
            return known
        report = await read_manifest(mirror, commit)
        try:
            manifest, fault = valid_manifest(report, base_branch), None
        except InvalidInput as error:
            manifest, fault = None, error.message
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[project_id, commit] = BaseManifest(commit, report, manifest, fault)
        return self._known[project_id, commit]
