"""The last line: keys that work now, made from the active bindings and so never wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kortix_tui.console.actions import ACTIONS
from kortix_tui.console.keymap import Keymap
from kortix_tui.console.widgets.bar import Bar, Part
from kortix_tui.console.widgets.cells import width_of

_RANK = {entry.id: place for place, entry in enumerate(ACTIONS)}
_ALWAYS = ("app.help",)
GAP = 2
TYPING = (("", "enter", "keep"), ("", "esc", "clear"), ("", "tab", "complete"), ("", "↑", "earlier"))


class HintBar(Bar):
    """Hints in the order of the action table, as many as fit; help is always among them."""

    def __init__(self, keymap: Keymap, *, typing: Callable[[], bool] | None = None, id: str | None = None) -> None:
        """Make the line.

        Args:
            keymap: The keys in force.
            typing: Whether a line of text is being typed, when other keys count.
            id: The widget's id.
        """
        super().__init__(id=id)
        self._keymap = keymap
        self._typing = typing or (lambda: False)

    def on_mount(self) -> None:
        """Follow the bindings of the screen."""
        self.screen.bindings_updated_signal.subscribe(self, lambda _: self.refresh())

    def left(self) -> Sequence[Part]:
        """Keys and words."""
        if self._typing():
            return [Part(" "), *(part for hint in TYPING for part in self._parts(hint))]
        hints = self._hints()
        pinned = [hint for hint in hints if hint[0] in _ALWAYS]
        room = self.size.width - 1 - sum(self._width(hint) for hint in pinned)
        parts = [Part(" ")]
        for hint in [hint for hint in hints if hint not in pinned]:
            if self._width(hint) <= room:
                room -= self._width(hint)
                parts.extend(self._parts(hint))
        for hint in pinned:
            parts.extend(self._parts(hint))
        return parts

    def _hints(self) -> list[tuple[str, str, str]]:
        active = self.screen.active_bindings.values()
        ids = {entry.binding.id for entry in active if entry.enabled and entry.binding.id in _RANK}
        return [
            (entry.id, self._keymap.shown(entry.id), entry.hint) for entry in ACTIONS if entry.hint and entry.id in ids
        ]

    @staticmethod
    def _width(hint: tuple[str, str, str]) -> int:
        return width_of(hint[1]) + 1 + width_of(hint[2]) + GAP

    @staticmethod
    def _parts(hint: tuple[str, str, str]) -> list[Part]:
        return [Part(hint[1], "key"), Part(f" {hint[2]}{' ' * GAP}", "muted")]
