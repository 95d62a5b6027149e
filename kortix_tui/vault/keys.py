"""The keys of an open vault: the root, the personal roots of those who opened it, and what follows from them."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Set
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.errors import VaultFailed, WrongKey
from kortix_tui.vault.cipher import (
    KEY_BYTES,
    NONCE_BYTES,
    TAG_BYTES,
    NotOpened,
    canonical,
    derive,
    random_key,
    seal,
    unseal,
)
from kortix_tui.vault.errors import SealedForOther, locked, tampered
from kortix_tui.vault.records import StoredRecord, open_record, person_of
from kortix_tui.vault.slots import SlotInfo, SlotKey, SlotType, StoredSlot, open_slot

_WRAPPED_BYTES = KEY_BYTES + TAG_BYTES


class WrappedKey(BaseModel):
    """The data key of a scope as it stands in the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, val_json_bytes="base64", ser_json_bytes="base64"
    )

    nonce: Annotated[bytes, Field(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    wrapped: Annotated[bytes, Field(min_length=_WRAPPED_BYTES, max_length=_WRAPPED_BYTES)]


class RootKeys:
    """Held only while the vault is unlocked. Data keys are unwrapped for each use and not kept.

    Args:
        root: Opens what is shared and signs the file.
        personal: The personal root of each person who has opened the vault.
    """

    __slots__ = ("personal", "root")

    def __init__(self, root: bytearray, personal: dict[str, bytearray]) -> None:
        self.root = root
        self.personal = personal

    @classmethod
    def fresh(cls, people: frozenset[str]) -> Self:
        """New random keys for these people."""
        return cls(random_key(), {person: random_key() for person in people})

    def __repr__(self) -> str:
        return f"<RootKeys of {', '.join(sorted(self.personal))}>"

    def extended(self) -> RootKeys:
        """The same keys, to which those of more people can be added without anybody else having them."""
        return RootKeys(self.root, dict(self.personal))

    @property
    def wiped(self) -> bool:
        """Whether they were overwritten, also those that `extended` shares."""
        return not any(self.root)

    @property
    def file_key(self) -> bytes:
        """Signs the file."""
        return derive(self.root, "kxv1/file-mac")

    @property
    def root_id(self) -> str:
        """Tells, without any key, that the root was replaced: by a rotation, which no other process can follow."""
        return derive(self.root, "kxv1/root-id")[:8].hex()

    def new_dek(self, vault_id: str, scope: str) -> WrappedKey:
        """A new data key for a scope.

        Raises:
            SealedForOther: The scope belongs to a person who has not opened the vault.
            VaultLocked: The keys were wiped.
        """
        nonce = secrets.token_bytes(NONCE_BYTES)
        wrapped = seal(self._wrapping_key(scope), nonce, random_key(), _bound(vault_id, scope))
        return WrappedKey(nonce=nonce, wrapped=wrapped)

    def open_dek(self, vault_id: str, scope: str, dek: WrappedKey) -> bytes:
        """The data key of a scope.

        Raises:
            SealedForOther: The scope belongs to a person who has not opened the vault.
            VaultTampered: It was changed.
            VaultLocked: The keys were wiped.
        """
        try:
            return unseal(self._wrapping_key(scope), dek.nonce, dek.wrapped, _bound(vault_id, scope))
        except NotOpened:
            raise self._refusal(f"the data key of {scope} was changed") from None

    def open_value(self, vault_id: str, deks: Mapping[str, WrappedKey], record: StoredRecord) -> bytes:
        """The value of a record.

        Raises:
            SealedForOther: It is a person's who has not opened the vault.
            VaultTampered: It or its data key was changed.
            VaultLocked: The keys were wiped.
        """
        try:
            return open_record(self.open_dek(vault_id, record.scope, deks[record.scope]), vault_id, record)
        except NotOpened:
            raise self._refusal("a secret was changed or moved") from None

    def opens(self, scope: str) -> bool:
        """Whether the keys for this scope are here."""
        person = person_of(scope)
        return person is None or person in self.personal

    def retain(self, people: Set[str]) -> None:
        """Forget the personal roots of all others: who comes back after their last slot was removed gets a new one."""
        for person in self.personal.keys() - people:
            key = self.personal.pop(person)
            key[:] = bytes(len(key))

    def wipe(self) -> None:
        """Overwrite all keys."""
        for key in (self.root, *self.personal.values()):
            key[:] = bytes(len(key))
        self.personal.clear()

    def _wrapping_key(self, scope: str) -> bytes:
        if self.wiped:
            raise locked()
        person = person_of(scope)
        if person is None:
            return derive(self.root, f"kxv1/scope/{scope}")
        if person not in self.personal:
            raise SealedForOther(
                f"The personal secrets of {person} are sealed.",
                hint=f"{person} must unlock the vault with a slot of their own.",
            )
        return derive(self.personal[person], f"kxv1/scope/{scope}")

    def _refusal(self, what: str) -> VaultFailed:
        # Keys that another thread wiped in the middle open nothing either.
        return locked() if self.wiped else tampered(what)


_CALLED: Final = {
    SlotType.PASSPHRASE: "passphrase",
    SlotType.KEYRING: "key of the keyring",
    SlotType.KEYFILE: "key file",
    SlotType.SYSTEMD: "credential of systemd",
    SlotType.RECOVERY: "recovery key",
}


def open_with(vault_id: str, slots: Iterable[StoredSlot], key: SlotKey) -> tuple[SlotInfo, RootKeys]:
    """The slot that a key opens, and what is in it.

    Raises:
        WrongKey: It opens none.
    """
    for slot in slots:
        if slot.info.type is key.type:
            try:
                root, own = open_slot(vault_id, slot, key)
            except NotOpened:
                continue
            return slot.info, RootKeys(root, {slot.info.owner: own})
    raise WrongKey(
        f"This {_CALLED[key.type]} opens no slot of the vault.", hint="Try another key, or the recovery key."
    )


def _bound(vault_id: str, scope: str) -> bytes:
    return canonical({"kind": "dek", "vault": vault_id, "scope": scope})
