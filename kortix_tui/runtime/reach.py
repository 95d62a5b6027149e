"""Which agents may have which secrets, by the grants of a manifest (invariant I3: the base branch governs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import KortixError
from kortix_tui.base.words import Exposure
from kortix_tui.manifest.fields import SecretGrant
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.secret_views import AgentReach

if TYPE_CHECKING:
    from kortix_tui.manifest.check import Report
    from kortix_tui.store.models import Project

READ_S: Final = 30.0
KEPT: Final = 256


def admits(grant: SecretGrant, identifier: str, exposure: Exposure) -> bool:
    """Whether a grant gives an agent this secret. `all` covers the environment exposure only; others must be named."""
    if grant.names_it(identifier):
        return True
    return grant.everything and exposure is Exposure.ENVIRONMENT


class Grants:
    """The secrets grants of one project's agents at its base commit.

    Attributes:
        by_agent: Enabled agents by name.
        fault: Why they cannot be known; then no agent has any.
    """

    def __init__(self, by_agent: dict[str, SecretGrant], fault: str | None = None) -> None:
        self.by_agent = by_agent
        self.fault = fault

    def reach(self, identifier: str, exposure: Exposure) -> tuple[AgentReach, ...]:
        """What each agent may do with a secret, in words."""
        return tuple(
            AgentReach(agent=name, granted=admits(grant, identifier, exposure), why=_why(grant, identifier, exposure))
            for name, grant in sorted(self.by_agent.items())
        )

    def agents(self, identifier: str, exposure: Exposure) -> tuple[str, ...]:
        """Agents that may have a secret."""
        return tuple(name for name, grant in sorted(self.by_agent.items()) if admits(grant, identifier, exposure))


def _why(grant: SecretGrant, identifier: str, exposure: Exposure) -> str:
    if grant.names_it(identifier):
        return "named"
    if grant.everything:
        return "covered by `all`" if exposure is Exposure.ENVIRONMENT else f"`all` does not cover {exposure.value}"
    return "not named"


def grants_of(report: Report, base_branch: str) -> Grants:
    """What a manifest on the base branch grants; nothing while it is not valid."""
    if report.manifest is None or report.errors:
        return Grants({}, f"kortix.yaml on {base_branch} is not valid: {report.errors[0].message}")
    agents, files = report.manifest.agents, report.agents
    on = [name for name in report.manifest.enabled_agents() if name in files and not files[name].behaviour.disable]
    return Grants({name: agents[name].secrets for name in on})


class ReadGrants:
    """Reads grants from mirrors, once for each base commit."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[tuple[str, str], Grants] = {}

    def of(self, project: Project) -> Grants:
        """A project's grants as its mirror has the base branch now; nothing is fetched."""
        try:
            return self._context.loop.call(self._read(project.id, project.base_branch), deadline_s=READ_S)
        except KortixError as error:
            return Grants({}, str(error))

    async def _read(self, project_id: str, base_branch: str) -> Grants:
        from kortix_tui.repository.mirror import Mirror
        from kortix_tui.repository.names import branch_ref
        from kortix_tui.runtime.preparing import read_manifest

        mirror = await Mirror.open(self._context.home.mirror(project_id))
        commit = await mirror.resolve(branch_ref(base_branch))
        if commit is None:
            return Grants({}, f"The mirror has no branch {base_branch}.")
        if (known := self._known.get((project_id, commit))) is not None:
            return known
        grants = grants_of(await read_manifest(mirror, commit), base_branch)
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[project_id, commit] = grants
        return grants
