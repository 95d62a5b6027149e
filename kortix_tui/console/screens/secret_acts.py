"""What can be done to single secrets, from whatever screen it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kortix_tui.base.text import visible_line
from kortix_tui.console.forms.backup_forms import ImportForm
from kortix_tui.console.forms.secret_forms import ExposeForm, GrantForm, NewSecretForm, ProvideForm, RotateForm
from kortix_tui.console.screens.vault_acts import imported, with_vault
from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.forms.form import Form
    from kortix_tui.runtime.edits import EditResult
    from kortix_tui.runtime.secret_views import SecretChange, SecretDetail, SecretRequestView, SecretView


def new(app: KortixApp, project: str | None) -> None:
    """A new secret."""
    _ask(app, lambda: NewSecretForm(app, lambda change: _changed(app, change), project=project))


def rotate(app: KortixApp, secret: SecretView) -> None:
    """A new value."""
    _ask(app, lambda: RotateForm(app, secret, lambda change: _changed(app, change)))


def expose(app: KortixApp, secret: SecretView) -> None:
    """Another exposure."""
    _ask(app, lambda: ExposeForm(app, secret, lambda change: _changed(app, change)))


def import_values(app: KortixApp, project: str | None) -> None:
    """Values from a file or the keyring."""
    _ask(app, lambda: ImportForm(app, lambda report: imported(app, report), project=project))


def provide(app: KortixApp, request: SecretRequestView) -> None:
    """Answer an agent with a value."""
    _ask(app, lambda: ProvideForm(app, request, lambda change: _changed(app, change)))


def _ask(app: KortixApp, form: Callable[[], Form]) -> None:
    with_vault(app, lambda: app.push_screen(form()))


def _changed(app: KortixApp, change: SecretChange) -> None:
    secret = change.secret
    done = "is stored" if change.created else f"is at version {secret.version}"
    # The exposure comes first, then who can read it; the page says all of it.
    app.say(f"{secret.identifier} {done}. {' '.join(change.says)}", keep=True)
    app.show_secret(secret.id)


def grant(app: KortixApp, secret: SecretView) -> None:
    """Propose that an agent may have it; which agents there are is read from the base branch."""
    project = app.facts.project(secret.project)
    if project is None:
        app.say(f"There is no project {secret.project} any more.", "error")
        return

    def opened(result: EditResult) -> None:
        if result.number is None:
            app.say(f"The base branch of {result.project} grants {secret.identifier} already.")
        else:
            word = "is open already" if result.already else "is open"
            done = f"Change request {result.number} of {result.project} {word}: merging it grants {secret.identifier}."
            app.say(done, keep=True)

    def ask(detail: SecretDetail) -> None:
        if detail.manifest_fault is not None:
            app.say(f"No grant can be added: {detail.manifest_fault}", "error", keep=True)
        elif all(one.granted for one in detail.reach):
            app.say(f"Every agent of {secret.project} may have {secret.identifier} already.", "warning")
        else:
            app.push_screen(GrantForm(app, detail, opened))

    app.bridge.submit(lambda source: source.secrets.show(project, secret.identifier), ask, app.say_failed)


def share(app: KortixApp, secret: SecretView) -> None:
    """Ask, then change the owner."""
    only_me = secret.owner == "project"
    project = app.facts.project(secret.project)
    if project is None:
        app.say(f"There is no project {secret.project} any more.", "error")
        return
    if only_me:
        title, act = f"Keep {secret.identifier} to yourself?", "keep it"
        effect = "Only sessions that you started at a terminal get it: none that a trigger or an agent started."
    else:
        title, act = f"Give {secret.identifier} to the project?", "give it"
        effect = "Every session of an agent that has the grant gets it, whoever or whatever started the session."
    facts = [("project", secret.project), ("exposure", secret.exposure.value), *_holders(secret)]

    def decided(yes: bool | None) -> None:
        if yes:
            app.bridge.submit(
                lambda source: source.secrets.share(project, secret.identifier, only_me=only_me),
                lambda change: _changed(app, change),
                app.say_failed,
            )

    def ask() -> None:
        dialog = ConfirmDialog(title, act=act, facts=facts, effect=effect, clock=app.clock.monotonic)
        app.push_screen(dialog, decided)

    with_vault(app, ask)


def unset(app: KortixApp, secret: SecretView) -> None:
    """Ask for its identifier, saying who has it, then forget it."""
    project = app.facts.project(secret.project)
    if project is None:
        app.say(f"There is no project {secret.project} any more.", "error")
        return
    effect = "The value is gone from the vault for good."
    if secret.held_by:
        effect += " Sandboxes that have it keep it until they end; make it invalid where it came from."

    def decided(yes: bool | None) -> None:
        if yes:
            app.bridge.submit(
                lambda source: source.secrets.unset(project, secret.identifier),
                lambda _: app.say(f"{secret.identifier} of {secret.project} is forgotten."),
                app.say_failed,
            )

    def ask() -> None:
        dialog = ConfirmDialog(
            "Forget this secret?",
            act="forget it",
            facts=[
                ("secret", secret.identifier),
                ("project", secret.project),
                ("agents", ", ".join(secret.agents) or "none may have it"),
                *_holders(secret),
            ],
            effect=effect,
            tier=Tier.DESTRUCTIVE,
            name=secret.identifier,
            clock=app.clock.monotonic,
        )
        app.push_screen(dialog, decided)

    with_vault(app, ask)


def decline(app: KortixApp, request: SecretRequestView) -> None:
    """Ask, then say no to an agent."""
    agent = visible_line(request.agent) or "the agent"
    dialog = ConfirmDialog(
        f"Say no to {agent}?",
        act="say no",
        facts=[("secret", request.identifier), ("session", f"{request.session_id[:6]} {request.session_title}")],
        effect="The agent is told that the value was declined; it may ask again.",
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        if yes:
            app.bridge.submit(
                lambda source: source.secrets.decline(request.id),
                lambda _: app.say(f"{request.identifier} was declined."),
                app.say_failed,
            )

    app.push_screen(dialog, decided)


def _holders(secret: SecretView) -> list[tuple[str, str]]:
    """Who has the value now, for a dialog."""
    names = [f"{one.session_id[:6]} {one.title} ({one.status.value})" for one in secret.held_by[:4]]
    if len(secret.held_by) > len(names):
        names.append(f"and {len(secret.held_by) - len(names)} more")
    return [("has it now", "\n".join(names) or "no sandbox")]
