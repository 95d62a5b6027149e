"""What can be done to the vault as a whole, from whatever screen it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from kortix_tui.base.errors import KortixError, VaultLocked, WrongKey
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import VaultState
from kortix_tui.console.forms.key_forms import (
    KeyForm,
    PassphraseForm,
    RemoveKeyForm,
    RepairForm,
    RotateKeysForm,
    slot_words,
)
from kortix_tui.console.forms.recovery_dialog import RecoveryDialog
from kortix_tui.console.forms.unlock_form import UnlockForm
from kortix_tui.console.screens.secret_pages import vault_page
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.report import ReportDialog
from kortix_tui.runtime.vault_calls import Kind, SlotWish

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.secret_sources import KeyringView
    from kortix_tui.runtime.secret_views import ImportReport, VaultCheck, VaultStatus

QUIET = ("systemd", "keyring", "keyfile")
"""Kinds that open the vault without a person."""
REPORT_WIDTH = 80
Then = Callable[[], object]


def known(app: KortixApp) -> VaultStatus | None:
    """The vault's status, or nothing and a word about it."""
    status = app.facts.vault
    if status is None:
        app.say("The vault is being read; again in a moment.", "muted")
    return status


def with_vault(app: KortixApp, then: Then) -> None:
    """Do what needs the open vault; it is made or unlocked first, by the person who is there."""
    status = known(app)
    if status is None:
        return
    match status.state:
        case VaultState.UNLOCKED:
            then()
        case VaultState.LOCKED:
            unlock(app, then)
        case VaultState.MISSING if status.reason is None:
            init(app, then)
        case _:
            show_status(app)


def unlock(app: KortixApp, then: Then | None = None) -> None:
    """Open it: without a question where a key of this machine does, else with what a person types."""
    status = known(app)
    if status is None:
        return
    if status.state is not VaultState.LOCKED:
        app.say(f"The vault is {status.state.value}.", "warning")
        return

    def opened(fresh: VaultStatus) -> None:
        app.wrong_keys.none()
        count = fresh.secrets
        app.say(f"The vault is unlocked; it has {count} secret{'s' * (count != 1)}.")
        if then is not None:
            then()

    def ask(error: KortixError | None) -> None:
        if error is not None and not isinstance(error, WrongKey | VaultLocked):
            app.say_failed(error)
            return
        app.push_screen(UnlockForm(app, status, opened, note=error.message if error else ""))

    if any(slot.type in QUIET for slot in status.slots):
        app.say("Looking for a key on this machine…", "muted", keep=True)
        app.bridge.submit(lambda source: source.vault.unlock(), opened, ask)
    else:
        ask(None)


def lock(app: KortixApp) -> None:
    """Ask, saying what will wait, then forget the keys."""
    status = known(app)
    if status is None:
        return
    if status.state is not VaultState.UNLOCKED:
        app.say(f"The vault is {status.state.value}.", "warning")
        return
    holders = {
        one.session_id for secret in app.facts.secrets for one in secret.held_by if one.status.value == "running"
    }
    waits = [
        ("output", f"of {len(holders)} running session{'s' * (len(holders) != 1)} with values stays inside until then")
    ]
    if not holders:
        waits = [("now", "no running session has values")]
    quiet = [slot_words(slot) for slot in status.slots if slot.type in QUIET]
    effect = "Prompts of agents that have grants wait, connectors get no values, and nothing can be stored or rotated."
    if quiet:
        effect += f" A host that starts later opens it by itself, with the {quiet[0]}."
    dialog = ConfirmDialog(
        "Lock the vault?", act="lock it", facts=waits, effect=effect, clock=app.clock.monotonic
    )  # fmt: skip

    def decided(yes: bool | None) -> None:
        if yes:
            app.bridge.submit(
                lambda source: source.vault.lock(), lambda _: app.say("The vault is locked."), app.say_failed
            )

    app.push_screen(dialog, decided)


def init(app: KortixApp, then: Then | None = None) -> None:
    """Make it: with the keyring where this machine has a usable one, else with what the person chooses."""
    status = known(app)
    if status is None:
        return
    if status.state is not VaultState.MISSING:
        app.say("There is a vault already.", "warning")
        return

    def made(result: tuple[VaultStatus, str | None]) -> None:
        app.say("The vault is made.")
        show_recovery(app, result[1], then)

    def choose(found: tuple[KeyringView, bool]) -> None:
        keyring, systemd = found
        kinds: list[Kind] = ["keyring"] if keyring.usable else []
        kinds += ["passphrase", "keyfile"]
        if systemd:
            kinds.insert(0, "systemd")
        app.push_screen(KeyForm(app, kinds, made, first=True, keyring=keyring))

    app.say("Looking at this machine's keyring…", "muted", keep=True)
    app.bridge.submit(lambda _: look_at_machine(), choose, app.say_failed)


def look_at_machine() -> tuple[KeyringView, bool]:
    """The keyring, and whether systemd gave a key; blocks for some seconds at most."""
    from kortix_tui.runtime import secret_sources

    return secret_sources.keyring_state(), secret_sources.systemd_key_given()


def show_recovery(app: KortixApp, key: str | None, then: Then | None = None) -> None:
    """Show a recovery key once, then go on."""

    def written(_: None) -> None:
        if then is not None:
            then()

    if key is None:
        written(None)
    else:
        app.push_screen(RecoveryDialog(key, clock=app.clock.monotonic), written)


def show_status(app: KortixApp) -> None:
    """State, file and keys."""
    status = known(app)
    if status is not None:
        width = min(REPORT_WIDTH, app.size.width - 4)
        app.push_screen(ReportDialog("The vault", vault_page(status, app.clock.now(), width)))


def set_passphrase(app: KortixApp) -> None:
    """Set the passphrase, or change it."""
    with_vault(app, lambda: _form(app, PassphraseForm, "The vault opens with the new passphrase."))


def add_key(app: KortixApp) -> None:
    """One more key."""

    def ask() -> None:
        status = app.facts.vault
        kinds: list[Kind] = ["keyring", "keyfile", "systemd"]
        if status is not None and not any(slot.type == "passphrase" for slot in status.slots):
            kinds.insert(0, "passphrase")

        def added(result: tuple[VaultStatus, str | None]) -> None:
            app.say("The vault opens with that key, too.")

        app.push_screen(KeyForm(app, kinds, added, first=False))

    with_vault(app, ask)


def remove_key(app: KortixApp) -> None:
    """Take a key away."""
    with_vault(app, lambda: _form(app, RemoveKeyForm, "That key opens the vault no more."))


def _form(app: KortixApp, form: type[PassphraseForm | RemoveKeyForm | RepairForm], done: str) -> None:
    status = known(app)
    if status is not None:
        app.push_screen(form(app, status, lambda _: app.say(done)))


def new_recovery(app: KortixApp) -> None:
    """Ask, then make another recovery key."""

    def ask() -> None:
        dialog = ConfirmDialog(
            "Make a new recovery key?",
            act="make it",
            facts=[("shown", "once, on this screen: have paper ready")],
            effect="A recovery key from before opens nothing any more.",
            clock=app.clock.monotonic,
        )

        def decided(yes: bool | None) -> None:
            if yes:
                app.bridge.submit(
                    lambda source: source.vault.add_slot(SlotWish(kind="recovery")),
                    lambda result: show_recovery(app, result[1]),
                    app.say_failed,
                )

        app.push_screen(dialog, decided)

    with_vault(app, ask)


def rotate(app: KortixApp) -> None:
    """New keys for everything."""

    def rotated(result: tuple[VaultStatus, str | None]) -> None:
        app.say(f"Everything is encrypted anew, as generation {result[0].generation}.")
        show_recovery(app, result[1])

    def ask() -> None:
        status = known(app)
        if status is not None:
            app.push_screen(RotateKeysForm(app, status, rotated))

    with_vault(app, ask)


def verify(app: KortixApp) -> None:
    """Check every record."""

    def checked(check: VaultCheck) -> None:
        if check.ok:
            app.say(f"The vault is whole: {check.records} records, generation {check.generation}.")
        else:
            lines = [[Part(f" {visible_line(fault)}", "error")] for fault in check.faults]
            lines += [[], [Part(" :vault.repair makes whole what can be made whole", "muted")]]
            app.push_screen(ReportDialog(f"Faults in generation {check.generation}", lines))

    def ask() -> None:
        app.say("Checking every record…", "muted", keep=True)
        app.bridge.submit(lambda source: source.vault.verify(), checked, app.say_failed)

    with_vault(app, ask)


def repair(app: KortixApp) -> None:
    """Make a damaged one usable."""
    _form(app, RepairForm, "The vault is repaired; :vault.verify checks what it has.")


def export(app: KortixApp) -> None:
    """Write a backup."""
    from kortix_tui.console.forms.backup_forms import ExportForm

    def written(result: tuple[Path, int]) -> None:
        app.say(f"Wrote {result[1]} bytes to {result[0]}; only you can read the file.", keep=True)

    with_vault(app, lambda: app.push_screen(ExportForm(app, written)))


def restore(app: KortixApp) -> None:
    """Take secrets from a backup."""
    from kortix_tui.console.forms.backup_forms import RestoreForm

    with_vault(app, lambda: app.push_screen(RestoreForm(app, lambda report: imported(app, report))))


def imported(app: KortixApp, report: ImportReport) -> None:
    """Say what came in, and what did not and why."""
    stored = len(report.created) + len(report.changed)
    app.say(f"{stored} secret{'s' * (stored != 1)} stored, {len(report.skipped)} skipped.")
    if report.skipped:
        lines = [[Part(f" new       {visible_line(name)}")] for name in report.created]
        lines += [[Part(f" changed   {visible_line(name)}")] for name in report.changed]
        lines += [[Part(f" skipped   {visible_line(text)}", "warning")] for text in report.skipped]
        app.push_screen(ReportDialog("What came in", lines))
