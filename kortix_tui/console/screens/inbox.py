"""View 3: everything that waits for a person, oldest first: change requests, values that agents ask for, the vault."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult

from kortix_tui.base.words import VaultState
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens import secret_acts, vault_acts
from kortix_tui.console.screens.merging import ask_close
from kortix_tui.console.screens.rows import change_page
from kortix_tui.console.screens.secret_pages import Lines, request_page, vault_page
from kortix_tui.console.screens.secret_rows import INBOX_COLUMNS, inbox_row
from kortix_tui.console.screens.view import ViewScreen
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.inbox import InboxItem, ItemKind


class InboxScreen(ViewScreen):
    """A list over the page of the selected item. What can be done depends on its kind; the keys are the same."""

    BINDINGS = bindings(Where.INBOX)
    DEFAULT_CSS = """
    InboxScreen #list { height: 2fr; min-height: 5; }
    InboxScreen #page-pane { height: 3fr; }
    """
    view = "Inbox"
    places = (Where.INBOX, Where.LIST, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        self._table = VirtualTable(INBOX_COLUMNS, empty="Nothing waits for you.", sort=("age", True), id="items")
        self._list = Pane("Inbox", self._table, id="list")
        self._page = TextPane(id="page")
        self._page_pane = Pane("Nothing is selected", self._page, id="page-pane")
        self._shown: tuple[str, Lines] | None = None

    def compose_body(self) -> ComposeResult:
        """List over page."""
        yield self._list
        yield self._page_pane

    def on_mount(self) -> None:
        """The list has the focus."""
        self._table.focus()

    def on_resize(self, event: events.Resize) -> None:
        """The page is wrapped anew."""
        super().on_resize(event)
        self.call_after_refresh(self._show_page)

    # Facts.

    def take_facts(self, facts: Facts) -> None:
        """Rows and page follow the facts."""
        super().take_facts(facts)
        now = self.kortix.clock.now()
        self._table.set_rows(inbox_row(item, now) for item in facts.inbox)
        self.retitle()
        self._show_page()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        table = self._table
        shown = f"{table.shown}/{table.total}" if table.filter else f"{table.total}"
        self._list.rule.title = f"Inbox [{shown}]" + (f" /{table.filter.text}" if table.filter else "")

    @property
    def selected(self) -> InboxItem | None:
        """The item under the cursor."""
        cursor = self._table.cursor
        return next((item for item in self.kortix.facts.inbox if item.reference == cursor), None)

    @on(VirtualTable.Highlighted, "#items")
    def _selected(self) -> None:
        self._show_page()
        self.refresh_bindings()

    def _show_page(self) -> None:
        item = self.selected
        if item is None:
            self._shown = None
            self._page.show([])
            self._page_pane.rule.title = "Nothing is selected"
            return
        lines = self._lines(item)
        before, self._shown = self._shown, (item.reference, lines)
        if self._shown != before:
            self._page.show(lines, keep_place=before is not None and before[0] == item.reference)
            self._page_pane.rule.title = f"{item.kind.value[:1].upper()}{item.kind.value[1:]}"

    def _lines(self, item: InboxItem) -> Lines:
        """The page of an item; empty for the moment in which it is known and what it is about is not."""
        facts, now, width = self.kortix.facts, self.kortix.clock.now(), self._page.size.width
        change, request = facts.change_of(item), facts.request(item.reference)
        match item.kind:
            case ItemKind.CHANGE:
                return change_page(change, now) if change else []
            case ItemKind.SECRET:
                return request_page(request, now, width) if request else []
            case ItemKind.VAULT:
                return vault_page(facts.vault, now, width) if facts.vault else []

    def unavailable(self) -> dict[str, str]:
        """What does not fit the selected item."""
        item = self.selected
        if item is None:
            return dict.fromkeys(("inbox.open", "inbox.merge", "inbox.decline"), "nothing is selected")
        reasons = {}
        if item.kind is not ItemKind.CHANGE:
            reasons["inbox.merge"] = "it is no change request"
        if item.kind is ItemKind.VAULT:
            reasons["inbox.decline"] = "the vault is unlocked, or it stays locked"
        return reasons

    # Acts.

    @on(VirtualTable.Selected, "#items")
    def _opened(self) -> None:
        self.action_inbox_open()

    def action_inbox_open(self) -> None:
        """Read the change request, type the value, unlock the vault."""
        item = self.selected
        if item is None:
            return
        change, request = self.kortix.facts.change_of(item), self.kortix.facts.request(item.reference)
        if change is not None:
            self.kortix.open_change(change.project, change.number)
        elif request is not None:
            secret_acts.provide(self.kortix, request)
        elif item.kind is ItemKind.VAULT:
            if self.kortix.facts.vault_state is VaultState.LOCKED:
                vault_acts.unlock(self.kortix)
            else:
                vault_acts.show_status(self.kortix)

    def action_inbox_merge(self) -> None:
        """Merging begins with reading: only there is it known what would be merged."""
        change = self.kortix.facts.change_of(self.selected) if self.selected else None
        if change is not None:
            notice = "Read it first; then m merges exactly what is shown."
            self.kortix.open_change(change.project, change.number, notice=notice)

    def action_inbox_decline(self) -> None:
        """Close the change request, or tell the agent no."""
        item = self.selected
        if item is None:
            return
        change, request = self.kortix.facts.change_of(item), self.kortix.facts.request(item.reference)
        if change is not None:
            ask_close(self.kortix, change)
        elif request is not None:
            secret_acts.decline(self.kortix, request)
