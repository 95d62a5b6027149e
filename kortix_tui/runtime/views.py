"""What the console and the command line show. `--json` prints these models; fields are only ever added."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.repository.difference import DiffSummary
from kortix_tui.store.models import Change, HostRow, Project, Prompt, Rescue, Session

BUILD_MARK: Final = "│ "
"""Begins a note of the host that repeats what building an image printed: many lines, seldom wanted later."""


class View(BaseModel):
    """A result shown to a person or printed as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SessionView(Session):
    """A session in a list."""

    project: str = Field(description="The project's slug.")
    queued: int = Field(description="Prompts that wait for their turn.")
    rescued: int = Field(description="How many rescues hold work of this session.")
    change: int | None = Field(description="Number of its newest change request.")
    change_status: str | None


class SessionDetail(View):
    """A session with all that belongs to it."""

    session: SessionView
    prompts: tuple[Prompt, ...]
    rescues: tuple[Rescue, ...]
    changes: tuple[Change, ...]
    joined_rescues: tuple[int, ...] = Field(default=(), description="Numbers of rescues that its branch contains.")
    isolation: str | None = Field(description="What separates this sandbox from the host.")


class ChangeView(Change):
    """A change request in a list or on its page."""

    project: str
    session_title: str
    shown_head: str | None = Field(description="Head that this operator was shown last.")


class MergePreview(View):
    """What a merge would do at this moment."""

    base_commit: str
    head_commit: str
    can_merge: bool
    up_to_date: bool
    fast_forward: bool
    conflicts: tuple[str, ...] = ()
    manifest_faults: tuple[str, ...] = ()
    refusal: str | None = Field(default=None, description="Why the source would not take it now, and the way out.")


class ChangeDetail(View):
    """A change request with its diff, pinned to the head that it names."""

    change: ChangeView
    head_commit: str
    summary: DiffSummary
    preview: MergePreview | None = None


class MergeResult(View):
    """A finished merge."""

    project: str
    number: int
    merge_commit: str
    reviewed_head: str
    base_branch: str
    delivered_to: str


class ProjectDetail(View):
    """A project with the state of the operator's repository."""

    project: Project
    source_state: dict[str, Any] | None = Field(description="The checkout as it is now; absent for a URL.")
    problem: str | None = Field(description="Why the source cannot be used now.")
    sessions: int
    open_changes: int


class JoinedRescue(View):
    """Rescued work that is on the session's branch now."""

    session_id: str
    n: int
    head_commit: str


class HostView(View):
    """The process that acts."""

    host: HostRow | None
    silent: bool
    here: bool = Field(description="Whether this very process is the host.")


class RemovalPreview(View):
    """What removing a session keeps and loses, read from the sandbox and from git, not from memory."""

    session: SessionView
    running: bool
    has_volumes: bool
    note: str


class TemplateView(View):
    """An image that sandboxes start from."""

    slug: str
    project: str | None
    image: str | None = Field(description="Local tag once it is built.")
    built: bool
    created_at: datetime | None = None
    size_bytes: int | None = None
