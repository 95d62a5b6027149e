"""Forms for what opens the vault: making it, its keys, repairing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from textual import on
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from kortix_tui.base.text import visible_line
from kortix_tui.base.words import VaultState
from kortix_tui.console.forms.form import Act, Form, Incomplete, chosen, line
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.dialog import plain
from kortix_tui.console.widgets.masked_entry import MaskedEntry
from kortix_tui.runtime.secret_sources import KeyringView, Secret, key_file_path
from kortix_tui.runtime.vault_calls import Kind, SlotWish

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.runtime.secret_views import SlotView, VaultStatus

MIN_PASSPHRASE: Final = 8
KIND_WORDS: Final[dict[str, str]] = {
    "passphrase": "passphrase",
    "keyring": "this machine's keyring",
    "keyfile": "key file",
    "systemd": "credential from systemd",
    "recovery": "recovery key",
}
TYPED: Final = ("passphrase", "recovery")
"""Kinds that a person types."""
_KIND_MEANS: Final[dict[str, str]] = {
    "passphrase": "You type it whenever a host starts: nobody opens the vault without you.",
    "keyring": "The vault opens by itself while you are logged in to the desktop.",
    "keyfile": "The vault opens by itself for whoever can read the file: you. Right for a box without a desktop.",
    "systemd": "The vault opens by itself where systemd starts the host.",
    "recovery": "Shown once, to be kept on paper. It opens the vault when all else is lost; the one before ends.",
}


def kind_of(word: str) -> Kind:
    """The kind of key that a word of ours stands for."""
    kinds: dict[str, Kind] = {
        "passphrase": "passphrase", "this machine's keyring": "keyring", "key file": "keyfile",
        "credential from systemd": "systemd", "recovery key": "recovery",
    }  # fmt: skip
    return kinds[word]


def slot_words(slot: SlotView) -> str:
    """A key of the vault in some words."""
    place = f" {visible_line(slot.place)}" if slot.place and slot.type == "keyfile" else ""
    return f"{KIND_WORDS[slot.type]}{place}"


class NewPassphrase:
    """Two fields that must hold the same; part of several forms."""

    @staticmethod
    def fields(console: KortixApp) -> Iterable[MaskedEntry]:
        """The passphrase and its repetition."""
        clock = console.clock.monotonic
        yield MaskedEntry("Passphrase", hint="some words that belong to nothing of yours", clock=clock, id="new")
        yield MaskedEntry("Once more", hint="nobody could see a typing error", clock=clock, id="again")

    @staticmethod
    def read(form: Form) -> Secret:
        """The passphrase.

        Raises:
            Incomplete: It is too short, or was not typed twice alike.
        """
        new, again = form.masked("#new", "The passphrase"), form.masked("#again", "The repetition")
        if not new.matches(again):
            form.query_one("#again", MaskedEntry).clear()
            raise Incomplete("The two are not the same.")
        if len(new) < MIN_PASSPHRASE:
            raise Incomplete(f"A passphrase has at least {MIN_PASSPHRASE} characters.")
        return new


class KeyForm(Form):
    """A key that shall open the vault: the first one of a new vault, or one more."""

    def __init__(
        self,
        console: KortixApp,
        kinds: Iterable[Kind],
        done: Callable[[tuple[VaultStatus, str | None]], None],
        *,
        first: bool,
        keyring: KeyringView | None = None,
    ) -> None:
        """Make the form.

        Args:
            console: The console.
            kinds: What can be chosen, the best first.
            done: Gets the status and the recovery key.
            first: Whether it makes the vault.
            keyring: What this machine's keyring is, to be told when it is of no use.
        """
        super().__init__(console, "A new vault" if first else "One more key for the vault", done)
        self._kinds = list(kinds)
        self._is_first = first
        self._keyring = keyring
        self.sends = "makes the vault" if first else "adds it"

    def fields(self) -> Iterable[Widget]:
        """The kind, then what it needs."""
        yield chosen("Opens it", [KIND_WORDS[kind] for kind in self._kinds], id="kind")
        yield plain("", classes="meaning", id="kind-means")
        yield line("File", Input(id="place", placeholder=key_file_path(None)))
        yield from NewPassphrase.fields(self.console)
        yield plain("")
        if self._is_first:
            yield plain("You also get a recovery key, shown once. It opens the vault when this key is lost.")
        if self._keyring is not None and not self._keyring.usable:
            yield plain(f"Why not the keyring: {self._keyring.says}")

    def prepare(self) -> None:
        """What the first choice needs."""
        self._turned()

    def first(self) -> Widget:
        """The choice comes first."""
        return self.query_one("#kind", ChoiceField)

    @on(ChoiceField.Changed, "#kind")
    def _turned(self) -> None:
        kind = kind_of(self.choice("#kind"))
        self.query_one("#kind-means", Static).update(Content(_KIND_MEANS[kind]))
        self.show_only(place=kind == "keyfile", new=kind == "passphrase", again=kind == "passphrase")

    def act(self) -> Act:
        """Make or add it."""
        kind = kind_of(self.choice("#kind"))
        place = key_file_path(self.text("#place") or None) if kind == "keyfile" else None
        passphrase = NewPassphrase.read(self) if kind == "passphrase" else None
        wish = SlotWish(kind=kind, place=place)
        if self._is_first:
            return lambda source: source.vault.init((wish,), passphrase=passphrase)
        return lambda source: source.vault.add_slot(wish, passphrase=passphrase)


class PassphraseForm(Form):
    """Sets the passphrase, or changes it."""

    sends = "changes it"

    def __init__(self, console: KortixApp, status: VaultStatus, done: Callable[[VaultStatus], None]) -> None:
        self._has_one = any(slot.type == "passphrase" for slot in status.slots)
        title = "Another passphrase for the vault" if self._has_one else "A passphrase for the vault"
        super().__init__(console, title, done)

    def fields(self) -> Iterable[Widget]:
        """The present one, the new one twice."""
        if self._has_one:
            yield MaskedEntry("Present", clock=self.console.clock.monotonic, id="present")
        yield from NewPassphrase.fields(self.console)
        yield plain("")
        yield plain("The secrets stay as they are; other keys go on opening the vault.")

    def act(self) -> Act:
        """Change it."""
        present = self.masked("#present", "The present passphrase") if self._has_one else None
        new = NewPassphrase.read(self)
        return lambda source: source.vault.set_passphrase(present, new)


class RotateKeysForm(Form):
    """New root keys: everything is encrypted anew."""

    sends = "rotates"
    working = "Encrypting everything anew…"

    def __init__(
        self, console: KortixApp, status: VaultStatus, done: Callable[[tuple[VaultStatus, str | None]], None]
    ) -> None:
        super().__init__(console, "New keys for the whole vault", done)
        self._has_passphrase = any(slot.type == "passphrase" for slot in status.slots)
        self._secrets = status.secrets

    def fields(self) -> Iterable[Widget]:
        """What it does, and the passphrase where there is one."""
        yield plain(
            f"Makes new root keys and encrypts {self._secrets} secret{'s' * (self._secrets != 1)} anew. The values "
            "stay, and so does what opens the vault; only the recovery key changes. Older copies of the file open with "
            "the old keys as before: delete them."
        )
        yield plain("")
        if self._has_passphrase:
            yield MaskedEntry("Passphrase", hint="the present one", clock=self.console.clock.monotonic, id="present")
        else:
            yield chosen("Sure", ["yes"], id="sure")

    def act(self) -> Act:
        """Rotate."""
        present = self.masked("#present", "The passphrase") if self._has_passphrase else None
        return lambda source: source.vault.rotate(passphrase=present)


class RepairForm(Form):
    """Makes a damaged or rolled-back vault usable: takes a key and the recovery key."""

    sends = "repairs"
    working = "Repairing…"
    _THIS, _PREVIOUS = "the file as it is", "the previous file"

    def __init__(self, console: KortixApp, status: VaultStatus, done: Callable[[VaultStatus], None]) -> None:
        super().__init__(console, "Repair the vault", done)
        self._status = status

    def fields(self) -> Iterable[Widget]:
        """What is wrong, which file, both keys."""
        status = self._status
        yield plain(f"It is {status.state.value}. {visible_line(status.reason or '')}".strip())
        yield plain("")
        yield chosen("Start from", [self._THIS, self._PREVIOUS], id="start")
        before = f"The previous file: {status.previous}." if status.previous else "There is no previous file."
        yield plain(before, classes="meaning")
        clock = self.console.clock.monotonic
        yield MaskedEntry("Recovery key", hint="from paper; case and dashes do not matter", clock=clock, id="recovery")
        yield MaskedEntry("Passphrase", hint="empty: key file or keyring", clock=clock, id="present")
        if status.state is VaultState.ROLLED_BACK:
            yield plain("")
            yield plain(
                f"The file has generation {status.generation}, older than what was seen. What changed since is lost. "
                "Type its generation to take it."
            )
            yield line("Generation", Input(id="generation"))

    def act(self) -> Act:
        """Repair."""
        previous = self.choice("#start") == self._PREVIOUS
        recovery = self.masked("#recovery", "The recovery key")
        empty = self.query_one("#present", MaskedEntry).empty
        present = None if empty else self.masked("#present", "The passphrase")
        accepted: int | None = None
        if self._status.state is VaultState.ROLLED_BACK:
            if self.text("#generation") != str(self._status.generation):
                raise Incomplete(f"Type {self._status.generation} to take the older file.")
            accepted = self._status.generation
        return lambda source: source.vault.repair(
            passphrase=present, recovery=recovery, from_previous=previous, accept_generation=accepted
        )


class RemoveKeyForm(Form):
    """Takes a key of the vault away."""

    sends = "takes it away"

    def __init__(self, console: KortixApp, status: VaultStatus, done: Callable[[VaultStatus], None]) -> None:
        super().__init__(console, "Take a key away", done)
        self._slots = {f"{slot_words(slot)} ({slot.id[:8]})": slot for slot in status.slots}

    def fields(self) -> Iterable[Widget]:
        """Which."""
        yield chosen("Key", list(self._slots), id="slot")
        yield plain("")
        yield plain("It opens the vault no more. Older copies of the file still open with it. The last key stays.")

    def act(self) -> Act:
        """Take it away."""
        slot = self._slots[self.choice("#slot")]
        return lambda source: source.vault.remove_slot(slot.id)
