"""Brokered calls as the operator sees and makes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import NotFound
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import CallState
from kortix_tui.broker.services import CallReport
from kortix_tui.runtime import call_pages
from kortix_tui.runtime.connector_views import CallView
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.decisions import is_attended
from kortix_tui.store.models import Project

CALL_S: Final = 90.0


class OperatorCall(BaseModel):
    """Request `connector.call`.

    Attributes:
        attended: Whether a person at a terminal makes it: then what policy asks a person about is decided.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    project_id: str
    connector: str
    action: str
    arguments: str
    account: str | None
    reason: str
    attended: bool


class CallRecords:
    """The call verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(
        self,
        *,
        project: Project | None = None,
        session: str | None = None,
        limit: int = 200,
        state: CallState | None = None,
    ) -> Sequence[CallView]:
        """Calls, newest first.

        Args:
            project: Of one project.
            session: Of one session, by its id.
            limit: How many at most.
            state: Those in one state.
        """
        wanted = {"c.project_id": project.id if project else None, "c.session_id": session, "c.state": state}
        given = {name: value for name, value in wanted.items() if value is not None}
        where = "WHERE " + " AND ".join(f"{name} = ?" for name in given) if given else ""
        scope = f"session {session}" if session else f"project {project.slug}" if project else "all projects"
        self._context.reading("connector.call.list", scope=scope)
        query = f"{where} ORDER BY c.created_at DESC, c.rowid DESC LIMIT ?"
        return call_pages.calls(self._context.store, query, (*given.values(), limit))

    def show(self, call_id: str) -> CallView:
        """One call.

        Raises:
            NotFound: There is none of that id.
        """
        found = call_pages.calls(self._context.store, "WHERE c.id = ?", (call_id,))
        if not found:
            shown = shorten(visible_line(call_id), 80)
            raise NotFound(f"No call {shown}.", hint="See `kortix connectors calls`.")
        return found[0]

    def call(
        self,
        project: Project,
        connector: str,
        action: str,
        arguments: str = "{}",
        *,
        account: str | None = None,
        reason: str = "",
    ) -> CallReport:
        """Call an action as the operator, through the same path as agents: no grant, but policy and the record.

        What policy blocks stays blocked; what it asks a person about needs a terminal, since this is the person.

        Raises:
            KortixError: The host cannot answer.
        """
        wish = OperatorCall(
            project_id=project.id, connector=connector, action=action, arguments=arguments, account=account,
            reason=reason, attended=is_attended(self._context.actor),
        )  # fmt: skip
        return self._context.request(
            "connector.call.run", wish, CallReport, scope=f"{connector}.{action}", deadline_s=CALL_S,
            project_id=project.id,
        )  # fmt: skip
