"""Smaller sections of a manifest: tools, harness settings, checks, merge, and what only Kortix serves."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from kortix_tui.base.validation import Many, Part, wrong
from kortix_tui.manifest.fields import (
    Command,
    Duration,
    EnvName,
    NonEmpty,
    RepoPath,
    SecretIdentifier,
    Slug,
    check_path,
)

_TOOL_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}\Z")
_MODULE_ENDINGS = (".ts", ".js", ".mts", ".mjs", ".cts", ".cjs")
_PACKAGE = re.compile(r"npm:(?:@[a-z0-9._-]+/)?[a-z0-9._-]+@[0-9]+\.[0-9]+\.[0-9]+[A-Za-z0-9.+-]*\Z")


class ProjectInfo(Part):
    """For people only."""

    name: str | None = None
    description: str | None = None


class Environment(Part):
    """Names of variables that the project wants; `required` ones are pointed out when missing."""

    required: Many[EnvName] = ()
    optional: Many[EnvName] = ()


class HarnessFolder(Part):
    """Where a harness keeps its own configuration."""

    config_dir: RepoPath | None = None


def _check_tools(tools: dict[str, str]) -> dict[str, str]:
    for name, module in tools.items():
        if not _TOOL_NAME.match(name):
            raise wrong(
                f"`{name}` is not a tool name", "Use a-z, 0-9 and `_`, beginning with a letter, at most 64.", at=name
            )
        if module.startswith("kortix:"):
            if not _TOOL_NAME.match(module.removeprefix("kortix:")):
                raise wrong(f"`{module}` is not a tool of Kortix", "Write `kortix:web_search`, for example.", at=name)
            continue
        check_path(module)
        if not module.endswith(_MODULE_ENDINGS):
            raise wrong(
                f"`{module}` is not a tool module", f"Name a file that ends in {', '.join(_MODULE_ENDINGS)}.", at=name
            )
    return tools


Tools = Annotated[dict[str, str], AfterValidator(_check_tools)]


class OpencodeSettings(Part):
    """Plug-ins of OpenCode."""

    plugins: Many[NonEmpty] = ()
    exclude: Many[NonEmpty] = ()


def _check_package(text: str) -> str:
    if text.startswith("./"):
        check_path(text.removeprefix("./"))
    elif not _PACKAGE.match(text):
        raise wrong(f"`{text}` is not a pinned package", "Write `npm:name@1.2.3` or `./path`.")
    return text


class PiSettings(Part):
    """Packages of pi."""

    packages: Annotated[Many[Annotated[str, AfterValidator(_check_package)]], Field(max_length=20)] = ()
    exclude: Many[NonEmpty] = ()


class Harnesses(Part):
    """Settings of the harnesses that Kortix drives."""

    opencode: OpencodeSettings | None = None
    pi: PiSettings | None = None


class Check(Part):
    """A command that runs on the tree a merge would give."""

    name: Slug
    command: Command
    template: Slug | None = None
    required: bool = False
    timeout: Annotated[Duration, Field(le=6 * 3600)] = 600


class Merge(Part):
    """How a change request lands."""

    method: Literal["merge", "squash", "fast_forward"] = "merge"
    push_notes: bool = False


class Volume(Part):
    """A bucket that Kortix mounts; parses, but is not served in this edition."""

    type: Literal["s3"]
    bucket: NonEmpty
    prefix: str | None = None
    region: NonEmpty | None = None
    endpoint: NonEmpty | None = None
    access_key_id: SecretIdentifier | None = None
    secret_access_key: SecretIdentifier | None = None

    @model_validator(mode="after")
    def _both_keys(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise wrong("needs both of `access_key_id` and `secret_access_key`, or neither")
        return self


class App(BaseModel):
    """A hosted app of Kortix; parses, but is not served in this edition.

    Keys that this program does not know are left alone: hosting settings change without us, and nothing here
    reads them.
    """

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    type: Literal["static", "bundle", "dockerfile", "oci_image"]
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    idle_timeout: Annotated[int, Field(ge=120, le=86400)] | None = None
    monthly_budget_usd: Annotated[float, Field(ge=0)] | None = None
    resources: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, Any] | list[Any] = Field(default_factory=dict)
    secrets: list[Any] | str = "none"

    @model_validator(mode="after")
    def _free_port(self) -> Self:
        if self.port in (7331, 8080):
            raise wrong(f"port {self.port} is reserved", "Choose another port.", at="port")
        return self
