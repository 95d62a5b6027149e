"""What all top-level screens share: two lines above, two below, and what is typed in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widget import Widget

from kortix_tui.base.errors import KortixError
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.standing import status_of, tabs_of
from kortix_tui.console.widgets.bar import Bar, Part
from kortix_tui.console.widgets.hint_bar import HintBar
from kortix_tui.console.widgets.message_line import MessageLine, Purpose
from kortix_tui.console.widgets.pager import Pager
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.status_bar import Status, StatusBar, TabBar
from kortix_tui.console.widgets.table import VirtualTable

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp

MIN_WIDTH, MIN_HEIGHT = 40, 12


class TooSmall(Bar):
    """Shown instead of everything else when nothing useful fits; the runtime goes on."""

    def left(self) -> Sequence[Part]:
        """Needed and actual size."""
        width, height = self.app.size
        return (Part(f" {MIN_WIDTH}×{MIN_HEIGHT} needed, this is {width}×{height}", "warning"),)


class DetailBar(Bar):
    """One line about what the cursor is on."""

    back_role = "bar"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._parts: tuple[Part, ...] = ()

    def show(self, parts: Iterable[Part]) -> None:
        """Show other parts."""
        fresh = tuple(parts)
        if fresh != self._parts:
            self._parts = fresh
            self.refresh()

    def left(self) -> Sequence[Part]:
        """The parts."""
        return self._parts


class ViewScreen(Screen[None]):
    """A screen of the console: gives facts to its widgets and lines of text to its panes."""

    DEFAULT_CSS = """
    ViewScreen { layout: vertical; background: $background; }
    ViewScreen > #body { height: 1fr; }
    ViewScreen > #too-small { display: none; }
    ViewScreen.-too-small > * { display: none; }
    ViewScreen.-too-small > #too-small { display: block; }
    ViewScreen .zoomed-out { display: none; }
    """
    view: str = ""
    """Name of the tab that is active on this screen."""
    places: ClassVar[tuple[Where, ...]] = ()
    """Where its keys are listed in help, nearest first."""

    @property
    def kortix(self) -> KortixApp:
        """The app, with its type."""
        return cast("KortixApp", self.app)

    def compose(self) -> ComposeResult:
        """Status, tabs, body, message, hints."""
        yield StatusBar(id="status")
        yield TabBar(tabs_of(self.kortix, Facts()), self.view, id="tabs")
        with Vertical(id="body"):
            yield from self.compose_body()
        yield MessageLine(id="message")
        yield HintBar(self.kortix.keymap, typing=lambda: self.line.asking is not None, id="hints")
        yield TooSmall(id="too-small")

    def compose_body(self) -> ComposeResult:
        """The panes of this screen; none until a screen says otherwise."""
        return ()

    def take_facts(self, facts: Facts) -> None:
        """Show newer facts; subclasses add theirs."""
        self.query_one(TabBar).tabs = tabs_of(self.kortix, facts)
        self.take_status(status_of(self.kortix, facts))

    def take_status(self, status: Status) -> None:
        """Show the status line."""
        self.query_one(StatusBar).status = status

    def on_screen_resume(self) -> None:
        """Catch up with what happened while another screen was shown."""
        self.take_facts(self.kortix.facts)

    def on_resize(self, event: events.Resize) -> None:
        """Say so when it is too small to be used."""
        self.set_class(event.size.width < MIN_WIDTH or event.size.height < MIN_HEIGHT, "-too-small")

    # Words.

    @property
    def line(self) -> MessageLine:
        """The line that says and asks."""
        return self.query_one(MessageLine)

    def say(self, text: str, role: str = "success", *, keep: bool = False) -> None:
        """Say what happened."""
        self.line.say(text, role, keep=keep)

    def say_failed(self, error: KortixError) -> None:
        """Say what went wrong and what can be done."""
        self.say(str(error), "error", keep=True)

    # Filter, search, commands.

    def action_list_filter(self) -> None:
        """Type a filter for the list with the focus."""
        if isinstance(self.focused, VirtualTable):
            self._filtered = self.focused
            self.line.ask(Purpose.FILTER, self.focused.filter.text)

    def action_pager_search(self) -> None:
        """Type what to search for in the pane with the focus."""
        if isinstance(self.focused, Pager):
            self._searched = self.focused
            self.line.ask(Purpose.SEARCH)

    _filtered: VirtualTable | None = None
    _searched: Pager | None = None

    def main_table(self) -> VirtualTable | None:
        """The table that a filter goes to: where it was asked for, else the first."""
        if self._filtered is not None and self._filtered.is_attached:
            return self._filtered
        tables = self.query(VirtualTable)
        return tables.first() if tables else None

    @on(MessageLine.Changed)
    def _typing(self, event: MessageLine.Changed) -> None:
        if event.purpose is Purpose.FILTER:
            self.filter(event.text)

    def filter(self, text: str) -> None:
        """Filter the main table."""
        table = self.main_table()
        if table is not None:
            hint = table.set_filter(text).hint
            if hint:
                self.say(hint, "warning")
            self.retitle()

    def retitle(self) -> None:
        """Titles follow counts; subclasses say how."""

    @on(MessageLine.Submitted)
    def _typed(self, event: MessageLine.Submitted) -> None:
        match event.purpose:
            case Purpose.FILTER:
                self.filter(event.text)
            case Purpose.SEARCH if self._searched is not None:
                hint = self._searched.search(event.text)
                if hint:
                    self.say(hint, "warning")
            case Purpose.COMMAND:
                self.kortix.run_line(event.text)

    @on(MessageLine.Cancelled)
    def _cancelled(self, event: MessageLine.Cancelled) -> None:
        if event.purpose is Purpose.FILTER:
            self.filter("")

    @on(Pager.Yanked)
    def _copy(self, event: Pager.Yanked) -> None:
        self.kortix.copy(event.text)

    # Panes.

    def action_focus_main(self) -> None:
        """To the first pane that is shown."""
        first = next((pane for pane in self.focus_chain if isinstance(pane, Pager)), None)
        if first is not None:
            first.focus()

    def action_pane_zoom(self) -> None:
        """Show only the pane with the focus."""
        focused = self.focused
        own = next((node for node in focused.ancestors_with_self if isinstance(node, Pane)), None) if focused else None
        if own is None:
            return
        keep: set[Widget] = {node for node in own.ancestors_with_self if isinstance(node, Widget)}
        for widget in self.query("#body *").results(Widget):
            inside = own in widget.ancestors_with_self
            widget.set_class(widget not in keep and not inside, "zoomed-out")

    def action_pane_normal(self) -> None:
        """Show all panes again."""
        self.query("#body *").remove_class("zoomed-out")

    # Keys that mean the same on every screen.

    def action_app_help(self) -> None:
        """Keys that work here."""
        from kortix_tui.console.widgets.help_overlay import HelpOverlay

        self.app.push_screen(HelpOverlay(self.kortix.keymap, self.places, disabled=self.unavailable()))

    def unavailable(self) -> dict[str, str]:
        """Action id → why it does not work now."""
        return {}

    def check_action(self, action: str, parameters: tuple[Any, ...]) -> bool | None:
        """Grey out, rather than hide, what does not work now."""
        del parameters
        return None if action in {name.replace(".", "_") for name in self.unavailable()} else True

    def action_nav_cancel(self) -> None:
        """Clear the filter, else undo a zoom, else go back."""
        table = self.main_table()
        if table is not None and table.filter:
            self.filter("")
        elif self.query(".zoomed-out"):
            self.action_pane_normal()
        elif len(self.app.screen_stack) > 1:
            self.action_nav_back()

    def action_nav_back(self) -> None:
        """Back; at a root view, ask whether to quit."""
        if self.query(".zoomed-out"):
            self.action_pane_normal()
        elif len(self.app.screen_stack) > 1:
            self.app.pop_screen()
        else:
            self.kortix.action_app_quit()

    def action_view_refresh(self) -> None:
        """Read again and sort."""
        self.kortix.bridge.read_again()
        for table in self.query(VirtualTable):
            table.resort()
