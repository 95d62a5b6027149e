"""Any sequence of acts leaves the vault as a plain dictionary would be, seen through every slot."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, precondition, rule
from strongbox import BORN, CHEAP, random_key, reopened, value

from kortix_tui.base.errors import VaultFailed, VaultLocked, WrongKey
from kortix_tui.base.words import Exposure
from kortix_tui.vault.errors import NoSuchRecord, SealedForOther
from kortix_tui.vault.records import PROJECT, SHARED, RecordMeta, person_of, personal
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotKey, SlotType
from kortix_tui.vault.vault import Vault, check_generation

PEOPLE = ("alice", "bob")
OWNERS = st.sampled_from((PROJECT, *PEOPLE))
VALUES = st.binary(min_size=1, max_size=200) | st.just(b"\x80") | st.just(b"\x00" * 64)
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,9}", fullmatch=True)


def scope_of(owner: str) -> str:
    return SHARED if owner == PROJECT else personal(owner)


class VaultMachine(RuleBasedStateMachine):
    """`records` and `slots` are the model; `vault` is one handle that lives on through everything."""

    ids = Bundle("ids")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kx", dir="/tmp"))
        self.path = self.folder / "vault.kxv"
        self.records = dict[str, tuple[RecordMeta, bytes]]()
        self.slots = dict[str, tuple[SlotKey, str]]()
        self.count = 0
        self.seen = (0, "")

    @initialize()
    def make(self) -> None:
        first = self.new_slot("alice", SlotType.KEYFILE)
        spare = NewSlot(SlotKey.passphrase("pass phrase"), "alice", cost=CHEAP)
        self.vault = Vault.create(self.path, [first, spare])
        self.slots = {info.id: (new.key, "alice") for info, new in zip(self.vault.slots, (first, spare), strict=True)}

    def new_slot(self, owner: str, kind: SlotType) -> NewSlot:
        self.count += 1
        return NewSlot(random_key(kind, f"{owner}{self.count}"), owner)

    def is_taken(self, described: RecordMeta) -> bool:
        return any(m.key == described.key and m.id != described.id for m, _ in self.records.values())

    # --- secrets

    @rule(target=ids, owner=OWNERS, identifier=NAMES, content=VALUES, exposure=st.sampled_from(Exposure))
    def put(self, owner: str, identifier: str, content: bytes, exposure: Exposure) -> str:
        self.count += 1
        described = RecordMeta(
            id=f"sec_{self.count}", project="prj_1", identifier=identifier, name="NAME", scope=scope_of(owner),
            owner=owner, exposure=exposure, version=1, created=BORN,
        )  # fmt: skip
        self.try_to_put(described, content)
        return described.id

    def try_to_put(self, described: RecordMeta, content: bytes) -> None:
        try:
            with self.vault.change() as draft:
                draft.put(described, Secret(content))
        except SealedForOther:
            assert person_of(described.scope) not in self.vault.people | {None}
        except VaultFailed:
            assert self.is_taken(described) or not self.has_slot(described.owner)
        else:
            assert not self.is_taken(described)
            self.records[described.id] = described, content

    def has_slot(self, person: str) -> bool:
        return any(owner == person for _, owner in self.slots.values())

    @rule(record=ids, content=VALUES)
    def rotate(self, record: str, content: bytes) -> None:
        if record in self.records:
            described = self.records[record][0]
            self.try_to_put(described.model_copy(update={"version": described.version + 1}), content)

    @rule(record=ids, identifier=NAMES)
    def rename(self, record: str, identifier: str) -> None:
        self.restate(record, {"identifier": identifier})

    @rule(record=ids, exposure=st.sampled_from(Exposure))
    def expose(self, record: str, exposure: Exposure) -> None:
        self.restate(record, {"exposure": exposure})

    @rule(record=ids, owner=OWNERS)
    def share(self, record: str, owner: str) -> None:
        self.restate(record, {"owner": owner, "scope": scope_of(owner)})

    def restate(self, record: str, fields: dict[str, object]) -> None:
        if record not in self.records:
            with pytest.raises(NoSuchRecord), self.vault.change() as draft:
                draft.delete(record)
            return
        old, content = self.records[record]
        new = old.model_copy(update=fields)
        people = self.vault.people | {None}
        try:
            with self.vault.change() as draft:
                draft.restate(new)
        except SealedForOther:
            assert not {person_of(old.scope), person_of(new.scope)} <= people
        except VaultFailed:
            assert self.is_taken(new) or not self.has_slot(new.owner)
        else:
            self.records[record] = new, content

    @rule(record=consumes(ids))
    def delete(self, record: str) -> None:
        if self.records.pop(record, None):
            with self.vault.change() as draft:
                draft.delete(record)

    @rule(record=ids, content=VALUES)
    def fail_in_the_middle(self, record: str, content: bytes) -> None:
        with pytest.raises(ZeroDivisionError), self.vault.change() as draft:
            if record in self.records:
                draft.delete(record)
            _ = 1 / 0

    # --- slots

    def any_slot(self, data: st.DataObject) -> str:
        # By position: the ids are random, and a run must be repeatable.
        return list(self.slots)[data.draw(st.integers(0, len(self.slots) - 1))]

    @rule(owner=st.sampled_from(PEOPLE), kind=st.sampled_from([SlotType.KEYFILE, SlotType.KEYRING, SlotType.RECOVERY]))
    @precondition(lambda self: len(self.slots) < 6)
    def add_slot(self, owner: str, kind: SlotType) -> None:
        new = self.new_slot(owner, kind)
        try:
            with self.vault.change() as draft:
                info = draft.add_slot(new)
        except SealedForOther:
            assert self.has_slot(owner) and owner not in self.vault.people
        else:
            self.slots[info.id] = new.key, owner

    @rule(data=st.data())
    def remove_slot(self, data: st.DataObject) -> None:
        gone = self.any_slot(data)
        owner = self.slots[gone][1]
        others = [slot for slot, (_, other) in self.slots.items() if slot != gone and other == owner]
        needed = any(m.scope == personal(owner) for m, _ in self.records.values())
        allowed = len(self.slots) > 1 and (others or not needed)
        try:
            with self.vault.change() as draft:
                draft.remove_slot(gone)
        except VaultFailed:
            assert not allowed
        else:
            assert allowed
            key, _ = self.slots.pop(gone)
            with pytest.raises(WrongKey):
                Vault.load(self.path).unlock(key)

    @rule()
    def rotate_keys(self) -> None:
        owners = {owner for _, owner in self.slots.values()}
        new = [self.new_slot(owner, SlotType.KEYFILE) for owner in sorted(owners)]
        sealed = {person_of(m.scope) for m, _ in self.records.values()} - self.vault.people - {None}
        try:
            self.vault.rekey(new)
        except SealedForOther:
            assert sealed
        else:
            assert not sealed
            made = zip(self.vault.slots, new, strict=True)
            self.slots = {info.id: (slot.key, slot.owner) for info, slot in made}

    # --- opening and closing

    @rule(data=st.data())
    def lock_and_unlock(self, data: st.DataObject) -> None:
        self.vault.lock()
        with pytest.raises(VaultLocked):
            self.vault.metas()
        self.vault.unlock(self.slots[self.any_slot(data)][0])

    @rule(data=st.data())
    def start_again(self, data: st.DataObject) -> None:
        self.vault = reopened(self.path, self.slots[self.any_slot(data)][0])

    @rule(data=st.data())
    def somebody_joins(self, data: st.DataObject) -> None:
        self.vault.unlock(self.slots[self.any_slot(data)][0])

    # --- what must hold

    @invariant()
    def every_slot_gives_the_same_view(self) -> None:
        check_generation(self.vault, *self.seen)
        self.seen = self.vault.generation, self.vault.mac
        views = [(self.vault, self.vault.people)]
        for key, owner in self.slots.values():
            if key.type is not SlotType.PASSPHRASE:
                views.append((reopened(self.path, key), frozenset({owner})))
        for vault, people in views:
            assert vault.people == people and vault.generation == self.seen[0]
            assert {info.id for info in vault.slots} == set(self.slots)
            assert {m.id: m for m in vault.metas()} == {m.id: m for m, _ in self.records.values()}
            for described, content in self.records.values():
                if person_of(described.scope) in people | {None}:
                    assert value(vault, described.id) == content
                else:
                    with pytest.raises(SealedForOther):
                        vault.read(described.id)

    def teardown(self) -> None:
        try:
            for key, _ in self.slots.values():
                assert reopened(self.path, key).verify() == ()
            assert not list(self.folder.glob("*.tmp.*"))
        finally:
            shutil.rmtree(self.folder)


VaultMachine.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestVaultMachine = VaultMachine.TestCase
