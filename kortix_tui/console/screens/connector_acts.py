"""What can be done to a connector. What changes a permission opens a change request, which a person merges."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kortix_tui.base.text import visible_line
from kortix_tui.console.forms.authorizing_dialog import AuthorizingDialog
from kortix_tui.console.forms.connection_forms import (
    AuthorizeForm,
    ConnectForm,
    DisconnectForm,
    GrantConnectorForm,
    RuleForm,
)
from kortix_tui.console.screens.accept_dialog import AcceptDialog
from kortix_tui.console.screens.connector_rows import difference_lines
from kortix_tui.console.screens.vault_acts import with_vault
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.report import ReportDialog

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.source import Source
    from kortix_tui.runtime.connection_calls import Authorizing
    from kortix_tui.runtime.connections import ConnectionChange
    from kortix_tui.runtime.connector_views import ConnectionView, ConnectorView, SyncResult
    from kortix_tui.runtime.connectors import AuthNeeds, PendingCatalogue
    from kortix_tui.runtime.edits import EditResult
    from kortix_tui.store.models import Project


def _project(app: KortixApp, connector: ConnectorView) -> Project | None:
    project = app.facts.project(connector.project)
    if project is None:
        app.say(f"There is no project {connector.project} any more.", "error")
    return project


# Accounts.


def connect(app: KortixApp, connector: ConnectorView) -> None:
    """Ask for what its auth needs, which its document may say; then store it, and read what it can do."""
    project = _project(app, connector)
    if project is None:
        return

    def ask(needs: AuthNeeds) -> None:
        if needs.type == "oauth2" and needs.grant != "client_credentials":
            app.push_screen(AuthorizeForm(app, connector, needs, lambda flow: _authorize(app, connector, flow)))
        else:
            app.push_screen(ConnectForm(app, connector, needs, lambda change: _stored(app, connector, change)))

    with_vault(
        app,
        lambda: app.bridge.submit(lambda source: source.connectors.auth(project, connector.slug), ask, app.say_failed),
    )


def _authorize(app: KortixApp, connector: ConnectorView, flow: Authorizing) -> None:
    title = f"Connect {connector.slug} by OAuth"
    app.push_screen(AuthorizingDialog(app, title, flow, lambda made: _connected(app, connector, made)))


def _stored(app: KortixApp, connector: ConnectorView, change: ConnectionChange) -> None:
    _connected(app, connector, change.connection, " ".join(change.warnings))


def _connected(app: KortixApp, connector: ConnectorView, made: ConnectionView, warning: str = "") -> None:
    said = f"{connector.slug} is connected as {visible_line(made.account)}."
    app.say(f"{said} {visible_line(warning)}".strip(), "warning" if warning else "success", keep=True)
    if connector.actions is None:
        sync(app, connector)


def disconnect(app: KortixApp, connector: ConnectorView) -> None:
    """Ask which account, then forget it."""

    def done(gone: ConnectionView) -> None:
        app.say(f"Account {visible_line(gone.account)} of {connector.slug} is removed.")

    with_vault(app, lambda: app.push_screen(DisconnectForm(app, connector, done)))


# What it can do.


def sync(app: KortixApp, connector: ConnectorView) -> None:
    """Read its document or server again; what changed is shown, and waits for a person."""
    project = _project(app, connector)
    if project is None:
        return
    app.say(f"Reading what {connector.slug} can do…", "muted", keep=True)

    def act(source: Source) -> tuple[SyncResult, PendingCatalogue | None]:
        result = source.connectors.sync(project, connector.slug)
        return result, source.connectors.pending(project, connector.slug)

    def done(answer: tuple[SyncResult, PendingCatalogue | None]) -> None:
        result, pending = answer
        if pending is not None:
            app.say(f"{connector.slug} has changed.", "warning", keep=True)
            _ask_accept(app, connector, pending)
        elif result.changed:
            app.say(f"{connector.slug}: {result.actions} actions.", keep=True)
            app.push_screen(ReportDialog(f"What {connector.slug} can do now", _summary(result)))
        else:
            app.say(f"{connector.slug} is as it was: {result.actions} actions.")

    app.bridge.submit(act, done, app.say_failed)


def _summary(result: SyncResult) -> list[list[Part]]:
    lines = [
        [Part(f" {visible_line(result.title)}", "title")],
        [Part(f" {result.actions} actions at {visible_line(result.base_url or 'no known place')}")],
        [],
    ]
    notes = [[Part(f" ! {visible_line(note)}", "warning")] for note in result.notes]
    changes = difference_lines(result.difference) if result.difference is not None else []
    return lines + notes + changes


def accept(app: KortixApp, connector: ConnectorView) -> None:
    """Show what waits to be accepted, and ask."""
    project = _project(app, connector)
    if project is None:
        return

    def ask(pending: PendingCatalogue | None) -> None:
        if pending is None:
            app.say(f"Nothing of {connector.slug} waits to be accepted.", "warning")
        else:
            _ask_accept(app, connector, pending)

    app.bridge.submit(lambda source: source.connectors.pending(project, connector.slug), ask, app.say_failed)


def _ask_accept(app: KortixApp, connector: ConnectorView, pending: PendingCatalogue) -> None:
    project = _project(app, connector)
    if project is None:
        return

    def decided(yes: bool | None) -> None:
        if yes:
            app.bridge.submit(
                lambda source: source.connectors.accept(
                    project, connector.slug, pending.catalogue_id, terminal=True, pinned=True
                ),
                lambda _: app.say(f"{connector.slug}: what changed is in force from the next call on."),
                app.say_failed,
            )

    weighty = []
    if pending.auth is not None:
        old, new = (visible_line(one) for one in pending.auth)
        weighty.append(f"auth is {new} instead of {old}: accounts must be connected again")
    if pending.image is not None:
        old, new = (visible_line(one) for one in pending.image)
        weighty.append(f"its program runs in the image {new} instead of {old}")
    lines = [[Part(f" ! {text}", "risk.high")] for text in weighty] + difference_lines(pending.difference)
    lines += [[Part(f" ! {visible_line(note)}", "warning")] for note in pending.notes]
    waiting = sum(
        1
        for call in app.facts.approvals
        if (call.project, call.connector) == (connector.project, connector.slug) and call.session_id is not None
    )
    app.push_screen(
        AcceptDialog(connector.slug, pending.actions, lines, waiting=waiting, clock=app.clock.monotonic), decided
    )


# Permissions.


def write_rule(app: KortixApp, connector: ConnectorView) -> None:
    """Propose a rule."""
    app.push_screen(RuleForm(app, connector, lambda result: say_opened(app, result, "adds the rule")))


def grant(app: KortixApp, connector: ConnectorView) -> None:
    """Propose that an agent may use it."""
    done = f"lets the agent use {connector.slug}"
    app.push_screen(GrantConnectorForm(app, connector, lambda result: say_opened(app, result, done)))


def change_mode(app: KortixApp, connector: ConnectorView) -> None:
    """Ask, then propose that calls ask where no rule matches."""
    project = _project(app, connector)
    if project is None:
        return
    dialog = ConfirmDialog(
        f"Have calls of {connector.project} ask where no rule matches?",
        act="open the change request",
        facts=[
            ("project", connector.project),
            ("now", "allow_all: a call that no rule matches runs unasked"),
            ("then", "risk: reads run, writes and destructive calls wait for you"),
        ],
        effect="Sets policy.default_mode in kortix.yaml, as a change request. Nothing changes before you merge it.",
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        if yes:
            app.say("Editing kortix.yaml on a branch…", "muted", keep=True)
            app.bridge.submit(
                lambda source: source.edits.set_default_mode(project, "risk"),
                lambda result: say_opened(app, result, "turns the gates on"),
                app.say_failed,
            )

    app.push_screen(dialog, decided)


def say_opened(app: KortixApp, result: EditResult, does: str) -> None:
    """Say what became of a proposal."""
    if result.number is None:
        app.say(f"The base branch of {result.project} says so already.")
    else:
        word = "is open already" if result.already else "is open"
        app.say(f"Change request {result.number} of {result.project} {word}: merging it {does}.", keep=True)
