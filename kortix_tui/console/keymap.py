"""Keys of the actions: Textual bindings, how they are shown, and the operator's overrides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from textual.binding import Binding, BindingType
from textual.keys import _character_to_key, format_key

from kortix_tui.console.actions import ACTIONS, Action, Where

_BY_ID: Final = {action.id: action for action in ACTIONS}
# Places whose keys are active at the same moment. Nearer places shadow further ones, on purpose: `n` in a
# log is the next match although `n` on its screen is a new session.
_TOGETHER: Final[tuple[frozenset[Where], ...]] = tuple(
    frozenset({Where.ALL, Where.MOVE, *places})
    for places in (
        (Where.LIST, Where.SESSIONS),
        (Where.LIST, Where.CHANGES),
        (Where.LIST, Where.CHANGES, Where.CHANGE),
        (Where.LIST, Where.INBOX),
        (Where.LIST, Where.VAULT),
        (Where.LIST, Where.CONNECTORS),
        (Where.PAGER, Where.INBOX),
        (Where.PAGER, Where.VAULT),
        (Where.PAGER, Where.CONNECTORS),
        (Where.PAGER, Where.LOG, Where.SESSIONS),
        (Where.PAGER, Where.DIFF, Where.CHANGES, Where.CHANGE),
    )
)


def action(action_id: str) -> Action:
    """The action of that id.

    Raises:
        KeyError: There is none.
    """
    return _BY_ID[action_id]


def bindings(*places: Where) -> list[BindingType]:
    """Textual bindings for a widget, screen or app that serves these places."""
    return [
        Binding(
            ",".join(entry.keys),
            entry.call,
            entry.title,
            show=bool(entry.hint),
            id=entry.id,
            # The palette key of Textual and ctrl+c/ctrl+q must win over whatever has the focus.
            priority=entry.id in {"app.interrupt", "app.quit", "app.suspend"},
        )
        for entry in ACTIONS
        if entry.where in places and entry.keys
    ]


def show_key(key: str) -> str:
    """A key as people write it: `?`, `ctrl+p`, `enter`."""
    *modifiers, last = key.split("+") if key != "+" else ["+"]
    names = {"pagedown": "pgdn", "pageup": "pgup", "escape": "esc"}
    return "+".join([*modifiers, names.get(last, last if len(last) == 1 or last in _WORDS else format_key(last))])


_WORDS: Final = frozenset({"enter", "tab", "space", "home", "end", "up", "down", "left", "right", "backspace"})


@dataclass(frozen=True)
class KeymapProblem:
    """An override that was ignored, and why."""

    action_id: str
    reason: str


class Keymap:
    """The table with the operator's overrides applied."""

    def __init__(self, overrides: Mapping[str, str] | None = None) -> None:
        """Apply overrides.

        Args:
            overrides: Action id → keys, separated by commas, as in `keymap:` of the configuration.
                One that is unknown or takes a key of an action in the same place is ignored and reported.
        """
        self._keys: dict[str, tuple[str, ...]] = {entry.id: entry.keys for entry in ACTIONS}
        self.problems: list[KeymapProblem] = []
        self.overrides: dict[str, str] = {}
        for action_id, text in (overrides or {}).items():
            reason = self._apply(action_id, text)
            if reason is not None:
                self.problems.append(KeymapProblem(action_id, reason))

    def _apply(self, action_id: str, text: str) -> str | None:
        entry = _BY_ID.get(action_id)
        if entry is None:
            return "there is no action of that id"
        keys = tuple(_normalise(part) for part in text.split(",") if part.strip())
        if not keys:
            return "no key is given"
        for other in ACTIONS:
            if other.id == action_id or not _meet(entry.where, other.where):
                continue
            taken = sorted(set(keys).intersection(self._keys[other.id]))
            if taken:
                return f"{show_key(taken[0])} is already {other.id} ({other.title})"
        self._keys[action_id] = keys
        self.overrides[action_id] = ",".join(keys)
        return None

    def keys(self, action_id: str) -> tuple[str, ...]:
        """The keys of an action, in Textual's names."""
        return self._keys[action_id]

    def shown(self, action_id: str) -> str:
        """The first key of an action as people write it; empty when it has none."""
        keys = self._keys[action_id]
        return show_key(keys[0]) if keys else ""

    def help(self, places: Iterable[Where]) -> list[tuple[Where, list[tuple[str, Action]]]]:
        """Help by place, in the order given: keys as shown, and the action."""
        return [
            (
                place,
                [
                    (" ".join(show_key(key) for key in self._keys[entry.id]), entry)
                    for entry in ACTIONS
                    if entry.where == place and self._keys[entry.id]
                ],
            )
            for place in places
        ]


def _normalise(key: str) -> str:
    key = key.strip()
    return _character_to_key(key) if len(key) == 1 and not key.isalnum() else key


def _meet(one: Where, other: Where) -> bool:
    return one == other or any(one in places and other in places for places in _TOGETHER)
