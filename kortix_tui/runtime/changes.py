"""Change requests as the operator handles them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kortix_tui.base.errors import Conflict, KortixError, NotFound, Refused
from kortix_tui.base.words import ChangeStatus, Outcome, VaultState
from kortix_tui.repository.difference import DiffSummary
from kortix_tui.review.decision import DecideChange
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.views import ChangeDetail, ChangeView, MergePreview, MergeResult
from kortix_tui.store.models import Change, Project

if TYPE_CHECKING:
    from kortix_tui.repository.mirror import Mirror
    from kortix_tui.review.merging import Preview

READ_DEADLINE_S = 60.0
MERGE_DEADLINE_S = 300.0

_VIEW = (
    f"SELECT {', '.join('c.' + name for name in Change.model_fields)}, p.slug, s.title,"
    " (SELECT v.head_commit FROM views v WHERE v.change_id = c.id AND v.operator = ?)"
    " FROM change_requests c JOIN projects p ON p.id = c.project_id JOIN sessions s ON s.id = c.session_id"
)


class Changes:
    """The change request verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self, *, project: Project | None = None, status: ChangeStatus | None = None) -> list[ChangeView]:
        """Change requests, oldest first, as an inbox reads."""
        self._context.reading("change_request.list", scope=f"project {project.slug}" if project else "all projects")
        clauses, values = ["1"], [self._context.actor.name]
        if project is not None:
            clauses.append("c.project_id = ?")
            values.append(project.id)
        if status is not None:
            clauses.append("c.status = ?")
            values.append(status)
        query = f"{_VIEW} WHERE {' AND '.join(clauses)} ORDER BY c.created_at, c.number"
        return [ChangeView.of(row) for row in self._context.store.all(query, values)]

    def find(self, project: Project, number: int) -> ChangeView:
        """The change request of a number.

        Raises:
            NotFound: The project has none of that number.
        """
        row = self._context.store.one(
            f"{_VIEW} WHERE c.project_id = ? AND c.number = ?", (self._context.actor.name, project.id, number)
        )
        if row is None:
            raise NotFound(f"Project {project.slug} has no change request {number}.", hint="See `kortix cr ls`.")
        return ChangeView.of(row)

    def show(self, project: Project, number: int, *, preview: bool = True) -> ChangeDetail:
        """A change request with its diff summary; notes that this operator was shown this head."""
        change = self.find(project, number)
        context = self._context
        head = change.head_commit
        summary = context.loop.call(self._summary(change), deadline_s=READ_DEADLINE_S)
        wanted = preview and change.status is ChangeStatus.OPEN
        with context.store.write() as tx:
            tx.execute(
                "INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (change.id, context.actor.name, head, tx.now_text)
            )
            tx.audit(
                "change_request.diff.read", scope=f"change {project.slug}#{number}", actor=context.actor,
                project_id=project.id, session_id=change.session_id, head=head,
            )  # fmt: skip
        return ChangeDetail(
            change=change, head_commit=head, summary=summary, preview=self.preview(project, number) if wanted else None
        )

    def patch(
        self,
        project: Project,
        number: int,
        *,
        path: str | None = None,
        head: str | None = None,
        warn: Callable[[str], None] | None = None,
    ) -> str:
        """The unified diff as text, untrusted, without values of secrets; of one path, or of all.

        Args:
            project: Whose change request.
            number: Its number.
            path: Only this file.
            head: Pins what is read.
            warn: Told why values could not be looked for; the diff is given all the same, as reading must not wait for
                the vault.
        """
        change = self.find(project, number)
        text = self._context.loop.call(self._patch(change, head, path), deadline_s=READ_DEADLINE_S)
        return self._without_values(text, warn) if self._context.home.vault.exists() else text

    def _without_values(self, text: str, warn: Callable[[str], None] | None) -> str:
        from kortix_tui.runtime.secrets import Secrets

        fault: str | None = None
        try:
            text = Secrets(self._context).redact(text)
        except KortixError as error:
            fault = error.message
        else:
            row = self._context.store.one("SELECT state FROM vault WHERE id = 1")
            if row is None or row[0] != VaultState.UNLOCKED:
                fault = f"The vault is {row[0] if row else 'not open'}."
        if fault is not None and warn is not None:
            warn(f"Values of secrets could not be looked for in this text: {fault}")
        return text

    def preview(self, project: Project, number: int) -> MergePreview:
        """What a merge would do now."""
        change = self.find(project, number)
        found = self._context.loop.call(self._preview(project, change), deadline_s=READ_DEADLINE_S)
        return MergePreview.model_validate(found.model_dump())

    def merge(self, project: Project, number: int, *, at: str | None = None, message: str | None = None) -> MergeResult:
        """Merge exactly the commit that was reviewed.

        Args:
            project: Whose change request.
            number: Its number.
            at: The reviewed head, whole or its first 7 or more characters; the head shown last to this operator when
                absent.
            message: First line of the merge commit; one with number and title when absent.

        Raises:
            Conflict: The head has moved since; look again.
            Refused: It is not open, does not merge cleanly, its manifest is invalid, or the source cannot take it.
        """
        change = self.find(project, number)
        reviewed = at or change.shown_head
        if reviewed is None:
            raise Refused(
                f"Change request {number} was not shown to you yet.",
                hint=f"Read it first: kortix cr diff {number} — or name the commit with --at SHA.",
            )
        if len(reviewed) < 7 or not change.head_commit.startswith(reviewed):
            raise Conflict(
                f"Change request {number} is at {change.head_commit[:12]} now, not at {reviewed[:12]}: it moved.",
                hint=f"Look again: kortix cr diff {number}",
            )
        return self._context.request(
            "change_request.merge",
            DecideChange(change_id=change.id, reviewed_head=change.head_commit, message=message),
            MergeResult,
            scope=f"change {project.slug}#{number}",
            deadline_s=MERGE_DEADLINE_S,
            project_id=project.id,
            session_id=change.session_id,
        )

    def close(self, project: Project, number: int) -> ChangeView:
        """Close without merging; it can be reopened."""
        return self._move(project, number, ChangeStatus.OPEN, ChangeStatus.CLOSED, "change_request.close")

    def reopen(self, project: Project, number: int) -> ChangeView:
        """Open a closed one again."""
        return self._move(project, number, ChangeStatus.CLOSED, ChangeStatus.OPEN, "change_request.reopen")

    def _move(self, project: Project, number: int, old: ChangeStatus, new: ChangeStatus, event: str) -> ChangeView:
        change, context = self.find(project, number), self._context
        with context.store.write() as tx:
            status = tx.execute("SELECT status FROM change_requests WHERE id = ?", (change.id,)).fetchone()[0]
            merging = tx.execute(
                "SELECT 1 FROM merges WHERE change_id = ? AND state = 'intent'", (change.id,)
            ).fetchone()
            if merging:
                raise Conflict(f"Change request {number} is being merged.", hint="Look again in a moment.")
            if status != old:
                raise Refused(f"Change request {number} is {status}.", hint="See `kortix cr show`.")
            if (
                new is ChangeStatus.OPEN
                and tx.execute(
                    "SELECT number FROM change_requests WHERE session_id = ? AND status = 'open'", (change.session_id,)
                ).fetchone()
            ):
                raise Refused("The session has another open change request.", hint="Close that one first.")
            decided = context.actor.label if new is ChangeStatus.CLOSED else None
            tx.execute(
                "UPDATE change_requests SET status = ?, decided_by = ?, decided_at = ?, updated_at = ? WHERE id = ?",
                (new, decided, tx.now_text if decided else None, tx.now_text, change.id),
            )
            tx.audit(
                event, scope=f"change {project.slug}#{number}", actor=context.actor, outcome=Outcome.SUCCESS,
                project_id=project.id, session_id=change.session_id, head=change.head_commit,
            )  # fmt: skip
        return self.find(project, number)

    async def _summary(self, change: ChangeView) -> DiffSummary:
        from kortix_tui.repository import diff

        mirror = await self._mirror(change.project_id)
        return await diff.summary(mirror, await self._base(mirror, change), change.head_commit)

    async def _patch(self, change: ChangeView, head: str | None, path: str | None) -> str:
        from kortix_tui.repository import diff

        mirror = await self._mirror(change.project_id)
        return await diff.patch(mirror, await self._base(mirror, change), head or change.head_commit, path=path)

    async def _preview(self, project: Project, change: ChangeView) -> Preview:
        # Reading manifests is a third of the program's start; lists do without it.
        from kortix_tui.review.merging import preview_merge
        from kortix_tui.runtime.preparing import manifest_faults

        return await preview_merge(await self._mirror(project.id), project, change, manifest_faults)

    @staticmethod
    async def _base(mirror: Mirror, change: ChangeView) -> str:
        """An open one is compared with the base as it is now, an ended one with the base that it met."""
        live = await mirror.resolve(f"refs/heads/{change.base_branch}") if change.status is ChangeStatus.OPEN else None
        return live or change.base_commit

    async def _mirror(self, project_id: str) -> Mirror:
        from kortix_tui.repository.mirror import Mirror

        return await Mirror.open(self._context.home.mirror(project_id))
