"""What the host notes of a session's pushes. The git door has taken or refused them; this tells the store."""

from __future__ import annotations

import contextlib

from kortix_tui.base.errors import KortixError
from kortix_tui.repository import diff
from kortix_tui.repository.door import PushReport
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.store.models import Session


class Pushes:
    """Keeps the session's row at its branch's head."""

    def __init__(self, session_id: str, ledger: Ledger, mirror: Mirror) -> None:
        self._session_id = session_id
        self._ledger = ledger
        self._mirror = mirror

    async def pushed(self, report: PushReport) -> None:
        """Note one push: the new head, or what was refused."""
        session = self._session()
        for update in report.updates:
            if not update.accepted:
                await self._ledger.denied(
                    session, "session.git.push", scope=f"ref {update.ref[:200]}", reason=update.reason[:300]
                )
        await self.catch_up()

    async def catch_up(self) -> None:
        """Note a head that was pushed while no host looked."""
        session = self._session()
        head = await self._mirror.head(session.id)
        if head is None or head == session.head_commit:
            return
        number = await self._mirror.keep_head(session.id, head)
        files = additions = deletions = 0
        with contextlib.suppress(KortixError):  # too large to count; the head itself must be noted all the same
            found = await diff.summary(self._mirror, session.base_commit or head, head)
            files, additions, deletions = len(found.files), found.additions, found.deletions
        await self._ledger.accept_head(
            session, n=number, commit=head, files=files, additions=additions, deletions=deletions,
            project=self._ledger.project(session.project_id).slug,
        )  # fmt: skip

    def _session(self) -> Session:
        session = self._ledger.session(self._session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        return session
