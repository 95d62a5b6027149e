"""OAuth with a person's consent: where to agree, and the wait for it. Works over SSH by pasting the address back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from kortix_tui.base.errors import KortixError
from kortix_tui.console.widgets.dialog import Dialog, heading, plain

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.connection_calls import Authorizing
    from kortix_tui.runtime.connector_views import ConnectionView

WAIT_S = 5.0
"""How long one look at the flow takes at most; a worker of the bridge is busy so long."""


class AuthorizingDialog(Dialog[None]):
    """Stays until the person has agreed, it failed, or esc gives it up."""

    def __init__(
        self,
        console: KortixApp,
        title: str,
        flow: Authorizing,
        done: Callable[[ConnectionView], None],
    ) -> None:
        super().__init__(clock=console.clock.monotonic)
        self.kortix = console
        self._title = title
        self._flow = flow
        self._done = done
        self._pasted: str | None = None
        self._over = False

    def compose(self) -> ComposeResult:
        """The address, the code, and a place to paste into."""
        flow = self._flow
        with Vertical(id="box"):
            yield heading(self._title)
            yield plain("")
            yield plain("Open this in a browser and agree:")
            yield plain(flow.url, id="url")
            if flow.user_code:
                yield plain("")
                yield plain(f"and type there: {flow.user_code}", id="code")
            yield plain("")
            if flow.redirect_uri:
                yield plain("If the browser is on another machine, paste the address here that it ends at:")
                yield Input(id="address")
            yield Static(self._help(), id="help", markup=False)
            yield Static(Content(""), id="complaint", markup=False)

    def _help(self) -> Content:
        key, muted = self.style_of("key"), self.style_of("muted")
        return Content.assemble(
            ("waiting…   ", muted), ("ctrl+y", key), (" copies the address   ", muted),
            ("esc", key), (" gives it up", muted),
        )  # fmt: skip

    def on_mount(self) -> None:
        """Look at once, and again until it is over."""
        for field in self.query(Input):
            field.focus()
        self._look()

    def _look(self) -> None:
        flow, pasted, self._pasted = self._flow.flow, self._pasted, None
        self.kortix.bridge.submit(
            lambda source: source.connections.authorization(flow, wait_s=WAIT_S, pasted=pasted),
            self._have,
            self._failed,
        )

    def _have(self, connection: ConnectionView | None) -> None:
        if self._over:
            return
        if connection is None:
            self._look()
            return
        self._over = True
        self.dismiss(None)
        self._done(connection)

    def _failed(self, error: KortixError) -> None:
        if not self._over:
            self._over = True
            self.dismiss(None)
            self.kortix.say_failed(error)

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self._pasted = event.value.strip()
            self.complain("Looking at it…")

    def leave(self) -> bool:
        """Give it up."""
        if not self._over:
            self._over = True
            flow = self._flow.flow
            self.kortix.bridge.submit(
                lambda source: source.connections.cancel(flow), lambda _: None, self.kortix.say_failed
            )
            self.dismiss(None)
        return True

    def on_key(self, event: events.Key) -> None:
        """Copy the address, or leave."""
        if event.key == "escape":
            event.stop()
            self.leave()
        elif event.key == "ctrl+y":
            event.stop()
            self.kortix.copy(self._flow.url)
