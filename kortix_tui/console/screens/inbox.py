"""View 3: everything that waits for a person: calls, change requests, values that agents ask for, the vault."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult

from kortix_tui.base.words import VaultState
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens import approval_acts, secret_acts, vault_acts
from kortix_tui.console.screens.approval import undecidable
from kortix_tui.console.screens.approval_guard import DecidesCalls
from kortix_tui.console.screens.approval_page import approval_page, call_name
from kortix_tui.console.screens.merging import ask_close
from kortix_tui.console.screens.rows import change_page
from kortix_tui.console.screens.secret_pages import Lines, request_page, vault_page
from kortix_tui.console.screens.secret_rows import INBOX_COLUMNS, inbox_row
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.connector_views import ApprovalView
from kortix_tui.runtime.inbox import InboxItem, ItemKind


class InboxScreen(DecidesCalls):
    """A list over the page of the selected item. What can be done depends on its kind; the keys are the same.

    Rows come riskiest and oldest first. New ones are put at the end, so that none moves under a hand that is about to
    press a key; the order is taken anew with each visit. `n` always goes to the most urgent of the others.
    """

    BINDINGS = bindings(Where.INBOX)
    DEFAULT_CSS = """
    InboxScreen #list { height: 2fr; min-height: 5; }
    InboxScreen #page-pane { height: 3fr; }
    """
    view = "Inbox"
    places = (Where.INBOX, Where.LIST, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        self._table = VirtualTable(INBOX_COLUMNS, empty="Nothing waits for you.", id="items")
        self._list = Pane("Inbox", self._table, id="list")
        self._page = TextPane(id="page")
        self._page_pane = Pane("Nothing is selected", self._page, id="page-pane")
        self._shown: tuple[str, Lines] | None = None
        self._unfolded = False

    def compose_body(self) -> ComposeResult:
        """List over page."""
        yield self._list
        yield self._page_pane

    def on_mount(self) -> None:
        """The list has the focus."""
        self._table.focus()

    def on_screen_resume(self) -> None:
        """Whoever comes back finds everything in its order; the cursor stays on its row."""
        self._table.resort()

    def on_resize(self, event: events.Resize) -> None:
        """The page is wrapped anew."""
        super().on_resize(event)
        self.call_after_refresh(self._show_page)

    # Facts.

    def take_facts(self, facts: Facts) -> None:
        """Rows and page follow the facts."""
        super().take_facts(facts)
        now = self.kortix.clock.now()
        self._table.set_rows(inbox_row(item, now, facts.approval(item.reference)) for item in facts.inbox)
        self.retitle()
        self._show_page()
        self.refresh_bindings()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        self._list.rule.title = self._table.heading("Inbox")

    @property
    def selected(self) -> InboxItem | None:
        """The item under the cursor."""
        cursor = self._table.cursor
        return next((item for item in self.kortix.facts.inbox if item.reference == cursor), None)

    @property
    def call(self) -> ApprovalView | None:
        """The call under the cursor."""
        return self.kortix.facts.approval(self._table.cursor)

    @on(VirtualTable.Highlighted, "#items")
    def _selected(self) -> None:
        self._unfolded = False
        self._show_page()
        self.refresh_bindings()

    def _show_page(self) -> None:
        item = self.selected
        self._seen.show(self.kortix, self.call)
        if item is None:
            self._shown = None
            self._page.show([])
            self._page_pane.rule.title = "Nothing is selected"
            return
        lines = self._lines(item)
        before, self._shown = self._shown, (item.reference, lines)
        if self._shown != before:
            self._page.show(lines, keep_place=before is not None and before[0] == item.reference)
            name = f"{item.kind.value[:1].upper()}{item.kind.value[1:]}"
            self._page_pane.rule.title = f"{name} of {call_name(self.call)}" if self.call else name

    def _lines(self, item: InboxItem) -> Lines:
        """The page of an item; empty for the moment in which it is known and what it is about is not."""
        facts, now, width = self.kortix.facts, self.kortix.clock.now(), self._page.size.width
        change, request = facts.change_of(item), facts.request(item.reference)
        match item.kind:
            case ItemKind.APPROVAL:
                return approval_page(self.call, now, width, unfolded=self._unfolded) if self.call else []
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
            names = ("inbox.open", "inbox.approve", "inbox.merge", "inbox.decline", "inbox.next")
            return dict.fromkeys(names, "nothing is selected") | undecidable(self.kortix.facts, None)
        reasons = undecidable(self.kortix.facts, self.call)
        if self.call is None:
            del reasons["inbox.decline"]
        if item.kind is not ItemKind.CHANGE:
            reasons["inbox.merge"] = "it is no change request"
        if item.kind is ItemKind.VAULT:
            reasons["inbox.decline"] = "the vault is unlocked, or it stays locked"
        elif item.kind is ItemKind.APPROVAL and self.call is None:
            reasons["inbox.decline"] = "it is being read"
        if len(self.kortix.facts.inbox) == 1:
            reasons["inbox.next"] = "nothing else waits"
        return reasons

    # Acts.

    @on(VirtualTable.Selected, "#items")
    def _opened(self) -> None:
        self.action_inbox_open()

    def action_inbox_open(self) -> None:
        """Read the call or the change request, type the value, unlock the vault."""
        item = self.selected
        if item is None:
            return
        if self.call is not None:
            self.kortix.open_call(self.call.id)
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
        """Deny the call, close the change request, or tell the agent no."""
        item = self.selected
        if item is None:
            return
        if self.call is not None:
            if not self._seen.too_early(self.kortix):
                approval_acts.deny(self.kortix, self.call)
            return
        change, request = self.kortix.facts.change_of(item), self.kortix.facts.request(item.reference)
        if change is not None:
            ask_close(self.kortix, change)
        elif request is not None:
            secret_acts.decline(self.kortix, request)

    def action_inbox_next(self) -> None:
        """The most urgent of the others, whatever the order of the rows; round and round."""
        items = [item.reference for item in self.kortix.facts.inbox]
        place = items.index(self._table.cursor) if self._table.cursor in items else -1
        if items and not self._table.select(items[(place + 1) % len(items)]):
            self.say("The next one is not among what the filter shows.", "warning")

    def action_inbox_unfold(self) -> None:
        """Show long parts of a call whole, or fold them."""
        self._unfolded = not self._unfolded
        self._show_page()
