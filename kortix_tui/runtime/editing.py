"""The host's part of a manifest edit: read the newest base, edit, check, commit in the mirror, open the change request.

What is made is keyed by the request, so that a request that is handed out again after any death finds it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from kortix_tui.base.errors import KortixError, NotFound
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Activity, ChangeStatus, SessionStatus, Wanted
from kortix_tui.manifest.granting import (
    Edit,
    EditedFile,
    GrantAction,
    GrantEdit,
    ModeEdit,
    RuleRemoval,
    RuleSet,
    apply_edit,
    check_edited,
)
from kortix_tui.repository import diff, merge
from kortix_tui.repository.committing import commit_files, operators_identity, put_branch
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.names import branch_ref
from kortix_tui.review.opening import MAX_TITLE, Proposal, move_head, open_change
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.edits import EditManifest, EditResult
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import FETCH_S, CommitSource, Preparing
from kortix_tui.runtime.sessions import EDIT_ORIGIN
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Change, Project, Request, Session

_REASON: Final = "Made by an edit of the manifest; it has no sandbox, only a branch and a change request."
_NOUNS: Final = {
    "secrets": "",
    "connectors": "connector ",
    "connectors_required": "required connector ",
    "skills": "skill ",
    "apps": "app ",
    "kortix_permissions": "permission ",
}
_VERBS: Final = {"always_run": "Allow", "require_approval": "Ask before", "block": "Block"}
_EFFECT: Final = (
    "What it tightens holds for every call from the merge on; what it loosens counts for sessions that start after it."
)


@dataclass(frozen=True, slots=True)
class _Made:
    """An edit as a commit of the mirror."""

    base: str
    commit: str
    files: int
    additions: int
    deletions: int


class Editing:
    """Answers `manifest.edit`."""

    def __init__(self, context: Context, ledger: Ledger, preparing: Preparing) -> None:
        self._context = context
        self._ledger = ledger
        self._preparing = preparing
        self._editing = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """One edit at a time in a project: the same one twice at once is one change request."""

    async def edit(self, request: Request, actor: Actor) -> EditResult:
        """Open the change request of an edit, or find the one that is open.

        Raises:
            NotFound: The project was removed, or declares no such agent or connector.
            Refused: The grant is `all`.
            Ambiguous: Several rules have the match of the one that is to go.
            InvalidInput: The manifest cannot be edited safely or would not be valid; nothing was made.
        """
        wanted = EditManifest.model_validate_json(request.payload)
        async with self._editing[wanted.project_id]:
            project = self._project(wanted.project_id)
            identity = session_of(request.id)
            made = self._changes(project, "s.id = ?", identity)
            if made:
                return _result(project, made[0], already=False)
            mirror = await self._preparing.mirror(project.id)
            base = await self._base(mirror, project)
            edited = await self._edited(mirror, base, wanted.edit)
            if edited is None:
                return EditResult(project=project.slug, number=None, session_id=None, head_commit=None, already=True)
            source = CommitSource(mirror, base, asyncio.get_running_loop())
            await asyncio.to_thread(check_edited, source, edited)
            open_before = await self._open_before(mirror, project, wanted.edit)
            if open_before is not None:
                found = await merge.preview(mirror, base, open_before.head_commit)
                if not found.conflicts:
                    return _result(project, open_before, already=True)
                # The base has moved across the edit, and no agent is there to join the two.
                commit = await self._commit(mirror, project, base, edited, wanted.edit, request, actor)
                moved = await self._move(mirror, project, open_before, commit, actor)
                return _result(project, moved, already=True, moved=True)
            commit = await self._commit(mirror, project, base, edited, wanted.edit, request, actor)
            change = await self._open(mirror, project, identity, wanted.edit, edited, commit, actor)
            return _result(project, change, already=False)

    # ---- reading -----------------------------------------------------------------------------------------

    def _project(self, project_id: str) -> Project:
        row = self._context.store.one(
            f"SELECT {Project.columns()} FROM projects WHERE id = ? AND removed_at IS NULL", (project_id,)
        )
        if row is None:
            raise NotFound("That project does not exist any more.", hint="See `kortix projects ls`.")
        return Project.of(row)

    async def _base(self, mirror: Mirror, project: Project) -> str:
        await mirror.fetch(project.source, base=project.base_branch, wall_s=FETCH_S)
        commit = await mirror.resolve(branch_ref(project.base_branch))
        if commit is None:
            raise NotFound(
                f"The mirror has no branch {visible_line(project.base_branch)}.", hint="Try again: it moved just now."
            )
        return commit

    @staticmethod
    async def _edited(mirror: Mirror, commit: str, edit: Edit) -> EditedFile | None:
        source = CommitSource(mirror, commit, asyncio.get_running_loop())
        return await asyncio.to_thread(apply_edit, source, edit)

    def _changes(self, project: Project, which: str, *values: str) -> list[Change]:
        names = ", ".join(f"c.{name}" for name in Change.model_fields)
        query = (
            f"SELECT {names} FROM change_requests c JOIN sessions s ON s.id = c.session_id"
            f" WHERE c.project_id = ? AND s.origin = ? AND {which} ORDER BY c.number"
        )
        return [Change.of(row) for row in self._context.store.all(query, (project.id, EDIT_ORIGIN, *values))]

    async def _open_before(self, mirror: Mirror, project: Project, edit: Edit) -> Change | None:
        """An open change request of this very edit: it changes something where it began, and nothing where it ends."""
        for change in self._changes(
            project, "c.status = ? AND c.base_branch = ?", ChangeStatus.OPEN, project.base_branch
        ):
            session = self._ledger.session(change.session_id)
            try:
                if (
                    session is not None
                    and session.base_commit is not None
                    and await self._edited(mirror, change.head_commit, edit) is None
                    and await self._edited(mirror, session.base_commit, edit) is not None
                ):
                    return change
            except KortixError:
                continue  # it does not even have what the edit is about
        return None

    # ---- writing -----------------------------------------------------------------------------------------

    async def _commit(
        self, mirror: Mirror, project: Project, base: str, file: EditedFile, edit: Edit, request: Request,
        actor: Actor,
    ) -> _Made:  # fmt: skip
        commit = await commit_files(
            mirror, base, {file.path: file.data},
            message=f"{title_of(edit)}\n\nAsked for by {actor.label}.",
            identity=await operators_identity(project.source, actor.name), at=request.created_at,
        )  # fmt: skip
        found = await diff.summary(mirror, base, commit)
        return _Made(base, commit, len(found.files), found.additions, found.deletions)

    async def _open(
        self, mirror: Mirror, project: Project, identity: str, edit: Edit, file: EditedFile, made: _Made,
        actor: Actor,
    ) -> Change:  # fmt: skip
        """Branch first, then session and change request in one transaction: a row never names what is not there."""
        number = await put_branch(mirror, identity, made.commit)
        proposal = Proposal(title=title_of(edit), description=_description(edit, file))
        minutes = self._context.settings.sandbox.idle_minutes

        def write(tx: Transaction) -> Change:
            tx.execute(
                "INSERT INTO sessions (id, project_id, title, agent, status, activity, wanted, reason, reason_text,"
                " base_branch, base_commit, head_commit, idle_minutes, owner, origin, files, additions, deletions,"
                " agent_token, created_at, updated_at, active_at, stopped_at)"
                " VALUES (?,?,?,'',?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (
                    identity, project.id, proposal.title, SessionStatus.STOPPED, Activity.IDLE, Wanted.STOPPED,
                    EDIT_ORIGIN, _REASON, project.base_branch, made.base, made.commit, minutes, actor.name,
                    EDIT_ORIGIN, made.files, made.additions, made.deletions, secrets.token_hex(32), tx.now_text,
                    tx.now_text, tx.now_text, tx.now_text,
                ),
            )  # fmt: skip
            tx.execute("INSERT OR IGNORE INTO heads VALUES (?, ?, ?, ?)", (identity, number, made.commit, tx.now_text))
            tx.audit(
                "session.create", scope=f"project {project.slug}", actor=actor, project_id=project.id,
                session_id=identity, base=made.base, head=made.commit, **edit.model_dump(mode="json"),
            )  # fmt: skip
            row = tx.execute(f"SELECT {Session.columns()} FROM sessions WHERE id = ?", (identity,)).fetchone()
            return open_change(tx, Session.of(row), proposal, project=project.slug, actor=actor)

        return await self._ledger.write(write)

    async def _move(self, mirror: Mirror, project: Project, change: Change, made: _Made, actor: Actor) -> Change:
        """Have an open change request start from the newest base; what was reviewed before needs a new look (I4)."""
        number = await put_branch(mirror, change.session_id, made.commit)

        def write(tx: Transaction) -> None:
            tx.execute(
                "INSERT OR IGNORE INTO heads VALUES (?, ?, ?, ?)",
                (change.session_id, number, made.commit, tx.now_text),
            )
            tx.execute(
                "UPDATE sessions SET base_commit = ?, head_commit = ?, files = ?, additions = ?, deletions = ?,"
                " updated_at = ? WHERE id = ?",
                (
                    made.base, made.commit, made.files, made.additions, made.deletions, tx.now_text,
                    change.session_id,
                ),
            )  # fmt: skip
            move_head(tx, change.session_id, made.commit, (made.files, made.additions, made.deletions))
            tx.audit(
                "change_request.update", scope=f"change {project.slug}#{change.number}", actor=actor,
                project_id=project.id, session_id=change.session_id, base=made.base, head=made.commit,
            )  # fmt: skip

        await self._ledger.write(write)
        return self._changes(project, "c.id = ?", change.id)[0]


def session_of(request_id: str) -> str:
    """The id of the session that a request makes: always the same one."""
    digest = hashlib.sha256(f"manifest edit {request_id}".encode()).digest()
    return "k" + base64.b32encode(digest).decode().lower()[:11]


def title_of(edit: Edit) -> str:
    """What an edit does, as the title of its change request."""
    match edit:
        case GrantEdit():
            what = f"{_NOUNS.get(edit.key, '')}{edit.name}"
            granted = edit.action is GrantAction.GRANT
            title = f"Grant {what} to {edit.agent}" if granted else f"Revoke {what} from {edit.agent}"
        case RuleSet():
            only = " under conditions" if edit.rule.conditions else ""
            title = f"{_VERBS[edit.rule.action]} {edit.rule.match} of {_whose(edit)}{only}"
        case RuleRemoval():
            title = f"Remove the rule {edit.match} of {_whose(edit)}"
        case ModeEdit(mode="risk"):
            title = "Ask before writes and destructive calls that no rule matches"
        case ModeEdit():
            title = "Run all calls that no rule matches"
    return visible_line(title)[:MAX_TITLE]


def _whose(edit: RuleSet | RuleRemoval) -> str:
    return "the project" if edit.connector is None else edit.connector


def _description(edit: Edit, file: EditedFile) -> str:
    name = visible_line(file.path)
    match edit:
        case GrantEdit():
            path = f"`agents.{edit.agent}.{edit.key}` in {name}"
            if edit.action is GrantAction.REVOKE:
                return (
                    f"Takes `{edit.name}` out of {path}. From the merge on nothing more of it is given to any session."
                )
            return (
                f"Names `{edit.name}` in {path}. Sessions that start after the merge may use it; running ones may not."
            )
        case RuleSet():
            return (
                f"Writes `{edit.rule.action}` for `{edit.rule.match}` into the policies of {_whose(edit)} in {name}."
                f" {_EFFECT}"
            )
        case RuleRemoval():
            return f"Takes the rule `{edit.match}` out of the policies of {_whose(edit)} in {name}. {_EFFECT}"
        case ModeEdit():
            return f"Sets `policy.default_mode` to `{edit.mode}` in {name}. {_EFFECT}"


def _result(project: Project, change: Change, *, already: bool, moved: bool = False) -> EditResult:
    return EditResult(
        project=project.slug,
        number=change.number,
        session_id=change.session_id,
        head_commit=change.head_commit,
        already=already,
        moved=moved,
    )
