"""What the console needs of the runtime. `kortix_tui.runtime.facade.Runtime` offers it; tests offer the same.

All calls may block and are made by the bridge's threads only, never by the user interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kortix_tui.console.call_source import ApprovalSource, ConnectionSource, ConnectorSource, PolicySource
from kortix_tui.console.secret_source import EditSource, InboxSource, SecretSource, VaultSource
from kortix_tui.runtime.views import ChangeDetail, ChangeView, HostView, MergeResult, RemovalPreview, SessionView
from kortix_tui.store.models import Project, Prompt
from kortix_tui.store.records import Record


class Records(Protocol):
    """A place in a session's record."""

    def read(self, limit: int = ...) -> Sequence[Record]:
        """The next records; empty when there are none yet."""
        ...


class SessionSource(Protocol):
    """Sessions."""

    def list(self) -> list[SessionView]:
        """Sessions, newest first."""
        ...

    def find(self, reference: str) -> SessionView:
        """The session of an id or of a unique prefix."""
        ...

    def new(self, prompt: str, *, project: Project, agent: str | None = None) -> SessionView:
        """Store a session and its first prompt."""
        ...

    def prompt(self, reference: str, text: str, *, queue: bool = False) -> Prompt:
        """Add a prompt."""
        ...

    def stop(self, reference: str) -> SessionView:
        """Want it stopped."""
        ...

    def resume(self, reference: str) -> SessionView:
        """Want it running."""
        ...

    def remove(self, reference: str) -> SessionView:
        """Want it gone."""
        ...

    def removal_preview(self, reference: str) -> RemovalPreview:
        """What removing keeps and loses."""
        ...

    def records(self, session_id: str, *, tail: int | None = None) -> Records:
        """Follow what it printed."""
        ...


class ChangeSource(Protocol):
    """Change requests."""

    def list(self) -> list[ChangeView]:
        """Change requests, oldest first."""
        ...

    def show(self, project: Project, number: int) -> ChangeDetail:
        """One of them, noting that the operator was shown its head."""
        ...

    def patch(self, project: Project, number: int, *, head: str | None = None) -> str:
        """Its unified diff: untrusted text."""
        ...

    def merge(self, project: Project, number: int, *, at: str | None = None) -> MergeResult:
        """Merge exactly that commit."""
        ...

    def close(self, project: Project, number: int) -> ChangeView:
        """Close without merging."""
        ...

    def reopen(self, project: Project, number: int) -> ChangeView:
        """Open again."""
        ...


class ProjectSource(Protocol):
    """Projects."""

    def list(self) -> list[Project]:
        """All projects."""
        ...


class Source(Protocol):
    """The runtime as the console sees it."""

    @property
    def sessions(self) -> SessionSource:
        """Sessions."""
        ...

    @property
    def changes(self) -> ChangeSource:
        """Change requests."""
        ...

    @property
    def projects(self) -> ProjectSource:
        """Projects."""
        ...

    @property
    def secrets(self) -> SecretSource:
        """Secrets."""
        ...

    @property
    def vault(self) -> VaultSource:
        """What opens the vault."""
        ...

    @property
    def inbox(self) -> InboxSource:
        """What waits for a person."""
        ...

    @property
    def edits(self) -> EditSource:
        """Proposals of a person."""
        ...

    @property
    def approvals(self) -> ApprovalSource:
        """Calls that wait for a person."""
        ...

    @property
    def connectors(self) -> ConnectorSource:
        """Ways to outside systems."""
        ...

    @property
    def connections(self) -> ConnectionSource:
        """Accounts of connectors."""
        ...

    @property
    def policies(self) -> PolicySource:
        """What happens to calls."""
        ...

    def start_hosting(self) -> None:
        """Act now when nobody does, or when the present host goes."""
        ...

    def host(self) -> HostView:
        """Who acts now."""
        ...

    def unfinished(self) -> int:
        """Sessions and requests that still need a host."""
        ...

    def data_version(self) -> int:
        """Changes when another connection has written."""
        ...
