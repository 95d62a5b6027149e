"""What the console needs of the runtime for brokered calls: approvals, connectors, connections, policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kortix_tui.runtime.call_memory import Remember
    from kortix_tui.runtime.connection_calls import Authorizing
    from kortix_tui.runtime.connections import ConnectionChange
    from kortix_tui.runtime.connector_views import (
        ApprovalView,
        CallRuleView,
        ConnectionView,
        ConnectorView,
        DecisionResult,
        PolicyView,
        SyncResult,
    )
    from kortix_tui.runtime.connectors import AuthNeeds, PendingCatalogue
    from kortix_tui.store.models import Project
    from kortix_tui.vault.secret import Secret


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

    def rules(self, *, project: Project | None = None) -> Sequence[CallRuleView]:
        """Remembered approvals."""
        ...


class ConnectorSource(Protocol):
    """Connectors of a project's base branch."""

    def list(self, project: Project) -> Sequence[ConnectorView]:
        """All of them, in the manifest's order."""
        ...

    def auth(self, project: Project, slug: str) -> AuthNeeds:
        """What a person has to give to connect it."""
        ...

    def pending(self, project: Project, slug: str) -> PendingCatalogue | None:
        """What waits to be accepted."""
        ...

    def sync(self, project: Project, slug: str) -> SyncResult:
        """Read its document or server again."""
        ...

    def accept(
        self, project: Project, slug: str, catalogue_id: str, *, terminal: bool, pinned: bool = True
    ) -> ConnectorView:
        """Let a changed document take effect."""
        ...


class ConnectionSource(Protocol):
    """Accounts of connectors. Values go in and never come out."""

    def connect(
        self,
        project: Project,
        connector: str,
        value: Secret | None,
        *,
        account: str = ...,
        username: str | None = None,
        secret: str | None = None,
        client_id: str | None = None,
    ) -> ConnectionChange:
        """Store a credential, or bind a secret."""
        ...

    def authorize(
        self,
        project: Project,
        connector: str,
        *,
        account: str = ...,
        client_id: str | None = None,
        client_secret: Secret | None = None,
    ) -> Authorizing:
        """Begin OAuth with a person's consent."""
        ...

    def authorization(self, flow: str, *, wait_s: float = 0, pasted: str | None = None) -> ConnectionView | None:
        """What became of it; nothing while it waits."""
        ...

    def cancel(self, flow: str) -> None:
        """End it."""
        ...

    def remove(self, project: Project, connector: str, account: str = ...) -> ConnectionView:
        """Forget an account."""
        ...


class PolicySource(Protocol):
    """What happens to calls."""

    def view(self, project: Project, connector: str) -> PolicyView:
        """A connector's policy, rule by rule and action by action."""
        ...
