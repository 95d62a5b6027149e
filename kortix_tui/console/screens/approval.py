"""One call that waits for a person, on the whole screen."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult

from kortix_tui.base.words import CallState, Risk
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens import approval_acts
from kortix_tui.console.screens.approval_guard import DecidesCalls
from kortix_tui.console.screens.approval_page import RISK, approval_page, call_name, time_left
from kortix_tui.console.screens.view import DetailBar
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.text_pane import TextPane
from kortix_tui.runtime.connector_views import ApprovalView

DECIDING = ("inbox.approve", "inbox.decline", "inbox.remember", "inbox.batch")


def undecidable(facts: Facts, view: ApprovalView | None) -> dict[str, str]:
    """Which decisions a call does not take, and why."""
    if view is None:
        return dict.fromkeys((*DECIDING, "inbox.unfold"), "it is no call")
    if view.state is not CallState.PENDING:
        return dict.fromkeys(DECIDING, f"it is {view.state.value}")
    reasons = {}
    if view.session_id is None:
        reasons["inbox.remember"] = "it is no agent's call"
    if view.risk is Risk.DESTRUCTIVE:
        reasons["inbox.batch"] = "destructive calls are decided one by one"
    elif len(facts.identical(view)) == 1:
        reasons["inbox.batch"] = "no other call is identical"
    return reasons


class ApprovalScreen(DecidesCalls):
    """The page of a call, and the keys that decide about it."""

    BINDINGS = bindings(Where.INBOX)
    view = "Inbox"
    places = (Where.INBOX, Where.PAGER, Where.MOVE, Where.ALL)

    def __init__(self, call_id: str) -> None:
        super().__init__()
        self._call_id = call_id
        self._call: ApprovalView | None = None
        self._bar = DetailBar(id="call")
        self._page = TextPane(id="page")
        self._pane = Pane("Reading…", self._page, id="page-pane")
        self._unfolded = False
        self._reading = False

    @property
    def call(self) -> ApprovalView | None:
        """The call that is shown."""
        return self._call

    def compose_body(self) -> ComposeResult:
        """What it is, and its page."""
        yield self._bar
        yield self._pane

    def on_mount(self) -> None:
        """Read at once."""
        self._page.focus()

    def on_resize(self, event: events.Resize) -> None:
        """The page is wrapped anew."""
        super().on_resize(event)
        self.call_after_refresh(self._show)

    def take_facts(self, facts: Facts) -> None:
        """Follow the call; one that waits no longer is read once more, to say what became of it."""
        super().take_facts(facts)
        waiting = facts.approval(self._call_id)
        if waiting is not None:
            self._call = waiting
        elif self._call is None or not self._call.state.final:
            self._read()
        self._show()
        self.refresh_bindings()

    def _read(self) -> None:
        if self._reading:
            return
        self._reading, wanted = True, self._call_id

        def have(view: ApprovalView) -> None:
            self._reading = False
            if self.is_attached and view.id == self._call_id:
                self._call = view
                self._show()
                self.refresh_bindings()

        def failed(error: Exception) -> None:
            self._reading = False
            self.say(str(error), "error", keep=True)

        self.kortix.bridge.submit(lambda source: source.approvals.show(wanted), have, failed)

    def _show(self) -> None:
        call = self._call
        self._seen.show(self.kortix, call)
        if call is None:
            return
        now = self.kortix.clock.now()
        sign, role, _ = RISK[call.risk]
        parts = [Part(f" {sign} ", role), Part(f" {call_name(call)}", "title")]
        if call.state is CallState.PENDING:
            others = [one for one in self.kortix.facts.approvals if one.id != call.id]
            left = time_left(call, now)
            parts.append(Part(f"   expires in {left}" if left else "", "muted"))
            parts.append(Part(f"   {len(others)} more wait{'s' * (len(others) == 1)}" if others else "", "muted"))
        self._bar.show(parts)
        self._pane.rule.title = f"Call {call.id}"
        lines = approval_page(call, now, self._page.size.width, unfolded=self._unfolded)
        self._page.show(lines, keep_place=True)

    def unavailable(self) -> dict[str, str]:
        """What does not fit the call."""
        reasons = undecidable(self.kortix.facts, self._call)
        reasons |= {"inbox.merge": "it is no change request", "inbox.open": "this is it"}
        if not any(one.id != self._call_id for one in self.kortix.facts.approvals):
            reasons["inbox.next"] = "nothing else waits"
        return reasons

    # Acts.

    def action_inbox_open(self) -> None:
        """It is open."""

    def action_inbox_merge(self) -> None:
        """There is nothing to merge."""

    def action_inbox_next(self) -> None:
        """The riskiest of the others, then the oldest; round and round."""
        waiting = self.kortix.facts.approvals
        place = next((at for at, one in enumerate(waiting) if one.id == self._call_id), -1)
        if not waiting or (len(waiting) == 1 and place == 0):
            self.say("Nothing else waits.", "muted")
            return
        self._call_id, self._call, self._unfolded = waiting[(place + 1) % len(waiting)].id, None, False
        self._page.go_top()
        self.take_facts(self.kortix.facts)

    def action_inbox_unfold(self) -> None:
        """Show long parts whole, or fold them."""
        self._unfolded = not self._unfolded
        self._show()

    def action_inbox_decline(self) -> None:
        """Deny it."""
        call = self._decidable()
        if call is not None:
            approval_acts.deny(self.kortix, call)
