"""How many sandboxes may run at once: the operator's ceiling, first come, first served."""

from __future__ import annotations


class Places:
    """Places for running sessions. A session that finds none asks again; its turn is kept.

    Args:
        limit: How many there are.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held = set[str]()
        self._waiting = dict[str, None]()

    def hold(self, session_id: str) -> None:
        """A session that runs already has its place, also above the limit: nothing is stopped for it."""
        self._held.add(session_id)
        self._waiting.pop(session_id, None)

    def join(self, session_id: str) -> None:
        """Get in line, without a place yet."""
        if session_id not in self._held:
            self._waiting.setdefault(session_id)

    def take(self, session_id: str) -> bool:
        """Take a place if one is free and nobody has waited longer."""
        if session_id in self._held:
            return True
        self.join(session_id)
        free = self.limit - len(self._held)
        if session_id not in list(self._waiting)[: max(0, free)]:
            return False
        self.hold(session_id)
        return True

    def leave(self, session_id: str) -> None:
        """Give the place, or the turn, to the next."""
        self._held.discard(session_id)
        self._waiting.pop(session_id, None)
