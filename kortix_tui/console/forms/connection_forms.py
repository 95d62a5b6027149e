"""Forms for connectors: an account, a rule, an agent that may use it. Permissions change by change request only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from textual import on
from textual.content import Content
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input, Static

from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Exposure, Verdict
from kortix_tui.console.forms.approval_forms import GuardedInput
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen, line
from kortix_tui.console.forms.secret_forms import project_of
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.masked_entry import MaskedEntry

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.connection_calls import Authorizing
    from kortix_tui.runtime.connections import ConnectionChange
    from kortix_tui.runtime.connector_views import ConnectionView, ConnectorView
    from kortix_tui.runtime.connectors import AuthNeeds
    from kortix_tui.runtime.edits import EditResult

TYPED: Final = "typed below"
VERDICTS: Final = {"Ask": Verdict.ASK, "Allow": Verdict.RUN, "Block": Verdict.BLOCK}
VERDICT_MEANS: Final = {
    "Ask": "Such calls wait for a person.",
    "Allow": "Such calls run unasked.",
    "Block": "Such calls never run, and nobody can approve them.",
}
LAST, FIRST = "after the other rules", "before all others"
WHAT: Final = {
    "bearer": "Token", "basic": "Password", "api_key": "Key", "custom": "Value", "oauth2": "Secret",
}  # fmt: skip


class ConnectForm(Form):
    """A credential for a connector: typed unseen, or a secret that is there."""

    sends = "connects"
    working = "Storing, and asking for a token where one is needed…"

    def __init__(
        self,
        console: KortixApp,
        connector: ConnectorView,
        needs: AuthNeeds,
        done: Callable[[ConnectionChange], None],
    ) -> None:
        super().__init__(console, f"Connect {connector.slug}", done)
        self._connector = connector
        self._needs = needs
        self._bindable = [
            one.identifier
            for one in console.facts.secrets
            if one.project == connector.project and one.exposure is Exposure.CONNECTOR
        ]

    def fields(self) -> Iterable[Widget]:
        """Where it will go, which account, who, the value."""
        needs, word = self._needs, WHAT.get(self._needs.type, "Value")
        pairs = [("auth", needs.type), ("goes to", needs.origin or "not known yet")]
        if needs.place:
            pairs.append(("as", needs.place))
        yield Static(self.facts(pairs), id="facts", markup=False)
        yield plain("")
        yield line("Account", Input("default", id="account", max_length=40))
        if needs.type == "basic":
            yield line("User name", Input(id="username"))
        if needs.type == "oauth2":
            yield line("Client id", Input(needs.client_id or "", id="client"))
        if needs.type != "oauth2" and self._bindable:
            yield chosen("From", [TYPED, *self._bindable], id="source")
        yield MaskedEntry(word, lines=False, clock=self.console.clock.monotonic, id="value")
        yield plain("")
        yield plain("It is kept in the vault with exposure connector: no sandbox ever gets it.")

    def first(self) -> Widget:
        """The account is right most of the time."""
        return self.query_one("#username", Input) if self._needs.type == "basic" else self.query_one("#value")

    @on(ChoiceField.Changed, "#source")
    def _source(self, event: ChoiceField.Changed) -> None:
        self.show_only(value=event.value == TYPED)

    def act(self) -> Act:
        """Store it, or bind the secret."""
        connector, needs = self._connector, self._needs
        project = project_of(self.console, connector.project)
        account = self.text("#account") or "default"
        username = self.text("#username") if needs.type == "basic" else None
        if username == "":
            raise Incomplete("Basic auth needs a user name.")
        client = (self.text("#client") or None) if needs.type == "oauth2" else None
        bound = self.choice("#source") if self.query("#source") else TYPED
        if bound != TYPED:
            return lambda source: source.connections.connect(
                project, connector.slug, None, account=account, username=username, secret=bound
            )
        value = self.masked("#value", f"The {WHAT.get(needs.type, 'value').lower()}")
        return lambda source: source.connections.connect(
            project, connector.slug, value, account=account, username=username, client_id=client
        )


class AuthorizeForm(Form):
    """Begins OAuth with a person's consent; what has to be done comes in the next dialog."""

    sends = "begins"
    working = "Asking the provider…"

    def __init__(
        self, console: KortixApp, connector: ConnectorView, needs: AuthNeeds, done: Callable[[Authorizing], None]
    ) -> None:
        super().__init__(console, f"Connect {connector.slug} by OAuth", done)
        self._connector = connector
        self._needs = needs

    def fields(self) -> Iterable[Widget]:
        """Account and client."""
        needs = self._needs
        pairs = [("way", (needs.grant or "").replace("_", " ")), ("scopes", ", ".join(needs.scopes) or "none named")]
        yield Static(self.facts([*pairs, ("goes to", needs.origin or "not known yet")]), id="facts", markup=False)
        yield plain("")
        yield line("Account", GuardedInput("default", id="account", max_length=40))
        yield line("Client id", GuardedInput(needs.client_id or "", id="client"))
        yield MaskedEntry(
            "Secret", hint="of the client; empty where it has none", clock=self.console.clock.monotonic, id="value"
        )

    def act(self) -> Act:
        """Begin."""
        connector = self._connector
        project = project_of(self.console, connector.project)
        account, client = self.text("#account") or "default", self.text("#client") or None
        entry = self.query_one("#value", MaskedEntry)
        secret = None if entry.empty and not entry.fault else self.masked("#value", "The secret")
        return lambda source: source.connections.authorize(
            project, connector.slug, account=account, client_id=client, client_secret=secret
        )


class DisconnectForm(Form):
    """Takes an account away."""

    sends = "removes it"
    working = "Removing…"

    def __init__(self, console: KortixApp, connector: ConnectorView, done: Callable[[ConnectionView], None]) -> None:
        super().__init__(console, f"Remove an account of {connector.slug}", done)
        self._connector = connector

    def fields(self) -> Iterable[Widget]:
        """Which one, and what that does."""
        yield chosen("Account", [one.account for one in self._connector.connections], id="account")
        yield plain("")
        yield plain(
            "Its value is forgotten; a secret that it was bound to stays. Calls that wait with this account are not "
            "sent any more. Make the value invalid where it came from, too."
        )

    def first(self) -> Widget:
        """The choice comes first."""
        return self.query_one("#account", ChoiceField)

    def act(self) -> Act:
        """Remove it."""
        connector, project = self._connector, project_of(self.console, self._connector.project)
        account = self.choice("#account")
        return lambda source: source.connections.remove(project, connector.slug, account)


class _EditForm(Form):
    """Opens a change request: nothing takes effect before a person merges it."""

    sends = "opens the change request"
    working = "Editing kortix.yaml on a branch…"

    def __init__(
        self, console: KortixApp, title: str, connector: ConnectorView, done: Callable[[EditResult], None]
    ) -> None:
        super().__init__(console, title, done)
        self._connector = connector


class RuleForm(_EditForm):
    """A rule on a connector's calls."""

    def __init__(self, console: KortixApp, connector: ConnectorView, done: Callable[[EditResult], None]) -> None:
        super().__init__(console, f"A rule for {connector.slug}", connector, done)

    def fields(self) -> Iterable[Widget]:
        """Which calls, what happens, where it stands."""
        yield line("Actions", GuardedInput(id="match", placeholder="a name, or with stars: get_*", max_length=512))
        yield chosen("Then", list(VERDICTS), id="verdict")
        yield plain(VERDICT_MEANS["Ask"], classes="meaning", id="means")
        yield line("Only if", GuardedInput(id="condition", placeholder="argument=value, argument!=value; may be empty"))
        yield chosen("Place", [LAST, FIRST], id="place")
        yield plain("")
        yield plain(
            f"Written into kortix.yaml of {self._connector.project} as a change request; every other byte stays. The "
            "first rule that matches decides."
        )

    @on(ChoiceField.Changed, "#verdict")
    def _explain(self, event: ChoiceField.Changed) -> None:
        self.query_one("#means", Static).update(Content(VERDICT_MEANS[event.value]))

    def act(self) -> Act:
        """Open it."""
        from pydantic import ValidationError

        from kortix_tui.manifest.policies import Condition

        connector, project = self._connector, project_of(self.console, self._connector.project)
        match, verdict, first = self.text("#match"), VERDICTS[self.choice("#verdict")], self.choice("#place") == FIRST
        if not match:
            raise Incomplete("Which actions? Give a name, or one with stars such as get_*.")
        conditions: list[Condition] = []
        text = self.text("#condition")
        if text:
            name, sign, value = text.partition("=")
            if not sign or not value.strip():
                raise Incomplete("Write the condition as argument=value or argument!=value.")
            try:
                found = Condition(arg=name.removesuffix("!").strip(), match=value.strip(), negate=name.endswith("!"))
            except ValidationError as error:
                raise Incomplete(f"The condition cannot be read: {visible_line(error.errors()[0]['msg'])}.") from error
            conditions.append(found)
        return lambda source: source.edits.set_rule(
            project, connector=connector.slug, match=match, verdict=verdict, first=first, conditions=conditions
        )


class GrantConnectorForm(_EditForm):
    """Lets an agent use a connector."""

    def __init__(self, console: KortixApp, connector: ConnectorView, done: Callable[[EditResult], None]) -> None:
        super().__init__(console, f"Let an agent use {connector.slug}", connector, done)

    def fields(self) -> Iterable[Widget]:
        """Which agent, and what that means."""
        connector = self._connector
        known = {one.agent for one in self.console.facts.sessions if one.project == connector.project and one.agent}
        agents = sorted(known - set(connector.agents))
        hint = f"such as {visible_line(agents[0])}" if agents else "its name in kortix.yaml"
        yield line("Agent", GuardedInput(id="agent", placeholder=hint, suggester=SuggestFromList(agents)))
        yield plain("")
        yield plain(
            f"Adds {connector.slug} to the agent's connectors in kortix.yaml of {connector.project}, as a change "
            "request. It counts once you merge it, and then for new sessions only."
        )

    def act(self) -> Act:
        """Open it."""
        connector, project = self._connector, project_of(self.console, self._connector.project)
        agent = self.text("#agent")
        if not agent:
            raise Incomplete("Which agent?")
        return lambda source: source.edits.grant(project, agent=agent, name=connector.slug, key="connectors")
