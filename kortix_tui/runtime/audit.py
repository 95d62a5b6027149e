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
        """Recompute the chain; hold it against the head file, the vault, and what merge commits on base branches say.

        A merge commit has left this machine as soon as its branch was pushed, and the vault's link cannot be written
        without a key of the vault; so not even whoever has the audit key can rewrite what came before them unseen.
        """
        store = self._context.store
        anchors = self._context.loop.call(self._merged(), deadline_s=VERIFY_S)
        if head := audit.read_head(store.home):
            anchors.append(head)
        vaulted = self._vaulted()
        report = audit.verify(store.connection, store.key, [*anchors, *vaulted])
        if not vaulted and store.home.vault.exists():
            note = "The vault is locked or has no link yet: the record was not held against it (kortix vault unlock)."
            return report.model_copy(update={"notes": (note,)})
        return report

    def _vaulted(self) -> Anchors:
        """The link that the vault keeps: proved by a host that has it open, or by a key that needs no person."""
        if not self._context.home.vault.exists():
            return []
        from kortix_tui.runtime.vault_anchor import vault_anchor

        found = vault_anchor(self._context)
        return [] if found is None else [found]

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
