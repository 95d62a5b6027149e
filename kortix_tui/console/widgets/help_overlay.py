"""Help on `?`: every key that works here, nearest first, made from the action table. `/` filters it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input

from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import Keymap
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.cells import fit
from kortix_tui.console.widgets.dialog import Dialog, heading
from kortix_tui.console.widgets.filter import Filter
from kortix_tui.console.widgets.text_pane import TextPane

KEY_CELLS = 24


class HelpOverlay(Dialog[None]):
    """Lists keys by place. Reading harms nothing, so its keys work at once."""

    DEFAULT_CSS = """
    HelpOverlay > #box { height: 90%; width: 84; }
    HelpOverlay TextPane { background: $surface; }
    HelpOverlay #filter.hidden { display: none; }
    """

    def __init__(
        self,
        keymap: Keymap,
        places: Sequence[Where],
        *,
        title: str = "Keys",
        disabled: Mapping[str, str] | None = None,
    ) -> None:
        """Make the overlay.

        Args:
            keymap: The keys in force.
            places: What to list, nearest first.
            title: Heading.
            disabled: Action id → why it does not work now; such keys stay listed, with the reason.
        """
        super().__init__()
        self._keymap = keymap
        self._places = tuple(places)
        self._title = title
        self._disabled = dict(disabled or {})

    def compose(self) -> ComposeResult:
        """Title, keys, filter."""
        with Vertical(id="box"):
            yield heading(f"{self._title}   ·   / filters   ·   q closes")
            yield TextPane(id="keys")
            yield Input(id="filter", classes="hidden", placeholder="filter")

    def on_mount(self) -> None:
        """Show everything."""
        pane = self.query_one(TextPane)
        pane.show(self.lines(""))
        pane.focus()

    def lines(self, text: str) -> list[list[Part]]:
        """The help that matches a filter."""
        wanted = Filter.parse(text)
        lines: list[list[Part]] = []
        for place, entries in self._keymap.help(self._places):
            rows: list[list[Part]] = []
            for keys, entry in entries:
                if not wanted.matches({}, f"{keys} {entry.title} {entry.id} {entry.command}"):
                    continue
                reason = self._disabled.get(entry.id)
                row = [Part(" " + fit(keys, KEY_CELLS), "muted" if reason else "key")]
                row.append(Part(entry.title, "muted" if reason else "text"))
                if reason:
                    row.append(Part(f"  ({reason})", "warning"))
                elif entry.command:
                    row.append(Part(f"   kortix {entry.command}", "muted"))
                rows.append(row)
            if rows:
                lines.extend([[Part(f"{place.value[:1].upper()}{place.value[1:]}", "title.focused")], *rows, []])
        return lines or [[Part("No key matches.", "muted")]]

    def on_key(self, event: events.Key) -> None:
        """Filter and close."""
        field = self.query_one("#filter", Input)
        if event.key == "escape" and field.has_focus:
            field.value = ""
            field.add_class("hidden")
            self.query_one(TextPane).focus()
        elif event.key == "slash" and not field.has_focus:
            field.remove_class("hidden")
            field.focus()
        elif event.key in {"escape", "q", "question_mark", "f1"} and not field.has_focus:
            self.dismiss(None)
        else:
            return
        event.stop()
        event.prevent_default()

    @on(Input.Changed)
    def _filtered(self, event: Input.Changed) -> None:
        event.stop()
        self.query_one(TextPane).show(self.lines(event.value))

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        event.stop()
        self.query_one(TextPane).focus()
