"""Merging a change request: exactly the reviewed commit (I4), once, however often the process dies (I7).

The order is: read the source anew → compute the merge → check everything that could refuse → write the intent → push to
the source → move the mirror's base → write `merged`. A restart finds intents and asks the source what became true.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import Conflict, KortixError, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import ChangeStatus, Outcome
from kortix_tui.repository import deliver, merge
from kortix_tui.repository.mirror import Mirror
from kortix_tui.review.decision import DecideChange
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Change, Merge, Project

T = TypeVar("T")
FETCH_S = 120.0
ManifestFaults = Callable[[Mirror, str], Awaitable[tuple[str, ...]]]


class Preview(BaseModel):
    """What a merge would do now."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base_commit: str
    head_commit: str
    can_merge: bool
    up_to_date: bool
    fast_forward: bool
    conflicts: tuple[str, ...] = ()
    manifest_faults: tuple[str, ...] = ()
    refusal: str | None = None


class Writes(Protocol):
    """The host's fenced writes."""

    async def write(self, change: Callable[[Transaction], T]) -> T:
        """Run one transaction."""
        ...


async def preview_merge(mirror: Mirror, project: Project, change: Change, faults: ManifestFaults) -> Preview:
    """Compute a merge of the newest known base and head without changing anything."""
    base = await mirror.resolve(f"refs/heads/{change.base_branch}") or change.base_commit
    found = await merge.preview(mirror, base, change.head_commit)
    manifest: tuple[str, ...] = ()
    refusal: str | None = None
    if not found.conflicts and not found.up_to_date:
        trial = await merge.merge_commit(mirror, base, change.head_commit, message="Trial")
        manifest = await faults(mirror, trial)
        try:
            await deliver.check_delivery(mirror, project.source, change.base_branch, base, trial)
        except KortixError as error:
            refusal = str(error)
    return Preview(
        base_commit=base,
        head_commit=change.head_commit,
        can_merge=not (found.conflicts or found.up_to_date or manifest or refusal),
        up_to_date=found.up_to_date,
        fast_forward=found.fast_forward,
        conflicts=tuple(visible_line(path) for path in found.conflicts),
        manifest_faults=manifest,
        refusal=refusal,
    )


class Merging:
    """Performs and completes merges; the host's work."""

    def __init__(self, store: Store, write: Writes, faults: ManifestFaults) -> None:
        self._store = store
        self._ledger = write
        self._faults = faults
        self._deciding = defaultdict[str, asyncio.Lock](asyncio.Lock)
        """One merge or recovery at a time in a project; a slow source delays no other project."""

    async def merge(self, mirror: Mirror, project: Project, decision: DecideChange, actor: Actor) -> Change:
        """Merge, or refuse before anything changed.

        Raises:
            Conflict: The head or the base has moved.
            Refused: Not open, conflicts, an invalid manifest, or a source that cannot take it.
        """
        async with self._deciding[project.id]:
            # A merge that nobody saw end may have happened: the source knows, and has to be asked first.
            for intent in self._open_intents(decision.change_id):
                await self._settle(mirror, project, intent, actor)
            return await self._merge(mirror, project, decision, actor)

    async def _merge(self, mirror: Mirror, project: Project, decision: DecideChange, actor: Actor) -> Change:
        change = self._change(decision.change_id)
        if change.status is not ChangeStatus.OPEN:
            raise Refused(f"Change request {change.number} is {change.status} already.", hint="See `kortix cr show`.")
        if change.head_commit != decision.reviewed_head:
            raise Conflict(
                f"Change request {change.number} moved to {change.head_commit[:12]} since it was reviewed.",
                hint=f"Look again: kortix cr diff {change.number}",
            )
        await mirror.fetch(project.source, base=change.base_branch, wall_s=FETCH_S)
        base = await mirror.copy_base(change.base_branch)
        commit = await self._compute(mirror, change, base, decision)
        await deliver.check_delivery(mirror, project.source, change.base_branch, base, commit)
        intent = await self._intend(change, base, commit, decision, actor)
        return await self._complete(mirror, project, change, intent, actor)

    async def recover(self, mirror: Mirror, project: Project, actor: Actor) -> None:
        """Complete merges of a project that nobody saw end, where the source has them; call off the others."""
        async with self._deciding[project.id]:
            for intent in self._open_intents():
                if self._change(intent.change_id).project_id == project.id:
                    await self._settle(mirror, project, intent, actor)

    def _open_intents(self, change_id: str | None = None) -> list[Merge]:
        query = f"SELECT {Merge.columns()} FROM merges WHERE state = 'intent' AND coalesce(?, change_id) = change_id"
        return [Merge.of(row) for row in self._store.all(f"{query} ORDER BY created_at", (change_id,))]

    async def _settle(self, mirror: Mirror, project: Project, intent: Merge, actor: Actor) -> None:
        change = self._change(intent.change_id)
        if await deliver.settle(mirror, project.source, change.base_branch, intent.base_before, intent.merge_commit):
            await self._finish(mirror, change, intent, actor)
        else:
            await self._call_off(intent, "The host ended before the source was changed; merge again.")

    async def _compute(self, mirror: Mirror, change: Change, base: str, decision: DecideChange) -> str:
        found = await merge.preview(mirror, base, decision.reviewed_head)
        if found.up_to_date:
            raise Refused(f"{change.base_branch} has all of change request {change.number} already.", hint="Close it.")
        if found.conflicts:
            paths = ", ".join(visible_line(path) for path in found.conflicts[:10])
            raise Refused(
                f"Change request {change.number} conflicts with {change.base_branch} in: {paths}.",
                hint=f"Ask the session to merge {change.base_branch} into its branch, then review again.",
            )
        row = self._store.one("SELECT seq, hash FROM audit ORDER BY seq DESC LIMIT 1")
        subject = decision.message or f"Merge CR #{change.number}: {change.title}"
        commit = await merge.merge_commit(
            mirror,
            base,
            decision.reviewed_head,
            message=f"{visible_line(subject)}\n",
            trailers={
                "Change-Request": str(change.number),
                "Session": change.session_id,
                "Reviewed-Head": decision.reviewed_head,
                "Audit": f"{row[0]}:{row[1]}" if row else "0:",
            },
        )
        if found_faults := await self._faults(mirror, commit):
            raise Refused(
                f"The manifest would not be valid after this merge: {found_faults[0]}",
                hint="Have the session fix kortix.yaml, then review again.",
            )
        return commit

    async def _intend(self, change: Change, base: str, commit: str, decision: DecideChange, actor: Actor) -> Merge:
        identity = new_id("mrg")

        def write(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO merges (id, change_id, reviewed_head, base_before, merge_commit, state, performed_by,"
                " created_at) VALUES (?,?,?,?,?,'intent',?,?)",
                (identity, change.id, decision.reviewed_head, base, commit, actor.label, tx.now_text),
            )
            self._audit(tx, "change_request.merge.intent", change, actor, Outcome.PENDING, commit=commit)

        await self._ledger.write(write)
        return Merge.of(self._store.one(f"SELECT {Merge.columns()} FROM merges WHERE id = ?", (identity,)) or ())

    async def _complete(self, mirror: Mirror, project: Project, change: Change, intent: Merge, actor: Actor) -> Change:
        try:
            await deliver.deliver(mirror, project.source, change.base_branch, intent.base_before, intent.merge_commit)
        except KortixError as error:
            # Only the source knows whether the push arrived before the error.
            if not await deliver.delivered(mirror, project.source, change.base_branch, intent.merge_commit):
                await self._call_off(intent, str(error))
                raise
        return await self._finish(mirror, change, intent, actor)

    async def _finish(self, mirror: Mirror, change: Change, intent: Merge, actor: Actor) -> Change:
        await merge.advance_base(mirror, change.base_branch, intent.merge_commit, intent.base_before)

        def write(tx: Transaction) -> None:
            tx.execute("UPDATE merges SET state = 'done', ended_at = ? WHERE id = ?", (tx.now_text, intent.id))
            tx.execute(
                "UPDATE change_requests SET status = 'merged', merge_commit = ?, reviewed_head = ?, base_commit = ?,"
                " decided_by = ?, decided_at = ?, updated_at = ? WHERE id = ?",
                (
                    intent.merge_commit, intent.reviewed_head, intent.base_before, intent.performed_by, tx.now_text,
                    tx.now_text, change.id,
                ),
            )  # fmt: skip
            tx.execute("UPDATE projects SET base_commit = ? WHERE id = ?", (intent.merge_commit, change.project_id))
            self._audit(tx, "change_request.merge", change, actor, Outcome.SUCCESS, commit=intent.merge_commit)

        await self._ledger.write(write)
        return self._change(change.id)

    async def _call_off(self, intent: Merge, message: str) -> None:
        change = self._change(intent.change_id)

        def write(tx: Transaction) -> None:
            tx.execute(
                "UPDATE merges SET state = 'failed', message = ?, ended_at = ? WHERE id = ?",
                (message, tx.now_text, intent.id),
            )
            actor = Actor(kind="system", name="host", via="runtime")
            self._audit(tx, "change_request.merge", change, actor, Outcome.FAILURE, commit=intent.merge_commit)

        await self._ledger.write(write)

    def _change(self, change_id: str) -> Change:
        row = self._store.one(f"SELECT {Change.columns()} FROM change_requests WHERE id = ?", (change_id,))
        if row is None:
            raise Refused("That change request does not exist.", hint="See `kortix cr ls`.")
        return Change.of(row)

    @staticmethod
    def _audit(tx: Transaction, event: str, change: Change, actor: Actor, outcome: Outcome, **detail: str) -> None:
        tx.audit(
            event, scope=f"change #{change.number}", actor=actor, outcome=outcome, project_id=change.project_id,
            session_id=change.session_id, head=change.head_commit, **detail,
        )  # fmt: skip
