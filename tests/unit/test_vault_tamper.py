"""Every byte of the file is authentic, or nothing is released from it."""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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

from kortix_tui.base.errors import VaultFailed, VaultTampered, WrongKey
from kortix_tui.vault.errors import Corrupt, RolledBack
from kortix_tui.vault.layout import MAX_FILE_BYTES, AuditAnchor
from kortix_tui.vault.repair import Known, repair
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import NewSlot, SlotKey, SlotType
from kortix_tui.vault.vault import Vault, check_generation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault.kxv"


@pytest.fixture
def small(path: Path) -> Vault:
    """Two slots, a shared and a personal secret."""
    vault = two_slots(path)
    with vault.change() as draft:
        draft.put(meta(1), Secret(b"first value"))
        draft.put(own("alice", 2), Secret(b"second value"))
    return vault


def body_of(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_bytes()[12:-32])
    return body


def write_body(path: Path, body: dict[str, Any] | bytes) -> None:
    """A file of the right shape, with the MAC of the file that is there."""
    text = body if isinstance(body, bytes) else json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    path.write_bytes(b"KXVAULT\x01" + struct.pack(">I", len(text)) + text + path.read_bytes()[-32:])


def overwrite(path: Path, data: bytes | bytearray) -> None:
    """Without emptying the file first: ext4 syncs files that are emptied and written again."""
    with path.open("r+b") as file:
        file.write(data)
        file.truncate()


def outcome(path: Path, key: SlotKey) -> str:
    """`VaultFailed` by name, or what was released."""
    try:
        vault = reopened(path, key)
        return repr((vault.metas(), [value(vault, described.id) for described in vault.metas()]))
    except VaultFailed as error:
        return type(error).__name__


# --- every bit, every length


@pytest.mark.parametrize("bit", range(8))
def test_every_flipped_bit_is_refused(small: Vault, path: Path, bit: int) -> None:
    whole = path.read_bytes()
    draft = bytearray(whole)
    outcomes = set[str]()
    for at in range(len(whole)):
        draft[at] ^= 1 << bit
        overwrite(path, draft)
        draft[at] ^= 1 << bit
        outcomes.add(outcome(path, ALICE))
    assert outcomes <= {"Corrupt", "VaultTampered", "WrongKey"} and "VaultTampered" in outcomes
    overwrite(path, whole)
    assert "second value" in outcome(path, ALICE)


def test_every_truncation_and_extension_is_refused(small: Vault, path: Path) -> None:
    whole = path.read_bytes()
    for length in range(len(whole)):
        overwrite(path, whole[:length])
        assert outcome(path, ALICE) == "Corrupt"
    for more in (b"\0", b"x" * 32, whole):
        overwrite(path, whole + more)
        assert outcome(path, ALICE) == "Corrupt"
        overwrite(path, more + whole)
        assert outcome(path, ALICE) == "Corrupt"


def test_an_open_vault_releases_nothing_of_a_file_that_changed_under_it(small: Vault, path: Path) -> None:
    whole = bytearray(path.read_bytes())
    for at in range(0, len(whole), 37):
        whole[at] ^= 4
        overwrite(path, whole)
        with pytest.raises(VaultFailed):
            small.read("sec_1")
        assert not small.unlocked
        whole[at] ^= 4
        overwrite(path, whole)
        small.unlock(ALICE)
        assert value(small, "sec_1") == b"first value"


# --- parts moved to other places


def set_exposure(body: dict[str, Any]) -> None:
    body["recs"]["sec_1"]["meta"]["exposure"] = "environment"


def swap_values(body: dict[str, Any]) -> None:
    one, two = body["recs"]["sec_1"], body["recs"]["sec_2"]
    one["salt"], one["sealed"], two["salt"], two["sealed"] = two["salt"], two["sealed"], one["salt"], one["sealed"]


def swap_names(body: dict[str, Any]) -> None:
    one, two = body["recs"]["sec_1"]["meta"], body["recs"]["sec_2"]["meta"]
    one["identifier"], two["identifier"] = two["identifier"], one["identifier"]


def take_over_scope(body: dict[str, Any]) -> None:
    body["recs"]["sec_2"]["meta"] |= {"scope": "shared", "owner": "project"}


def swap_data_keys(body: dict[str, Any]) -> None:
    deks = body["deks"]
    deks["shared"], deks["personal:alice"] = deks["personal:alice"], deks["shared"]


def widen_hosts(body: dict[str, Any]) -> None:
    body["recs"]["sec_1"]["meta"]["hosts"] = ["evil.example"]


def lower_version(body: dict[str, Any]) -> None:
    body["recs"]["sec_1"]["meta"]["version"] = 9


def duplicate(body: dict[str, Any]) -> None:
    copied = json.loads(json.dumps(body["recs"]["sec_1"]))
    copied["meta"]["id"] = "sec_3"
    body["recs"]["sec_3"] = copied


MOVES = [set_exposure, swap_values, swap_names, take_over_scope, swap_data_keys, widen_hosts, lower_version, duplicate]


@pytest.mark.parametrize("move", MOVES)
def test_what_was_moved_does_not_open(small: Vault, path: Path, move: Callable[[dict[str, Any]], None]) -> None:
    body = body_of(path)
    move(body)
    write_body(path, body)
    assert outcome(path, ALICE) == "VaultTampered"
    # Even a repair, which forgives the broken seal of the file, keeps only what is where it was put.
    report = repair(path, ALICE, RECOVERY)
    again = reopened(path, ALICE)
    for described in report.kept:
        assert described in (meta(1), own("alice", 2))
        assert value(again, described.id) == {"sec_1": b"first value", "sec_2": b"second value"}[described.id]
    assert report.lost and {m.id for m in again.metas()} == {m.id for m in report.kept}


def test_a_record_of_another_vault_or_generation_does_not_open(small: Vault, path: Path) -> None:
    old = body_of(path)
    other = path.with_name("other.kxv")
    put(two_slots(other), meta(1), b"of another vault")
    put(small, meta(1, version=2), b"rotated")
    for foreign in (body_of(other), old):
        body = body_of(path)
        body["recs"]["sec_1"] = foreign["recs"]["sec_1"]
        write_body(path, body)
        assert outcome(path, ALICE) == "VaultTampered"
    for part in ("slots", "deks"):
        body = body_of(path)
        body[part] = body_of(other)[part]
        write_body(path, body)
        assert outcome(path, ALICE) in ("VaultTampered", "WrongKey", "Corrupt")


def test_a_whole_older_file_is_a_rollback(small: Vault, path: Path) -> None:
    old = path.read_bytes()
    put(small, meta(1, version=2), b"rotated")
    path.write_bytes(old)
    again = reopened(path, ALICE)
    with pytest.raises(RolledBack):
        check_generation(again, small.generation, small.mac)
    # An older file that claims a newer generation is not whole.
    body = body_of(path)
    body["gen"] += 5
    write_body(path, body)
    assert outcome(path, ALICE) == "VaultTampered"


# --- hostile headers


@pytest.mark.parametrize(
    "numbers",
    [
        {"memory_kib": 1048577}, {"memory_kib": 19455}, {"passes": 11}, {"passes": 0}, {"lanes": 9}, {"lanes": 0},
        {"memory_kib": 10**400}, {"passes": "3"}, {"passes": 1.0}, {"more": 1},
    ],
)  # fmt: skip
def test_costs_out_of_range_are_refused_before_any_key_is_derived(
    path: Path, monkeypatch: pytest.MonkeyPatch, numbers: dict[str, Any]
) -> None:
    Vault.create(path, [NewSlot(PASSPHRASE, "alice", cost=CHEAP)])
    body = body_of(path)
    body["slots"][0]["cost"] |= numbers
    write_body(path, body)
    monkeypatch.setattr("kortix_tui.vault.slots.stretch", lambda *_: pytest.fail("a key was derived"))
    with pytest.raises(Corrupt):
        reopened(path, PASSPHRASE)


def too_many_slots(body: dict[str, Any]) -> None:
    body["slots"] = [{**body["slots"][0], "info": {**body["slots"][0]["info"], "id": f"slot_{n}"}} for n in range(17)]


def same_slot_twice(body: dict[str, Any]) -> None:
    body["slots"].append(body["slots"][0])


def cost_for_a_key_file(body: dict[str, Any]) -> None:
    body["slots"][0]["cost"] = {"memory_kib": 65536, "passes": 3, "lanes": 4}


def unknown_field(body: dict[str, Any]) -> None:
    body["surprise"] = 1


def other_format(body: dict[str, Any]) -> None:
    body["format"] = 2


def record_of_no_scope(body: dict[str, Any]) -> None:
    del body["deks"]["personal:alice"]


def record_without_shape(body: dict[str, Any]) -> None:
    body["recs"]["sec_1"] = ["meta", "salt", "sealed"]


def record_with_a_number(body: dict[str, Any]) -> None:
    body["recs"]["sec_1"]["meta"]["scope"] = {}


def records_as_list(body: dict[str, Any]) -> None:
    body["recs"] = list(body["recs"].values())


def generation_past_the_end(body: dict[str, Any]) -> None:
    body["gen"] = 2**53


def not_a_number(body: dict[str, Any]) -> None:
    body["gen"] = float("nan")


@pytest.mark.parametrize(
    "break_it",
    [
        too_many_slots, same_slot_twice, cost_for_a_key_file, unknown_field, other_format, record_of_no_scope,
        record_without_shape, record_with_a_number, records_as_list, generation_past_the_end, not_a_number,
    ],
)  # fmt: skip
def test_shapes_that_are_never_written_are_corrupt(
    small: Vault, path: Path, break_it: Callable[[dict[str, Any]], None]
) -> None:
    body = body_of(path)
    break_it(body)
    write_body(path, body)
    with pytest.raises(Corrupt) as caught:
        Vault.load(path)
    assert caught.value.hint


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 9999]
)
def test_bodies_that_are_no_object_are_corrupt(small: Vault, path: Path, text: bytes) -> None:
    write_body(path, text)
    with pytest.raises(Corrupt):
        Vault.load(path)
    with pytest.raises(Corrupt):
        repair(path, ALICE, RECOVERY)


def test_a_file_of_any_size_is_refused_unread(small: Vault, path: Path) -> None:
    os.truncate(path, MAX_FILE_BYTES + 1)
    with pytest.raises(Corrupt, match="larger"):
        Vault.load(path)


def test_verify_names_what_is_wrong(small: Vault, path: Path) -> None:
    body = body_of(path)
    set_exposure(body)
    body["slots"][1]["info"]["place"] = "/elsewhere"
    write_body(path, body)
    faults = {(fault.kind, fault.id) for fault in small.verify()}
    assert faults == {("file", ""), ("secret", "sec_1"), ("slot", body["slots"][1]["info"]["id"])}
    path.write_bytes(b"torn")
    assert [fault.kind for fault in small.verify()] == ["file"]


def test_verify_notices_an_older_file(small: Vault, path: Path) -> None:
    old = path.read_bytes()
    put(small, meta(1, version=2), b"rotated")
    path.write_bytes(old)
    assert [(fault.kind, "generation 2" in fault.message) for fault in small.verify()] == [("file", True)]


# --- repair


@pytest.fixture
def three(path: Path) -> Iterator[Vault]:
    """Slots of Alice, her recovery key, and Bob, who has a secret of his own."""
    vault = two_slots(path)
    with vault.change() as draft:
        draft.add_slot(NewSlot(BOB, "bob"))
        draft.put(meta(1), Secret(b"first value"))
        draft.put(own("bob", 2), Secret(b"of bob"))
        draft.set_anchor(AuditAnchor(seq=3, hash="ef" * 32, at=BORN))
    put(vault, meta(3), b"third value")
    yield reopened(path, ALICE)


def test_a_damaged_slot_closes_the_vault_until_it_is_repaired(three: Vault, path: Path) -> None:
    body = body_of(path)
    wrapped = bytearray(base64.urlsafe_b64decode(body["slots"][2]["wrapped"]))
    wrapped[0] ^= 1
    body["slots"][2]["wrapped"] = base64.urlsafe_b64encode(wrapped).decode()
    write_body(path, body)
    damaged = path.read_bytes()
    assert outcome(path, BOB) == "WrongKey"
    for key in (ALICE, RECOVERY):
        assert outcome(path, key) == "VaultTampered"
    report = repair(path, ALICE, RECOVERY, known=Known(three.generation + 7))
    assert report.generation == three.generation + 8 and report.slots_lost == 1 and not report.anchor_kept
    assert {m.id for m in report.kept} == {"sec_1", "sec_3"} and report.unchecked == ("sec_2",) and not report.lost
    assert report.copy.read_bytes() == damaged and path.with_name("vault.kxv.prev").exists()
    again = reopened(path, RECOVERY)
    check_generation(again, report.generation, report.mac[:8], seen_id=three.id)
    assert value(again, "sec_3") == b"third value" and again.verify() == () and again.people == {"alice"}


def test_a_damaged_seal_alone_loses_nothing(three: Vault, path: Path) -> None:
    for at in (3, 9, -1):  # magic, length, MAC
        damaged = bytearray(path.read_bytes())
        damaged[at] ^= 1
        path.write_bytes(damaged)
        report = repair(path, ALICE, RECOVERY)
        assert (len(report.kept), len(report.slots), report.slots_lost, report.lost) == (2, 3, 0, ())
        assert value(reopened(path, BOB), "sec_2") == b"of bob"


def test_a_damaged_record_is_lost_alone_and_named(three: Vault, path: Path) -> None:
    body = body_of(path)
    body["recs"]["sec_1"]["salt"] = "A" * 43 + "="
    body["recs"]["sec_3"]["sealed"] = "\x1b[31m"
    body["recs"]["sec_3"]["meta"]["identifier"] = "\x1b[31mred"
    body["recs"]["sec_\u202e"] = 7
    write_body(path, body)
    report = repair(path, ALICE, RECOVERY)
    assert {(lost.id, lost.identifier) for lost in report.lost} == {
        ("sec_1", "key-1"), ("sec_3", "␛[31mred"), ("sec_‹U+202E›", None),
    }  # fmt: skip
    assert reopened(path, ALICE).verify() == ()


def test_a_repair_needs_an_ordinary_key_and_the_recovery_key(three: Vault, path: Path) -> None:
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    for pair in ((ALICE, ALICE), (RECOVERY, RECOVERY), (ALICE, BOB)):
        with pytest.raises(VaultFailed, match="two keys"):
            repair(path, *pair)
    stranger = random_key(SlotType.RECOVERY, "stranger")
    for pair in ((ALICE, stranger), (random_key(SlotType.KEYFILE, "stranger"), RECOVERY)):
        with pytest.raises(WrongKey):
            repair(path, *pair)
    assert path.read_bytes() == bytes(damaged)


def test_two_slots_that_lead_to_different_keys_are_not_mixed(small: Vault, path: Path) -> None:
    """Somebody who once had a vault of the same id grafts a slot of it: possible for who has the id only."""
    before = path.read_bytes()
    grafted = body_of(path)
    small.rekey([NewSlot(ALICE, "alice"), NewSlot(RECOVERY, "alice")])
    body = body_of(path)
    body["slots"][1] = grafted["slots"][1]
    write_body(path, body)
    with pytest.raises(VaultTampered, match="different"):
        repair(path, ALICE, RECOVERY)
    assert path.read_bytes() != before


def test_a_whole_vault_is_left_alone(three: Vault, path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(VaultFailed, match="nothing to repair"):
        repair(path, ALICE, RECOVERY)
    assert path.read_bytes() == before


def test_the_previous_generation_is_taken_only_when_it_is_asked_for(three: Vault, path: Path) -> None:
    newest = three.generation
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(Corrupt):
        repair(path, ALICE, RECOVERY)
    report = repair(path, ALICE, RECOVERY, from_previous=True, known=Known(newest))
    assert report.generation == newest + 1 and report.anchor_kept
    assert {m.id for m in report.kept} == {"sec_1"}
    assert report.copy.read_bytes()[:100] == report.copy.read_bytes()
    assert value(reopened(path, BOB), "sec_2") == b"of bob"


def test_a_lost_file_comes_back_from_the_previous_generation(three: Vault, path: Path) -> None:
    path.unlink()
    report = repair(path, ALICE, RECOVERY, from_previous=True)
    assert value(reopened(path, ALICE), "sec_1") == b"first value" and report.generation == three.generation


def test_an_older_file_is_accepted_with_the_recovery_key_only(three: Vault, path: Path) -> None:
    old = path.read_bytes()
    put(three, meta(3, version=2), b"rotated")
    seen = three.generation
    path.write_bytes(old)
    known = Known(seen, three.mac, three.id)
    for guess in (None, 1, seen):
        with pytest.raises(RolledBack, match=f"of generation {seen}"):
            repair(path, ALICE, RECOVERY, known=known, accept=guess)
    assert path.read_bytes() == old and not path.with_name("vault.kxv.damaged").exists()
    report = repair(path, ALICE, RECOVERY, known=known, accept=seen - 1)
    assert report.generation == seen + 1 and report.anchor_kept and not report.lost and report.slots_lost == 0
    again = reopened(path, ALICE)
    check_generation(again, seen, three.mac)
    assert value(again, "sec_3") == b"third value"


def test_a_whole_file_is_not_written_anew(three: Vault, path: Path) -> None:
    for known in (Known(), Known(three.generation, three.mac[:16], three.id), Known(three.generation - 1)):
        with pytest.raises(VaultFailed, match="whole"):
            repair(path, ALICE, RECOVERY, known=known, accept=three.generation)
    with pytest.raises(RolledBack):
        repair(path, ALICE, RECOVERY, known=Known(three.generation, "00" * 16, three.id))
    with pytest.raises(RolledBack):
        repair(path, ALICE, RECOVERY, known=Known(1, three.mac, "0" * 32))


def test_a_damaged_file_that_claims_a_huge_generation_does_not_end_the_vault(three: Vault, path: Path) -> None:
    body = body_of(path)
    body["gen"] = 2**53 - 1
    write_body(path, body)
    report = repair(path, ALICE, RECOVERY, known=Known(12))
    assert report.generation == 13
    put(reopened(path, ALICE), meta(4), b"goes on")
