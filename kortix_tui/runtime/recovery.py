"""After any death: find the truth again (invariant I7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from datetime import timedelta
from functools import partial
from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import KortixError
from kortix_tui.base.words import Outcome
from kortix_tui.broker.connectors.mcp_programs import Programs
from kortix_tui.review.merging import Merging
from kortix_tui.runtime.adding import sweep_mirrors
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.preparing import Preparing
from kortix_tui.runtime.requests import hand_out
from kortix_tui.sandbox.provider import Provider
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Fenced, Transaction
from kortix_tui.store.models import Session

ORPHAN_AFTER: Final = timedelta(minutes=1)
log = logging.getLogger(__name__)


class Recovery:
    """Completes what an earlier host began and ends what nobody owns."""

    def __init__(
        self, context: Context, ledger: Ledger, provider: Provider, preparing: Preparing, merging: Merging
    ) -> None:
        self._context = context
        self._ledger = ledger
        self._provider = provider
        self._preparing = preparing
        self._merging = merging

    async def requests(self) -> None:
        """Settle open merges, then hand running requests out again: each is safe to repeat once merges are settled."""
        await self.merges()
        await asyncio.to_thread(sweep_mirrors, self._context.home, self._context.store)
        for (request_id,) in self._context.store.all("SELECT id FROM requests WHERE state = 'running'"):
            await self._ledger.write(partial(hand_out, request_id=request_id))

    async def merges(self) -> None:
        """Ask the sources what became of merges that nobody saw end."""
        rows = self._context.store.all(
            "SELECT DISTINCT c.project_id FROM merges m JOIN change_requests c ON c.id = m.change_id"
            " WHERE m.state = 'intent'"
        )
        for (project_id,) in rows:
            try:
                mirror = await self._preparing.mirror(project_id)
                await self._merging.recover(mirror, self._ledger.project(project_id), SYSTEM)
            except Fenced:
                raise
            except KortixError as error:
                # The source cannot be asked now; the intent stays and is settled by the next sweep.
                log.warning("merges of %s could not be settled: %s", project_id, error)

    async def sandboxes(self, kept: Collection[str]) -> None:
        """End containers of this home that no session row wants: none must run unseen.

        Volumes of a session that is not marked as removed are never touched.

        Args:
            kept: Sessions that have a runner, which knows better.
        """
        store = self._context.store
        for state in await self._provider.owned(store.install_id):
            if state.session_id in kept:
                continue
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

    async def tool_servers(self, programs: Programs) -> None:
        """End tool servers of this home that an earlier host left."""
        for server_id in await programs.reap():
            await self._ledger.write(
                partial(
                    Transaction.audit, event="tool_server.orphan.remove", scope=f"container kortix-{server_id}",
                    actor=SYSTEM, outcome=Outcome.SUCCESS,
                )
            )  # fmt: skip

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
