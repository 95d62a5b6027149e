"""Keys that decide wait until what they would decide about was seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kortix_tui.console.screens import approval_acts
from kortix_tui.console.screens.view import ViewScreen
from kortix_tui.console.widgets.dialog import GUARD_SECONDS

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.connector_views import ApprovalView


class Seen:
    """What call is on the screen, and since when. Another call in its place, or another request, begins anew."""

    def __init__(self) -> None:
        self._what: tuple[str, str | None] | None = None
        self._since = 0.0

    def show(self, app: KortixApp, view: ApprovalView | None) -> None:
        """Say what is shown now."""
        what = (view.id, view.digest) if view is not None else None
        if what != self._what:
            self._what, self._since = what, app.clock.monotonic()

    def too_early(self, app: KortixApp) -> bool:
        """Whether the key that is being answered was typed before this was seen; says so, too.

        What counts is when it was typed: a key that waited on a slow link is no answer to what was not there yet.
        """
        if self._what is None or app.pressed_at >= self._since + GUARD_SECONDS:
            return False
        app.say("This has only just appeared: look at it, then press the key again.", "warning")
        return True


class DecidesCalls(ViewScreen):
    """A screen whose keys decide about the call that it shows, once that was seen."""

    def __init__(self) -> None:
        super().__init__()
        self._seen = Seen()

    @property
    def call(self) -> ApprovalView | None:
        """The call that is shown."""
        return None

    def _decidable(self) -> ApprovalView | None:
        call = self.call
        return None if call is None or self._seen.too_early(self.kortix) else call

    def action_inbox_approve(self) -> None:
        """Approve the call."""
        if (call := self._decidable()) is not None:
            approval_acts.approve(self.kortix, call)

    def action_inbox_remember(self) -> None:
        """Approve the call and what is like it."""
        if (call := self._decidable()) is not None:
            approval_acts.remember(self.kortix, call)

    def action_inbox_batch(self) -> None:
        """Approve all calls that are identical."""
        if (call := self._decidable()) is not None:
            approval_acts.batch(self.kortix, self.kortix.facts.identical(call))
