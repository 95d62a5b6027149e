"""No work is lost (invariant I6): what is not on the session's branch goes to a rescue ref before a sandbox ends."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import visible_line
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.link import Link
from kortix_tui.store.models import Rescue

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
        number = self._ledger.next_rescue(session.id)
        try:
            result = await self._link.rescue(number, reason, RESCUE_S)
        except KortixError as error:
            return str(error)
        if result.outcome == "clean":
            return None
        if result.outcome != "saved" or result.commit is None:
            return visible_line(result.message or "the sandbox did not say why.")
        ref = f"refs/kortix/rescue/{session.id}/{number}"
        # What the sandbox says is a claim; the mirror has the truth.
        if await self._link.mirror_ref(ref) != result.commit:
            return f"{ref} did not arrive."
        rescue = Rescue(
            session_id=session.id,
            n=number,
            commit_id=result.commit,
            ref=ref,
            reason=reason,
            files=result.files,
            at=datetime.now(UTC),
        )
        await self._ledger.rescued(session, rescue)
        self._link.note(f"Saved uncommitted work ({result.files} files) to {ref}.")
        return None
