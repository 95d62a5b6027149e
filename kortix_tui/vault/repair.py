"""Saving what can be saved of a vault that was damaged or tampered with.

It takes two keys, an ordinary slot and the recovery key, so that who merely finds the vault open cannot make a doctored
file the accepted one. Every part that is kept has vouched for itself: slots by their MAC, secrets by opening. What an
attacker can still do is to put back an older copy of a part; so the report lists what is kept, for a person to compare.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from kortix_tui.base.errors import VaultFailed, VaultTampered
from kortix_tui.base.text import visible_line
from kortix_tui.vault.cipher import MAC_BYTES
from kortix_tui.vault.errors import Corrupt, RolledBack, corrupt, tampered
from kortix_tui.vault.keys import RootKeys, WrappedKey, open_with
from kortix_tui.vault.layout import (
    HEAD_BYTES,
    MAX_GENERATION,
    MAX_RECORDS,
    AuditAnchor,
    Body,
    Header,
    VaultId,
    encode,
    is_authentic,
    load_json,
    parse,
)
from kortix_tui.vault.records import SHARED, RecordMeta, Scope, StoredRecord
from kortix_tui.vault.slots import MAX_SLOTS, SlotInfo, SlotKey, SlotType, StoredSlot, is_intact, vouch
from kortix_tui.vault.storage import Place, Previous

_T = TypeVar("_T")
_VAULT_ID: Final = TypeAdapter[str](VaultId)
_SCOPE: Final = TypeAdapter[str](Scope)
_SLOT: Final = TypeAdapter(StoredSlot)
_DEK: Final = TypeAdapter(WrappedKey)
_ANCHOR: Final = TypeAdapter(AuditAnchor)
_ID: Final = re.compile(r"[a-z0-9_]{1,64}")
_CREDIBLE: Final = MAX_GENERATION // 2
"""A generation above this was never reached by writing; a damaged file may claim anything."""


@dataclass(frozen=True)
class LostRecord:
    """A secret that could not be saved. Both texts are from the damaged file, made safe to show."""

    id: str
    identifier: str | None


@dataclass(frozen=True)
class RepairReport:
    """What a repair did.

    Args:
        generation: The generation that was written.
        mac: Its MAC, in hex.
        kept: The secrets that opened.
        unchecked: Ids of secrets that are sealed for people who were not asked; kept as they were.
        lost: The secrets that are gone from the file.
        slots: The slots that are kept.
        slots_lost: How many were dropped because they were changed.
        anchor_kept: Whether the file vouched for the noted head of the audit chain.
        copy: The file as it was found.
    """

    generation: int
    mac: str
    kept: tuple[RecordMeta, ...]
    unchecked: tuple[str, ...]
    lost: tuple[LostRecord, ...]
    slots: tuple[SlotInfo, ...]
    slots_lost: int
    anchor_kept: bool
    copy: Path


@dataclass(frozen=True)
class Known:
    """The newest file that was seen: its generation (0 for none), MAC in hex or its first characters, and vault id."""

    generation: int = 0
    mac: str = ""
    id: str | None = None


_NOTHING: Final = Known()


def repair(
    path: Path,
    slot: SlotKey,
    recovery: SlotKey,
    *,
    from_previous: bool = False,
    known: Known = _NOTHING,
    accept: int | None = None,
) -> RepairReport:
    """Write a new generation of the parts that are still what they were. The file that is found is kept beside it.

    A whole file that the rollback check refuses becomes the newest one, when a person accepts exactly it.

    Args:
        path: The vault.
        slot: Any key but the recovery key.
        recovery: The recovery key.
        from_previous: Take the previous generation; a person must have seen how old it is.
        known: What was seen; the new generation is higher.
        accept: The generation of a whole file that is not the one that was seen.

    Raises:
        WrongKey: One of the keys opens nothing.
        Corrupt: Nothing of the file can be read; the previous generation may be better.
        RolledBack: The file is whole, but not the one that was seen, and was not accepted.
        VaultFailed: The keys are not of the right kinds, or the vault needs no repair.
    """
    if recovery.type is not SlotType.RECOVERY or slot.type is SlotType.RECOVERY:
        raise VaultFailed(
            "A repair needs two keys: one of an ordinary slot, and the recovery key.", hint="Give one of each."
        )
    place = Place(path)
    place.check()
    with place.locked():
        data, _ = place.read(previous=from_previous)
        found = _Salvage(data)
        opened, keys = open_with(found.id, found.slots, slot)
        also, second = open_with(found.id, found.slots, recovery)
        try:
            if keys.root != second.root:
                raise tampered("its slots lead to different keys")
            keys.personal.update(second.personal)
            whole = _is_whole(data, keys)
            if whole and not from_previous:
                _check_accepted(found, data[-MAC_BYTES:].hex(), known, accept)
            claims = (found.generation, known.generation, _claimed_generation(place) if from_previous else 0)
            header = found.header(keys, 1 + max(claims), {opened.id, also.id}, keep_anchor=whole)
            recs, unchecked, lost = found.records(header, keys)
            stamp = place.replace(encode(Body(header, recs), keys.file_key), Previous.SET_ASIDE)
        finally:
            keys.wipe()
            second.wipe()
    return RepairReport(
        generation=header.gen,
        mac=stamp.mac.hex(),
        kept=tuple(record.meta for name, record in recs.items() if name not in unchecked),
        unchecked=unchecked,
        lost=lost,
        slots=tuple(kept.info for kept in header.slots),
        slots_lost=found.slot_count - len(header.slots),
        anchor_kept=header.anchor is not None,
        copy=place.damaged,
    )


class _Salvage:
    """What can be read of a damaged file, part by part."""

    def __init__(self, data: bytes) -> None:
        # Magic and length are not needed to find the body.
        document = load_json(data[HEAD_BYTES:-MAC_BYTES])
        vault_id = _parsed(_VAULT_ID, document.get("id"))
        if vault_id is None:
            raise corrupt("its id cannot be read")
        self.id = vault_id
        self.generation = _generation(document)
        slots = _listed(document, "slots", list)
        self.slot_count = len(slots)
        readable = (_parsed(_SLOT, slot) for slot in slots[:MAX_SLOTS])
        self.slots = tuple(slot for slot in readable if slot is not None)
        self.anchor = _parsed(_ANCHOR, document.get("anchor"))
        deks = ((_parsed(_SCOPE, scope), _parsed(_DEK, dek)) for scope, dek in _listed(document, "deks", dict).items())
        self._deks = {scope: dek for scope, dek in deks if scope is not None and dek is not None}
        self._recs: dict[str, Any] = _listed(document, "recs", dict)

    def header(self, keys: RootKeys, generation: int, opened: set[str], *, keep_anchor: bool) -> Header:
        """Slots that opened or are intact, and data keys that open or are sealed for others."""
        slots = dict[str, StoredSlot]()
        for slot in self.slots:
            if is_intact(self.id, slot, keys.root):
                slots.setdefault(slot.info.id, slot)
            elif slot.info.id in opened:
                slots.setdefault(slot.info.id, vouch(self.id, slot, keys.root))
        deks = {scope: dek for scope, dek in self._deks.items() if self._is_sound(keys, scope, dek)}
        if SHARED not in deks:
            deks[SHARED] = keys.new_dek(self.id, SHARED)
        return Header(
            id=self.id,
            gen=generation,
            root_id=keys.root_id,
            slots=tuple(slots.values()),
            deks=deks,
            anchor=self.anchor if keep_anchor else None,
        )

    def records(
        self, header: Header, keys: RootKeys
    ) -> tuple[dict[str, StoredRecord], tuple[str, ...], tuple[LostRecord, ...]]:
        """Records to keep, the ids of those among them that are sealed for others, and what is lost."""
        kept, unchecked, lost = dict[str, StoredRecord](), list[str](), list[LostRecord]()
        for name, raw in self._recs.items():
            record = StoredRecord(raw)
            sound = _ID.fullmatch(name) and record.is_filed_as(name) and record.scope in header.deks
            if not sound or len(kept) >= MAX_RECORDS:
                lost.append(_lost(name, raw))
                continue
            try:
                _ = record.meta
                if keys.opens(record.scope):
                    keys.open_value(self.id, header.deks, record)
                else:
                    unchecked.append(name)
                kept[name] = record
            except VaultFailed:
                lost.append(_lost(name, raw))
        return kept, tuple(unchecked), tuple(lost)

    def _is_sound(self, keys: RootKeys, scope: str, dek: WrappedKey) -> bool:
        if keys.opens(scope):
            try:
                keys.open_dek(self.id, scope, dek)
            except VaultTampered:
                return False
        return True


def _check_accepted(found: _Salvage, mac: str, known: Known, accept: int | None) -> None:
    """Refuse a whole file that needs no repair, and an old one that nobody says is meant."""
    newer = found.generation > known.generation or (found.generation == known.generation and mac.startswith(known.mac))
    if newer and found.id == (known.id or found.id):
        raise VaultFailed("The vault is whole; there is nothing to repair.", hint="Run `kortix vault verify`.")
    if accept != found.generation:
        raise RolledBack(
            f"The file is whole, of generation {found.generation}, and not the one that was seen last, of generation "
            f"{known.generation}.",
            hint=f"To accept it, and lose what came after it: kortix vault repair "
            f"--accept-generation {found.generation}",
        )


def _is_whole(data: bytes, keys: RootKeys) -> bool:
    try:
        parse(data)
    except Corrupt:
        return False
    return is_authentic(data, keys.file_key)


def _claimed_generation(place: Place) -> int:
    try:
        data, _ = place.read()
        return _generation(load_json(data[HEAD_BYTES:-MAC_BYTES]))
    except VaultFailed:
        return 0


def _generation(document: dict[str, Any]) -> int:
    claim = document.get("gen")
    return claim if type(claim) is int and 0 < claim <= _CREDIBLE else 0


def _listed(document: dict[str, Any], name: str, kind: type) -> Any:
    found = document.get(name)
    return found if isinstance(found, kind) else kind()


def _parsed(shape: TypeAdapter[_T], value: Any) -> _T | None:
    try:
        return shape.validate_json(json.dumps(value), strict=True)
    except ValueError:
        return None


def _lost(name: str, raw: Any) -> LostRecord:
    meta = raw.get("meta") if isinstance(raw, dict) else None
    identifier = meta.get("identifier") if isinstance(meta, dict) else None
    return LostRecord(visible_line(name[:64]), visible_line(identifier[:128]) if isinstance(identifier, str) else None)
