"""What a difference is: changed paths with their kinds and counts. Apart from `diff`, so that lists need no git."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer, PlainValidator, WithJsonSchema

from kortix_tui.base.text import visible_line


def _is_text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - pydantic wants a ValueError
    return value


GitText = Annotated[
    str,
    PlainValidator(_is_text),
    PlainSerializer(visible_line, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string"}),
]
"""A name from git: undecodable bytes are surrogates, which pydantic's own `str` refuses; JSON gets the visible form."""


class FileKind(StrEnum):
    """What a path is."""

    FILE = "file"
    EXECUTABLE = "executable"
    SYMLINK = "symlink"
    SUBMODULE = "submodule"
    ABSENT = "absent"


class FileStatus(StrEnum):
    """What happened to a path."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    RENAMED = "renamed"
    COPIED = "copied"
    RETYPED = "retyped"


class FileChange(BaseModel):
    """One changed path. `additions` and `deletions` are `None` where lines were not compared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: GitText
    old_path: GitText | None = None
    status: FileStatus
    kind: FileKind
    old_kind: FileKind
    additions: int | None = None
    deletions: int | None = None
    binary: bool = False
    too_large: bool = False
    old_size: int = 0
    new_size: int = 0

    @property
    def mode_changed(self) -> bool:
        """Whether a file became a program, a link or a submodule, or the other way round."""
        return FileKind.ABSENT not in (self.kind, self.old_kind) and self.kind is not self.old_kind


class DiffSummary(BaseModel):
    """All changed paths, sorted. `truncated`: there are more than are listed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: str
    head: str
    merge_base: str
    files: tuple[FileChange, ...]
    additions: int
    deletions: int
    truncated: bool = False
