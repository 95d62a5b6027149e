"""Edits of a project's manifest: made in the file that declares the agent, checked with all the others."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import InvalidInput, NotFound
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.manifest.assembly import MANIFEST, assemble
from kortix_tui.manifest.check import check
from kortix_tui.manifest.edit import add_to_grant, remove_from_grant
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


@dataclass(frozen=True, slots=True)
class EditedFile:
    """A file of the project, as it is after an edit."""

    path: str
    data: bytes


class _Edited:
    """A source with one file replaced."""

    def __init__(self, source: Source, file: EditedFile) -> None:
        self._source = source
        self._file = file

    def read(self, path: str) -> bytes | None:
        return self._file.data if path == self._file.path else self._source.read(path)

    def list(self, path: str) -> list[str]:
        return self._source.list(path)


def edit_grant(source: Source, edit: GrantEdit) -> EditedFile | None:
    """Apply an edit to the file that declares the agent, be it the manifest or one that it imports.

    Returns:
        The edited file; `None` when the manifest says so already.

    Raises:
        NotFound: No such agent is declared.
        Refused: The grant is `all`; see `edit`.
        InvalidInput: A file cannot be read, or cannot be edited safely.
    """
    assembly = assemble(source)
    agents = assembly.data.get("agents")
    if not isinstance(agents, dict) or edit.agent not in agents:
        errors = [fault for fault in assembly.faults if fault.is_error]
        if errors:
            raise InvalidInput(f"{errors[0].location}: {errors[0].message}", hint=errors[0].hint)
        known = agents if isinstance(agents, dict) else {}
        raise NotFound(
            f"{MANIFEST} declares no agent `{visible_line(shorten(edit.agent, 60))}`.", hint=choose(edit.agent, known)
        )
    file = assembly.key_place(("agents", edit.agent)).file
    before = source.read(file) or b""
    if edit.action is GrantAction.GRANT:
        after = add_to_grant(before, edit.agent, edit.key, edit.name, replace_all=edit.replace_all, file=file)
    else:
        after = remove_from_grant(before, edit.agent, edit.key, edit.name, file=file)
    return None if after == before else EditedFile(file, after)


def check_edited(source: Source, file: EditedFile) -> None:
    """Make sure that the whole manifest is valid with an edited file in it.

    Raises:
        InvalidInput: It is not; the first fault is named.
    """
    errors = check(_Edited(source, file)).errors
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise InvalidInput(
            f"The manifest would not be valid with this edit: {errors[0].location}: {errors[0].message}{more}.",
            hint=errors[0].hint,
        )
