"""The record as the operator reads it."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.errors import NotFound
from kortix_tui.runtime.context import Context
from kortix_tui.store import audit
from kortix_tui.store.audit import Anchor, AuditEvent, ChainReport

VERIFY_S: Final = 120.0
Anchors = list[Anchor]


class Audit:
    """The audit verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self, *, session_id: str | None = None, event: str | None = None, limit: int = 100) -> list[AuditEvent]:
        """Events, newest first; `event` is a prefix."""
        self._context.reading("audit.project.list", scope="audit")
        return list(audit.read(self._context.store.connection, session_id=session_id, event=event, limit=limit))

    def verify(self) -> ChainReport:
        """Recompute the chain; hold it against the head file and what merge commits on base branches say of it.

        A merge commit has left this machine as soon as its branch was pushed; so not even whoever has the audit key
        can rewrite what came before it unseen.
        """
        store = self._context.store
        anchors = self._context.loop.call(self._merged(), deadline_s=VERIFY_S)
        if head := audit.read_head(store.home):
            anchors.append(head)
        return audit.verify(store.connection, store.key, anchors)

    async def _merged(self) -> Anchors:
        from kortix_tui.repository.mirror import Mirror
        from kortix_tui.repository.trailers import anchors

        found: Anchors = []
        for identity, slug, base in self._context.store.all("SELECT id, slug, base_branch FROM projects"):
            try:
                mirror = await Mirror.open(self._context.home.mirror(identity))
            except NotFound:
                continue  # a removed mirror has nothing more to say
            found += [
                Anchor(seq=each.seq, hash=each.hash, where=f"merge commit {each.commit[:12]} of {slug}")
                for each in await anchors(mirror, base)
            ]
        return found
