"""A change to the vault, put together in memory under the write lock and written at once, or not at all."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.clock import Clock
from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.cipher import random_key
from kortix_tui.vault.errors import SealedForOther, no_such_record
from kortix_tui.vault.keys import RootKeys
from kortix_tui.vault.layout import MAX_GENERATION, MAX_RECORDS, AuditAnchor, Body
from kortix_tui.vault.records import MAX_VALUE_BYTES, RecordMeta, StoredRecord, person_of, seal_record
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import MAX_SLOTS, NewSlot, SlotInfo, make_slot

_LOOK_AGAIN: Final = "Look at it again with `kortix secrets show`, then repeat the change."


class Draft:
    """What the vault will be when the block of `Vault.change` ends.

    Limits on the number of slots are looked at in the end only, so that a passphrase may be replaced in either order.
    """

    def __init__(self, body: Body, keys: RootKeys, clock: Clock) -> None:
        self._body = body
        self._keys = keys.extended()
        self._clock = clock
        self._recs = dict(body.recs)
        self._deks = dict(body.header.deks)
        self._slots = {slot.info.id: slot for slot in body.header.slots}
        self._anchor = body.header.anchor
        self._used: dict[tuple[str, str, str], str] | None = None
        self._changed = False

    @property
    def generation(self) -> int:
        """The generation that this change makes."""
        return self._body.header.gen + 1

    @property
    def personal(self) -> dict[str, bytearray]:
        """Personal roots, with those of people who get their first slot by this change."""
        return self._keys.personal

    def metas(self) -> tuple[RecordMeta, ...]:
        """All metadata as it stands now, with what this change has done so far."""
        return tuple(record.meta for record in self._recs.values())

    def meta(self, record_id: str) -> RecordMeta:
        """The metadata of one secret.

        Raises:
            NoSuchRecord: There is none of this id.
        """
        return self._record(record_id).meta

    def read(self, record_id: str) -> Secret:
        """The value as it stands under the lock, to be changed.

        Raises:
            NoSuchRecord: There is none of this id.
            SealedForOther: It is a person's who has not opened the vault.
        """
        return Secret(self._keys.open_value(self._body.header.id, self._deks, self._record(record_id)))

    def put(self, meta: RecordMeta, value: Secret) -> None:
        """Add a secret, or give one a new value under a higher version.

        Raises:
            VaultFailed: The value has a wrong size, the version does not grow, the project differs, the identifier is
                taken, or there are too many.
            SealedForOther: The old or the new scope is a person's who has not opened the vault.
        """
        old = self._recs.get(meta.id)
        if old is not None:
            self._check_successor(old.meta, meta, grows=True)
        elif len(self._recs) >= MAX_RECORDS:
            raise VaultFailed(f"The vault holds {MAX_RECORDS} secrets already.", hint="Remove some that nobody uses.")
        if not 1 <= len(value) <= MAX_VALUE_BYTES:
            raise VaultFailed(
                f"A value has 1 to {MAX_VALUE_BYTES} bytes; this one has {len(value)}.",
                hint="Keep larger things in a file and store the key to them.",
            )
        self._store(meta, value)

    def restate(self, meta: RecordMeta) -> None:
        """Give a secret new metadata; the value stays, sealed anew together with them.

        Raises:
            NoSuchRecord: There is none of this id.
            VaultFailed: Version or project differ, or the identifier is taken.
            SealedForOther: The old or the new scope is a person's who has not opened the vault.
        """
        self._check_successor(self._record(meta.id).meta, meta, grows=False)
        value = self.read(meta.id)
        self._store(meta, value)
        value.wipe()

    def delete(self, record_id: str) -> None:
        """Forget a secret; also one that is sealed for somebody else.

        Raises:
            NoSuchRecord: There is none of this id.
        """
        gone = self._record(record_id).meta
        if self._used is not None and self._used.get(gone.key) == record_id:
            del self._used[gone.key]
        del self._recs[record_id]
        self._changed = True

    def add_slot(self, new: NewSlot) -> SlotInfo:
        """Add a way to open the vault.

        Raises:
            SealedForOther: The owner has slots, but has not opened the vault: nobody else can hand on their key.
        """
        personal = self._keys.personal.get(new.owner)
        if personal is None:
            if any(slot.info.owner == new.owner for slot in self._slots.values()):
                raise SealedForOther(
                    f"{new.owner} has slots already, and only {new.owner} can add another.",
                    hint=f"{new.owner} must unlock the vault with a slot of their own first.",
                )
            personal = self._keys.personal[new.owner] = random_key()
        now = self._clock.now()
        slot = make_slot(self._body.header.id, new, now, self._keys.root, personal)
        self._slots[slot.info.id] = slot
        self._changed = True
        return slot.info

    def remove_slot(self, slot_id: str) -> None:
        """Take away a way to open the vault. Copies of older files still open with it: rotate when it was stolen.

        Raises:
            VaultFailed: There is no such slot.
        """
        if self._slots.pop(slot_id, None) is None:
            raise VaultFailed("The vault has no such slot.", hint="See `kortix vault status` for its slots.")
        self._changed = True

    def set_anchor(self, anchor: AuditAnchor) -> None:
        """Note the head of the audit chain."""
        self._anchor = anchor
        self._changed = True

    def finish(self) -> Body | None:
        """The body to write; `None` when nothing was asked for.

        Raises:
            VaultFailed: A limit is not kept, or somebody would lose their personal secrets.
        """
        if not self._changed:
            return None
        if not 1 <= len(self._slots) <= MAX_SLOTS:
            raise VaultFailed(
                f"A vault has 1 to {MAX_SLOTS} slots.", hint="Add another slot first, or remove one that is not used."
            )
        if self.generation > MAX_GENERATION:
            raise VaultFailed("The vault has been written too often.", hint="Export it and make a new one.")
        owners = {slot.info.owner for slot in self._slots.values()}
        for scope in {record.scope for record in self._recs.values()}:
            person = person_of(scope)
            if person is not None and person not in owners:
                raise VaultFailed(
                    f"This would take away the last slot of {person}, who has personal secrets.",
                    hint=f"Add another slot for {person}, or remove these secrets first.",
                )
        fields = {
            "gen": self.generation,
            "slots": tuple(self._slots.values()),
            "deks": {scope: dek for scope, dek in self._deks.items() if person_of(scope) in owners | {None}},
            "anchor": self._anchor,
        }
        return Body(self._body.header.model_copy(update=fields), self._recs)

    def _record(self, record_id: str) -> StoredRecord:
        try:
            return self._recs[record_id]
        except KeyError:
            raise no_such_record() from None

    def _check_successor(self, old: RecordMeta, new: RecordMeta, *, grows: bool) -> None:
        right = new.version > old.version if grows else new.version == old.version
        if not right or old.project != new.project:
            raise VaultFailed(f"{old.identifier} was changed meanwhile.", hint=_LOOK_AGAIN)
        if not self._keys.opens(old.scope):
            raise SealedForOther(
                f"{old.identifier} is sealed for {old.owner}.", hint=f"Only {old.owner} can change it, or remove it."
            )

    def _store(self, meta: RecordMeta, value: Secret) -> None:
        if self._used is None:
            metas = (record.meta for record in self._recs.values())
            self._used = {other.key: other.id for other in metas if not other.retired}
        if not meta.retired and self._used.get(meta.key, meta.id) != meta.id:
            raise VaultFailed(
                f"There is a secret {meta.identifier} already.", hint="Rotate it, or choose another identifier."
            )
        vault_id = self._body.header.id
        if meta.scope not in self._deks:
            self._deks[meta.scope] = self._keys.new_dek(vault_id, meta.scope)
        dek = self._keys.open_dek(vault_id, meta.scope, self._deks[meta.scope])
        old = self._recs.get(meta.id)
        if old is not None and self._used.get(old.meta.key) == meta.id:
            del self._used[old.meta.key]
        if not meta.retired:
            self._used[meta.key] = meta.id
        self._recs[meta.id] = seal_record(dek, vault_id, meta, value.use("seal it in the vault"))
        self._changed = True
