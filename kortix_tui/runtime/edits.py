"""Edits of the manifest that the operator asks for: opened as change requests, without an agent or a sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Verdict
from kortix_tui.manifest.granting import Edit, GrantAction, GrantEdit, ModeEdit, RuleRemoval, RuleSet
from kortix_tui.manifest.policies import Condition, DefaultMode, PolicyRule
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.views import View
from kortix_tui.store.models import Project

EDIT_DEADLINE_S: Final = 240.0
REQUEST: Final = "manifest.edit"


class EditManifest(BaseModel):
    """Request `manifest.edit`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project_id: str
    edit: Edit


class EditResult(View):
    """What became of an edit: the change request that waits for a person, or none where nothing has to change."""

    project: str
    number: int | None = Field(description="The change request; absent when the base branch says so already.")
    session_id: str | None = Field(description="The branch that holds the edit.")
    head_commit: str | None
    already: bool = Field(description="The base branch says so already, or the change request was open before.")
    moved: bool = Field(default=False, description="It was open before, and starts from the newest base now.")


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
        return self._grant(project, GrantAction.GRANT, agent=agent, key=key, name=name, replace_all=replace_all)

    def revoke(self, project: Project, *, agent: str, name: str, key: str = "secrets") -> EditResult:
        """Propose that an agent may use one thing less; arguments and errors are those of `grant`."""
        return self._grant(project, GrantAction.REVOKE, agent=agent, key=key, name=name, replace_all=False)

    def set_rule(
        self,
        project: Project,
        *,
        connector: str | None,
        match: str,
        verdict: Verdict,
        first: bool = False,
        conditions: Sequence[Condition] = (),
    ) -> EditResult:
        """Propose a rule on calls, or another verdict for the rule with this match and these conditions.

        Args:
            project: Whose manifest, on its base branch.
            connector: Whose rules; `None` for those of the project, whose matches are full names.
            match: A glob, or a regular expression between slashes, on the action's name.
            verdict: What is to happen.
            first: Before all other rules; else last, but before a rule that would keep it from being reached.
            conditions: What else must hold.

        Raises:
            NotFound: The manifest declares no such connector.
            InvalidInput: The match cannot be read, the manifest cannot be edited safely, or would not be valid.
        """
        try:
            rule = PolicyRule(match=match, action=verdict.value, conditions=tuple(conditions))
            edit = RuleSet(connector=connector, rule=rule, first=first)
        except ValidationError as error:
            raise _unreadable(error) from error
        return self._edit(project, edit)

    def remove_rule(
        self,
        project: Project,
        *,
        connector: str | None,
        match: str,
        conditions: Sequence[Condition] | None = None,
    ) -> EditResult:
        """Propose that a rule on calls goes.

        Args:
            project: As for `set_rule`.
            connector: As for `set_rule`.
            match: The rule's match, as it is written.
            conditions: Its conditions, where several rules have that match.

        Raises:
            NotFound: The manifest declares no such connector.
            Ambiguous: Several rules have that match, and no conditions were given.
            InvalidInput: The manifest cannot be edited safely.
        """
        try:
            wanted = None if conditions is None else tuple(conditions)
            edit = RuleRemoval(connector=connector, match=match, conditions=wanted)
        except ValidationError as error:
            raise _unreadable(error) from error
        return self._edit(project, edit)

    def set_default_mode(self, project: Project, mode: DefaultMode) -> EditResult:
        """Propose what happens to calls that no rule matches: `risk` asks before writes, `allow_all` runs them all.

        Raises:
            InvalidInput: The manifest cannot be edited safely, or there is no such mode.
        """
        try:
            edit = ModeEdit(mode=mode)
        except ValidationError as error:
            raise InvalidInput("There is no such mode.", hint="Write `risk` or `allow_all`.") from error
        return self._edit(project, edit)

    def _grant(
        self, project: Project, action: GrantAction, *, agent: str, key: str, name: str, replace_all: bool
    ) -> EditResult:
        try:
            edit = GrantEdit(action=action, agent=agent, key=key, name=name, replace_all=replace_all)
        except ValidationError as error:
            field = str(error.errors()[0]["loc"][0])
            raise InvalidInput(
                f"The {field} is empty or too long.", hint="At most 200 characters are taken."
            ) from error
        return self._edit(project, edit)

    def _edit(self, project: Project, edit: Edit) -> EditResult:
        return self._context.request(
            REQUEST,
            EditManifest(project_id=project.id, edit=edit),
            EditResult,
            scope=f"project {project.slug}",
            deadline_s=EDIT_DEADLINE_S,
            project_id=project.id,
        )


def _unreadable(error: ValidationError) -> InvalidInput:
    """What is wrong with a rule that a person gave."""
    fault = error.errors()[0]
    context = fault.get("ctx", {})
    where = ".".join(str(step) for step in fault["loc"] if step != "rule") or "rule"
    message = str(context.get("message") or fault["msg"])
    return InvalidInput(f"The {visible_line(where)} of the rule: {visible_line(message)}.", hint=context.get("hint"))
