"""The inbox: everything that waits for a person, of every kind, in one list."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import Field

from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import ChangeStatus, Risk, VaultState
from kortix_tui.runtime.approvals import Approvals
from kortix_tui.runtime.call_pages import RISKS, summary
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.secrets import Secrets
from kortix_tui.runtime.vault import VaultKeys
from kortix_tui.runtime.views import View

if TYPE_CHECKING:
    from kortix_tui.store.models import Project


class ItemKind(StrEnum):
    """What kind of thing waits."""

    CHANGE = "change request"
    SECRET = "secret request"  # noqa: S105 - a word, no secret
    VAULT = "locked vault"
    APPROVAL = "approval"


class InboxItem(View):
    """One thing that waits for a person."""

    kind: ItemKind
    reference: str = Field(description="What `kortix review show` and `act` take: `billing#3`, a request id, `vault`.")
    project: str | None = Field(description="The project's slug; none for what concerns the whole home.")
    title: str
    session_id: str | None
    agent: str | None
    since: datetime
    risk: Risk | None = Field(default=None, description="Of an approval.")
    says: str = Field(description="What a person can do about it, in one sentence.")


def _rank(item: InboxItem) -> int:
    return RISKS[item.risk] if item.risk is not None else len(RISKS)


class Inbox:
    """The inbox verbs."""

    def __init__(self, context: Context, secrets: Secrets, vault: VaultKeys, approvals: Approvals) -> None:
        self._context = context
        self._secrets = secrets
        self._vault = vault
        self._approvals = approvals

    def list(self, *, project: Project | None = None) -> list[InboxItem]:
        """What waits: approvals first, the riskiest before the rest; otherwise the oldest first."""
        items = [*self._waiting(), *self._changes(), *self._requests(), *self._locked()]
        if project is not None:
            items = [item for item in items if item.project in (None, project.slug)]
        return sorted(items, key=lambda item: (_rank(item), item.since, item.reference))

    def _waiting(self) -> tuple[InboxItem, ...]:
        return tuple(
            InboxItem(
                kind=ItemKind.APPROVAL, reference=view.id, project=view.project,
                title=visible_line(f"{view.connector}.{view.action}" + (f" ({about})" if about else "")),
                session_id=view.session_id, agent=view.agent, since=view.created_at, risk=view.risk,
                says=f"Look at it and decide: kortix review show {view.id}",
            )
            for view, about in ((view, shorten(summary(view), 120)) for view in self._approvals.pending())
        )  # fmt: skip

    def _changes(self) -> tuple[InboxItem, ...]:
        rows = self._context.store.all(
            "SELECT p.slug, c.number, c.title, c.session_id, x.agent, c.created_at FROM change_requests c"
            " JOIN projects p ON p.id = c.project_id JOIN sessions x ON x.id = c.session_id WHERE c.status = ?",
            (ChangeStatus.OPEN,),
        )
        return tuple(
            InboxItem(
                kind=ItemKind.CHANGE, reference=f"{row[0]}#{row[1]}", project=row[0], title=row[2], session_id=row[3],
                agent=row[4] or None, since=row[5], says=f"Read it: kortix cr diff {row[0]}#{row[1]}",
            )
            for row in rows
        )  # fmt: skip

    def _requests(self) -> tuple[InboxItem, ...]:
        return tuple(
            InboxItem(
                kind=ItemKind.SECRET, reference=request.id, project=request.project,
                title=f"{request.identifier}: {request.reason or 'no reason given'}", session_id=request.session_id,
                agent=request.agent, since=request.created_at,
                says=f"Type the value unseen: kortix review act {request.id} provide",
            )
            for request in self._secrets.requests()
        )  # fmt: skip

    def _locked(self) -> tuple[InboxItem, ...]:
        """A locked vault, when somebody waits for it or a host works without it that no person locked."""
        from kortix_tui.store import lock
        from kortix_tui.store.models import VaultRow

        row = self._context.store.one(f"SELECT {VaultRow.columns()} FROM vault WHERE id = 1")
        known = VaultRow.of(row) if row else None
        if known is None or known.state in (VaultState.UNLOCKED, VaultState.MISSING):
            return ()
        status = self._vault.status()
        if status.state is VaultState.LOCKED and not status.waiting:
            # Without a host nothing works without it, and the next one may open it by itself.
            hosted = lock.is_locked(self._context.store)
            if known.asked or not status.secrets or not hosted:
                return ()
        waits = f"{len(status.waiting)} session(s) wait for it. " if status.waiting else ""
        title = f"The vault is {status.state.value}" + (f": {status.reason}" if status.reason else "")
        way = "Unlock it: kortix vault unlock" if status.state is VaultState.LOCKED else "See: kortix vault status"
        return (
            InboxItem(
                kind=ItemKind.VAULT, reference="vault", project=None, title=title, session_id=None, agent=None,
                since=known.since, says=waits + way,
            ),
        )  # fmt: skip
