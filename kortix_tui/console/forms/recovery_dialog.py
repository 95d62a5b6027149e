"""The recovery key, shown once."""

from __future__ import annotations

import time
from collections.abc import Callable

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.selection import Selection
from textual.widgets import Input, Static

from kortix_tui.console.widgets.dialog import Dialog, heading, plain

GROUPS_IN_LINE = 4


class _Paper(Static):
    """The key itself: to be written down, not copied. A clipboard would keep it, and pass it on."""

    ALLOW_SELECT = False

    def get_selection(self, selection: Selection) -> None:
        """Nothing can be selected."""


class _LastGroup(Input):
    """Takes keys, one by one."""

    ALLOW_SELECT = False

    def on_key(self, event: events.Key) -> None:
        dialog = self.screen
        if not isinstance(dialog, RecoveryDialog) or dialog.drop_early(event):
            return
        if event.key == "escape":
            event.stop()
            event.prevent_default()
            dialog.leave()

    def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        event.text = ""
        if isinstance(self.screen, RecoveryDialog):
            self.screen.complain("Type it from the paper: pasting is off here.")


class RecoveryDialog(Dialog[None]):
    """Goes when its last group was typed, as a sign that it was written down."""

    DEFAULT_CSS = """
    RecoveryDialog #paper { text-align: center; text-style: bold; padding: 1 0; }
    """

    def __init__(self, key: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock=clock)
        self._groups = key.split("-")

    def compose(self) -> ComposeResult:
        """The key and what to do with it."""
        rows = [self._groups[at : at + GROUPS_IN_LINE] for at in range(0, len(self._groups), GROUPS_IN_LINE)]
        with Vertical(id="box"):
            yield heading("The recovery key of your vault")
            yield plain("")
            yield plain(
                "Write it on paper now. It opens the vault when every other key is lost, and is never shown again."
            )
            yield _Paper(Content("\n".join(" - ".join(row) for row in rows)), id="paper", markup=False)
            yield plain("Whoever has it and the vault's file has your secrets: keep it away from this machine.")
            yield plain("")
            yield plain("Type its last group when it is on paper:")
            yield _LastGroup(id="last")
            yield Static(Content(""), id="complaint", markup=False)

    def on_mount(self) -> None:
        """Type the last group."""
        self.query_one(_LastGroup).focus()

    def leave(self) -> bool:
        """Not before it is on paper."""
        self.complain("It is shown this once: write it down, then type its last group.")
        return False

    @on(Input.Submitted)
    def _typed(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip().upper() == self._groups[-1]:
            self.dismiss(None)
        else:
            self.complain("That is not the last group. Compare the paper with what is shown.")

    def on_unmount(self) -> None:
        """Forget it."""
        self._groups = []
