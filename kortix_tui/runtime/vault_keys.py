"""Where keys of the vault come from: a service's credential, the keyring, a key file, or a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kortix_tui.base.errors import InvalidInput, VaultFailed, VaultLocked
from kortix_tui.base.ids import new_id
from kortix_tui.runtime.vault_calls import Kind, SlotWish
from kortix_tui.vault import keyfile, keyring_key, recovery, systemd_key
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotInfo, SlotKey, SlotType

if TYPE_CHECKING:
    from kortix_tui.vault.vault import Vault

log = logging.getLogger(__name__)
QUIET = (SlotType.SYSTEMD, SlotType.KEYRING, SlotType.KEYFILE)
"""Kinds that open the vault without a person, in the order in which they are tried."""


def quiet_keys(
    slots: Sequence[SlotInfo], faults: list[VaultFailed] | None = None
) -> Iterator[Callable[[], SlotKey | None]]:
    """Ways to get a key without a person, each to be tried off the event loop; `None` when the place gives none.

    Args:
        slots: Of the vault.
        faults: Gets why places gave none.
    """
    for kind in QUIET:
        for slot in slots:
            if slot.type is kind:
                yield partial(_quietly, slot, [] if faults is None else faults)


def _quietly(slot: SlotInfo, faults: list[VaultFailed]) -> SlotKey | None:
    try:
        return load(slot)
    except VaultFailed as error:
        log.info("the vault's %s key cannot be used: %s", slot.type.value, error)
        faults.append(error)
        return None


def load(slot: SlotInfo) -> SlotKey:
    """The key of a slot, from where it is kept.

    Raises:
        KeyUnavailable: The place does not give it; the message says why.
        VaultLocked: A person has it.
    """
    match slot.type:
        case SlotType.SYSTEMD:
            return SlotKey(slot.type, systemd_key.load())
        case SlotType.KEYRING:
            return SlotKey(slot.type, keyring_key.load(slot.place or ""))
        case SlotType.KEYFILE:
            return SlotKey(slot.type, keyfile.load(Path(slot.place) if slot.place else keyfile.default_path()))
        case SlotType.PASSPHRASE | SlotType.RECOVERY:
            raise VaultLocked(f"The {slot.type.value} is with a person.", hint="Unlock it: kortix vault unlock")


def given(kind: Kind | None, place: str | None, secrets: tuple[bytes, ...]) -> SlotKey:
    """The key that a person chose.

    Raises:
        InvalidInput: The secret that this kind needs was not given.
        WrongKey: A recovery key has a typing error.
    """
    match kind:
        case "passphrase" | None:
            return SlotKey.passphrase(_text(secrets, "passphrase"))
        case "recovery":
            return SlotKey(SlotType.RECOVERY, recovery.parse(_text(secrets, "recovery key")))
        case "keyfile":
            return SlotKey(SlotType.KEYFILE, keyfile.load(Path(place) if place else keyfile.default_path()))
        case "keyring":
            return SlotKey(SlotType.KEYRING, keyring_key.load(place or ""))
        case "systemd":
            return SlotKey(SlotType.SYSTEMD, systemd_key.load())


def _text(secrets: tuple[bytes, ...], what: str) -> str:
    if len(secrets) != 1 or not secrets[0]:
        raise InvalidInput(f"The {what} is empty.", hint="Give it again.")
    return secrets[0].decode("utf-8", "surrogateescape")


def make(wish: SlotWish, owner: str, secrets: tuple[bytes, ...]) -> tuple[NewSlot, str | None]:
    """A new slot's key, put where it will be found; a recovery key's text for the person.

    What is made here and never comes into use (a death before the vault is written) opens nothing.
    """
    match wish.kind:
        case "passphrase":
            return NewSlot(SlotKey.passphrase(_text(secrets, "passphrase")), owner), None
        case "recovery":
            text, secret = recovery.new()
            return NewSlot(SlotKey(SlotType.RECOVERY, secret), owner), text
        case "keyfile":
            path = Path(wish.place) if wish.place else keyfile.default_path()
            secret = keyfile.load(path) if path.exists() else keyfile.create(path)
            return NewSlot(SlotKey(SlotType.KEYFILE, secret), owner, place=str(path)), None
        case "keyring":
            import secrets as randomness

            entry, secret = new_id("vault"), Secret(randomness.token_bytes(32))
            keyring_key.store(entry, secret)
            return NewSlot(SlotKey(SlotType.KEYRING, secret), owner, place=entry), None
        case "systemd":
            return NewSlot(SlotKey(SlotType.SYSTEMD, systemd_key.load()), owner), None


def check(vault: Vault, key: SlotKey) -> None:
    """Whether a key opens the vault; slow for a passphrase.

    Raises:
        WrongKey: It does not.
    """
    other = type(vault).load(vault.path)
    other.unlock(key)
    other.lock()


def renewed(vault: Vault, owner: str, passphrase: bytes, *, drop_passphrase: bool) -> tuple[list[NewSlot], str | None]:
    """Every slot once more, for new root keys: the same keys, and a new recovery key where there was one.

    Raises:
        InvalidInput: The vault has a passphrase and it was not given; or what would open it then is missing.
        KeyUnavailable: A key cannot be had now.
        WrongKey: The passphrase is not the present one.
    """
    slots: list[NewSlot] = []
    text: str | None = None
    for slot in vault.slots:
        match slot.type:
            case SlotType.PASSPHRASE:
                if drop_passphrase:
                    continue
                if not passphrase:
                    raise InvalidInput(
                        "The passphrase is needed to wrap the new keys.",
                        hint="Give it, or drop it with --drop-passphrase when another key opens the vault.",
                    )
                key = SlotKey.passphrase(passphrase.decode("utf-8", "surrogateescape"))
                check(vault, key)
                slots.append(NewSlot(key, slot.owner))
            case SlotType.RECOVERY:
                new, text = make(SlotWish(kind="recovery"), owner, ())
                slots.append(new)
            case _:
                slots.append(NewSlot(load(slot), slot.owner, place=slot.place))
    if not [slot for slot in slots if slot.key.type is not SlotType.RECOVERY]:
        raise InvalidInput("Only the recovery key would open the vault then.", hint="Add another key first.")
    return slots, text
