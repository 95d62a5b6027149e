"""The record as the operator reads it."""

from __future__ import annotations

from kortix_tui.runtime.context import Context
from kortix_tui.store import audit
from kortix_tui.store.audit import AuditEvent, ChainReport


class Audit:
    """The audit verbs."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def list(self, *, session_id: str | None = None, event: str | None = None, limit: int = 100) -> list[AuditEvent]:
        """Events, newest first; `event` is a prefix."""
        self._context.reading("audit.project.list", scope="audit")
        return list(audit.read(self._context.store.connection, session_id=session_id, event=event, limit=limit))

    def verify(self) -> ChainReport:
        """Recompute the chain and hold it against the head file and the heads written into merge commits."""
        store = self._context.store
        anchors = dict[int, str]()
        for row in store.all("SELECT detail FROM audit WHERE event = 'change_request.merge' AND outcome = 'success'"):
            anchors.update(_anchor(row[0]))
        if head := audit.read_head(store.home):
            anchors[head[0]] = head[1]
        return audit.verify(store.connection, store.key, anchors)


def _anchor(detail: str) -> dict[int, str]:
    import json

    anchor = json.loads(detail).get("anchor")
    if not isinstance(anchor, str):
        return {}
    seq, _, digest = anchor.partition(":")
    return {int(seq): digest} if seq.isdigit() else {}
