"""After any death: find the truth again (invariant I7)."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import KortixError
from kortix_tui.base.words import Outcome
from kortix_tui.review.merging import Merging
from kortix_tui.runtime.adding import sweep_mirrors
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Preparing, manifest_faults
from kortix_tui.sandbox.provider import Provider
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Fenced, Transaction
from kortix_tui.store.models import Merge, Session

ORPHAN_AFTER: Final = timedelta(minutes=1)
log = logging.getLogger(__name__)


class Recovery:
    """Completes what an earlier host began and ends what nobody owns."""

    def __init__(self, context: Context, ledger: Ledger, provider: Provider, preparing: Preparing) -> None:
        self._context = context
        self._ledger = ledger
        self._provider = provider
        self._preparing = preparing
        self._merging = Merging(context.store, ledger, manifest_faults)

    async def requests(self) -> None:
        """Settle open merges, then hand running requests out again: each is safe to repeat once merges are settled."""
        rows = self._context.store.all(f"SELECT {Merge.columns()} FROM merges WHERE state = 'intent'")
        for intent in map(Merge.of, rows):
            await self._settle(intent)
        await asyncio.to_thread(sweep_mirrors, self._context.home, self._context.store)
        if self._context.store.one("SELECT 1 FROM requests WHERE state = 'running'"):
            await self._ledger.write(self._hand_out)

    def _hand_out(self, tx: Transaction) -> None:
        stuck = tx.execute("SELECT id, kind FROM requests WHERE state = 'running'").fetchall()
        for identity, kind in stuck:
            tx.execute("UPDATE requests SET state = 'pending', started_at = NULL WHERE id = ?", (identity,))
            tx.audit("request.repeat", scope=f"{kind} {identity}", actor=SYSTEM)

    async def _settle(self, intent: Merge) -> None:
        row = self._context.store.one("SELECT project_id FROM change_requests WHERE id = ?", (intent.change_id,))
        project = self._ledger.project(row[0]) if row else None
        if project is None:
            return
        try:
            mirror = await self._preparing.mirror(project.id)
            await self._merging.recover(mirror, project, intent, SYSTEM)
        except Fenced:
            raise
        except KortixError:
            # The source cannot be asked now; the intent stays and is settled by the next host or sweep.
            log.exception("merge %s could not be settled", intent.id)

    async def sandboxes(self) -> None:
        """End containers of this home that no session row wants: none must run unseen.

        Volumes of a session that is not marked as removed are never touched.
        """
        store = self._context.store
        for state in await self._provider.owned(store.install_id):
            session = self._ledger.session(state.session_id)
            if session is None:
                # A row is always older than its container; only a restored store explains this. Its disk is kept.
                if state.created_at < self._context.clock.now() - ORPHAN_AFTER:
                    await self._provider.remove(state.session_id, volumes=False)
                    await self._record("sandbox.orphan.remove", state.session_id)
            elif session.removed_at is not None:
                await self._provider.remove(session.id, volumes=False)
                await self._record("sandbox.orphan.remove", session.id, session)
            elif state.running and self._settled(session):
                await self._provider.stop(session.id)
                await self._record("sandbox.orphan.stop", session.id, session)

    def _settled(self, session: Session) -> bool:
        quiet = to_text(session.updated_at) < to_text(self._context.clock.now() - ORPHAN_AFTER)
        return session.wanted == "stopped" and session.status in ("stopped", "failed") and quiet

    async def _record(self, event: str, session_id: str, session: Session | None = None) -> None:
        def change(tx: Transaction) -> None:
            tx.audit(
                event, scope=f"sandbox kortix-{session_id}", actor=SYSTEM, outcome=Outcome.SUCCESS,
                project_id=session.project_id if session else None, session_id=session_id if session else None,
            )  # fmt: skip

        await self._ledger.write(change)
