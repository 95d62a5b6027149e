"""Making, opening, reading and changing a vault; what it refuses."""

from __future__ import annotations

import json
import os
import stat
import threading
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError
from strongbox import (
    ALICE,
    BOB,
    BORN,
    CHEAP,
    PASSPHRASE,
    RECOVERY,
    meta,
    own,
    put,
    random_key,
    reopened,
    two_slots,
    value,
)

from kortix_tui.base.errors import VaultFailed, VaultLocked, VaultMissing, VaultTampered, WrongKey
from kortix_tui.base.words import Exposure
from kortix_tui.vault.errors import (
    Corrupt,
    NoSuchRecord,
    RolledBack,
    SealedForOther,
    UnsafePlace,
    VaultBusy,
    VaultExists,
)
from kortix_tui.vault.layout import AuditAnchor
from kortix_tui.vault.records import MAX_VALUE_BYTES
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import MAX_SLOTS, NewSlot, SlotKey, SlotType
from kortix_tui.vault.storage import Place, remote_file_system
from kortix_tui.vault.vault import Vault, check_generation, previous


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault.kxv"


# --- making and opening


def test_what_is_put_in_comes_out_after_a_restart(path: Path) -> None:
    vault = Vault.create(path, [NewSlot(PASSPHRASE, "alice", cost=CHEAP), NewSlot(RECOVERY, "alice")])
    described = meta(1, exposure=Exposure.EGRESS, hosts=("api.example.org",), connectors=("tracker",), gateway=True)
    put(vault, described, b"\x00\x80 any bytes \x80\x00")
    for key in (PASSPHRASE, RECOVERY):
        again = reopened(path, key)
        assert again.metas() == (described,)
        assert value(again, "sec_1") == b"\x00\x80 any bytes \x80\x00"
        assert (again.id, again.generation, again.mac) == (vault.id, 2, vault.mac)
        assert again.verify() == ()


def test_the_file_is_private_and_shows_no_value(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(), b"canary-value-0123456789")
    assert {stat.S_IMODE(entry.stat().st_mode) for entry in path.parent.iterdir()} == {0o600}
    assert b"canary" not in path.read_bytes()


def test_values_of_similar_length_look_alike(path: Path) -> None:
    vault = two_slots(path)
    for number, length in enumerate((1, 20, 63)):
        put(vault, meta(number), b"x" * length)
    body = json.loads(path.read_bytes()[12:-32])
    assert len({len(record["sealed"]) for record in body["recs"].values()}) == 1


def test_nothing_is_overwritten(path: Path) -> None:
    two_slots(path)
    before = path.read_bytes()
    with pytest.raises(VaultExists):
        two_slots(path)
    assert path.read_bytes() == before
    put(reopened(path, ALICE), meta(), b"v")
    path.unlink()
    with pytest.raises(VaultExists, match="previous"):
        two_slots(path)
    assert not path.exists()


def test_a_missing_vault_says_what_to_run(path: Path) -> None:
    with pytest.raises(VaultMissing) as caught:
        Vault.load(path)
    assert caught.value.hint and "kortix vault init" in caught.value.hint
    with pytest.raises(VaultMissing):
        Vault.load(path.parent / "nowhere" / "vault.kxv")


def test_a_wrong_key_of_each_kind_opens_nothing(path: Path) -> None:
    keys = [random_key(kind, kind) for kind in SlotType if kind is not SlotType.PASSPHRASE]
    Vault.create(path, [NewSlot(PASSPHRASE, "alice", cost=CHEAP), *(NewSlot(key, "alice") for key in keys)])
    vault = Vault.load(path)
    wrong = [random_key(kind, "wrong") for kind in SlotType]
    # The right bytes under another kind are a wrong key too.
    crossed = [SlotKey(kind, keys[0].secret) for kind in SlotType if kind is not keys[0].type]
    for key in wrong + crossed:
        with pytest.raises(WrongKey):
            vault.unlock(key)
        assert not vault.unlocked
    for key in keys:
        assert vault.unlock(key).type is key.type


def test_a_passphrase_may_be_typed_on_another_keyboard(path: Path) -> None:
    Vault.create(path, [NewSlot(SlotKey.passphrase("h\u00e9llo"), "alice", cost=CHEAP)])
    assert reopened(path, SlotKey.passphrase("he\u0301llo")).unlocked


@pytest.mark.parametrize(("kind", "length"), [(SlotType.PASSPHRASE, 0), (SlotType.KEYFILE, 19), (SlotType.KEYRING, 65)])
def test_a_key_that_cannot_be_one_is_refused(kind: SlotType, length: int) -> None:
    with pytest.raises(VaultFailed):
        SlotKey(kind, Secret(b"k" * length))


def test_a_vault_has_one_to_sixteen_slots(path: Path) -> None:
    with pytest.raises(VaultFailed):
        Vault.create(path, [])
    with pytest.raises(VaultFailed):
        Vault.create(path, [NewSlot(ALICE, "alice")] * (MAX_SLOTS + 1))
    with pytest.raises(VaultFailed, match="owner"):
        Vault.create(path, [NewSlot(ALICE, "a b")])
    vault = two_slots(path)
    with pytest.raises(VaultFailed), vault.change() as draft:
        for number in range(MAX_SLOTS - 1):
            draft.add_slot(NewSlot(random_key(SlotType.KEYFILE, str(number)), "alice"))
    with pytest.raises(VaultFailed), vault.change() as draft:
        for slot in vault.slots:
            draft.remove_slot(slot.id)
    assert len(reopened(path, ALICE).slots) == 2


# --- locking


def test_a_locked_vault_gives_nothing(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(), b"v")
    keys = vault._keys
    assert keys is not None
    root = keys.root
    vault.lock()
    vault.lock()
    assert root == bytes(32) and not vault.unlocked and vault.people == frozenset()
    for use in (
        vault.metas, vault.verify, lambda: vault.read("sec_1"), lambda: vault.anchor,
        lambda: vault.change().__enter__(), lambda: vault.rekey([NewSlot(ALICE, "alice")]),
    ):  # fmt: skip
        with pytest.raises(VaultLocked):
            use()
    vault.unlock(RECOVERY)
    assert value(vault, "sec_1") == b"v"


def test_locking_in_the_middle_of_a_change_writes_nothing(path: Path) -> None:
    vault = two_slots(path)
    before = path.read_bytes()
    with pytest.raises(VaultLocked), vault.change() as draft:
        draft.put(meta(), Secret(b"v"))
        vault.lock()
    with pytest.raises(VaultLocked), two_slots(path.with_name("b.kxv")).change() as draft:
        draft._keys.wipe()
        draft.put(meta(), Secret(b"v"))
    assert path.read_bytes() == before


def test_readers_and_lockers_in_many_threads_never_see_a_false_alarm(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(), b"v" * 40)
    stop, failures = threading.Event(), list[BaseException]()

    def read() -> None:
        while not stop.is_set():
            try:
                assert value(vault, "sec_1") == b"v" * 40
            except VaultLocked:
                continue
            except BaseException as error:
                failures.append(error)
                return

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(60):
        vault.lock()
        vault.unlock(ALICE)
    stop.set()
    for reader in readers:
        reader.join(10)
    assert not failures


# --- changing


def test_a_change_is_all_or_nothing(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(1), b"one")
    with pytest.raises(ZeroDivisionError), vault.change() as draft:
        draft.put(meta(2), Secret(b"two"))
        draft.delete("sec_1")
        _ = 1 / 0
    assert [m.id for m in reopened(path, ALICE).metas()] == ["sec_1"] and vault.generation == 2
    with vault.change() as draft:
        assert draft.generation == 3
    assert vault.generation == 2


def test_rotating_and_restating(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(), b"old")
    put(vault, meta(version=2), b"new")
    with vault.change() as draft:
        draft.restate(meta(version=2, identifier="renamed", exposure=Exposure.ENVIRONMENT))
        assert draft.read("sec_1").use("look") == b"new"
        assert draft.meta("sec_1").identifier == "renamed" and len(draft.metas()) == 1
    again = reopened(path, ALICE)
    assert value(again, "sec_1") == b"new"
    assert again.metas()[0].exposure is Exposure.ENVIRONMENT
    for stale in (meta(version=2), meta(version=3, project="prj_2")):
        with pytest.raises(VaultFailed, match="meanwhile"):
            put(vault, stale, b"lost update")
    with pytest.raises(VaultFailed, match="meanwhile"), vault.change() as draft:
        draft.restate(meta(version=3))


def test_an_identifier_is_taken_once_in_a_project_and_owner(path: Path) -> None:
    vault = two_slots(path)
    put(vault, meta(1, identifier="Token"), b"1")
    with pytest.raises(VaultFailed, match="already"):
        put(vault, meta(2, identifier="TOKEN"), b"2")
    put(vault, own("alice", 3, identifier="token"), b"mine")
    put(vault, meta(4, identifier="token", project="prj_2"), b"elsewhere")
    with vault.change() as draft:
        draft.restate(meta(1, identifier="Token", retired=True))
        draft.put(meta(2, identifier="TOKEN"), Secret(b"2"))
        draft.delete("sec_2")
        draft.put(meta(5, identifier="tokeN"), Secret(b"5"))
    assert {m.id for m in vault.metas()} == {"sec_1", "sec_3", "sec_4", "sec_5"}


def test_limits_of_values_and_what_is_not_there(path: Path) -> None:
    vault = two_slots(path)
    for size in (0, MAX_VALUE_BYTES + 1):
        with pytest.raises(VaultFailed, match="bytes"):
            put(vault, meta(), b"x" * size)
    put(vault, meta(), b"x" * MAX_VALUE_BYTES)
    assert len(reopened(path, ALICE).read("sec_1")) == MAX_VALUE_BYTES
    with pytest.raises(NoSuchRecord):
        vault.read("sec_9")
    for act in (lambda d: d.delete("sec_9"), lambda d: d.read("sec_9"), lambda d: d.restate(meta(9))):
        with pytest.raises(NoSuchRecord), vault.change() as draft:
            act(draft)
    with pytest.raises(VaultFailed, match="no such slot"), vault.change() as draft:
        draft.remove_slot("slot_x")


@pytest.mark.parametrize(
    "fields",
    [
        {"identifier": "-x"}, {"identifier": "x" * 129}, {"name": "lower"}, {"name": ""}, {"scope": "everyone"},
        {"scope": "personal:bob"}, {"scope": "personal:project"}, {"owner": "a\x1bb"}, {"version": 0}, {"id": "A"},
        {"created": BORN.replace(tzinfo=None)}, {"exposure": "somewhere"}, {"surprise": 1}, {"hosts": ("a b",)},
        {"name": "N\n"}, {"identifier": "x\n"},
    ],
)  # fmt: skip
def test_metadata_that_cannot_be_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        meta(1, **fields)


def test_times_are_kept_to_the_millisecond_in_utc() -> None:
    moment = BORN + timedelta(microseconds=1999)
    assert meta(created=moment).created == BORN + timedelta(milliseconds=1)


def test_the_audit_anchor_is_part_of_what_is_authentic(path: Path) -> None:
    vault = two_slots(path)
    anchor = AuditAnchor(seq=7, hash="ab" * 32, at=BORN)
    assert vault.anchor is None
    with vault.change() as draft:
        draft.set_anchor(anchor)
    assert reopened(path, RECOVERY).anchor == anchor
    path.write_bytes(path.read_bytes().replace(b"abab", b"abac", 1))
    with pytest.raises(VaultTampered):
        _ = vault.anchor


# --- people


def test_personal_secrets_are_sealed_for_everybody_else(path: Path) -> None:
    vault = two_slots(path)
    with vault.change() as draft:
        draft.add_slot(NewSlot(BOB, "bob"))
        draft.put(own("alice", 1), Secret(b"of alice"))
        draft.put(own("bob", 2), Secret(b"of bob"))
        draft.put(meta(3), Secret(b"of all"))
    assert vault.people == {"alice", "bob"}
    bobs = reopened(path, BOB)
    assert bobs.people == {"bob"}
    assert (value(bobs, "sec_2"), value(bobs, "sec_3")) == (b"of bob", b"of all")
    assert len(bobs.metas()) == 3 and bobs.verify() == ()
    with pytest.raises(SealedForOther):
        bobs.read("sec_1")
    refused = [
        lambda d: d.put(own("alice", 1, version=2), Secret(b"x")),
        lambda d: d.put(own("alice", 4), Secret(b"x")),
        lambda d: d.put(meta(1, version=2, identifier="a"), Secret(b"x")),
        lambda d: d.restate(meta(1, identifier="a")),
        lambda d: d.add_slot(NewSlot(RECOVERY, "alice")),
    ]
    for act in refused:
        with pytest.raises(SealedForOther), bobs.change() as draft:
            act(draft)
    bobs.unlock(ALICE)
    assert bobs.people == {"alice", "bob"} and value(bobs, "sec_1") == b"of alice"


def test_a_person_with_secrets_keeps_a_slot(path: Path) -> None:
    vault = two_slots(path)
    with vault.change() as draft:
        bobs = draft.add_slot(NewSlot(BOB, "bob"))
        draft.put(own("bob", 1), Secret(b"of bob"))
    with pytest.raises(VaultFailed, match="last slot of bob"), vault.change() as draft:
        draft.remove_slot(bobs.id)
    with vault.change() as draft:
        draft.delete("sec_1")
        draft.remove_slot(bobs.id)
    assert vault.people == {"alice"}
    other = reopened(path, ALICE)
    with other.change() as draft:
        draft.add_slot(NewSlot(BOB, "bob"))
        draft.put(own("bob", 1), Secret(b"again"))
    assert value(reopened(path, BOB), "sec_1") == b"again"


# --- several processes


def test_another_writer_is_followed(path: Path) -> None:
    mine, theirs = two_slots(path), reopened(path, RECOVERY)
    put(theirs, meta(1), b"one")
    assert value(mine, "sec_1") == b"one"
    put(mine, meta(2), b"two")
    assert len(theirs.metas()) == 2 and theirs.generation == 3
    locked = Vault.load(path)
    with mine.change() as draft:
        slot = draft.add_slot(NewSlot(BOB, "bob"))
    assert locked.unlock(BOB) == slot


def test_a_busy_vault_is_waited_for_with_a_deadline(path: Path) -> None:
    two_slots(path)
    place = Place(path)
    with place.locked(), pytest.raises(VaultBusy), place.locked(wait_s=0.02):
        pass


def test_rotation_leaves_nothing_for_old_keys(path: Path) -> None:
    vault, other = two_slots(path), reopened(path, ALICE)
    put(vault, meta(1), b"shared")
    put(vault, own("alice", 2), b"own")
    anchor = AuditAnchor(seq=1, hash="cd" * 32, at=BORN)
    with vault.change() as draft:
        draft.set_anchor(anchor)
    old = path.read_bytes()
    vault.rekey([NewSlot(ALICE, "alice"), NewSlot(PASSPHRASE, "alice", cost=CHEAP)])
    assert value(vault, "sec_1") == b"shared" and vault.generation == 5 and vault.anchor == anchor
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["vault.kxv", "vault.lock"]
    new = reopened(path, PASSPHRASE)
    assert value(new, "sec_2") == b"own" and new.id == other.id
    with pytest.raises(WrongKey):
        Vault.load(path).unlock(RECOVERY)
    with pytest.raises(VaultLocked, match="rotated"):
        other.read("sec_1")
    old_body, new_body = json.loads(old[12:-32]), json.loads(path.read_bytes()[12:-32])
    for name in ("sec_1", "sec_2"):
        assert old_body["recs"][name]["sealed"] != new_body["recs"][name]["sealed"]
    assert old_body["root_id"] != new_body["root_id"]


def test_rotation_never_loses_somebody_elses_secrets(path: Path) -> None:
    vault = two_slots(path)
    with vault.change() as draft:
        draft.add_slot(NewSlot(BOB, "bob"))
        draft.put(own("bob", 1), Secret(b"of bob"))
    before = path.read_bytes()
    with pytest.raises(VaultFailed, match="bob"):
        vault.rekey([NewSlot(ALICE, "alice")])
    with pytest.raises(SealedForOther):
        reopened(path, ALICE).rekey([NewSlot(ALICE, "alice"), NewSlot(BOB, "bob")])
    assert path.read_bytes() == before
    vault.rekey([NewSlot(ALICE, "alice"), NewSlot(BOB, "bob")])
    assert value(reopened(path, BOB), "sec_1") == b"of bob"


# --- age


def test_the_generation_before_is_shown_but_never_used_by_itself(path: Path) -> None:
    vault = two_slots(path)
    assert previous(path) is None
    put(vault, meta(), b"v")
    found = previous(path)
    assert found is not None and found.generation == 1
    path.write_bytes(b"torn")
    with pytest.raises(Corrupt):
        Vault.load(path)
    path.with_name("vault.kxv.prev").write_bytes(b"torn too")
    assert previous(path) is None


def test_an_old_file_in_place_of_the_new_one_is_noticed(path: Path) -> None:
    vault = two_slots(path)
    old = path.read_bytes()
    put(vault, meta(), b"v")
    seen_generation, seen_mac = vault.generation, vault.mac
    check_generation(vault, seen_generation, seen_mac[:16], seen_id=vault.id)
    check_generation(vault, seen_generation - 1, "00")
    path.write_bytes(old)
    fresh = reopened(path, ALICE)
    with pytest.raises(RolledBack):
        check_generation(fresh, seen_generation, seen_mac)
    with pytest.raises(RolledBack):
        vault.read("sec_1")
    assert not vault.unlocked
    with pytest.raises(RolledBack):
        vault.unlock(ALICE)
    # Another history of the same length, and another vault.
    put(fresh, meta(), b"other")
    with pytest.raises(RolledBack):
        check_generation(fresh, seen_generation, seen_mac[:16])
    with pytest.raises(RolledBack, match="another vault"):
        check_generation(fresh, 0, "", seen_id="0" * 32)


# --- where it lies


def test_files_that_others_can_touch_are_refused(path: Path) -> None:
    vault = two_slots(path)
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(UnsafePlace, match="access") as caught:
            Vault.load(path)
        assert caught.value.hint and "chmod 600" in caught.value.hint
        with pytest.raises(UnsafePlace):
            vault.unlock(ALICE)
    path.chmod(0o600)
    path.parent.chmod(0o770)
    with pytest.raises(UnsafePlace, match="folder"):
        Vault.load(path)
    path.parent.chmod(0o700)
    assert Vault.load(path).id == vault.id


def test_links_pipes_and_folders_are_refused(path: Path) -> None:
    two_slots(path.with_name("real.kxv"))
    path.symlink_to("real.kxv")
    with pytest.raises(UnsafePlace):
        Vault.load(path)
    path.unlink()
    os.mkfifo(path, 0o600)
    with pytest.raises(UnsafePlace, match="plain file"):
        Vault.load(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UnsafePlace):
        Vault.load(path)


def test_a_planted_lock_or_draft_is_not_followed(path: Path) -> None:
    vault = two_slots(path)
    bait = path.with_name("bait")
    bait.write_bytes(b"precious")
    path.with_name(f"vault.kxv.tmp.{os.getpid()}").symlink_to(bait)
    put(vault, meta(), b"v")
    path.with_name("vault.lock").unlink()
    path.with_name("vault.lock").symlink_to(bait)
    with pytest.raises(UnsafePlace):
        put(vault, meta(2), b"v")
    assert bait.read_bytes() == b"precious"


def test_what_killed_writers_left_is_removed(path: Path) -> None:
    vault = two_slots(path)
    for name in ("vault.kxv.tmp.1", "vault.kxv.tmp.99999"):
        path.with_name(name).write_bytes(b"half")
    put(vault, meta(), b"v")
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["vault.kxv", "vault.kxv.prev", "vault.lock"]


def test_network_file_systems_are_known_by_the_nearest_mount(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    spaced = tmp_path / "far away"
    spaced.mkdir()

    def mounts(*lines: tuple[str, str]) -> None:
        table.write_text(
            "".join(f"20 1 0:1 / {point} rw,relatime shared:1 - {kind} source rw\n" for point, kind in lines)
        )

    mounts(("/", "ext4"))
    assert remote_file_system(tmp_path, table) is None
    for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"):
        mounts(("/", "ext4"), (str(tmp_path), kind))
        assert remote_file_system(tmp_path, table) == kind
        mounts((str(tmp_path), "ext4"), ("/", kind))
        assert remote_file_system(tmp_path, table) is None
    mounts(("/", "nfs4"), ("/", "ext4"))
    assert remote_file_system(tmp_path, table) is None
    mounts(("/", "ext4"), (str(spaced).replace(" ", "\\040"), "nfs"))
    assert remote_file_system(spaced, table) == "nfs" and remote_file_system(tmp_path, table) is None
    assert remote_file_system(tmp_path, tmp_path / "none") is None


def test_a_home_on_a_network_disk_is_refused(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kortix_tui.vault.storage.remote_file_system", lambda folder: "nfs4")
    with pytest.raises(UnsafePlace, match="network"):
        two_slots(path)
    assert not path.exists()
