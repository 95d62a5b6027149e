"""Opening a change request from inside a session, and keeping it at the session's newest head."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import ChangeStatus
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Change, Session

MAX_TITLE = 200
MAX_DESCRIPTION = 64 * 1024


class Proposal(BaseModel):
    """What an agent says of the change that it proposes. Untrusted text, kept as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str = Field(min_length=1, max_length=MAX_TITLE)
    description: str = Field(default="", max_length=MAX_DESCRIPTION)
    head_commit: str | None = Field(default=None, pattern=r"^[0-9a-f]{40}([0-9a-f]{24})?$")


def open_change(tx: Transaction, session: Session, proposal: Proposal, *, project: str, actor: Actor) -> Change:
    """Open a change request for the session's head, or refresh its open one; numbers are never used again.

    Raises:
        Refused: The session has pushed nothing beyond its base, or its head is not the one that the agent means.
    """
    if session.head_commit is None or session.head_commit == session.base_commit:
        raise Refused(
            "The branch has no commits beyond its base (CR_HEAD_NOT_AHEAD).", hint="Commit and push your work first."
        )
    if proposal.head_commit is not None and proposal.head_commit != session.head_commit:
        raise Refused(
            f"The host has {session.head_commit[:12]} as the branch's head, not {proposal.head_commit[:12]}.",
            hint="Push the branch, then open the change request.",
        )
    title, description = visible_line(proposal.title.strip()), visible(proposal.description)
    row = tx.execute(
        "SELECT id FROM change_requests WHERE session_id = ? AND status = 'open'", (session.id,)
    ).fetchone()
    if row is not None:
        known = _change(tx, row[0])
        if (known.title, known.description, known.head_commit) == (title, description, session.head_commit):
            return known  # said again, because the first answer was lost: no news for the record
        identity = known.id
        tx.execute(
            "UPDATE change_requests SET title = ?, description = ?, head_commit = ?, updated_at = ? WHERE id = ?",
            (title, description, session.head_commit, tx.now_text, identity),
        )
        event = "change_request.update"
    else:
        identity, event = new_id("chg"), "change_request.create"
        number = tx.execute("SELECT next_number FROM projects WHERE id = ?", (session.project_id,)).fetchone()[0]
        tx.execute("UPDATE projects SET next_number = next_number + 1 WHERE id = ?", (session.project_id,))
        tx.execute(
            "INSERT INTO change_requests (id, project_id, number, session_id, title, description, status, base_branch,"
            " base_commit, head_commit, files, additions, deletions, opened_by, created_at, updated_at)"
            " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
            (
                identity, session.project_id, number, session.id, title, description, ChangeStatus.OPEN,
                session.base_branch, session.base_commit, session.head_commit, session.files,
                session.additions, session.deletions, actor.label, tx.now_text, tx.now_text,
            ),
        )  # fmt: skip
    change = _change(tx, identity)
    tx.audit(
        event, scope=f"change {project}#{change.number}", actor=actor, project_id=session.project_id,
        session_id=session.id, head=session.head_commit,
    )  # fmt: skip
    return change


def _change(tx: Transaction, identity: str) -> Change:
    return Change.of(tx.execute(f"SELECT {Change.columns()} FROM change_requests WHERE id = ?", (identity,)).fetchone())


def move_head(tx: Transaction, session_id: str, head_commit: str, size: tuple[int, int, int]) -> None:
    """Have the session's open change request follow its branch; what was reviewed before needs a new look (I4).

    Args:
        tx: The transaction that notes the push.
        session_id: Whose branch moved.
        head_commit: Where it is now.
        size: Changed files, added and deleted lines.
    """
    tx.execute(
        "UPDATE change_requests SET head_commit = ?, files = ?, additions = ?, deletions = ?, updated_at = ?"
        " WHERE session_id = ? AND status = 'open'",
        (head_commit, *size, tx.now_text, session_id),
    )
