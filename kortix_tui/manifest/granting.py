"""Edits of a project's manifest: made in the file that declares the agent, checked with all the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import InvalidInput, NotFound
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.manifest.assembly import MANIFEST, assemble
from kortix_tui.manifest.check import check
from kortix_tui.manifest.edit import add_to_grant, remove_from_grant
from kortix_tui.manifest.policies import Condition, DefaultMode, PolicyRule
from kortix_tui.manifest.policy_edit import remove_rule, set_default_mode, set_rule
from kortix_tui.manifest.source import Source


class GrantAction(StrEnum):
    """Which way a grant is edited."""

    GRANT = "grant"
    REVOKE = "revoke"


class GrantEdit(BaseModel):
    """One name more or less in what one agent may use."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: GrantAction
    agent: str = Field(min_length=1, max_length=200)
    key: str = Field(max_length=200)
    name: str = Field(max_length=200)
    replace_all: bool = False


class RuleSet(BaseModel):
    """A rule on calls that is to hold; see `policy_edit.set_rule`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["rule"] = "rule"
    connector: str | None = Field(max_length=200)
    rule: PolicyRule
    first: bool = False


class RuleRemoval(BaseModel):
    """A rule on calls that is to go; see `policy_edit.remove_rule`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["no_rule"] = "no_rule"
    connector: str | None = Field(max_length=200)
    match: str = Field(max_length=600)
    conditions: tuple[Condition, ...] | None = None


class ModeEdit(BaseModel):
    """What happens to calls that no rule matches."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["default_mode"] = "default_mode"
    mode: DefaultMode


Edit = GrantEdit | RuleSet | RuleRemoval | ModeEdit
"""Whatever can be edited without an agent; no two of them have the same fields."""


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file of the project, as it is after an edit."""

    path: str
    data: bytes


class EditedSource:
    """A source with one file replaced."""

    def __init__(self, source: Source, file: EditedFile) -> None:
        self._source = source
        self._file = file

    def read(self, path: str) -> bytes | None:
        """The bytes of a file, the replaced one as it is now."""
        return self._file.data if path == self._file.path else self._source.read(path)

    def list(self, path: str) -> list[str]:
        """All files below a folder."""
        return self._source.list(path)


def apply_edit(source: Source, edit: Edit) -> EditedFile | None:
    """Apply an edit to the file that declares what it is about, be it the manifest or one that it imports.

    Returns:
        The edited file; `None` when the manifest says so already.

    Raises:
        NotFound: No such agent or connector is declared.
        Refused: The grant is `all`; see `edit`.
        Ambiguous: Several rules have the match that is to go.
        InvalidInput: A file cannot be read, or cannot be edited safely.
    """
    file = _file_of(source, edit)
    before = source.read(file) or b""
    match edit:
        case GrantEdit(action=GrantAction.GRANT):
            after = add_to_grant(before, edit.agent, edit.key, edit.name, replace_all=edit.replace_all, file=file)
        case GrantEdit():
            after = remove_from_grant(before, edit.agent, edit.key, edit.name, file=file)
        case RuleSet():
            after = set_rule(before, edit.rule, connector=edit.connector, first=edit.first, file=file)
        case RuleRemoval():
            after = remove_rule(before, edit.match, connector=edit.connector, conditions=edit.conditions, file=file)
        case ModeEdit():
            after = set_default_mode(before, edit.mode, file=file)
    return None if after == before else EditedFile(file, after)


def _file_of(source: Source, edit: Edit) -> str:
    assembly = assemble(source)
    match edit:
        case GrantEdit(agent=name):
            agents = assembly.data.get("agents")
            known: dict[str, tuple[str | int, ...]] = {}
            if isinstance(agents, dict):
                known = {str(own): ("agents", own) for own in agents}
            kind = "agent"
        case RuleSet(connector=str(name)) | RuleRemoval(connector=str(name)):
            connectors = assembly.data.get("connectors")
            known = {}
            for place, entry in enumerate(connectors if isinstance(connectors, list) else []):
                if isinstance(entry, dict):
                    known.setdefault(str(entry.get("slug")), ("connectors", place))
            kind = "connector"
        case _:
            return MANIFEST
    if name in known:
        return assembly.key_place(known[name]).file
    errors = [fault for fault in assembly.faults if fault.is_error]
    if errors:
        raise InvalidInput(f"{errors[0].location}: {errors[0].message}", hint=errors[0].hint)
    raise NotFound(f"{MANIFEST} declares no {kind} `{visible_line(shorten(name, 60))}`.", hint=choose(name, known))


def check_edited(source: Source, file: EditedFile) -> None:
    """Make sure that the whole manifest is valid with an edited file in it.

    Raises:
        InvalidInput: It is not; the first fault is named.
    """
    errors = check(EditedSource(source, file)).errors
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidInput(
            f"The manifest would not be valid with this edit: {errors[0].location}: {errors[0].message}{more}.",
            hint=errors[0].hint,
        )
