"""Vaults for tests: keys that cost little, and secrets to put in."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kortix_tui.base.words import Exposure
from kortix_tui.vault.cipher import Cost
from kortix_tui.vault.records import PROJECT, SHARED, RecordMeta, personal
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotKey, SlotType
from kortix_tui.vault.vault import Vault

CHEAP = Cost(memory_kib=19456, passes=1, lanes=1)
"""The least that the format allows."""
BORN = datetime(2026, 3, 1, 12, tzinfo=UTC)
PASSPHRASE = SlotKey.passphrase("correct horse battery staple")


def random_key(kind: SlotType, seed: str) -> SlotKey:
    """A key of 32 bytes that is always the same for a seed."""
    return SlotKey(kind, Secret(hashlib.sha256(seed.encode()).digest()))


ALICE = random_key(SlotType.KEYFILE, "alice")
BOB = random_key(SlotType.KEYFILE, "bob")
RECOVERY = random_key(SlotType.RECOVERY, "recovery")


def meta(number: int = 1, **fields: Any) -> RecordMeta:
    """A shared secret of the project, or what `fields` say."""
    given: dict[str, Any] = {
        "id": f"sec_{number}", "project": "prj_1", "identifier": f"key-{number}", "name": f"KEY_{number}",
        "scope": SHARED, "owner": PROJECT, "exposure": Exposure.CONNECTOR, "version": 1, "created": BORN,
    }  # fmt: skip
    return RecordMeta(**given | fields)


def own(person: str, number: int = 1, **fields: Any) -> RecordMeta:
    """A personal secret."""
    return meta(number, **{"scope": personal(person), "owner": person} | fields)


def value(vault: Vault, record_id: str) -> bytes:
    return vault.read(record_id).use("a test looks")


def put(vault: Vault, described: RecordMeta, content: bytes) -> None:
    with vault.change() as draft:
        draft.put(described, Secret(content))


def reopened(path: Path, key: SlotKey) -> Vault:
    vault = Vault.load(path)
    vault.unlock(key)
    return vault


def two_slots(path: Path) -> Vault:
    """A vault of Alice's with a key file and a recovery key."""
    return Vault.create(path, [NewSlot(ALICE, "alice"), NewSlot(RECOVERY, "alice")])
