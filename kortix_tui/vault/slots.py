"""Key slots: ways to open the vault. Each wraps the root key and the personal root key of its owner.

Passphrases are stretched with Argon2id; the other kinds hold random bytes, so HKDF is enough for them.
"""

from __future__ import annotations

import secrets
import unicodedata
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer, model_validator

from kortix_tui.base.clock import to_text
from kortix_tui.base.errors import VaultFailed
from kortix_tui.base.ids import new_id
from kortix_tui.vault.cipher import (
    KEY_BYTES,
    MAC_BYTES,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    Cost,
    Key,
    canonical,
    derive,
    same,
    seal,
    sign,
    stretch,
    unseal,
)
from kortix_tui.vault.records import Moment, Person, RowId
from kortix_tui.vault.secret import Secret

MAX_SLOTS: Final = 16
MAX_PASSPHRASE_BYTES: Final = 4096
_WRAPPED_BYTES: Final = 2 * KEY_BYTES + TAG_BYTES


class SlotType(StrEnum):
    """The kinds of slot, in the order in which they are tried without a person."""

    SYSTEMD = "systemd"
    KEYRING = "keyring"
    KEYFILE = "keyfile"
    PASSPHRASE = "passphrase"  # noqa: S105 a word, not a password
    RECOVERY = "recovery"


@dataclass(frozen=True)
class SlotKey:
    """What opens a slot.

    Args:
        type: Which kind of slot it opens.
        secret: A passphrase in UTF-8, or 20 to 64 random bytes for every other kind.
    """

    type: SlotType
    secret: Secret

    def __post_init__(self) -> None:
        low, high = (1, MAX_PASSPHRASE_BYTES) if self.type is SlotType.PASSPHRASE else (20, 64)
        if not low <= len(self.secret) <= high:
            raise VaultFailed(
                f"A {self.type} key has {low} to {high} bytes.", hint="Give the whole key, without a line end."
            )

    @classmethod
    def passphrase(cls, typed: str) -> Self:
        """A passphrase as typed: keyboards compose accents differently, so it is normalised (NFC) first."""
        return cls(SlotType.PASSPHRASE, Secret(unicodedata.normalize("NFC", typed).encode("utf-8", "surrogatepass")))


@dataclass(frozen=True)
class NewSlot:
    """A slot to be made.

    Args:
        key: What will open it.
        owner: Whose it is: it opens this person's personal secrets, besides what is shared.
        place: Where the key is kept (a file, an entry of a keyring), for the person; never a secret.
        cost: For passphrases: what a guess costs.
    """

    key: SlotKey
    owner: str
    place: str | None = None
    cost: Cost = field(default_factory=Cost)


class SlotInfo(BaseModel):
    """What may be shown of a slot. Authentic only once the vault is unlocked."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    id: RowId
    type: SlotType
    owner: Person
    created: Moment
    place: Annotated[str, Field(max_length=4096)] | None = None

    @field_serializer("created", when_used="json")
    def _created(self, created: Moment) -> str:
        return to_text(created)


class StoredSlot(BaseModel):
    """A slot as it stands in the file.

    `mac` is made with a key from the root: a repair can tell by it which of the slots are as they were written.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", hide_input_in_errors=True, val_json_bytes="base64", ser_json_bytes="base64"
    )

    info: SlotInfo
    cost: Cost | None
    salt: Annotated[bytes, Field(min_length=SALT_BYTES, max_length=SALT_BYTES)]
    nonce: Annotated[bytes, Field(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    wrapped: Annotated[bytes, Field(min_length=_WRAPPED_BYTES, max_length=_WRAPPED_BYTES)]
    mac: Annotated[bytes, Field(min_length=MAC_BYTES, max_length=MAC_BYTES)]

    @model_validator(mode="after")
    def _only_passphrases_are_stretched(self) -> Self:
        if (self.cost is not None) is not (self.info.type is SlotType.PASSPHRASE):
            raise ValueError("a passphrase slot has a cost, and no other has")
        return self


def make_slot(vault_id: str, new: NewSlot, created: Moment, root: Key, personal: Key) -> StoredSlot:
    """Wrap both roots under a new slot.

    Raises:
        VaultFailed: The owner's name or the place cannot be written down.
    """
    try:
        info = SlotInfo(id=new_id("slot"), type=new.key.type, owner=new.owner, created=created, place=new.place)
    except ValidationError:
        raise VaultFailed(
            "The owner or the place of a key slot cannot be written down.",
            hint="An owner has 1 to 64 characters without spaces; a path must be valid UTF-8.",
        ) from None
    cost = new.cost if info.type is SlotType.PASSPHRASE else None
    salt, nonce = secrets.token_bytes(SALT_BYTES), secrets.token_bytes(NONCE_BYTES)
    bound = _bound(vault_id, info, cost)
    wrapped = seal(_wrapping_key(new.key, salt, cost), nonce, bytes(root) + bytes(personal), bound)
    mac = _mac(root, bound, salt, nonce, wrapped)
    return StoredSlot(info=info, cost=cost, salt=salt, nonce=nonce, wrapped=wrapped, mac=mac)


def open_slot(vault_id: str, slot: StoredSlot, key: SlotKey) -> tuple[bytearray, bytearray]:
    """The root and the owner's personal root.

    Raises:
        NotOpened: The key is another one, or the slot was changed.
    """
    wrapping = _wrapping_key(key, slot.salt, slot.cost)
    both = unseal(wrapping, slot.nonce, slot.wrapped, _bound(vault_id, slot.info, slot.cost))
    return bytearray(both[:KEY_BYTES]), bytearray(both[KEY_BYTES:])


def is_intact(vault_id: str, slot: StoredSlot, root: Key) -> bool:
    """Whether a slot is as it was written, by whoever held the root."""
    return same(vouch(vault_id, slot, root).mac, slot.mac)


def vouch(vault_id: str, slot: StoredSlot, root: Key) -> StoredSlot:
    """A slot that has just opened, with the MAC that belongs to it."""
    mac = _mac(root, _bound(vault_id, slot.info, slot.cost), slot.salt, slot.nonce, slot.wrapped)
    return slot.model_copy(update={"mac": mac})


def _wrapping_key(key: SlotKey, salt: bytes, cost: Cost | None) -> bytes:
    secret = key.secret.use("open a slot of the vault")
    if cost is not None:
        return stretch(secret, salt, cost)
    return derive(secret, f"kxv1/{key.type}", salt)


def _bound(vault_id: str, info: SlotInfo, cost: Cost | None) -> bytes:
    numbers = cost.model_dump() if cost else None
    return canonical({"kind": "slot", "vault": vault_id, "slot": info.model_dump(mode="json"), "cost": numbers})


def _mac(root: Key, bound: bytes, *parts: bytes) -> bytes:
    return sign(derive(root, "kxv1/slot-mac"), bound, *parts)
