"""Attempts of sandboxes to reach the network, as the operator reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kortix_tui.base.words import Outcome
from kortix_tui.runtime.connector_views import EgressView
from kortix_tui.runtime.context import Context
from kortix_tui.store.models import Egress, Project

_QUERY: Final = (
    f"SELECT {', '.join('e.' + name for name in Egress.model_fields)}, p.slug, s.title, s.agent FROM egress e"
    " JOIN sessions s ON s.id = e.session_id JOIN projects p ON p.id = s.project_id"
)


class EgressLog:
    """The egress verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(
        self,
        *,
        project: Project | None = None,
        session_id: str | None = None,
        outcomes: Sequence[Outcome] = (),
        limit: int = 100,
    ) -> list[EgressView]:
        """Attempts, newest first.

        Args:
            project: Only of this project's sessions.
            session_id: Only of this session.
            outcomes: Only with one of these outcomes.
            limit: At most so many.
        """
        scope = f"session {session_id}" if session_id else f"project {project.slug}" if project else "all projects"
        self._context.reading("egress.list", scope=scope, session_id=session_id)
        clauses, values = ["1"], list[object]()
        if project is not None:
            clauses.append("s.project_id = ?")
            values.append(project.id)
        if session_id is not None:
            clauses.append("e.session_id = ?")
            values.append(session_id)
        if outcomes:
            clauses.append(f"e.outcome IN ({', '.join('?' * len(outcomes))})")
            values.extend(outcomes)
        query = f"{_QUERY} WHERE {' AND '.join(clauses)} ORDER BY e.at DESC, e.id DESC LIMIT ?"
        return [EgressView.of(row) for row in self._context.store.all(query, (*values, limit))]
