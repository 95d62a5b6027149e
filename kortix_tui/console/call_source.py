"""What the console needs of the runtime for brokered calls: approvals, connectors, connections, policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kortix_tui.runtime.call_memory import Remember
    from kortix_tui.runtime.connector_views import (
        ApprovalView,
        ConnectorView,
        DecisionResult,
        PolicyView,
        SyncResult,
    )
    from kortix_tui.store.models import Project


class ApprovalSource(Protocol):
    """Calls that wait for a person."""

    def pending(self) -> Sequence[ApprovalView]:
        """All of them, riskiest and then oldest first."""
        ...

    def show(self, reference: str) -> ApprovalView:
        """One of them, whatever became of it."""
        ...

    def decide(
        self,
        reference: str,
        *,
        digest: str,
        approve: bool,
        note: str | None = None,
        remember: Remember | None = None,
        terminal: bool,
        pinned: bool,
    ) -> DecisionResult:
        """Approve or deny exactly what was shown."""
        ...


class ConnectorSource(Protocol):
    """Connectors of a project's base branch."""

    def list(self, project: Project, /) -> Sequence[ConnectorView]:
        """All of them, by slug."""
        ...

    def sync(self, project: Project, slug: str, /) -> SyncResult:
        """Read its document or server again."""
        ...

    def accept(self, project: Project, slug: str, catalogue_id: str, /) -> SyncResult:
        """Let a changed document take effect."""
        ...


class PolicySource(Protocol):
    """What happens to calls."""

    def view(self, project: Project, connector: str, /) -> PolicyView:
        """A connector's policy, rule by rule and action by action."""
        ...
