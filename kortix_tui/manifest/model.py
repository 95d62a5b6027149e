"""The whole `kortix.yaml`, version 2, as one typed model."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field, field_validator

from kortix_tui.base.validation import Many, Part, wrong
from kortix_tui.manifest.agents import Agent
from kortix_tui.manifest.connectors import Connector
from kortix_tui.manifest.fields import Slug, check_path, is_slug
from kortix_tui.manifest.policies import Policy, PolicyRule
from kortix_tui.manifest.resources import (
    App,
    Check,
    Environment,
    Harnesses,
    HarnessFolder,
    Merge,
    ProjectInfo,
    Tools,
    Volume,
)
from kortix_tui.manifest.templates import Sandbox
from kortix_tui.manifest.triggers import Trigger

IMPORTABLE: Final = ("agents", "connectors", "triggers", "apps", "volumes", "tools")
"""Root keys that an imported file may carry, beside `imports`."""

FORBIDDEN: Final[dict[str, str]] = {
    "channels": "Declare a connector with `provider: channel` under `connectors:`.",
    "sandboxes": "The key is called `sandbox:`, with `templates:` below it.",
    "subprojects": "Use a repository, and so a project, for each.",
}
"""Root keys that are refused, and what to write instead."""


def _check_import(path: str) -> str:
    if any(char in path for char in "*?["):
        raise wrong(
            f"`{path}` is a pattern",
            "Name one file or one folder; a folder brings all `.yaml` and `.yml` files below it.",
        )
    return check_path(path)


def _check_names(value: dict[str, Any]) -> dict[str, Any]:
    for name in value:
        if not is_slug(name):
            raise wrong(f"`{name}` is not a valid name", "Use a-z, 0-9, `-` and `_`, at most 128.", at=name)
    return value


class Manifest(Part):
    """A project's agents, what they may touch, and where they run."""

    kortix_version: Literal[2]
    default_agent: Slug
    imports: Many[Annotated[str, AfterValidator(_check_import)]] = ()
    project: ProjectInfo = ProjectInfo()
    runtime: Literal["opencode", "pi"] = "opencode"
    env: Environment = Environment()
    sandbox: Sandbox = Sandbox()
    opencode: HarnessFolder = HarnessFolder()
    pi: HarnessFolder = HarnessFolder()
    harnesses: Harnesses = Harnesses()
    policy: Policy = Policy()
    policies: Many[PolicyRule] = ()
    connectors: Many[Connector] = ()
    checks: Many[Check] = ()
    merge: Merge = Merge()
    triggers: Many[Trigger] = ()
    tools: Tools | None = None
    volumes: Annotated[dict[str, Volume], AfterValidator(_check_names)] = Field(default_factory=dict)
    apps: Annotated[dict[str, App], AfterValidator(_check_names)] = Field(default_factory=dict)
    agents: Annotated[dict[str, Agent], Field(min_length=1), AfterValidator(_check_names)]

    @field_validator("kortix_version", mode="before")
    @classmethod
    def _version(cls, value: object) -> object:
        if value == 2 and not isinstance(value, bool | float):
            return value
        if value == 1:
            raise wrong(
                "version 1 is not read", "Write `kortix_version: 2`; agents move into `agents:`.", code="version"
            )
        if isinstance(value, int) and not isinstance(value, bool):
            raise wrong(f"version {value} is not known", "This program reads `kortix_version: 2`.", code="version")
        raise wrong("must be the number 2", "Write `kortix_version: 2`.", code="version")

    def connector(self, slug: str) -> Connector | None:
        """The connector of that name."""
        return next((connector for connector in self.connectors if connector.slug == slug), None)

    def enabled_agents(self) -> list[str]:
        """Names of the agents that count as declared, in the order of the file."""
        return [name for name, agent in self.agents.items() if agent.enabled]
