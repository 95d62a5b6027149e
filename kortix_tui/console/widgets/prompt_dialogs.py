"""Dialogs that take a prompt: for a new session, and for one that exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.widgets import Input, Static, TextArea

from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import Dialog, heading, plain


@dataclass(frozen=True)
class NewSession:
    """What a person asks for."""

    project: str
    agent: str | None
    prompt: str


class PromptDialog(Dialog[str]):
    """Takes a prompt. Typing ahead is meant here, so its keys work at once. Gives an empty text on cancel."""

    def __init__(self, title: str, hint: str = "") -> None:
        super().__init__()
        self._title = title
        self._hint = hint

    def compose(self) -> ComposeResult:
        """Title and text."""
        with Vertical(id="box"):
            yield heading(self._title)
            yield plain(self._hint)
            yield TextArea(id="prompt", soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
            yield Static(self.send_hint("sends"), id="help", markup=False)
            yield Static(Content(""), id="complaint", markup=False)

    def on_mount(self) -> None:
        """Type at once."""
        self.query_one(TextArea).focus()

    def on_key(self, event: events.Key) -> None:
        """Send and cancel."""
        if event.key == "ctrl+s":
            event.stop()
            text = self.query_one(TextArea).text
            if text.strip():
                self.dismiss(text)
            else:
                self.complain("The prompt is empty: say what the agent should do.")
        elif event.key == "escape":
            event.stop()
            self.dismiss("")


class NewSessionDialog(Dialog[NewSession | None]):
    """Asks for project, agent and prompt."""

    DEFAULT_CSS = """
    NewSessionDialog #agent-line { height: 1; }
    NewSessionDialog #agent-line Static { width: 8; color: $foreground; }
    """

    def __init__(
        self,
        projects: Sequence[str],
        agents: Mapping[str, Sequence[str]],
        *,
        project: str | None = None,
    ) -> None:
        """Make the dialog.

        Args:
            projects: Slugs to choose from.
            agents: Agents by project that are known to have worked there; any other can be typed.
            project: The slug to start with.
        """
        super().__init__()
        self._projects = list(projects)
        self._agents = dict(agents)
        self._project = project if project in self._projects else None

    def compose(self) -> ComposeResult:
        """Project, agent and a text."""
        with Vertical(id="box"):
            yield heading("New session")
            yield plain("")
            yield ChoiceField("Project", self._projects, self._project, id="project")
            with Horizontal(id="agent-line"):
                yield plain("Agent")
                yield Input(id="agent", placeholder="the project's default")
            yield plain("")
            yield TextArea(id="prompt", soft_wrap=True, tab_behavior="focus", show_line_numbers=False)
            yield Static(self.send_hint("starts"), id="help", markup=False)
            yield Static(Content(""), id="complaint", markup=False)

    def on_mount(self) -> None:
        """Type at once; project and agent are right most of the time."""
        self._suggest_agents()
        self.query_one(TextArea).focus()

    @on(ChoiceField.Changed, "#project")
    def _suggest_agents(self) -> None:
        project = self.query_one("#project", ChoiceField).value
        known = self._agents.get(project, ()) if project is not None else ()
        self.query_one("#agent", Input).suggester = SuggestFromList(known)

    def on_key(self, event: events.Key) -> None:
        """Start and cancel."""
        if event.key == "ctrl+s":
            event.stop()
            self._start()
        elif event.key == "escape":
            event.stop()
            self.dismiss(None)

    def _start(self) -> None:
        project = self.query_one("#project", ChoiceField).value
        agent = self.query_one("#agent", Input).value.strip()
        prompt = self.query_one(TextArea).text
        if project is None:
            self.complain("There is no project yet: kortix projects add PATH")
        elif not prompt.strip():
            self.complain("The prompt is empty: say what the agent should do.")
        else:
            self.dismiss(NewSession(project, agent or None, prompt))
