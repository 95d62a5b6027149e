"""Opening the vault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from textual import on
from textual.widget import Widget

from kortix_tui.base.errors import KortixError, TooSoon, WrongKey
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen
from kortix_tui.console.forms.key_forms import KIND_WORDS, TYPED, kind_of, slot_words
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.masked_entry import MaskedEntry

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.secret_views import SlotView, VaultStatus

FIRST_WAIT_S: Final = 1.0
LONGEST_WAIT_S: Final = 30.0


class UnlockForm(Form):
    """Opens the vault. A wrong key makes the next try wait, longer each time, whatever dialog it comes from."""

    sends = "unlocks"
    working = "Opening…"

    def __init__(
        self, console: KortixApp, status: VaultStatus, done: Callable[[VaultStatus], None], *, note: str = ""
    ) -> None:
        super().__init__(console, "Unlock the vault", done)
        self._slots = {slot_words(slot): slot for slot in sorted(status.slots, key=_by_hand_first)}
        self._waiting = len(status.waiting)
        self._note = note

    def fields(self) -> Iterable[Widget]:
        """What waits, the kind of key, the key."""
        if self._note:
            yield plain(self._note)
        if self._waiting:
            yield plain(f"{self._waiting} session{'s wait' if self._waiting > 1 else ' waits'} for it.")
        if self._note or self._waiting:
            yield plain("")
        yield chosen("With the", list(self._slots), id="slot")
        yield MaskedEntry("Key", clock=self.console.clock.monotonic, id="key")

    def prepare(self) -> None:
        """What the first choice needs."""
        self._turned()

    @on(ChoiceField.Changed, "#slot")
    def _turned(self) -> None:
        self.show_only(key=self._slots[self.choice("#slot")].type in TYPED)

    def act(self) -> Act:
        """Unlock."""
        self.console.wrong_keys.check()
        slot = self._slots[self.choice("#slot")]
        kind = kind_of(KIND_WORDS[slot.type])
        secret = self.masked("#key", KIND_WORDS[slot.type].capitalize()) if kind in TYPED else None
        return lambda source: source.vault.unlock(kind, secret=secret, place=slot.place)

    def failed(self, error: KortixError) -> None:
        """A wrong key is typed again from its beginning, after a while; one that was not tried stays."""
        if isinstance(error, WrongKey) and not isinstance(error, TooSoon):
            self.query_one("#key", MaskedEntry).clear()
            wait = self.console.wrong_keys.one_more()
            self.complain(f"{error.message} The next try is possible in {wait:.0f} s.")
        else:
            super().failed(error)


def _by_hand_first(slot: SlotView) -> int:
    order = ("passphrase", "keyring", "keyfile", "systemd", "recovery")
    return order.index(slot.type)


class WrongKeys:
    """How long the next try must wait: one second after the first wrong key, twice as long after each other one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._count = 0
        self._again_at = 0.0

    def one_more(self) -> float:
        """A key was wrong; gives the seconds to wait."""
        wait: float = min(FIRST_WAIT_S * 2**self._count, LONGEST_WAIT_S)
        self._count += 1
        self._again_at = self._clock() + wait
        return wait

    def none(self) -> None:
        """A key was right."""
        self._count, self._again_at = 0, 0.0

    def check(self) -> None:
        """Refuse a try that comes too soon.

        Raises:
            Incomplete: It does.
        """
        wait = self._again_at - self._clock()
        if self._count and wait > 0:
            raise Incomplete(f"The last key was wrong: wait {wait:.0f} s.")
