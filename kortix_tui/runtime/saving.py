"""No work is lost (invariant I6): what is not on the session's branch goes to a rescue ref before a sandbox ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import visible_line
from kortix_tui.repository.mirror import KeptRef
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.link import Link
from kortix_tui.store.models import Rescue, Session

RESCUE_S: Final = 180.0


class Saving:
    """Asks the supervisor to push what would be lost, and checks in the mirror that it arrived."""

    def __init__(self, session_id: str, ledger: Ledger, link: Link) -> None:
        self._session_id = session_id
        self._ledger = ledger
        self._link = link

    async def save(self, reason: str) -> str | None:
        """Save the work now; `None` when nothing can be lost any more, otherwise why it could not be saved."""
        session = self._ledger.session(self._session_id)
        assert session is not None  # noqa: S101 - rows of sessions are never deleted
        if not self._link.has_repository:
            return None
        try:
            number = await self._adopt(session)
            result = await self._link.rescue(number, reason, RESCUE_S)
            kept = {entry.n: entry for entry in await self._link.rescues()}
        except KortixError as error:
            return self._failed(str(error))
        if number in kept:
            # Also when the sandbox could not save everything: what it could is there to be found.
            await self._note(session, kept[number], reason, result.files)
        if result.outcome == "clean":
            return None
        if result.outcome != "saved":
            return self._failed(visible_line(result.message or "the sandbox did not say why."))
        # What the sandbox says is a claim; the mirror has the truth.
        if number not in kept or kept[number].commit != result.commit:
            return self._failed(f"refs/kortix/rescue/{session.id}/{number} did not arrive.")
        return None

    async def _adopt(self, session: Session) -> int:
        """Note rescues that arrived while no host listened; returns the next free number."""
        known = self._ledger.rescue_numbers(session.id)
        kept = await self._link.rescues()
        for entry in kept:
            if entry.n not in known:
                await self._note(session, entry, "found", 0)
        return max([0, *known, *(entry.n for entry in kept)]) + 1

    async def _note(self, session: Session, entry: KeptRef, reason: str, files: int) -> None:
        rescue = Rescue(
            session_id=session.id,
            n=entry.n,
            commit_id=entry.commit,
            ref=entry.ref,
            reason=reason,
            files=files,
            at=datetime.now(UTC),
        )
        await self._ledger.rescued(session, rescue)
        self._link.note(f"Saved work that is not on the branch ({files} files) to {entry.ref}.")

    def _failed(self, why: str) -> str:
        self._link.note(f"Work could not be saved: {why}")
        return why
