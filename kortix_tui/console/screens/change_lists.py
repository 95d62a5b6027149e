"""View 2: all change requests, newest first."""

from __future__ import annotations

from textual import on
from textual.app import ComposeResult

from kortix_tui.base.words import ChangeStatus
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens.merging import ask_close, reopen
from kortix_tui.console.screens.rows import CHANGE_COLUMNS, change_page, change_row
from kortix_tui.console.screens.view import ViewScreen
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.views import ChangeView


class ChangesScreen(ViewScreen):
    """A list over the page of the selected one."""

    BINDINGS = bindings(Where.CHANGES)
    DEFAULT_CSS = """
    ChangesScreen #list { height: 2fr; min-height: 5; }
    ChangesScreen #page-pane { height: 3fr; }
    """
    view = "Changes"
    places = (Where.CHANGES, Where.LIST, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        empty = "No change request yet. An agent opens one with `kortix cr open`."
        self._table = VirtualTable(CHANGE_COLUMNS, empty=empty, sort=("age", False), id="changes")
        self._list = Pane(self.view, self._table, id="list")
        self._page = TextPane(id="page")
        self._page_pane = Pane("Nothing is selected", self._page, id="page-pane")
        self._on_page: ChangeView | None = None

    def compose_body(self) -> ComposeResult:
        """List over page."""
        yield self._list
        yield self._page_pane

    def on_mount(self) -> None:
        """The list has the focus."""
        self._table.focus()

    def take_facts(self, facts: Facts) -> None:
        """Rows and page follow the facts."""
        super().take_facts(facts)
        now = self.kortix.clock.now()
        self._table.set_rows(change_row(change, now) for change in reversed(facts.changes))
        self.retitle()
        self._show_page()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        self._list.rule.title = self._table.heading(self.view)

    @property
    def selected(self) -> ChangeView | None:
        """The change request under the cursor."""
        return self.kortix.facts.change(self._table.cursor)

    @on(VirtualTable.Highlighted, "#changes")
    def _selected(self) -> None:
        self._show_page()
        self.refresh_bindings()

    def _show_page(self) -> None:
        change = self.selected
        before, self._on_page = self._on_page, change
        if change is None:
            self._page.show([])
            self._page_pane.rule.title = "Nothing is selected"
        elif change != before:
            same = before is not None and before.id == change.id
            self._page.show(change_page(change, self.kortix.clock.now()), keep_place=same)
            self._page_pane.rule.title = f"Change request {change.number} of {change.project}"

    def unavailable(self) -> dict[str, str]:
        """What does not fit the selected one."""
        change = self.selected
        if change is None:
            names = ("change.open", "change.merge", "change.close", "change.reopen")
            return dict.fromkeys(names, "nothing is selected")
        if change.status is ChangeStatus.OPEN:
            return {"change.reopen": "it is open"}
        reasons = dict.fromkeys(("change.merge", "change.close"), f"it is {change.status.value}")
        if change.status is ChangeStatus.MERGED:
            reasons["change.reopen"] = "it is merged"
        return reasons

    # Acts.

    @on(VirtualTable.Selected, "#changes")
    def _opened(self) -> None:
        self.action_change_open()

    def action_change_open(self) -> None:
        """Read it."""
        change = self.selected
        if change is not None:
            self.kortix.open_change(change.project, change.number)

    def action_change_merge(self) -> None:
        """Merging begins with reading: only there is it known what would be merged."""
        change = self.selected
        if change is not None:
            notice = "Read it first; then m merges exactly what is shown."
            self.kortix.open_change(change.project, change.number, notice=notice)

    def action_change_close(self) -> None:
        """Close it."""
        change = self.selected
        if change is not None:
            ask_close(self.kortix, change)

    def action_change_reopen(self) -> None:
        """Reopen it."""
        change = self.selected
        if change is not None:
            reopen(self.kortix, change)
