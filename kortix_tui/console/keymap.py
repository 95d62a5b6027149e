"""Every action of the console in one table: id, keys, words, where it works.

Bindings, hints, help and the command palette are all made from this table, so none of them can lie. An
action id with dots is a Textual action with underscores: `session.stop` calls `action_session_stop`.
A letter keeps its meaning everywhere; nothing needs a modifier that tmux or plain SSH loses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from textual.binding import Binding, BindingType
from textual.keys import _character_to_key, format_key


class Where(StrEnum):
    """The part of the console in which an action's keys are active."""

    ALL = "everywhere"
    MOVE = "lists and pagers"
    LIST = "lists"
    PAGER = "pagers"
    LOG = "logs"
    DIFF = "diffs"
    SESSIONS = "Sessions"
    CHANGES = "change requests"
    CHANGE = "an open change request"
    DIALOG = "dialogs"


@dataclass(frozen=True)
class Action:
    """One thing that a person can do.

    Attributes:
        id: Stable name; the operator's `keymap` setting overrides keys by it.
        keys: Default keys, in Textual's names; the first one is shown.
        title: What it does, as help says it.
        where: Where its keys are active.
        hint: Short word for the hint bar; empty is not shown there.
        command: The command line that does the same, without `kortix`; empty for what only moves or shows.
        palette: Whether the palette and `:` offer it.
        target: Who does it where that is not the owner of the binding, as Textual names it: `screen`.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    where: Where
    hint: str = ""
    command: str = ""
    palette: bool = False
    target: str = ""

    @property
    def call(self) -> str:
        """What a binding runs."""
        return f"{self.target}.{self.method}" if self.target else self.method

    @property
    def method(self) -> str:
        """Name of the Textual action."""
        return self.id.replace(".", "_")


_A = Action
ACTIONS: Final[tuple[Action, ...]] = (
    _A("session.new", ("n",), "New session", Where.SESSIONS, "new", "sessions new", palette=True),
    _A("session.logs", ("l",), "Go to the log", Where.SESSIONS, "logs", "sessions logs"),
    _A("session.chat", ("p",), "Send another prompt", Where.SESSIONS, "prompt", "sessions chat", palette=True),
    _A("session.stop", ("x",), "Stop the session", Where.SESSIONS, "stop", "sessions stop", palette=True),
    _A("session.resume", ("r",), "Resume the session", Where.SESSIONS, "resume", "sessions resume", palette=True),
    _A("session.diff", ("d",), "See its change request", Where.SESSIONS, "diff", "cr diff", palette=True),
    _A("session.pin", ("space",), "Keep its log in the second pane", Where.SESSIONS, "pin"),
    _A("session.remove", ("D",), "Delete the session", Where.SESSIONS, "", "sessions rm", palette=True),
    _A("change.open", ("enter", "d"), "Open the change request", Where.CHANGES, "open", "cr show"),
    _A("change.merge", ("m",), "Merge what was read…", Where.CHANGES, "merge", "cr merge", palette=True),
    _A("change.close", ("x",), "Close without merging…", Where.CHANGES, "close", "cr close", palette=True),
    _A("change.reopen", ("r",), "Reopen a closed change request", Where.CHANGES, "", "cr reopen", palette=True),
    _A("change.files", ("f",), "Show or hide the file list", Where.CHANGE, "files"),
    _A("diff.next_hunk", ("n",), "Next hunk (or match of a search)", Where.DIFF, "hunk"),
    _A("diff.previous_hunk", ("N",), "Previous hunk (or match)", Where.DIFF),
    _A("diff.next_file", ("right_square_bracket",), "Next file", Where.DIFF, "file"),
    _A("diff.previous_file", ("left_square_bracket",), "Previous file", Where.DIFF),
    _A("log.follow", ("F",), "Follow the end", Where.LOG, "follow"),
    _A("log.wrap", ("w",), "Wrap long lines", Where.LOG, "wrap"),
    _A("log.time", ("t",), "Show times", Where.LOG, "time"),
    _A("log.next_match", ("n",), "Next match", Where.LOG),
    _A("log.previous_match", ("N",), "Previous match", Where.LOG),
    _A("pager.search", ("slash",), "Search", Where.PAGER, "search", target="screen"),
    _A("pager.page", ("space",), "Page down", Where.PAGER),
    _A("pager.left", ("h", "shift+left", "left"), "Scroll left", Where.PAGER),
    _A("pager.right", ("l", "shift+right", "right"), "Scroll right", Where.PAGER),
    _A("list.filter", ("slash",), "Filter", Where.LIST, "filter", target="screen"),
    _A("list.select", ("enter",), "Open", Where.LIST),
    _A("list.sort", ("S",), "Sort by the next column", Where.LIST),
    _A("move.down", ("j", "down"), "Down", Where.MOVE),
    _A("move.up", ("k", "up"), "Up", Where.MOVE),
    _A("move.page_down", ("pagedown", "full_stop"), "Page down", Where.MOVE),
    _A("move.page_up", ("pageup", "comma"), "Page up", Where.MOVE),
    _A("move.half_down", ("ctrl+d",), "Half a page down", Where.MOVE),
    _A("move.half_up", ("ctrl+u",), "Half a page up", Where.MOVE),
    _A("move.top", ("g", "home"), "First line", Where.MOVE),
    _A("move.bottom", ("G", "end"), "Last line", Where.MOVE),
    _A("move.yank", ("y",), "Copy the line or its id", Where.MOVE),
    _A("dialog.yes", ("y",), "Yes (a typed name where it is asked for)", Where.DIALOG),
    _A("dialog.no", ("n", "escape", "q"), "No", Where.DIALOG),
    _A("view.sessions", ("1",), "Sessions", Where.ALL, palette=True, command="sessions ls"),
    _A("view.changes", ("2",), "Changes", Where.ALL, palette=True, command="cr ls"),
    _A("view.inbox", ("3",), "Inbox", Where.ALL, palette=True, command="cr ls"),
    _A("app.help", ("question_mark", "f1"), "Help", Where.ALL, "help", palette=True, target="screen"),
    _A("app.command", ("colon",), "Command line", Where.ALL, "cmd"),
    _A("app.palette", ("ctrl+p",), "Command palette", Where.ALL),
    _A("focus.next", ("tab",), "Next pane", Where.ALL, "pane"),
    _A("focus.previous", ("shift+tab",), "Previous pane", Where.ALL),
    _A("focus.main", ("0",), "First pane", Where.ALL, target="screen"),
    _A("pane.zoom", ("plus",), "Only this pane", Where.ALL, target="screen"),
    _A("pane.normal", ("underscore",), "Panes as they were", Where.ALL, target="screen"),
    _A("nav.back", ("q",), "Back; at a root view, quit", Where.ALL, "back", target="screen"),
    _A("nav.cancel", ("escape",), "Clear the filter, close, back", Where.ALL, target="screen"),
    _A("nav.last", ("minus",), "Last view", Where.ALL),
    _A("view.refresh", ("ctrl+r", "R"), "Read again and sort", Where.ALL, palette=True, target="screen"),
    _A("app.redraw", ("ctrl+l",), "Repaint the whole screen", Where.ALL, palette=True),
    _A("app.theme", (), "Next theme", Where.ALL, palette=True),
    _A("app.interrupt", ("ctrl+c",), "Copy the selection, or ask to quit", Where.ALL),
    _A("app.quit", ("ctrl+q",), "Quit…", Where.ALL),
    _A("app.suspend", ("ctrl+z",), "Why this console does not suspend", Where.ALL),
)

_BY_ID: Final = {action.id: action for action in ACTIONS}
# Places whose keys are active at the same moment. Nearer places shadow further ones, on purpose: `n` in a
# log is the next match although `n` on its screen is a new session.
_TOGETHER: Final[tuple[frozenset[Where], ...]] = tuple(
    frozenset({Where.ALL, Where.MOVE, *places})
    for places in (
        (Where.LIST, Where.SESSIONS),
        (Where.LIST, Where.CHANGES),
        (Where.LIST, Where.CHANGES, Where.CHANGE),
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
