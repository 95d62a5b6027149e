"""`agents.<name>` in the manifest: governance, that is what an agent may touch."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from kortix_tui.base.validation import Many, Part, wrong
from kortix_tui.manifest.egress import NetworkEgress
from kortix_tui.manifest.fields import (
    SLUG_PATTERN,
    Grant,
    ModelName,
    NameGrant,
    PermissionGrant,
    RepoPath,
    SecretGrant,
    SecretsGrant,
    Slug,
    check_slug,
)
from kortix_tui.manifest.resources import Harnesses

VolumeMode = Literal["read-only", "read-write"]


def _check_agent_file(path: str) -> str:
    if not path.endswith(".md"):
        raise wrong(f"`{path}` is not a Markdown file", "Name a file that ends in `.md`.")
    return path


def _read_volumes(value: object) -> object:
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {check_slug(name): "read-only" for name in value}
    return value


Volumes = Annotated[
    dict[str, VolumeMode],
    BeforeValidator(_read_volumes),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": {"type": "string", "pattern": SLUG_PATTERN}},
                {"type": "object", "additionalProperties": {"enum": ["read-only", "read-write"]}},
            ]
        }
    ),
]


class ToolChoice(BaseModel):
    """Which tools an agent sees. Visibility only: it protects nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    everything: bool = True
    names: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


def _read_tools(value: Any) -> ToolChoice:
    match value:
        case ToolChoice():
            return value
        case "all" | "*":
            return ToolChoice()
        case "none":
            return ToolChoice(everything=False)
        case list() if all(isinstance(name, str) for name in value):
            return ToolChoice(everything=False, names=tuple(value))
        case {"exclude": list(names)} if len(value) == 1 and all(isinstance(name, str) for name in names):
            return ToolChoice(excluded=tuple(names))
        case dict() if all(isinstance(shown, bool) for shown in value.values()):
            return ToolChoice(excluded=tuple(name for name, shown in value.items() if not shown))
    raise wrong(
        "is not a choice of tools",
        "Write `all`, `none`, `[name]`, `{exclude: [name]}` or `{name: false}`.",
        code="type",
    )


_NAMES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}
Tools = Annotated[
    ToolChoice,
    BeforeValidator(_read_tools),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["all", "none", "*"]},
                _NAMES,
                {
                    "type": "object",
                    "properties": {"exclude": _NAMES},
                    "required": ["exclude"],
                    "additionalProperties": False,
                },
                {"type": "object", "additionalProperties": {"type": "boolean"}},
            ]
        }
    ),
]

AGENT_ALIASES = {"kortix_cli": "kortix_permissions", "connectors_personal": "connectors_required"}
"""Deprecated keys and what they are called now; `assembly` renames them."""


class Agent(Part):
    """What one agent may touch. Everything that is not listed is denied."""

    file: Annotated[RepoPath, AfterValidator(_check_agent_file)] | None = None
    enabled: bool = True
    sandbox: Slug | None = None
    connectors: NameGrant = Grant()
    connectors_required: Many[Slug] = ()
    secrets: SecretsGrant = SecretGrant()
    skills: NameGrant = Grant()
    apps: NameGrant = Grant()
    kortix_permissions: PermissionGrant = Grant()
    models: Many[ModelName] | None = None
    tools: Tools = ToolChoice()
    volumes: Volumes = Field(default_factory=dict)
    repository_access: bool = True
    network_egress: NetworkEgress | None = None
    harnesses: Harnesses | None = None

    @model_validator(mode="after")
    def _required_is_granted(self) -> Self:
        for name in self.connectors_required:
            if not self.connectors.allows(name):
                raise wrong(
                    f"`connectors_required` names `{name}`, which `connectors` does not grant",
                    f"Add `{name}` to `connectors`, or remove it here.",
                    at="connectors_required",
                    code="reference",
                )
        return self

    def file_for(self, name: str) -> str:
        """The Markdown file that says how the agent behaves."""
        return self.file or f"agents/{name}.md"
