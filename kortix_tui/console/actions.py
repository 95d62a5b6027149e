"""Every action of the console in one table: id, keys, words, where it works.

Bindings, hints, help and the command palette are all made from this table, so none of them can lie. An
action id with dots is a Textual action with underscores: `session.stop` calls `action_session_stop`.
A letter keeps its meaning everywhere; nothing needs a modifier that tmux or plain SSH loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Final


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
    INBOX = "Inbox"
    VAULT = "Vault"
    CONNECTORS = "Connectors"
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
        home: The view that does it, shown first where it is run by name from another one.
    """

    id: str
    keys: tuple[str, ...]
    title: str
    where: Where
    hint: str = ""
    command: str = ""
    palette: bool = False
    target: str = ""
    home: str = ""

    @property
    def call(self) -> str:
        """What a binding runs."""
        return f"{self.target}.{self.method}" if self.target else self.method

    @property
    def method(self) -> str:
        """Name of the Textual action."""
        return self.id.replace(".", "_")


_A = Action
_V = partial(Action, where=Where.VAULT, palette=True)
_SECRETS: Final[tuple[Action, ...]] = (
    _V(
        "secret.show",
        ("enter", "d"),
        "Go to its page: who may have it, who has it",
        hint="page",
        command="secrets show",
    ),
    _V("secret.new", ("n",), "New secret", hint="new", command="secrets set", home="vault"),
    _V("secret.rotate", ("r",), "Give it a new value", hint="rotate", command="secrets rotate"),
    _V("secret.expose", ("e",), "Change where it may go", hint="exposure", command="secrets expose"),
    _V("secret.grant", ("a",), "Let an agent have it…", hint="grant", command="secrets grant"),
    _V("secret.share", ("O",), "Its owner: only me, or the project…", hint="owner", command="secrets share"),
    _V("secret.unset", ("D",), "Forget it…", command="secrets unset"),
    _V("secret.import", ("I",), "Take values from a file or the keyring", command="secrets import", home="vault"),
    _V("secret.requests", (), "Values that agents ask for", command="secrets requests", home="vault"),
    _V("vault.unlock", ("U",), "Unlock the vault", hint="unlock", command="vault unlock", home="vault"),
    _V("vault.lock", ("L",), "Lock the vault…", hint="lock", command="vault lock", home="vault"),
    _V("vault.export", ("E",), "Write a backup of the vault", command="vault export", home="vault"),
    _V("vault.import", (), "Take secrets from a backup", command="vault import", home="vault"),
    _V("vault.init", (), "Make the vault", command="vault init", home="vault"),
    _V("vault.status", (), "The vault's state and keys", command="vault status", home="vault"),
    _V("vault.passphrase", (), "Set or change the vault's passphrase", command="vault passphrase", home="vault"),
    _V("vault.add_key", (), "One more key for the vault", command="vault slots add", home="vault"),
    _V("vault.remove_key", (), "Take a key of the vault away", command="vault slots rm", home="vault"),
    _V("vault.recovery", (), "A new recovery key for the vault…", command="vault recovery", home="vault"),
    _V("vault.rotate", (), "New keys for the whole vault", command="vault rotate", home="vault"),
    _V("vault.verify", (), "Check every record of the vault", command="vault verify", home="vault"),
    _V("vault.repair", (), "Repair the vault", command="vault repair", home="vault"),
)
_N = partial(Action, where=Where.CONNECTORS, palette=True)
_CONNECTORS: Final[tuple[Action, ...]] = (
    _N("connector.show", ("enter", "d"), "Go to its page: rules and actions", hint="page", command="connectors show"),
    _N("connector.connect", ("n",), "Connect an account…", hint="connect", command="connectors connect"),
    _N("connector.sync", ("s",), "Read what it can do", hint="sync", command="connectors sync"),
    _N("connector.accept", ("A",), "See what changed, and accept it…", hint="accept", command="connectors accept"),
    _N("connector.rule", ("e",), "Propose a rule on its calls…", hint="rule", command="connectors policy set"),
    _N("connector.mode", ("M",), "Propose that calls ask…", hint="gates on", command="connectors policy mode"),
    _N("connector.grant", ("a",), "Let an agent use it…", hint="grant", command="connectors grant"),
    _N("connector.disconnect", ("x",), "Remove an account…", command="connections rm"),
)
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
    _A("inbox.open", ("enter", "d"), "Open what waits", Where.INBOX, "open", "review show"),
    _A("inbox.approve", ("a",), "Approve a call, to be sent once…", Where.INBOX, "approve", "review act", palette=True),
    _A("inbox.merge", ("m",), "Read a change request, to merge it", Where.INBOX, "merge", "review act", palette=True),
    _A("inbox.decline", ("x",), "Say no: close, decline or deny…", Where.INBOX, "no", "review act", palette=True),
    _A("inbox.next", ("n",), "The next thing to decide, riskiest first", Where.INBOX, "next", "review ls"),
    _A("inbox.remember", ("A",), "Approve it and others like it…", Where.INBOX, "always", "review act", palette=True),
    _A("inbox.batch", ("B",), "Approve all identical calls…", Where.INBOX, "batch", "review act", palette=True),
    _A("inbox.unfold", ("z",), "Show long parts whole, or fold them", Where.INBOX, "", "review show"),
    *_SECRETS,
    *_CONNECTORS,
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
    _A("view.inbox", ("3",), "Inbox", Where.ALL, palette=True, command="review ls"),
    _A("view.vault", ("4",), "Vault", Where.ALL, palette=True, command="secrets ls"),
    _A("view.connectors", ("5", "6"), "Connectors", Where.ALL, palette=True, command="connectors ls"),
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
