"""Says outside the picture that something starts to wait: the terminal's title, its bell, a desktop notice.

Nothing that anybody outside has written is ever in one of these sequences: only fixed words and numbers (I10).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kortix_tui.base.settings import Notify
    from kortix_tui.console.facts import Facts

BELL_SECONDS: Final = 30.0
"""One bell, and one desktop notice, in so long: ten calls at once are one reason to look."""
KEEP_TITLE: Final = "\x1b[22;2t"
GIVE_TITLE_BACK: Final = "\x1b[23;2t"


def title(count: int) -> str:
    """The sequence that sets the terminal's title."""
    return f"\x1b]2;{f'! kortix: {count} waiting' if count else 'kortix'}\x07"


def desktop(count: int) -> str:
    """Both sequences for a desktop notice: terminals that know one of them ignore the other."""
    words = f"{count} thing{'s' * (count != 1)} wait{'s' * (count == 1)} for you"
    return f"\x1b]777;notify;kortix;{words}\x07\x1b]9;kortix: {words}\x07"


class Notices:
    """Compares what waits with what waited, and writes to the terminal what the operator's settings allow."""

    def __init__(self, notify: Notify, write: Callable[[str], None], clock: Callable[[], float]) -> None:
        """Make it.

        Args:
            notify: The operator's settings.
            write: Takes control sequences for the terminal.
            clock: Seconds that only grow.
        """
        self._notify = notify
        self._write = write
        self._clock = clock
        self._known: frozenset[str] | None = None
        self._shown: int | None = None
        self._rang_at = float("-inf")

    def take(self, facts: Facts) -> None:
        """Look at newer facts; the first ones that are whole only tell what waited before."""
        if facts.vault is None:
            return
        waiting = frozenset(item.reference for item in facts.inbox)
        known, self._known = self._known, waiting
        self._retitle(len(waiting))
        if known is None or waiting <= known or self._clock() - self._rang_at < BELL_SECONDS:
            return
        self._rang_at = self._clock()
        if self._notify.bell:
            self._write("\x07")
        if self._notify.desktop:
            self._write(desktop(len(waiting)))

    def _retitle(self, count: int) -> None:
        if not self._notify.title or count == self._shown:
            return
        if self._shown is None:
            self._write(KEEP_TITLE)
        self._shown = count
        self._write(title(count))

    def close(self) -> None:
        """Give the title back that was there before."""
        if self._shown is not None:
            self._shown = None
            self._write(GIVE_TITLE_BACK)
