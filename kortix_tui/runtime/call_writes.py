"""Ends of reads, written together a moment later: what their callers get is on record already."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from kortix_tui.base.errors import StoreFailed
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.store.database import Fenced, Transaction

LATE_S: Final = 0.1
RETRY_S: Final = 1.0
log = logging.getLogger(__name__)
Change = Callable[[Transaction], None]


class LateWrites:
    """Collects changes for a moment, then writes them in one transaction.

    Args:
        ledger: Where they are written.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._changes: dict[str, Change] = {}
        self._writing = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, key: str, change: Change) -> None:
        """Have a change of one call written soon."""
        self._changes[key] = change
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_soon(), name="ends of reads")

    def __contains__(self, key: str) -> bool:
        return key in self._changes

    async def settle(self, key: str) -> None:
        """Return when nothing of this call is left to be written.

        Raises:
            KortixError: It cannot be written now.
        """
        if key in self._changes or self._writing.locked():
            await self.flush()

    async def flush(self) -> None:
        """Write everything now.

        Raises:
            KortixError: It cannot be written now; it stays to be written.
        """
        async with self._writing:
            changes, self._changes = self._changes, {}
            if not changes:
                return

            def write(tx: Transaction) -> None:
                for change in changes.values():
                    change(tx)

            try:
                await self._ledger.write(write, anchor=False)
            except BaseException:
                self._changes = changes | self._changes
                raise

    async def _write_soon(self) -> None:
        await asyncio.sleep(LATE_S)
        while self._changes:
            try:
                await self.flush()
            except Fenced:
                return  # the next host calls them what they are to it: reads that may have run
            except StoreFailed:
                log.warning("ends of reads could not be written; trying again", exc_info=True)
                await asyncio.sleep(RETRY_S)
