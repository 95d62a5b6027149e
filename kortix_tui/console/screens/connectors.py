"""View 5: ways to outside systems. What works, who may use it, and what happens to each call."""

from __future__ import annotations

from textual import events, on
from textual.app import ComposeResult

from kortix_tui.base.errors import KortixError
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens import connector_acts
from kortix_tui.console.screens.connector_rows import (
    CONNECTOR_COLUMNS,
    connector_page,
    connector_row,
    gates_line,
)
from kortix_tui.console.screens.view import DetailBar, ViewScreen
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.connector_views import ConnectorView, PolicyView

NEEDS_ONE = (
    "connector.show", "connector.connect", "connector.sync", "connector.accept", "connector.rule", "connector.mode",
    "connector.grant", "connector.disconnect",
)  # fmt: skip


class ConnectorsScreen(ViewScreen):
    """Where gates are off in a line, the list, the page of the selected connector."""

    BINDINGS = bindings(Where.CONNECTORS)
    DEFAULT_CSS = """
    ConnectorsScreen #list { height: 1fr; min-height: 5; }
    ConnectorsScreen #page-pane { height: 2fr; }
    """
    view = "Connectors"
    places = (Where.CONNECTORS, Where.LIST, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        empty = "No connector yet: declare one under `connectors` in kortix.yaml."
        self._table = VirtualTable(CONNECTOR_COLUMNS, empty=empty, id="connectors")
        self._list = Pane("Connectors", self._table, id="list")
        self._page = TextPane(id="page")
        self._page_pane = Pane("Nothing is selected", self._page, id="page-pane")
        self._gates = DetailBar(id="gates")
        self._on_page: tuple[ConnectorView, PolicyView | None, int] | None = None
        self._policy: tuple[ConnectorView, PolicyView | None] | None = None
        self._reading: ConnectorView | None = None

    def compose_body(self) -> ComposeResult:
        """Gates, list, page."""
        yield self._gates
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
        """Gates, rows and page follow the facts."""
        super().take_facts(facts)
        if facts.connectors is not None:
            key = self.kortix.keymap.shown("connector.mode")
            self._gates.show(gates_line(facts.connectors, facts.connector_faults, key))
        self._table.set_rows(connector_row(one) for one in facts.connectors or ())
        self.retitle()
        self._show_page()
        self.refresh_bindings()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        self._list.rule.title = self._table.heading("Connectors")

    @property
    def selected(self) -> ConnectorView | None:
        """The connector under the cursor."""
        return self.kortix.facts.connector(self._table.cursor)

    @on(VirtualTable.Highlighted, "#connectors")
    def _selected(self) -> None:
        self._show_page()
        self.refresh_bindings()

    def _show_page(self) -> None:
        connector = self.selected
        if connector is None:
            self._on_page = None
            self._page.show([])
            self._page_pane.rule.title = "Nothing is selected"
            return
        self._read(connector)
        policy = self._policy_of(connector)
        before, self._on_page = self._on_page, (connector, policy, self._page.size.width)
        if self._on_page != before:
            same = before is not None and (before[0].project, before[0].slug) == (connector.project, connector.slug)
            lines = connector_page(connector, policy, self.kortix.clock.now(), self._page.size.width)
            self._page.show(lines, keep_place=same)
            name = f"{connector.slug}: {connector.name}" if connector.name else connector.slug
            self._page_pane.rule.title = f"{name}: what happens to its calls"

    def _policy_of(self, connector: ConnectorView) -> PolicyView | None:
        known = self._policy[1] if self._policy else None
        same = known is not None and (known.project, known.connector) == (connector.project, connector.slug)
        return known if same else None

    def _read(self, connector: ConnectorView) -> None:
        """Read its policy. That takes git: one at a time, and again only when the connector has changed."""
        project = self.kortix.facts.project(connector.project)
        if project is None or self._reading is not None or (self._policy and self._policy[0] == connector):
            return
        self._reading = connector
        self.kortix.bridge.submit(
            lambda source: source.policies.view(project, connector.slug), self._have, self._not_read
        )

    def _not_read(self, error: KortixError) -> None:
        self.say_failed(error)
        self._have(None)

    def _have(self, policy: PolicyView | None) -> None:
        read, self._reading = self._reading, None
        if read is not None:
            # What the list has decides when to read again; one that cannot be read is not tried for ever.
            self._policy = (read, policy)
        if self.is_attached:
            self._show_page()

    def unavailable(self) -> dict[str, str]:
        """What does not fit the selected connector."""
        connector = self.selected
        if connector is None:
            return dict.fromkeys(NEEDS_ONE, "no connector is selected")
        reasons = {}
        if connector.auth == "none":
            reasons["connector.connect"] = "it needs no credential"
        if not connector.connections:
            reasons["connector.disconnect"] = "it has no account"
        if not connector.pending:
            reasons["connector.accept"] = "nothing waits to be accepted"
        if self._open_gates() is None:
            reasons["connector.mode"] = "the default asks already"
        return reasons

    def _open_gates(self) -> ConnectorView | None:
        """The selected connector if its project lets calls run by default, else the first of one that does."""
        selected, known = self.selected, self.kortix.facts.connectors or ()
        every = [selected, *sorted(known, key=lambda one: not one.gates_off)] if selected else known
        return next((one for one in every if one.default_mode == "allow_all"), None)

    # Acts.

    @on(VirtualTable.Selected, "#connectors")
    def _opened(self) -> None:
        self.action_connector_show()

    def action_connector_show(self) -> None:
        """To its page."""
        if self.selected is not None:
            self._page.focus()

    def action_connector_connect(self) -> None:
        """Give it an account."""
        if self.selected is not None:
            connector_acts.connect(self.kortix, self.selected)

    def action_connector_disconnect(self) -> None:
        """Take an account away."""
        if self.selected is not None:
            connector_acts.disconnect(self.kortix, self.selected)

    def action_connector_sync(self) -> None:
        """Read what it can do."""
        if self.selected is not None:
            connector_acts.sync(self.kortix, self.selected)

    def action_connector_accept(self) -> None:
        """Look at what changed where it comes from, and let it take effect."""
        if self.selected is not None:
            connector_acts.accept(self.kortix, self.selected)

    def action_connector_rule(self) -> None:
        """Propose a rule."""
        if self.selected is not None:
            connector_acts.write_rule(self.kortix, self.selected)

    def action_connector_mode(self) -> None:
        """Propose what happens where no rule matches."""
        connector = self._open_gates()
        if connector is not None:
            connector_acts.change_mode(self.kortix, connector)

    def action_connector_grant(self) -> None:
        """Propose that an agent may use it."""
        if self.selected is not None:
            connector_acts.grant(self.kortix, self.selected)
