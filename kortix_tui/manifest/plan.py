"""What the runtime needs to know to run one agent: the resolved view of a checked manifest."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.faults import choose
from kortix_tui.base.settings import Settings
from kortix_tui.manifest.agents import Agent
from kortix_tui.manifest.behaviour import AgentFile, Harness
from kortix_tui.manifest.check import Report
from kortix_tui.manifest.egress import NetworkEgress
from kortix_tui.manifest.fields import Grant, SecretGrant
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.support import refusals
from kortix_tui.manifest.templates import DEFAULT_TEMPLATE, HIGHEST, Template

_MOST_FAULTS = 5


class _Plain(BaseModel):
    """Frozen, and survives a trip through JSON: a session's plan is stored with it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class TemplatePlan(_Plain):
    """The image and the size of a sandbox.

    Attributes:
        slug: `default` for the runtime's own image; then neither `image` nor `dockerfile` is set.
        lowered: What was cut to a bound or to the operator's ceiling, in words.
    """

    slug: str
    image: str | None = None
    dockerfile: str | None = None
    cpu: int
    memory_gib: int
    disk_gib: int
    lowered: tuple[str, ...] = ()


class Grants(_Plain):
    """What the agent may touch."""

    connectors: Grant
    connectors_required: tuple[str, ...]
    secrets: SecretGrant
    skills: Grant
    permissions: Grant
    models: tuple[str, ...] | None
    network_egress: NetworkEgress | None


class AgentPlan(_Plain):
    """One agent, ready to be run."""

    name: str
    harness: Harness
    command: tuple[str, ...]
    description: str | None
    instructions: str
    model: str | None
    template: TemplatePlan
    repository_access: bool
    idle_minutes: float
    grants: Grants


def plan_agent(
    report: Report, name: str | None = None, *, template: str | None = None, settings: Settings | None = None
) -> AgentPlan:
    """Resolve an agent and its sandbox.

    Args:
        report: What `check` said of the base commit.
        name: The agent; the project's default agent when `None`.
        template: The template that the session asks for; else the agent's, the project's, the built-in one.
        settings: The operator's defaults and ceilings.

    Raises:
        NotFound: No manifest, agent or template of that name.
        InvalidInput: The manifest has errors.
        Refused: The agent is switched off, or uses something that this edition does not serve.
    """
    settings = settings or Settings()
    manifest = _valid(report)
    chosen = name or manifest.default_agent
    agent = manifest.agents.get(chosen)
    if agent is None:
        raise NotFound(f"There is no agent {chosen!r} in kortix.yaml.", hint=choose(chosen, manifest.enabled_agents()))
    file = report.agents.get(chosen)
    if not agent.enabled or file is None or file.behaviour.disable:
        raise Refused(
            f"The agent {chosen!r} is switched off.",
            hint="Choose another with --agent, or enable it. " + choose("", manifest.enabled_agents()),
        )
    template_plan = plan_template(manifest, agent, template, settings)
    reasons = refusals(manifest, chosen, template=template_plan.slug)
    if reasons:
        raise Refused(
            f"The agent {chosen!r} cannot run here: {'; '.join(reasons)}.",
            hint="This edition does not serve that; `kortix validate` lists it all. Remove it from the agent.",
        )
    return _plan(chosen, agent, file, template_plan, manifest, settings)


def plan_template(manifest: Manifest, agent: Agent, wish: str | None, settings: Settings) -> TemplatePlan:
    """Choose a template in the order session, agent, `sandbox.default`, default, and size it.

    Raises:
        NotFound: The wish names no template.
    """
    slug = wish or agent.sandbox or manifest.sandbox.default or DEFAULT_TEMPLATE
    template = manifest.sandbox.find(slug)
    if template is None and slug != DEFAULT_TEMPLATE:
        names = [DEFAULT_TEMPLATE, *(own.slug for own in manifest.sandbox.templates)]
        raise NotFound(f"There is no sandbox template {slug!r}.", hint=choose(slug, names))
    lowered: list[str] = []
    return TemplatePlan(
        slug=slug,
        image=template.image if template else None,
        dockerfile=template.dockerfile if template else None,
        cpu=_size("cpu", "CPUs", template, settings.sandbox.default_cpu, settings.ceilings.cpu, lowered),
        memory_gib=_size(
            "memory",
            "GiB of memory",
            template,
            settings.sandbox.default_memory_gib,
            settings.ceilings.memory_gib,
            lowered,
        ),
        disk_gib=_size(
            "disk", "GiB of disk", template, settings.sandbox.default_disk_gib, settings.ceilings.disk_gib, lowered
        ),
        lowered=tuple(lowered),
    )


def _size(
    key: Literal["cpu", "memory", "disk"],
    unit: str,
    template: Template | None,
    default: int,
    ceiling: int | None,
    lowered: list[str],
) -> int:
    wanted: int = (getattr(template, key) if template else None) or default
    allowed = min(HIGHEST[key], ceiling or HIGHEST[key])
    if wanted > allowed:
        lowered.append(f"{allowed} {unit} in place of {wanted}")
    return min(wanted, allowed)


def _valid(report: Report) -> Manifest:
    if report.missing:
        fault = report.errors[0]
        raise NotFound("There is no kortix.yaml at the project's root.", hint=fault.hint)
    errors = report.errors
    if report.manifest is None or errors:
        more = f"; and {len(errors) - _MOST_FAULTS} more" if len(errors) > _MOST_FAULTS else ""
        listed = "; ".join(str(fault) for fault in errors[:_MOST_FAULTS])
        raise InvalidInput(
            f"The project's kortix.yaml is not valid: {listed}{more}",
            hint="Run `kortix validate`, correct it on the base branch, and commit.",
        )
    return report.manifest


def _plan(
    name: str, agent: Agent, file: AgentFile, template: TemplatePlan, manifest: Manifest, settings: Settings
) -> AgentPlan:
    behaviour = file.behaviour
    harness: Harness | None = behaviour.harness
    if harness is None:
        if manifest.runtime != "opencode":
            raise Refused(
                f"The agent {name!r} says no harness, and `runtime: {manifest.runtime}` is not supported here.",
                hint=f"Write `harness:` in {file.file}.",
            )
        harness = "opencode"
    return AgentPlan(
        name=name,
        harness=harness,
        command=behaviour.command or (),
        description=behaviour.description,
        instructions=file.instructions,
        model=behaviour.model,
        template=template,
        repository_access=agent.repository_access,
        idle_minutes=settings.sandbox.idle_minutes,
        grants=Grants(
            connectors=agent.connectors,
            connectors_required=agent.connectors_required,
            secrets=agent.secrets,
            skills=agent.skills,
            permissions=agent.kortix_permissions,
            models=agent.models,
            network_egress=agent.network_egress,
        ),
    )
