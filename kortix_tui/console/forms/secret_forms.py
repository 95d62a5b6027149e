"""Forms for single secrets: a new one, a new value, another exposure, a grant, the answer to an agent."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.console.forms.exposure_field import ExposureField, Placement
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen, line
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.masked_entry import MaskedEntry
from kortix_tui.runtime.secret_words import MEANING

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.edits import EditResult
    from kortix_tui.runtime.secret_views import AgentReach, SecretChange, SecretDetail, SecretRequestView, SecretView
    from kortix_tui.store.models import Project

PROJECTS, MINE = "the project", "only me"
OWNER_MEANS = {
    PROJECTS: "Any session of an agent that has the grant may get it.",
    MINE: "Only sessions that you started at a terminal may get it.",
}
REASON_CELLS = 56
KEEP, REPLACE = "leave it", "name only this one instead"


def project_of(console: KortixApp, slug: str) -> Project:
    """The project of a slug.

    Raises:
        Incomplete: It is gone.
    """
    project = console.facts.project(slug)
    if project is None:
        raise Incomplete(f"There is no project {slug} any more.")
    return project


class NewSecretForm(Form):
    """A new secret."""

    def __init__(self, console: KortixApp, done: Callable[[SecretChange], None], *, project: str | None) -> None:
        super().__init__(console, "New secret", done)
        self._project = project

    def fields(self) -> Iterable[Widget]:
        """Where, what it is called, where it may go, whose, the value."""
        yield chosen("Project", [one.slug for one in self.console.facts.projects], self._project, id="project")
        yield line("Identifier", Input(id="identifier", placeholder="what grants name, such as STRIPE_KEY"))
        yield line("Variable", Input(id="name", placeholder="as the identifier, in capitals"))
        default = self.console.default_exposure.value
        usual = f"as your settings say: {default}; a known model provider's key: the model gateway only"
        yield ExposureField(usual=("as usual", usual))
        yield chosen("Owner", [PROJECTS, MINE], id="owner")
        yield plain(OWNER_MEANS[PROJECTS], classes="meaning", id="owner-means")
        yield MaskedEntry("Value", lines=True, clock=self.console.clock.monotonic, id="value")

    @on(ChoiceField.Changed, "#owner")
    def _owner(self, event: ChoiceField.Changed) -> None:
        self.query_one("#owner-means", Static).update(Content(OWNER_MEANS[event.value]))

    def act(self) -> Act:
        """Store it."""
        if not self.console.facts.projects:
            raise Incomplete("There is no project yet: kortix projects add PATH")
        project = project_of(self.console, self.choice("#project"))
        identifier, name = self.text("#identifier"), self.text("#name") or None
        if not identifier:
            raise Incomplete("Give it an identifier.")
        if "=" in identifier:
            raise Incomplete("The identifier is only the name; the value goes into the field below.")
        placement = self.query_one(ExposureField).placement
        only_me = self.choice("#owner") == MINE
        value = self.masked("#value", "The value")
        return lambda source: source.secrets.set(
            project,
            identifier,
            value,
            name=name,
            exposure=placement.exposure,
            hosts=placement.hosts or None,
            only_me=only_me,
            create=True,
        )


class RotateForm(Form):
    """A new value for a secret."""

    working = "Storing…"

    def __init__(self, console: KortixApp, secret: SecretView, done: Callable[[SecretChange], None]) -> None:
        super().__init__(console, f"A new value for {secret.identifier}", done)
        self._secret = secret

    def fields(self) -> Iterable[Widget]:
        """What it replaces, and the value."""
        secret = self._secret
        pairs = [("project", secret.project), ("now", f"version {secret.version}, {secret.exposure.value}")]
        yield Static(self.facts(pairs), markup=False)
        yield plain("")
        running = sum(one.status.value == "running" for one in secret.held_by)
        yield plain(
            f"{running} running sandbox{'es' * (running != 1)} will hold an older value until the next prompt. "
            "Make the old value invalid where it came from."
            if running
            else "Make the old value invalid where it came from: it is forgotten here."
        )
        yield plain("")
        yield MaskedEntry("New value", lines=True, clock=self.console.clock.monotonic, id="value")

    def act(self) -> Act:
        """Store it."""
        secret, project = self._secret, project_of(self.console, self._secret.project)
        value = self.masked("#value", "The value")
        return lambda source: source.secrets.rotate(project, secret.identifier, value)


class ExposeForm(Form):
    """Another exposure."""

    sends = "changes it"

    def __init__(self, console: KortixApp, secret: SecretView, done: Callable[[SecretChange], None]) -> None:
        super().__init__(console, f"Where {secret.identifier} may go", done)
        self._secret = secret

    def fields(self) -> Iterable[Widget]:
        """The choice, and what it does not undo."""
        secret = self._secret
        present = Placement(secret.exposure, secret.hosts, secret.gateway)
        yield ExposureField(present=present, gateway=True)
        yield plain("")
        if secret.plain:
            yield plain(
                "This version was in a sandbox as plain text. Another exposure does not take it back: rotate it too."
            )

    def first(self) -> Widget:
        """The choice comes first."""
        return self.query_one("#exposure", ChoiceField)

    def act(self) -> Act:
        """Change it."""
        secret, project = self._secret, project_of(self.console, self._secret.project)
        wanted = self.query_one(ExposureField).placement
        exposure = wanted.exposure or secret.exposure
        return lambda source: source.secrets.expose(
            project, secret.identifier, exposure, hosts=wanted.hosts, gateway=wanted.gateway
        )


class ProvideForm(Form):
    """The answer to an agent that asks for a value. What an agent says is a claim, and untrusted."""

    sends = "gives it"

    def __init__(self, console: KortixApp, request: SecretRequestView, done: Callable[[SecretChange], None]) -> None:
        super().__init__(console, f"An agent asks for {request.identifier}", done)
        self._request = request

    def fields(self) -> Iterable[Widget]:
        """Who asks and why, where it would go, the value."""
        request = self._request
        agent = f"agent {visible_line(request.agent) or 'default'} of {request.project}"
        granted = "yes, by the base branch" if request.granted else "no: it gets nothing before you grant it, in view 4"
        pairs = [
            ("who", agent),
            ("session", f"{request.session_id[:6]} {request.session_title}"),
            ("why, it says", textwrap.fill(visible(request.reason or "no reason given"), REASON_CELLS)),
            ("has the grant", granted),
        ]
        yield Static(self.facts(pairs), id="facts", markup=False)
        yield plain("")
        meaning = f"{request.exposure.value}: {MEANING[request.exposure]}; a secret that is there stays as it is"
        yield ExposureField(usual=("as it asks", meaning), egress=False)
        yield chosen("Owner", [PROJECTS, MINE], id="owner")
        yield MaskedEntry("Value", lines=True, clock=self.console.clock.monotonic, id="value")

    def act(self) -> Act:
        """Give it."""
        request = self._request
        placement = self.query_one(ExposureField).placement
        only_me = self.choice("#owner") == MINE
        value = self.masked("#value", "The value")
        return lambda source: source.secrets.provide(request.id, value, exposure=placement.exposure, only_me=only_me)


class GrantForm(Form):
    """Proposes that an agent may have a secret: a change request, which a person merges."""

    sends = "opens the change request"
    working = "Editing kortix.yaml on a branch…"

    def __init__(self, console: KortixApp, detail: SecretDetail, done: Callable[[EditResult], None]) -> None:
        super().__init__(console, f"Let an agent have {detail.secret.identifier}", done)
        self._secret = detail.secret
        self._reach: dict[str, AgentReach] = {one.agent: one for one in detail.reach if not one.granted}

    def fields(self) -> Iterable[Widget]:
        """Which agent, and what that means."""
        agents: Sequence[str] = list(self._reach)
        yield chosen("Agent", agents, id="agent")
        yield plain(self._why(agents[0]) if agents else "", classes="meaning", id="why")
        if any(self._covered(one) for one in self._reach.values()):
            yield chosen("Its `all`", [KEEP, REPLACE], id="all")
        yield plain("")
        yield plain(
            f"Adds {self._secret.identifier} to the agent's secrets in kortix.yaml of {self._secret.project}, as a "
            "change request. Nothing changes before you merge it, and then for new sessions only."
        )

    def first(self) -> Widget:
        """The choice comes first."""
        return self.query_one("#agent", ChoiceField)

    @on(ChoiceField.Changed, "#agent")
    def _explain(self, event: ChoiceField.Changed) -> None:
        self.query_one("#why", Static).update(Content(self._why(event.value)))

    def _why(self, agent: str) -> str:
        return f"Now: {self._reach[agent].why}."

    def _covered(self, reach: AgentReach) -> bool:
        return self._secret.exposure is not Exposure.ENVIRONMENT and "`all`" in reach.why

    def act(self) -> Act:
        """Open it."""
        secret, project = self._secret, project_of(self.console, self._secret.project)
        agent = self.choice("#agent")
        replace = self._covered(self._reach[agent]) and self.choice("#all") == REPLACE
        return lambda source: source.edits.grant(project, agent=agent, name=secret.identifier, replace_all=replace)
