"""The vault's screen by keys: what is drawn of secrets, and that every act asks what it must."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from console_source import MemorySource, a_day
from memory_secrets import RECOVERY, a_secret, a_slot
from textual import events
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from kortix_tui.base.errors import StoreFailed, TooSoon
from kortix_tui.base.words import Exposure, VaultState
from kortix_tui.console.app import KortixApp
from kortix_tui.console.forms.backup_forms import ExportForm, ImportForm, RestoreForm
from kortix_tui.console.forms.form import Form
from kortix_tui.console.forms.key_forms import KeyForm, PassphraseForm, RemoveKeyForm, RepairForm, RotateKeysForm
from kortix_tui.console.forms.recovery_dialog import RecoveryDialog
from kortix_tui.console.forms.secret_forms import ExposeForm, GrantForm, NewSecretForm, RotateForm
from kortix_tui.console.forms.unlock_form import UnlockForm
from kortix_tui.console.screens.sessions import SessionsScreen
from kortix_tui.console.screens.vault import VaultScreen
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.masked_entry import MaskedEntry
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.report import ReportDialog
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.runtime import secret_sources

Make = Callable[..., KortixApp]
Until = Callable[..., Awaitable[None]]
Shown = Callable[[App[Any]], str]
PASSPHRASE = "correct horse battery"
VALUE = "sk_live_51HqLyjWDarjtT1zdp7dc"


class Person:
    """Somebody at the vault's screen."""

    def __init__(self, app: KortixApp, pilot: Pilot[Any], until: Until, shown: Shown) -> None:
        self.app, self.pilot, self._until, self._shown = app, pilot, until, shown

    async def begin(self) -> None:
        facts = self.app.bridge
        await self.see(lambda: facts.facts.loaded and facts.facts.vault is not None and facts.facts.host.here)
        await self.pilot.press("4")
        await self.at(VaultScreen)

    async def see(self, condition: Callable[[], bool]) -> None:
        await self._until(self.pilot, condition)

    async def at(self, screen: type) -> Any:
        """Wait for a screen, and until its keys count."""
        await self.see(lambda: isinstance(self.app.screen, screen))
        self.app.clock.pass_guard()  # type: ignore[attr-defined]
        return self.app.screen

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()

    async def command(self, text: str) -> None:
        named = {".": "full_stop", "_": "underscore"}
        await self.press("colon", *(named.get(character, character) for character in text), "enter")

    async def said(self, text: str) -> None:
        await self.see(lambda: text in self.app.view_screen.query_one(MessageLine).text)  # type: ignore[union-attr]

    @property
    def text(self) -> str:
        self.app.ticker.beat()
        return self._shown(self.app)

    @property
    def table(self) -> VirtualTable:
        return self.app.screen.query_one(VirtualTable)


@pytest.fixture
def sit(console: Make, until: Until, shown: Shown) -> Callable[..., Any]:
    """`async with sit(source) as person`."""
    from contextlib import asynccontextmanager

    @asynccontextmanager
    async def sitting(source: MemorySource | None = None, size: tuple[int, int] = (100, 40)) -> Any:
        app = console(source)
        async with app.run_test(size=size) as pilot:
            person = Person(app, pilot, until, shown)
            await person.begin()
            yield person

    return sitting


def with_state(state: VaultState, *kinds: str) -> MemorySource:
    source = a_day()
    source.vault.state = state
    if kinds:
        source.vault.slots = [a_slot(at, kind) for at, kind in enumerate(kinds)]
    return source


# What is drawn


async def test_the_map_says_who_may_and_who_has(sit: Any) -> None:
    async with sit() as person:
        await person.see(lambda: "reviewer" in person.text)
        for words in (
            "● unlocked", "! plain", "2, 1 stale", "version 2", "! stale", "Migrate the ledger", "granted", "not named",
            "was in a sandbox as plain text",
        ):  # fmt: skip
            assert words in person.text
        await person.press("j", "j")
        await person.see(lambda: "only the model gateway uses it" in person.text)
        assert "no sandbox can read it" in person.text


async def test_the_list_is_filtered_and_sorted(sit: Any) -> None:
    async with sit() as person:
        for text, count in (("state:stale", 1), ("exposure:environment", 2), ("owner:me", 1), ("project:web", 2)):
            await person.press("slash", *text.replace(":", "~").split("~")[0], "colon", *text.split(":")[1], "enter")
            assert person.table.shown == count, text
            await person.press("escape")
        await person.press("S")
        assert person.table.total == 6


async def test_the_page_is_read_again_when_the_secret_has_changed(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.see(lambda: "reviewer" in person.text)
        source.secrets.agents = ("builder", "newcomer")
        source.secrets.rows[0] = source.secrets.rows[0].model_copy(update={"agents": ("newcomer",)})
        source.version += 1
        await person.see(lambda: "newcomer" in person.text and "reviewer" not in person.text)


async def test_grants_that_cannot_be_read_are_said(sit: Any) -> None:
    source = a_day()
    source.secrets.fault = "kortix.yaml on main is not valid: line 3"
    async with sit(source) as person:
        await person.see(lambda: "none can have it now" in person.text)
        await person.press("a")
        await person.said("No grant can be added")


async def test_names_from_outside_stay_text(sit: Any) -> None:
    source = a_day()
    bad = "[@click=app.quit]x[/]\x1b]0;t\x07"
    source.secrets.agents = (bad,)
    source.secrets.rows = [a_secret("A_KEY", agents=(bad,), hosts=(bad,), exposure=Exposure.EGRESS)]
    async with sit(source, (160, 40)) as person:
        await person.see(lambda: "granted" in person.text)
        assert "[@click=app.quit]x[/]␛]0;t␇" in person.text
        assert "\x1b" not in person.text


# Acts on secrets


async def test_a_new_secret(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("n")
        form = await person.at(NewSecretForm)
        await person.press("ctrl+s")
        assert "Give it an identifier" in person.text
        await person.press(*"A=B")
        await person.press("ctrl+s")
        assert "only the name" in person.text
        await person.press(*["backspace"] * 3, *"GITHUB_TOKEN", "ctrl+s")
        assert "The value is empty" in person.text
        await person.press("tab", "tab", "right", "right", "tab", "right", "tab")
        assert isinstance(person.app.focused, MaskedEntry)
        await person.paste(VALUE)
        await person.press("enter")
        await person.see(lambda: source.secrets.values.get("GITHUB_TOKEN") == VALUE.encode())
        await person.said("GITHUB_TOKEN is stored. Exposure connector")
        assert ("set", "acme-api", "GITHUB_TOKEN", Exposure.CONNECTOR, True) in source.calls
        assert not form.is_attached
        await person.see(lambda: person.table.cursor == "sec_acme-api_github_token")


async def test_what_is_refused_can_be_put_right(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("n")
        form = await person.at(NewSecretForm)
        await person.press(*"DATABASE_URL", *["tab"] * 4)
        await person.paste(VALUE)
        await person.press("ctrl+s")
        await person.see(lambda: "already" in person.text)
        assert person.app.screen is form
        form.query_one("#identifier", Input).value = "DATABASE_URL_2"
        await person.press("ctrl+s")
        await person.see(lambda: source.secrets.values.get("DATABASE_URL_2") == VALUE.encode())


async def test_rotate(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("r")
        await person.at(RotateForm)
        assert "2 running sandboxes" in person.text
        await person.paste("-----BEGIN KEY-----\r\nabc\r\n-----END KEY-----\r\n")
        assert "3 lines" in person.text
        await person.press("ctrl+s")
        await person.see(lambda: "DATABASE_URL" in source.secrets.values)
        assert source.secrets.values["DATABASE_URL"] == b"-----BEGIN KEY-----\nabc\n-----END KEY-----"
        await person.see(lambda: "2, 2 stale" in person.text)


async def test_expose(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("e")
        await person.at(ExposeForm)
        assert "rotate it too" in person.text
        await person.press("right", "right", "ctrl+s")
        assert "at least one host" in person.text
        await person.press("tab", *"api.example.com, b.example.com", "ctrl+s")
        hosts = ("api.example.com", "b.example.com")
        await person.see(lambda: ("expose", "DATABASE_URL", Exposure.EGRESS, hosts, False) in source.calls)
        await person.at(VaultScreen)
        await person.press("e")
        await person.at(ExposeForm)
        await person.press("right", "right", "ctrl+s")
        await person.see(lambda: ("expose", "DATABASE_URL", Exposure.NONE, (), True) in source.calls)


async def test_grant_opens_a_change_request(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("a")
        await person.at(GrantForm)
        assert "reviewer" in person.text
        await person.press("ctrl+s")
        await person.said("Change request 7 of acme-api is open")
        assert ("grant", "acme-api", "reviewer", "DATABASE_URL", False) in source.calls
        source.secrets.rows[0] = source.secrets.rows[0].model_copy(update={"agents": source.secrets.agents})
        source.version += 1
        await person.see(lambda: "reviewer" in person.app.facts.secrets[0].agents)
        await person.press("a")
        await person.said("Every agent of acme-api may have DATABASE_URL already")


async def test_share_takes_a_y(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("O")
        await person.at(ConfirmDialog)
        assert "Keep DATABASE_URL to yourself?" in person.text
        await person.press("enter")
        await person.at(VaultScreen)
        assert not [call for call in source.calls if call[0] == "share"]
        await person.press("j", "O")
        await person.at(ConfirmDialog)
        assert "Give NPM_TOKEN to the project?" in person.text
        await person.press("y")
        await person.see(lambda: ("share", "NPM_TOKEN", False) in source.calls)


async def test_forgetting_takes_the_typed_name_and_says_who_has_it(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("D")
        await person.at(ConfirmDialog)
        assert "Migrate the ledger" in person.text
        assert "until they end" in person.text
        await person.paste("DATABASE_URL")
        await person.press("enter")
        assert not [call for call in source.calls if call[0] == "unset"]
        await person.press(*"DATABASE_URL", "enter")
        await person.see(lambda: ("unset", "acme-api", "DATABASE_URL") in source.calls)


async def test_values_from_a_file_and_the_keyring(sit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = a_day()
    (tmp_path / "prod.env").write_text(f"NEW_TOKEN={VALUE}\nDATABASE_URL={VALUE}x\nlower={VALUE}\n")
    async with sit(source) as person:
        await person.press("I")
        form = await person.at(ImportForm)
        await person.press("ctrl+s")
        assert "Say from where" in person.text
        form.query_one("#from", Input).value = str(tmp_path / "prod.env")
        await person.press("ctrl+s")
        await person.at(ReportDialog)
        assert "new       NEW_TOKEN" in person.text
        assert "DATABASE_URL: it is there already" in person.text
        assert source.secrets.values == {"NEW_TOKEN": VALUE.encode()}
        await person.press("q")
        monkeypatch.setattr(
            "kortix_tui.console.forms.backup_forms.read_keyring",
            lambda service, user: secret_sources.Secret(f"{service} {user} {VALUE}".encode()),
        )
        await person.press("I")
        form = await person.at(ImportForm)
        form.query_one("#from", Input).value = "keyring:stripe/ada"
        await person.press("ctrl+s")
        assert "needs a name" in person.text
        form.query_one("#name", Input).value = "STRIPE_KEY"
        await person.press("ctrl+s")
        await person.see(lambda: source.secrets.values.get("STRIPE_KEY") == f"stripe ada {VALUE}".encode())


# The vault


async def test_the_first_secret_makes_the_vault(sit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    no_keyring = secret_sources.KeyringView(usable=False, says="There is no keyring.", hint="")
    monkeypatch.setattr(secret_sources, "keyring_state", lambda: no_keyring)
    monkeypatch.setattr(secret_sources, "systemd_key_given", lambda: False)
    source = MemorySource()
    source.project_rows = a_day().project_rows
    async with sit(source) as person:
        assert "no vault yet" in person.text
        assert "Press n for a new one" in person.text
        await person.press("n")
        await person.at(KeyForm)
        assert "There is no keyring." in person.text
        await person.press("tab", *"short", "enter", *"short", "enter")
        assert "at least 8 characters" in person.text
        await person.press("shift+tab", "ctrl+u", *PASSPHRASE, "enter", "ctrl+u", *"something else", "enter")
        assert "not the same" in person.text
        await person.press(*PASSPHRASE, "enter")
        dialog = await person.at(RecoveryDialog)
        assert source.vault.passphrase == PASSPHRASE.encode()
        await person.press("escape")
        await person.press("ctrl+q")
        assert person.app.screen is dialog, "it is shown this once"
        await person.paste(RECOVERY[-5:])
        await person.press("enter")
        assert person.app.screen is dialog
        dialog.text_select_all()
        assert RECOVERY[:5] not in (dialog.get_selected_text() or "")
        dialog.clear_selection()
        await person.press(*RECOVERY[-5:].lower(), "enter")
        await person.at(NewSecretForm)


@pytest.mark.parametrize(("kind", "turns", "keyring"), [("keyring", 0, True), ("keyfile", 1, False)])
async def test_a_vault_opens_with_what_is_chosen(
    sit: Any, monkeypatch: pytest.MonkeyPatch, kind: str, turns: int, keyring: bool
) -> None:
    found = secret_sources.KeyringView(usable=keyring, says="GNOME Keyring is open.", hint="")
    monkeypatch.setattr(secret_sources, "keyring_state", lambda: found)
    source = with_state(VaultState.MISSING)
    async with sit(source) as person:
        await person.command("vault.init")
        form = await person.at(KeyForm)
        await person.press(*["right"] * turns)
        assert form.query_one("#new") not in form.focus_chain
        await person.press("ctrl+s")
        await person.at(RecoveryDialog)
        assert ("init", kind) in source.calls


async def test_lock_says_what_waits(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("L")
        await person.at(ConfirmDialog)
        assert "2 running sessions" in person.text
        await person.press("y")
        await person.see(lambda: ("lock",) in source.calls)
        await person.see(lambda: "■ locked" in person.text and "U unlocks" in person.text)


async def test_a_wrong_passphrase_makes_the_next_wait_longer_each_time(sit: Any) -> None:
    source = with_state(VaultState.LOCKED)
    async with sit(source) as person:
        await person.press("U")
        form = await person.at(UnlockForm)
        await person.press(*"wrong", "enter")
        await person.see(lambda: "The next try is possible in 1 s" in person.text)
        assert form.query_one(MaskedEntry).empty
        await person.press(*PASSPHRASE, "enter")
        assert "wait 1 s" in person.text
        await person.press("escape", "U")
        await person.at(UnlockForm)
        person.app.clock.pass_guard()  # type: ignore[attr-defined]
        await person.press(*"wrong", "enter")
        await person.see(lambda: "in 2 s" in person.text)
        await person.press("escape", "U")
        await person.at(UnlockForm)
        await person.press(*PASSPHRASE, "enter")
        assert "wait 1 s" in person.text, "another dialog is no way around it"
        person.app.clock.pass_guard()  # type: ignore[attr-defined]
        await person.press("enter")
        await person.see(lambda: person.app.facts.vault_state is VaultState.UNLOCKED)
        assert source.calls[-1] == ("unlock", "passphrase")


async def test_a_key_that_the_host_did_not_try_is_kept(sit: Any) -> None:
    """Another process had given wrong keys before."""
    source = with_state(VaultState.LOCKED)
    unlock = source.vault.unlock

    def too_soon(*_: object, **__: object) -> Any:
        source.vault.unlock = unlock  # type: ignore[method-assign]
        raise TooSoon("Wait 4 s before the next try.")

    async with sit(source) as person:
        await person.press("U")
        await person.at(UnlockForm)
        source.vault.unlock = too_soon  # type: ignore[method-assign]
        await person.press(*PASSPHRASE, "enter")
        await person.see(lambda: "Wait 4 s before the next try." in person.text)
        await person.press("enter")
        await person.see(lambda: person.app.facts.vault_state is VaultState.UNLOCKED)


async def test_a_key_of_the_machine_opens_without_a_question(sit: Any) -> None:
    source = with_state(VaultState.LOCKED, "keyfile", "recovery")
    async with sit(source) as person:
        await person.press("U")
        await person.said("The vault is unlocked")
        assert ("unlock", None) in source.calls


async def test_the_recovery_key_opens_too(sit: Any) -> None:
    source = with_state(VaultState.LOCKED, "passphrase", "recovery")
    async with sit(source) as person:
        await person.press("U")
        await person.at(UnlockForm)
        await person.press("shift+tab", "right", "tab")
        await person.paste(RECOVERY)
        await person.press("enter")
        await person.see(lambda: ("unlock", "recovery") in source.calls)


@pytest.mark.parametrize(
    ("key", "form"),
    [("n", NewSecretForm), ("r", RotateForm), ("e", ExposeForm), ("D", ConfirmDialog), ("I", ImportForm)],
)
async def test_what_needs_the_vault_unlocks_it_first(sit: Any, key: str, form: type) -> None:
    source = with_state(VaultState.LOCKED)
    async with sit(source) as person:
        await person.press(key)
        await person.at(UnlockForm)
        await person.press(*PASSPHRASE, "enter")
        await person.at(form)


@pytest.mark.parametrize("state", [VaultState.TAMPERED, VaultState.CORRUPT, VaultState.ROLLED_BACK])
async def test_a_broken_vault_is_told_and_not_written(sit: Any, state: VaultState) -> None:
    source = with_state(state)
    source.vault.reason = "byte 17 is not what was written"
    async with sit(source, (140, 40)) as person:
        assert "byte 17 is not what was written" in person.text
        assert "6!" in person.text, "the tab says so on every screen"
        await person.press("r")
        await person.at(ReportDialog)
        assert "What opens it" in person.text
        await person.press("q")
        await person.command("vault.repair")
        form = await person.at(RepairForm)
        await person.press(*RECOVERY, "enter", *PASSPHRASE)
        if state is VaultState.ROLLED_BACK:
            await person.press("ctrl+s")
            assert "Type 12 to take the older file" in person.text
            form.query_one("#generation", Input).value = "12"
        await person.press("ctrl+s")
        await person.see(lambda: person.app.facts.vault_state is VaultState.UNLOCKED)
        accepted = 12 if state is VaultState.ROLLED_BACK else None
        assert ("repair", False, accepted) in source.calls


async def test_a_vault_that_is_gone_is_not_simply_made_anew(sit: Any) -> None:
    source = with_state(VaultState.MISSING)
    source.vault.reason = "vault.kxv is gone; generation 12 was there."
    async with sit(source, (140, 40)) as person:
        assert "bring the file back from a backup" in person.text
        await person.press("n")
        await person.at(ReportDialog)
        assert "generation 12 was there" in person.text
        await person.press("q")
        assert person.app.can_run("vault_repair")
        assert not person.app.can_run("vault_rotate")


async def test_a_page_that_cannot_be_read_says_why(sit: Any) -> None:
    source = a_day()

    def broken(*_: object) -> Any:
        raise StoreFailed("The disk is full.")

    source.secrets.show = broken  # type: ignore[method-assign]
    async with sit(source) as person:
        await person.said("The disk is full.")
        assert "in plain" in person.text, "what the list knows is there"


async def test_keys_of_the_vault_by_command(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.command("vault.passphrase")
        await person.at(PassphraseForm)
        await person.press(*PASSPHRASE, "enter", *"another passphrase", "enter", *"another passphrase", "enter")
        await person.see(lambda: source.vault.passphrase == b"another passphrase")
        await person.at(VaultScreen)
        await person.command("vault.add_key")
        await person.at(KeyForm)
        await person.press("ctrl+s")
        await person.see(lambda: ("add_slot", "keyring") in source.calls)
        await person.at(VaultScreen)
        await person.command("vault.remove_key")
        await person.at(RemoveKeyForm)
        await person.press("right", "ctrl+s")
        await person.see(lambda: ("remove_slot", "slot2") in source.calls)
        await person.at(VaultScreen)
        await person.command("vault.recovery")
        await person.at(ConfirmDialog)
        await person.press("y")
        await person.at(RecoveryDialog)
        await person.press(*RECOVERY[-5:], "enter")
        await person.at(VaultScreen)
        await person.command("vault.rotate")
        await person.at(RotateKeysForm)
        await person.press(*"another passphrase", "enter")
        await person.at(RecoveryDialog)
        await person.press(*RECOVERY[-5:], "enter")
        await person.said("encrypted anew")
        await person.command("vault.verify")
        await person.said("The vault is whole: 6 records")
        source.vault.faults = ("record 4: it does not decrypt",)
        await person.command("vault.verify")
        await person.at(ReportDialog)
        assert "record 4: it does not decrypt" in person.text
        await person.press("q")
        await person.command("vault.status")
        await person.at(ReportDialog)
        assert "generation" in person.text


async def test_backup_and_restore(sit: Any, tmp_path: Path) -> None:
    source = a_day()
    target = tmp_path / "backup.age"
    async with sit(source) as person:
        await person.press("E")
        form = await person.at(ExportForm)
        form.query_one("#path", Input).value = str(target)
        await person.press("enter", *"for the backup", "enter", *"for the backup", "enter")
        await person.said("only you can read the file")
        assert target.read_bytes() == b"age-encryption.org/v1\n"
        assert target.stat().st_mode & 0o777 == 0o600
        await person.press("E")
        form = await person.at(ExportForm)
        form.query_one("#path", Input).value = str(target)
        await person.press("tab", "right", "tab", "right", "tab", *"age1abc, age1def", "ctrl+s")
        await person.see(lambda: "is not replaced" in person.text)
        assert ("export", False, ("age1abc", "age1def"), "prj_acme-api") in source.calls
        await person.press("escape")
        await person.command("vault.import")
        form = await person.at(RestoreForm)
        form.query_one("#path", Input).value = str(target)
        await person.press("enter", *"for the backup", "enter")
        await person.at(ReportDialog)
        assert "OLD_KEY: it is here already" in person.text
        assert ("import", len(target.read_bytes()), False, False, None) in source.calls


async def test_commands_work_from_every_view(sit: Any) -> None:
    source = a_day()
    async with sit(source) as person:
        await person.press("1")
        await person.at(SessionsScreen)
        assert person.app.can_run("vault_lock", "vault")
        assert not person.app.can_run("secret_rotate", "")
        await person.command("vault.lock")
        await person.at(ConfirmDialog)
        await person.press("escape")
        await person.at(VaultScreen)
        await person.press("1")
        await person.command("vault state")
        await person.at(VaultScreen)
        await person.command("secret.requests")
        await person.see(lambda: person.app.current_mode == "inbox" and person.table.shown == 1)


async def test_a_form_that_was_left_says_what_became_of_it(sit: Any) -> None:
    import threading

    source, release = a_day(), threading.Event()
    rotate = source.secrets.rotate

    def slow(*arguments: Any) -> Any:
        release.wait(30)
        return rotate(*arguments)

    source.secrets.rotate = slow  # type: ignore[method-assign]
    async with sit(source) as person:
        await person.press("r")
        form = await person.at(RotateForm)
        assert isinstance(form, Form)
        await person.press(*VALUE, "enter")
        await person.press("enter", "ctrl+s")
        assert "Storing" in person.text
        await person.press("escape")
        await person.at(VaultScreen)
        release.set()
        await person.said("DATABASE_URL is at version 4")
        assert len([call for call in source.calls if call[0] == "set"]) == 1, "sent once"
