"""Everything that the lists show, of one moment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kortix_tui.runtime.views import ChangeView, HostView, SessionView
from kortix_tui.store.models import Project

if TYPE_CHECKING:
    from kortix_tui.base.words import VaultState
    from kortix_tui.runtime.connector_views import ApprovalView, ConnectorView
    from kortix_tui.runtime.inbox import InboxItem
    from kortix_tui.runtime.secret_views import SecretRequestView, SecretView, VaultStatus


MOST_ABOUT = 120


@dataclass(frozen=True)
class Facts:
    """Replaced whole, so a reader never sees half of a change.

    Attributes:
        sessions: Newest first.
        changes: Change requests, oldest first.
        projects: All projects.
        host: Who acts.
        unfinished: Sessions and requests that still need a host.
        problem: Why newer lists cannot be read.
        loaded: Whether the lists above were read.
        secrets: By project and identifier; never a value.
        requests: Values that agents ask for, oldest first.
        inbox: What waits for a person: calls, riskiest and then oldest first; then the rest, oldest first.
        vault: The vault; `None` until it, the secrets and the inbox were read.
        vault_problem: Why these four cannot be read anew.
        approvals: Calls that wait for a person, riskiest and then oldest first.
        connectors: By project and slug; `None` until they were read.
        connector_faults: Project → why its connectors cannot be read.
        calls_problem: Why calls cannot be read anew.
        connectors_problem: Why connectors cannot be read anew.
    """

    sessions: tuple[SessionView, ...] = ()
    changes: tuple[ChangeView, ...] = ()
    projects: tuple[Project, ...] = ()
    host: HostView = field(default_factory=lambda: HostView(host=None, silent=False, here=False))
    unfinished: int = 0
    problem: str | None = None
    loaded: bool = False
    secrets: tuple[SecretView, ...] = ()
    requests: tuple[SecretRequestView, ...] = ()
    inbox: tuple[InboxItem, ...] = ()
    vault: VaultStatus | None = None
    vault_problem: str | None = None
    approvals: tuple[ApprovalView, ...] = ()
    connectors: tuple[ConnectorView, ...] | None = None
    connector_faults: tuple[tuple[str, str], ...] = ()
    calls_problem: str | None = None
    connectors_problem: str | None = None

    def session(self, session_id: str | None) -> SessionView | None:
        """The session of an id."""
        return next((session for session in self.sessions if session.id == session_id), None)

    def change(self, change_id: str | None) -> ChangeView | None:
        """The change request of an id."""
        return next((change for change in self.changes if change.id == change_id), None)

    def change_of(self, item: InboxItem) -> ChangeView | None:
        """The change request that an item of the inbox is about."""
        return next((one for one in self.changes if f"{one.project}#{one.number}" == item.reference), None)

    def project(self, slug: str) -> Project | None:
        """The project of a slug."""
        return next((project for project in self.projects if project.slug == slug), None)

    def secret(self, secret_id: str | None) -> SecretView | None:
        """The secret of an id."""
        return next((secret for secret in self.secrets if secret.id == secret_id), None)

    def request(self, request_id: str | None) -> SecretRequestView | None:
        """The open request of an id."""
        return next((request for request in self.requests if request.id == request_id), None)

    def approval(self, call_id: str | None) -> ApprovalView | None:
        """The waiting call of an id."""
        return next((call for call in self.approvals if call.id == call_id), None)

    def identical(self, call: ApprovalView) -> tuple[ApprovalView, ...]:
        """Waiting calls that would send exactly the same, that one first."""
        return (call, *(one for one in self.approvals if one.digest == call.digest and one.id != call.id))

    def connector(self, key: str | None) -> ConnectorView | None:
        """The connector of a row: `project/slug`."""
        return next((one for one in self.connectors or () if f"{one.project}/{one.slug}" == key), None)

    def with_calls(self) -> Facts:
        """With exactly the calls in the inbox that wait now: the two are read apart."""
        from kortix_tui.runtime.inbox import ItemKind

        others = (item for item in self.inbox if item.kind is not ItemKind.APPROVAL)
        return replace(self, inbox=(*map(_item, self.approvals), *others))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why what is shown may be old."""
        known = (self.problem, self.vault_problem, self.calls_problem, self.connectors_problem)
        return tuple(problem for problem in known if problem)

    @property
    def vault_state(self) -> VaultState | None:
        """What can be done with the vault; `None` until it is known."""
        return self.vault.state if self.vault else None


def _item(call: ApprovalView) -> InboxItem:
    from kortix_tui.base.text import shorten, visible_line
    from kortix_tui.runtime.call_pages import summary
    from kortix_tui.runtime.inbox import InboxItem, ItemKind

    about = shorten(summary(call), MOST_ABOUT)
    return InboxItem(
        kind=ItemKind.APPROVAL, reference=call.id, project=call.project,
        title=visible_line(f"{call.connector}.{call.action}" + (f"  {about}" if about else "")),
        session_id=call.session_id, agent=call.agent, since=call.created_at, risk=call.risk, says="Decide about it.",
    )  # fmt: skip
