"""Edits of the manifest that the operator asks for: opened as change requests, without an agent or a sandbox."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kortix_tui.base.errors import InvalidInput
from kortix_tui.manifest.granting import GrantAction, GrantEdit
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.views import View
from kortix_tui.store.models import Project

EDIT_DEADLINE_S: Final = 240.0
REQUEST: Final = "manifest.edit"


class EditManifest(BaseModel):
    """Request `manifest.edit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project_id: str
    edit: GrantEdit


class EditResult(View):
    """What became of an edit: the change request that waits for a person, or none where nothing has to change."""

    project: str
    number: int | None = Field(description="The change request; absent when the base branch says so already.")
    session_id: str | None = Field(description="The branch that holds the edit.")
    head_commit: str | None
    already: bool = Field(description="The base branch says so already, or the change request was open before.")


class Edits:
    """The manifest verbs. Nothing takes effect before a person has merged it (I1, I3)."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def grant(
        self, project: Project, *, agent: str, name: str, key: str = "secrets", replace_all: bool = False
    ) -> EditResult:
        """Propose that an agent may use one thing more.

        Args:
            project: Whose manifest, on its base branch.
            agent: The agent's name.
            name: What is granted: a secret's identifier, a connector's slug.
            key: Which grant; see `manifest.edit.GRANT_KEYS`.
            replace_all: Where the grant is `all`: have it name only this.

        Raises:
            NotFound: The manifest declares no such agent.
            Refused: The grant of secrets is `all`, which names no brokered one.
            InvalidInput: The manifest cannot be edited safely, or would not be valid; nothing was made.
        """
        return self._edit(project, GrantAction.GRANT, agent=agent, key=key, name=name, replace_all=replace_all)

    def revoke(self, project: Project, *, agent: str, name: str, key: str = "secrets") -> EditResult:
        """Propose that an agent may use one thing less; arguments and errors are those of `grant`."""
        return self._edit(project, GrantAction.REVOKE, agent=agent, key=key, name=name, replace_all=False)

    def _edit(
        self, project: Project, action: GrantAction, *, agent: str, key: str, name: str, replace_all: bool
    ) -> EditResult:
        try:
            edit = GrantEdit(action=action, agent=agent, key=key, name=name, replace_all=replace_all)
        except ValidationError as error:
            field = str(error.errors()[0]["loc"][0])
            raise InvalidInput(
                f"The {field} is empty or too long.", hint="At most 200 characters are taken."
            ) from error
        return self._context.request(
            REQUEST,
            EditManifest(project_id=project.id, edit=edit),
            EditResult,
            scope=f"project {project.slug}",
            deadline_s=EDIT_DEADLINE_S,
            project_id=project.id,
        )
