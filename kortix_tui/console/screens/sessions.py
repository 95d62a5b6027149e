"""The fleet: all sessions, and the live log of the selected one; with enough room, a second log beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical

from kortix_tui.base.text import visible_line
from kortix_tui.base.words import SessionStatus
from kortix_tui.console.actions import Where
from kortix_tui.console.facts import Facts
from kortix_tui.console.keymap import bindings
from kortix_tui.console.screens.rows import SESSION_COLUMNS, session_detail, session_row
from kortix_tui.console.screens.view import DetailBar, ViewScreen
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.runtime.views import RemovalPreview, SessionView

if TYPE_CHECKING:
    from kortix_tui.console.widgets.prompt_dialogs import NewSession

NEEDS_SESSION = (
    "session.logs", "session.chat", "session.stop", "session.resume", "session.diff", "session.remove", "session.pin",
)  # fmt: skip
LIVE = (SessionStatus.RUNNING, SessionStatus.PROVISIONING)


class SessionsScreen(ViewScreen):
    """View 1."""

    BINDINGS = bindings(Where.SESSIONS)
    DEFAULT_CSS = """
    SessionsScreen #fleet { height: 1fr; min-height: 5; }
    SessionsScreen #logs { height: 2fr; }
    SessionsScreen #second { display: none; }
    SessionsScreen.-two #second, SessionsScreen.-wide #second { display: block; }
    SessionsScreen #divider { width: 1; display: none; }
    SessionsScreen.-two #divider, SessionsScreen.-wide #divider { display: block; }
    """
    view = "Sessions"
    places = (Where.SESSIONS, Where.LIST, Where.LOG, Where.PAGER, Where.MOVE, Where.ALL)

    def __init__(self) -> None:
        super().__init__()
        self._table = VirtualTable(
            SESSION_COLUMNS, empty="No session yet. Press n for a new one.", sort=("age", False), id="sessions"
        )
        self._fleet = Pane("Sessions", self._table, id="fleet")
        self._log = LogPane(id="log", empty="Select a session to see its log.")
        self._log_pane = Pane("Log", self._log, id="first")
        self._other = LogPane(id="other-log", empty="space on a session keeps its log here.")
        self._other_pane = Pane("Log", self._other, id="second")
        self._detail = DetailBar(id="detail")
        self._shown: str | None = None
        self._pinned: str | None = None
        self._second: str | None = None
        self._pending_select: str | None = None

    def compose_body(self) -> ComposeResult:
        """The list over the logs."""
        yield self._fleet
        yield self._detail
        with Horizontal(id="logs"):
            yield self._log_pane
            yield Vertical(id="divider")
            yield self._other_pane

    def on_mount(self) -> None:
        """The list has the focus."""
        self._table.focus()

    # Facts.

    def take_facts(self, facts: Facts) -> None:
        """Rows, details and logs follow the facts."""
        super().take_facts(facts)
        now = self.kortix.clock.now()
        self._table.set_rows(session_row(session, now) for session in facts.sessions)
        if self._pending_select is not None and facts.session(self._pending_select):
            self._table.resort()
            self._table.select(self._pending_select)
            self._pending_select = None
        self.retitle()
        self._show_selected()

    def retitle(self) -> None:
        """Counts and the filter in the title."""
        self._fleet.rule.title = self._table.heading("Sessions")

    @property
    def selected(self) -> SessionView | None:
        """The session under the cursor."""
        return self.kortix.facts.session(self._table.cursor)

    @on(VirtualTable.Highlighted, "#sessions")
    def _selected(self) -> None:
        self._show_selected()
        self.refresh_bindings()

    def _show_selected(self) -> None:
        session = self.selected
        self._detail.show(session_detail(session) if session else ())
        bridge = self.kortix.bridge
        if session is None:
            if self._shown is not None:
                self._shown = None
                self._log.show(bridge.nothing, empty="Select a session to see its log.")
                self._log_pane.rule.title = "Log"
        elif session.id != self._shown:
            self._shown = session.id
            self._log.show(bridge.follow(session.id), empty="No output yet.")
        if session is not None:
            self._log_pane.rule.title = self._log_title(session)
        self._show_second(session)
        bridge.follow_only({session_id for session_id in (self._shown, self._second) if session_id is not None})

    def _show_second(self, selected: SessionView | None) -> None:
        """The pinned log, else that of the session that was active last besides the selected one."""
        facts = self.kortix.facts
        second = facts.session(self._pinned)
        if second is None or (selected and second.id == selected.id):
            others = [session for session in facts.sessions if not selected or session.id != selected.id]
            keep = next((session for session in others if session.id == self._second), None)
            live = [session for session in others if session.status in LIVE]
            # One that is shown and still runs stays: a pane must not jump between busy sessions.
            second = keep if keep in live else max(live or others, key=lambda session: session.active_at, default=None)
        if second is None:
            if self._second is not None:
                self._second = None
                self._other.show(self.kortix.bridge.nothing)
                self._other_pane.rule.title = "Log"
            return
        if second.id != self._second:
            self._second = second.id
            self._other.show(self.kortix.bridge.follow(second.id), empty="No output yet.")
        pinned = "pinned · " if second.id == self._pinned else ""
        self._other_pane.rule.title = pinned + self._log_title(second)

    @staticmethod
    def _log_title(session: SessionView) -> str:
        return f"{session.id[:6]} {visible_line(session.title)}"

    def unavailable(self) -> dict[str, str]:
        """What does not fit the selected session."""
        session = self.selected
        if session is None:
            return dict.fromkeys(NEEDS_SESSION, "no session is selected")
        reasons = {}
        if session.status in LIVE:
            reasons["session.resume"] = "it is running"
        else:
            reasons["session.stop"] = f"it is {session.status.value}"
        if session.change is None:
            reasons["session.diff"] = "it has no change request"
        return reasons

    # Acts.

    def select(self, session_id: str) -> bool:
        """Put the cursor on a session; whether it is shown."""
        return self._table.select(session_id)

    def action_session_logs(self) -> None:
        """To the log."""
        self._log.focus()

    @on(VirtualTable.Selected, "#sessions")
    def _open(self) -> None:
        self._log.focus()

    def action_session_pin(self) -> None:
        """Keep this log in the second pane, or let it go."""
        session = self.selected
        if session is None:
            return
        self._pinned = None if self._pinned == session.id else session.id
        word = "no longer stays" if self._pinned is None else "stays"
        wide = self._other_pane.display and self.size.width >= 120
        self.say(f"The log of {session.id[:6]} {word} in the second pane" + ("." if wide else ", from 120 columns on."))
        self._show_selected()

    def action_session_new(self) -> None:
        """Ask for project, agent and prompt."""
        from kortix_tui.console.widgets.prompt_dialogs import NewSessionDialog

        facts = self.kortix.facts
        selected = self.selected
        agents: dict[str, list[str]] = {}
        for session in facts.sessions:
            known = agents.setdefault(session.project, [])
            if session.agent and session.agent not in known:
                known.append(session.agent)
        dialog = NewSessionDialog(
            [project.slug for project in facts.projects], agents, project=selected.project if selected else None
        )
        self.app.push_screen(dialog, self._create)

    def _create(self, wanted: NewSession | None) -> None:
        if wanted is None:
            return
        project = self.kortix.facts.project(wanted.project)
        if project is None:
            self.say(f"There is no project {wanted.project} any more.", "error")
            return
        self.say("Storing the prompt…", "muted", keep=True)

        def created(session: SessionView) -> None:
            self._pending_select = session.id
            self.kortix.say(f"Session {session.id} begins.")

        self.kortix.bridge.submit(
            lambda source: source.sessions.new(wanted.prompt, project=project, agent=wanted.agent),
            created,
            self.kortix.say_failed,
        )

    def action_session_chat(self) -> None:
        """Ask for another prompt."""
        from kortix_tui.console.widgets.prompt_dialogs import PromptDialog

        session = self.selected
        if session is None:
            return
        hint = "It waits for its turn when the session is at work; a stopped session wakes."

        def send(text: str | None) -> None:
            if text:
                self.kortix.bridge.submit(
                    lambda source: source.sessions.prompt(session.id, text, queue=True),
                    lambda prompt: self.kortix.say(f"Prompt {prompt.n} is stored for {session.id[:6]}."),
                    self.kortix.say_failed,
                )

        self.app.push_screen(PromptDialog(f"Prompt for {session.id[:6]} {session.title}", hint), send)

    def action_session_stop(self) -> None:
        """Stop: its work is saved and it can be resumed, so it is done at once."""
        session = self.selected
        if session is not None:
            self.kortix.bridge.submit(
                lambda source: source.sessions.stop(session.id),
                lambda _: self.kortix.say(f"{session.id[:6]} stops; its work is saved first. r resumes it."),
                self.kortix.say_failed,
            )

    def action_session_resume(self) -> None:
        """Resume."""
        session = self.selected
        if session is not None:
            self.kortix.bridge.submit(
                lambda source: source.sessions.resume(session.id),
                lambda _: self.kortix.say(f"{session.id[:6]} resumes."),
                self.kortix.say_failed,
            )

    def action_session_diff(self) -> None:
        """To its change request."""
        session = self.selected
        if session is not None and session.change is not None:
            self.kortix.open_change(session.project, session.change)

    def action_session_remove(self) -> None:
        """Ask, with what will be lost, then delete."""
        session = self.selected
        if session is not None:
            self.kortix.bridge.submit(
                lambda source: source.sessions.removal_preview(session.id), self._ask_removal, self.kortix.say_failed
            )

    def _ask_removal(self, preview: RemovalPreview) -> None:
        from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier

        session = preview.session
        dialog = ConfirmDialog(
            "Delete this session?",
            act="delete it",
            facts=[
                ("session", session.id),
                ("title", session.title),
                ("project", session.project),
                ("now", "running" if preview.running else session.status.value),
            ],
            effect=preview.note,
            tier=Tier.DESTRUCTIVE,
            name=session.id,
            clock=self.kortix.clock.monotonic,
        )

        def decided(yes: bool | None) -> None:
            if yes:
                self.kortix.bridge.submit(
                    lambda source: source.sessions.remove(session.id),
                    lambda _: self.kortix.say(f"{session.id} is being removed."),
                    self.kortix.say_failed,
                )

        self.app.push_screen(dialog, decided)
