"""The vault of a home: load, unlock, read, change, lock.

What a caller gets is authentic: the MAC of the whole file is checked before anything of it is used, and again whenever
the file on disk is another one than before. Methods may be called from any thread; those that write or derive keys
take long enough to be kept off an event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import Final, Self

from kortix_tui.base.clock import Clock, SystemClock
from kortix_tui.base.errors import VaultFailed, VaultLocked
from kortix_tui.vault.draft import Draft
from kortix_tui.vault.errors import RolledBack, locked, no_such_record, tampered
from kortix_tui.vault.keys import RootKeys, open_with
from kortix_tui.vault.layout import AuditAnchor, Body, encode, is_authentic, parse
from kortix_tui.vault.records import RecordMeta
from kortix_tui.vault.rotation import new_header, reencrypt
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotInfo, SlotKey, is_intact
from kortix_tui.vault.storage import Place, Previous, Stamp

_ACCEPT: Final = (
    "Somebody may have put an old copy in its place. "
    "Put the newest file back, or accept this one with `kortix vault repair` and the recovery key."
)


@dataclass(frozen=True)
class VaultFault:
    """Something that `verify` found.

    Args:
        kind: `file`, `slot` or `secret`.
        id: Which slot or secret; empty for the file.
        message: What is wrong, for a person.
    """

    kind: str
    id: str
    message: str


@dataclass(frozen=True)
class PreviousInfo:
    """The previous generation as its file claims it, for display only: it is not authentic."""

    generation: int
    written: datetime


@dataclass(frozen=True)
class _Loaded:
    body: Body
    stamp: Stamp
    data: bytes | None
    """The file, until its MAC has been checked."""


class Vault:
    """One vault file, locked or unlocked.

    Use `create` or `load`.
    """

    def __init__(self, place: Place, loaded: _Loaded, clock: Clock, keys: RootKeys | None = None) -> None:
        self._place = place
        self._loaded = loaded
        self._clock = clock
        self._keys = keys
        self._newest: tuple[int, str] | None = (loaded.body.header.gen, loaded.stamp.mac.hex()) if keys else None
        self._guard = threading.RLock()

    @classmethod
    def create(cls, path: Path, keys: Sequence[NewSlot], *, clock: Clock | None = None) -> Self:
        """Make a vault and leave it unlocked for the owners of its slots.

        Raises:
            VaultExists: There is one, or what is left of one; nothing is overwritten.
            UnsafePlace: Others could replace the file, or the file system is a remote one.
            VaultFailed: There is no slot, or there are too many, or the disk is full.
        """
        clock = clock or SystemClock()
        place = Place(path)
        place.check()
        vault_id = token_hex(16)
        root = RootKeys.fresh(frozenset(new.owner for new in keys))
        body = Body(new_header(vault_id, 1, root, keys, clock), {})
        with place.locked():
            stamp = place.create(encode(body, root.file_key))
        return cls(place, _Loaded(body, stamp, None), clock, root)

    @classmethod
    def load(cls, path: Path, *, clock: Clock | None = None) -> Self:
        """Read a vault and leave it locked. Only its shape and limits are checked yet.

        Raises:
            VaultMissing: There is none.
            Corrupt: It is damaged.
            UnsafePlace: Others can read or replace it, or the file system is a remote one.
        """
        place = Place(path)
        place.check()
        data, stamp = place.read()
        return cls(place, _Loaded(parse(data), stamp, data), clock or SystemClock())

    @property
    def path(self) -> Path:
        """The file."""
        return self._place.path

    @property
    def id(self) -> str:
        """The vault's id, which is bound to everything in it."""
        return self._loaded.body.header.id

    @property
    def generation(self) -> int:
        """How often the file was written, as last read; authentic only if unlocked since."""
        return self._loaded.body.header.gen

    @property
    def mac(self) -> str:
        """The MAC of the file as last read, in hex."""
        return self._loaded.stamp.mac.hex()

    @property
    def slots(self) -> tuple[SlotInfo, ...]:
        """The ways to open it, as last read; authentic only if unlocked since."""
        return tuple(slot.info for slot in self._loaded.body.header.slots)

    @property
    def unlocked(self) -> bool:
        """Whether the keys are here."""
        return self._keys is not None

    @property
    def people(self) -> frozenset[str]:
        """Those whose personal secrets are open."""
        keys = self._keys
        return frozenset(keys.personal) if keys else frozenset()

    @property
    def anchor(self) -> AuditAnchor | None:
        """The head of the audit chain that was noted last.

        Raises:
            VaultLocked: Nobody could vouch for it.
        """
        with self._guard:
            return self._current()[0].header.anchor

    def unlock(self, key: SlotKey) -> SlotInfo:
        """Open the vault with a key; a second person may add theirs. Takes 0.25 s or more for a passphrase.

        Returns:
            The slot that opened.

        Raises:
            WrongKey: No slot of this kind opens with it.
            VaultTampered: One does, but the file is not what was written.
            Corrupt: It is damaged.
        """
        with self._guard:
            loaded, data = self._fresh()
            slot, keys = open_with(loaded.body.header.id, loaded.body.header.slots, key)
            if not is_authentic(data, keys.file_key):
                keys.wipe()
                self._forget()
                raise tampered("its seal is broken")
            try:
                self._accept(loaded)
            except RolledBack:
                keys.wipe()
                raise
            if self._keys is not None and self._keys.root == keys.root:
                self._keys.personal.update(keys.personal)
                keys.root[:] = bytes(len(keys.root))
            else:
                self._forget()
                self._keys = keys
            return slot

    def lock(self) -> None:
        """Overwrite the keys. Safe to call twice."""
        with self._guard:
            self._forget()

    def metas(self) -> tuple[RecordMeta, ...]:
        """What the vault knows of all secrets, also of those that are sealed for others.

        Raises:
            VaultLocked: Nobody could vouch for it.
            VaultTampered: The file on disk was changed; the vault is locked now.
        """
        with self._guard:
            body, _ = self._current()
            return tuple(record.meta for record in body.recs.values())

    def read(self, record_id: str, *, on_use: Callable[[str], None] | None = None) -> Secret:
        """The value of a secret, of the newest generation on disk.

        Args:
            record_id: Which.
            on_use: Told the reason whenever the value is taken out of its wrapping.

        Raises:
            NoSuchRecord: There is none of this id.
            SealedForOther: It is a person's who has not opened the vault.
            VaultLocked: The vault is locked.
            VaultTampered: The file on disk was changed; the vault is locked now.
        """
        with self._guard:
            body, keys = self._current()
            record = body.recs.get(record_id)
            if record is None:
                raise no_such_record()
            return Secret(keys.open_value(body.header.id, body.header.deks, record), on_use=on_use)

    @contextmanager
    def change(self) -> Iterator[Draft]:
        """Change the vault: everything that the block asks for is written at once when it ends; nothing if it raises.

        Only one process writes at a time, and the block sees what the one before wrote.

        Raises:
            VaultLocked: The vault is locked, or was locked meanwhile.
            VaultBusy: Another process did not end its change in time.
            VaultTampered: The file on disk was changed; the vault is locked now.
            VaultFailed: A limit is not kept, or the disk is full.
        """
        if not self.unlocked:
            raise locked()
        with self._place.locked():
            with self._guard:
                body, keys = self._current()
                draft = Draft(body, keys, self._clock)
            yield draft
            with self._guard:
                if self._keys is not keys:
                    raise locked()
                if new := draft.finish():
                    self._write(new, keys, Previous.LINK)
                    keys.personal.update(draft.personal)
                    keys.retain(new.header.owners)

    def rekey(self, keys: Sequence[NewSlot]) -> None:
        """Replace the root key, all data keys and all slots, and seal every secret anew, in one write.

        Slots that are not given are gone. The previous generation, which the old root opens, is removed.

        Raises:
            SealedForOther: A person has personal secrets and has not opened the vault.
            VaultFailed: A person with personal secrets gets no slot; or as `change`.
        """
        with self._place.locked():
            with self._guard:
                body, old = self._current()
            new = RootKeys.fresh(frozenset(slot.owner for slot in keys))
            fresh = reencrypt(body, old, new, new_header(body.header.id, body.header.gen + 1, new, keys, self._clock))
            with self._guard:
                if self._keys is not old:
                    new.wipe()
                    raise locked()
                self._write(fresh, new, Previous.DROP)
                self._forget()
                self._keys = new

    def verify(self) -> tuple[VaultFault, ...]:
        """Read the file anew and open everything in it that these keys open.

        Raises:
            VaultLocked: The vault is locked.
            VaultMissing: The file is gone.
        """
        with self._guard:
            keys, newest = self._keys, self._newest
        if keys is None or newest is None:
            raise locked()
        data, stamp = self._place.read()
        try:
            body = parse(data)
        except VaultFailed as error:
            return (VaultFault("file", "", error.message),)
        faults = [] if is_authentic(data, keys.file_key) else [VaultFault("file", "", "Its seal is broken.")]
        try:
            _check(body.header.gen, stamp.mac.hex(), *newest)
        except RolledBack as error:
            faults.append(VaultFault("file", "", error.message))
        faults.extend(
            VaultFault("slot", slot.info.id, "The slot was changed.")
            for slot in body.header.slots
            if not is_intact(body.header.id, slot, keys.root)
        )
        for record_id, record in body.recs.items():
            if not keys.opens(record.scope):
                continue
            try:
                keys.open_value(body.header.id, body.header.deks, record)
                _ = record.meta
            except VaultLocked:
                raise
            except VaultFailed as error:
                faults.append(VaultFault("secret", record_id, error.message))
        return tuple(faults)

    def _fresh(self) -> tuple[_Loaded, bytes]:
        """The file as it is now and its bytes, for somebody who will check its MAC."""
        known = self._loaded
        if known.data is not None and self._place.stamp() == known.stamp:
            return known, known.data
        data, stamp = self._place.read()
        loaded = _Loaded(parse(data), stamp, data)
        if self._keys is None:
            self._loaded = loaded
        return loaded, data

    def _current(self) -> tuple[Body, RootKeys]:
        keys = self._keys
        if keys is None:
            raise locked()
        if self._place.stamp() != self._loaded.stamp:
            try:
                self._follow(keys)
            except VaultFailed:
                self._forget()
                raise
        return self._loaded.body, keys

    def _follow(self, keys: RootKeys) -> None:
        """Take over what another process wrote, if it was one that has the keys."""
        data, stamp = self._place.read()
        loaded = _Loaded(parse(data), stamp, data)
        if loaded.body.header.root_id != keys.root_id:
            raise VaultLocked("The keys of the vault were rotated elsewhere.", hint="Run `kortix vault unlock` again.")
        if not is_authentic(data, keys.file_key):
            raise tampered("its seal is broken")
        self._accept(loaded)
        keys.retain(loaded.body.header.owners)

    def _accept(self, loaded: _Loaded) -> None:
        """Make an authentic file the current one, unless it is older than one that was seen."""
        generation, mac = loaded.body.header.gen, loaded.stamp.mac.hex()
        if self._newest is not None:
            _check(generation, mac, *self._newest)
        self._newest = generation, mac
        self._loaded = _Loaded(loaded.body, loaded.stamp, None)

    def _write(self, body: Body, keys: RootKeys, previous: Previous) -> None:
        stamp = self._place.replace(encode(body, keys.file_key), previous)
        self._loaded = _Loaded(body, stamp, None)
        self._newest = body.header.gen, stamp.mac.hex()

    def _forget(self) -> None:
        keys, self._keys = self._keys, None
        if keys is not None:
            keys.wipe()


def check_generation(vault: Vault, seen_generation: int, seen_mac: str, *, seen_id: str | None = None) -> None:
    """Compare an unlocked vault with what was seen of it before; before it is unlocked, its numbers are anyone's.

    Args:
        vault: The vault, unlocked.
        seen_generation: The highest generation that was seen; 0 for none.
        seen_mac: The MAC of that generation or its first characters, in hex.
        seen_id: Its id.

    Raises:
        RolledBack: It is older, or another one of the same generation, or another vault.
    """
    if seen_id is not None and vault.id != seen_id:
        raise RolledBack("This is another vault than the one that was used here.", hint=_ACCEPT)
    _check(vault.generation, vault.mac, seen_generation, seen_mac)


def previous(path: Path) -> PreviousInfo | None:
    """What the previous generation says of itself; `None` when there is none that can be read."""
    place = Place(path)
    try:
        data, stamp = place.read(previous=True)
        generation = parse(data).header.gen
    except VaultFailed:
        return None
    return PreviousInfo(generation, datetime.fromtimestamp(stamp.modified_ns / 1e9, UTC))


def _check(generation: int, mac: str, seen: int, seen_mac: str) -> None:
    if generation < seen:
        raise RolledBack(f"The vault is of generation {generation}, but {seen} was seen before.", hint=_ACCEPT)
    if generation == seen and not mac.startswith(seen_mac.lower()):
        raise RolledBack(f"This is another vault of generation {generation} than was seen before.", hint=_ACCEPT)
