"""The console: `kortix` without an argument."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App
from textual.filter import LineFilter, Monochrome, NoColor
from textual.message import Message
from textual.screen import Screen

from kortix_tui.base.clock import Clock, SystemClock
from kortix_tui.base.crash import describe
from kortix_tui.base.errors import KortixError
from kortix_tui.base.settings import Notify
from kortix_tui.base.words import Exposure, Wanted
from kortix_tui.console.actions import Where
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.commands import build_commands
from kortix_tui.console.driver import ConsoleDriver
from kortix_tui.console.facts import Facts
from kortix_tui.console.key_line import KeyLine
from kortix_tui.console.keymap import Keymap, bindings
from kortix_tui.console.leaving import Leave
from kortix_tui.console.notices import Notices
from kortix_tui.console.safety import ColourlessFilter, OutputFilter
from kortix_tui.console.screens.sessions import SessionsScreen
from kortix_tui.console.screens.view import ViewScreen
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.theme import DEFAULT_DARK, ThemeShelf
from kortix_tui.console.ticker import Ticker
from kortix_tui.console.widgets.command_line import Unknown
from kortix_tui.console.widgets.message_line import Purpose
from kortix_tui.console.widgets.pager import Pager

if TYPE_CHECKING:
    from textual.command import Provider

    from kortix_tui.console.forms.unlock_form import WrongKeys

CLOCK_SECONDS = 10.0
"""How often ages in lists are counted anew."""
log = logging.getLogger(__name__)


# What the first picture does not need is imported when it is asked for: half of the start was spent on it.


def _palette() -> type[Provider]:
    from kortix_tui.console.palette_commands import PaletteCommands

    return PaletteCommands


def _changes() -> ViewScreen:
    from kortix_tui.console.screens.change_lists import ChangesScreen

    return ChangesScreen()


def _inbox() -> ViewScreen:
    from kortix_tui.console.screens.inbox import InboxScreen

    return InboxScreen()


def _vault() -> ViewScreen:
    from kortix_tui.console.screens.vault import VaultScreen

    return VaultScreen()


def _connectors() -> ViewScreen:
    from kortix_tui.console.screens.connectors import ConnectorsScreen

    return ConnectorsScreen()


def _is_whole(screen: ViewScreen) -> bool:
    """Whether a screen has its widgets: not before it was composed, and not any more while it is taken down."""
    return screen.is_mounted and bool(screen.query("#hints"))


class KortixApp(App[Leave]):
    """Screens by view, one bridge, one ticker, one action table."""

    TITLE = "kortix"
    COMMANDS: ClassVar[set[Any]] = {_palette}
    COMMAND_PALETTE_BINDING = "ctrl+p"
    BINDINGS = bindings(Where.ALL)
    DEFAULT_MODE = "sessions"
    MODES: ClassVar[dict[str, Any]] = {
        "sessions": SessionsScreen,
        "changes": _changes,
        "inbox": _inbox,
        "vault": _vault,
        "connectors": _connectors,
    }
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - not a class variable to Textual
        (0, "-tiny"), (60, "-narrow"), (100, "-normal"), (120, "-two"), (160, "-wide"),
    ]  # fmt: skip
    CSS = """
    CommandPalette { background: $background 60%; }
    CommandPalette > Vertical { width: 76; max-width: 96%; background: $surface; }
    CommandPalette #--input { background: $surface; border: none; padding: 0 1; height: 2; }
    CommandPalette SearchIcon { display: none; }
    CommandPalette CommandList { background: $surface; border: none; scrollbar-size-vertical: 0; }
    CommandPalette CommandInput, CommandPalette CommandInput:focus { background: $panel; border: none; padding: 0 1; }
    """

    class Woken(Message):
        """The bridge has an answer or newer facts."""

        bubble = False

    def __init__(
        self,
        bridge: Bridge,
        *,
        terminal: Terminal | None = None,
        clock: Clock | None = None,
        keymap: dict[str, str] | None = None,
        theme: str | None = None,
        default_exposure: Exposure = Exposure.ENVIRONMENT,
        notify: Notify | None = None,
        host: bool = True,
        ticking: bool = True,
    ) -> None:
        """Make the console.

        Args:
            bridge: The way to the runtime.
            terminal: Facts about the terminal.
            clock: Time; for tests.
            keymap: Keys by action id that replace the default ones.
            theme: Name of the theme to start with.
            default_exposure: What the operator's settings make of a new secret.
            notify: How to say that something starts to wait; as by default when absent.
            host: Whether this console stands for host.
            ticking: Whether the ticker runs; tests beat it themselves.
        """
        self.terminal = terminal or Terminal.detect(os.environ)
        self.colourless = self.terminal.colourless
        self._filters_of_ours: list[LineFilter] = [OutputFilter()]
        if self.colourless:
            self._filters_of_ours.insert(0, ColourlessFilter())
        super().__init__(driver_class=ConsoleDriver)
        self.bridge = bridge
        self.clock: Clock = clock or SystemClock()
        self.keymap = Keymap(keymap)
        self.set_keymap(self.keymap.overrides)
        self._keys = KeyLine(self, self._deliver)
        self._key_at = float("inf")
        self.default_exposure = default_exposure
        self._notices = Notices(notify or Notify(), self._write_beside, self.clock.monotonic)
        self._host = host
        self._ticking = ticking
        self.ticker = Ticker(self, self.terminal.frames_per_second)
        self.commands = build_commands(self)
        self._taken: Facts | None = None
        self._last_mode = self.DEFAULT_MODE
        self._crashes: list[str] = []
        self._problems: list[str] = [f"{problem.action_id}: {problem.reason}" for problem in self.keymap.problems]
        self._shelf = ThemeShelf()
        if not self._open_theme(theme or DEFAULT_DARK) and theme is not None:
            self._open_theme(DEFAULT_DARK)

    def _open_theme(self, name: str) -> bool:
        """Put a theme on; whether it could be read. What is wrong with it is kept to be said."""
        try:
            theme = self._shelf.open(name)
        except KortixError as error:
            self._problems.append(str(error))
            return False
        self.register_theme(theme.to_textual())
        self.theme = theme.name
        return True

    @property
    def theme_names(self) -> list[str]:
        """The themes there are."""
        return self._shelf.names

    # Life.

    def on_mount(self) -> None:
        """Start what runs beside the screens."""
        self.bridge.start(self._wake, host=self._host)
        if self._ticking:
            self.ticker.start()
            self.set_interval(CLOCK_SECONDS, self.show_facts, name="clock")
        for number in (signal.SIGTERM, signal.SIGHUP):
            # A closed terminal or a shutdown must end the program in order, with the host's role handed over.
            asyncio.get_running_loop().add_signal_handler(number, lambda: self.exit(Leave.BACKGROUND))
        if self._problems:
            self.call_after_refresh(self.say, self._problems[0], "warning", keep=True)

    def on_unmount(self) -> None:
        """Give the terminal's title back."""
        self._notices.close()

    def _write_beside(self, sequence: str) -> None:
        """Write what is no part of the picture."""
        if isinstance(self._driver, ConsoleDriver):
            self._driver.write(sequence)

    async def on_event(self, event: events.Event) -> None:
        """Keys and pastes from the terminal stand in line; everything else goes its way."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self._keys.take(event)
        else:
            await super().on_event(event)

    async def _deliver(self, event: events.Event) -> None:
        self._key_at = event.time
        await super().on_event(event)

    @property
    def pressed_at(self) -> float:
        """When the key was typed that is being answered: one that waited in a queue is older than now."""
        return min(self.clock.monotonic(), self._key_at)

    def _wake(self) -> None:
        """Called by the bridge's threads; posting a message is all that may be done there."""
        self.post_message(self.Woken())

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Ours come last: nothing gets past them."""
        stock = [entry for entry in super().get_line_filters() if not isinstance(entry, Monochrome | NoColor)]
        return [*stock, *self._filters_of_ours]

    def on_kortix_app_woken(self) -> None:
        """Take in what the bridge has."""
        self.bridge.take_answers()
        self.show_facts(newer_only=True)

    @property
    def facts(self) -> Facts:
        """What the screens show."""
        return self.bridge.facts

    def show_facts(self, *, newer_only: bool = False) -> None:
        """Give the facts to the screens that are visible."""
        facts = self.bridge.facts
        if newer_only and facts is self._taken:
            return
        before, self._taken = self._taken, facts
        self._notices.take(facts)
        for screen in self.screen_stack:
            if isinstance(screen, ViewScreen) and _is_whole(screen):
                screen.take_facts(facts)
        for problem in facts.problems:
            if before is None or problem not in before.problems:
                self.say(problem, "error", keep=True)

    @cached_property
    def wrong_keys(self) -> WrongKeys:
        """How long the next try to unlock must wait, whatever dialog it comes from."""
        from kortix_tui.console.forms.unlock_form import WrongKeys

        return WrongKeys(self.clock.monotonic)

    # Words.

    @property
    def view_screen(self) -> ViewScreen | None:
        """The uppermost screen that has a message line."""
        return next((entry for entry in reversed(self.screen_stack) if isinstance(entry, ViewScreen)), None)

    def say(self, text: str, role: str = "success", *, keep: bool = False) -> None:
        """Say what happened, on whatever screen is there."""
        screen = self.view_screen
        if screen is not None and _is_whole(screen):
            screen.say(text, role, keep=keep)

    def say_failed(self, error: KortixError) -> None:
        """Say what went wrong and what can be done."""
        self.say(str(error), "error", keep=True)

    def copy(self, text: str) -> None:
        """Copy, and say where it went."""
        self.run_worker(self._copy(text), group="copy", exclusive=True)

    async def _copy(self, text: str) -> None:
        from kortix_tui.console.clipboard import Clipboard

        write = self._driver.write if self._driver is not None else lambda _: None
        try:
            copied = await Clipboard(write).copy(text)
        except OSError as error:
            self.say(f"Nothing could be copied: {error.strerror}.", "error")
        else:
            self.say(f"{len(text)} characters {copied.way}.")

    def copy_to_clipboard(self, text: str) -> None:
        """Textual's own copying takes the honest way too."""
        self.copy(text)

    # Views.

    def _show_view(self, mode: str) -> None:
        if mode != self.current_mode:
            self._last_mode = self.current_mode
            self.switch_mode(mode)
        else:
            # The key of the view that is there leads from a page to the list below it.
            while len(self.screen_stack) > 1 and isinstance(self.screen, ViewScreen):
                self.pop_screen()

    def action_view_sessions(self) -> None:
        """View 1."""
        self._show_view("sessions")

    def action_view_changes(self) -> None:
        """View 2."""
        self._show_view("changes")

    def action_view_inbox(self) -> None:
        """View 3."""
        self._show_view("inbox")

    def action_view_vault(self) -> None:
        """View 4."""
        self._show_view("vault")

    def action_view_connectors(self) -> None:
        """View 5."""
        self._show_view("connectors")

    def action_nav_last(self) -> None:
        """The view before."""
        self._show_view(self._last_mode)

    def action_focus_next(self) -> None:
        """The next pane."""
        self.screen.focus_next(Pager if isinstance(self.screen, ViewScreen) else "*")

    def action_focus_previous(self) -> None:
        """The previous pane."""
        self.screen.focus_previous(Pager if isinstance(self.screen, ViewScreen) else "*")

    def open_change(self, slug: str, number: int, *, notice: str = "") -> None:
        """Open a change request over what is there."""
        from kortix_tui.console.screens.change import ChangeScreen

        project = self.facts.project(slug)
        if project is None:
            self.say(f"There is no project {slug} any more.", "error")
            return
        screen = self.view_screen
        self.push_screen(ChangeScreen(screen.view if screen else "Changes", project, number, notice=notice))

    def open_call(self, call_id: str) -> None:
        """Open the page of a call over what is there."""
        from kortix_tui.console.screens.approval import ApprovalScreen

        self.push_screen(ApprovalScreen(call_id))

    def show_secret(self, secret_id: str) -> None:
        """Put the cursor of the vault's list on a secret, once it is there."""
        from kortix_tui.console.screens.vault import VaultScreen

        root = self.screen_stack[0]
        if isinstance(root, VaultScreen):
            root.select_when_there(secret_id)

    # Commands.

    def action_app_command(self) -> None:
        """Type a command."""
        screen = self.view_screen
        if screen is not None and screen is self.screen:
            screen.line.ask(Purpose.COMMAND, complete=self.commands.completions)

    def action_app_palette(self) -> None:
        """Pick a command."""
        self.action_command_palette()

    def run_line(self, line: str) -> None:
        """Run what was typed after `:`."""
        if not line.strip():
            return
        found = self.commands.find(line)
        if isinstance(found, Unknown):
            self.say(found.message, "warning")
        else:
            found[0].run(found[1])

    def run_named(self, method: str, home: str = "") -> None:
        """Run a Textual action by name on the screen or the app; that of another view after a change to it."""
        if home and not hasattr(self.screen, f"action_{method}"):
            self._show_view(home)
            self.call_after_refresh(self.run_named, method)
            return
        target = self.screen if hasattr(self.screen, f"action_{method}") else self
        self.call_later(self.run_action, method, target)

    def can_run(self, method: str, home: str = "") -> bool:
        """Whether an action exists here, or in a view of its own, and is not switched off."""
        screen = self.view_screen
        if screen is not None and hasattr(screen, f"action_{method}"):
            return screen.check_action(method, ()) is True
        return bool(home) or hasattr(self, f"action_{method}")

    def go_view(self, mode: str, text: str = "") -> None:
        """To a view, with a filter."""
        self._show_view(mode)
        self.call_after_refresh(self._filter_view, mode, text)

    def _filter_view(self, mode: str, text: str) -> None:
        root: Screen[Any] = self.screen_stack[0]
        if self.current_mode == mode and isinstance(root, ViewScreen):
            root.filter(text)

    def show_log(self, session_id: str) -> None:
        """Open a session's log."""
        self._show_view("sessions")
        self.call_after_refresh(self._show_log, session_id)

    def _show_log(self, session_id: str) -> None:
        root = self.screen_stack[0]
        if isinstance(root, SessionsScreen) and root.select(session_id):
            root.action_session_logs()

    def use_theme(self, name: str) -> None:
        """Another theme."""
        if not self._open_theme(name):
            self.say(self._problems.pop(), "warning", keep=True)

    def action_app_theme(self) -> None:
        """The next theme."""
        names = self.theme_names
        if names:
            place = names.index(self.theme) if self.theme in names else -1
            self.use_theme(names[(place + 1) % len(names)])

    # The terminal.

    def action_app_redraw(self) -> None:
        """Paint everything again, for a terminal that lost its picture or its modes."""
        if isinstance(self._driver, ConsoleDriver):
            self._driver.reassert()
        self.screen.refresh(layout=True)

    def action_app_suspend(self) -> None:
        """Say why ctrl+z does nothing."""
        self.say("ctrl+z would stop the host of your sessions with the console. Quit with ctrl+q instead.", "warning")

    # Failing.

    def _handle_exception(self, error: Exception) -> None:
        """End the program after a fault of its own. Textual's way would show what variables hold."""
        self._return_code = 1
        if self._exception is None:
            # Textual's pilot waits for these two.
            self._exception = error
            self._exception_event.set()
        self.bell()
        self._crashes.append(describe(error))
        self._close_messages_no_wait()

    def _print_error_renderables(self) -> None:
        """Called by Textual when the terminal is as it was before: say where it failed, here and in the log."""
        for crash in self._crashes[:1]:
            log.critical("the console failed: %s", crash)
            if sys.__stderr__ is not None:
                sys.__stderr__.write(f"kortix: the console failed unexpectedly.\n{crash}\n")
        self._crashes.clear()

    # Leaving.

    def action_app_interrupt(self) -> None:
        """Copy what is selected, else ask whether to quit."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy(selected)
            self.screen.clear_selection()
        else:
            self.action_app_quit()

    def action_app_quit(self) -> None:
        """Ask how to leave."""
        from kortix_tui.console.screens.quit_dialog import QuitDialog
        from kortix_tui.console.widgets.dialog import Dialog

        if any(isinstance(screen, QuitDialog) for screen in self.screen_stack):
            return
        if isinstance(self.screen, Dialog) and not self.screen.leave():
            return
        facts = self.facts
        self.push_screen(QuitDialog(facts.unfinished, hosting=facts.host.here, clock=self.clock.monotonic), self._leave)

    async def action_quit(self) -> None:
        """Textual's own way out asks too."""
        self.action_app_quit()

    def _leave(self, how: Leave | None) -> None:
        if how is Leave.STOP_ALL:
            sessions = [session.id for session in self.facts.sessions if session.wanted is Wanted.RUNNING]
            self.say("Stopping all sessions…", "muted", keep=True)
            self.bridge.submit(
                lambda source: [source.sessions.stop(session_id) for session_id in sessions],
                lambda _: self.exit(Leave.STOP_ALL),
                self.say_failed,
            )
        elif how is not None:
            self.exit(how)
