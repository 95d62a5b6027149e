"""What is sealed opens in its own place with its own key only."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strongbox import ALICE, BORN, CHEAP, PASSPHRASE, meta

from kortix_tui.base.errors import VaultTampered
from kortix_tui.base.words import Exposure
from kortix_tui.vault.cipher import BLOCK_BYTES, Cost, NotOpened, from_base64, pad, stretch, to_base64, unpad
from kortix_tui.vault.keys import RootKeys
from kortix_tui.vault.records import StoredRecord, open_record, seal_record
from kortix_tui.vault.slots import NewSlot, StoredSlot, is_intact, make_slot, open_slot

DEK = b"d" * 32
VAULT = "0" * 32
OTHER = {
    "id": "sec_2", "project": "prj_2", "identifier": "other", "name": "OTHER", "scope": "personal:project",
    "owner": "alice", "exposure": Exposure.ENVIRONMENT, "gateway": True, "hosts": ("a.example",),
    "connectors": ("tracker",), "version": 2, "created": BORN + timedelta(milliseconds=1), "retired": True,
}  # fmt: skip


@given(st.binary(max_size=3 * BLOCK_BYTES) | st.just(b"\x80\0\0") | st.just(b"\x80" * BLOCK_BYTES))
def test_padding_is_undone(plain: bytes) -> None:
    padded = pad(plain)
    assert unpad(padded) == plain and len(padded) % BLOCK_BYTES == 0 and len(padded) > len(plain)


@pytest.mark.parametrize("broken", [b"", bytes(64), b"x" * 64, b"x\x80\0\x01"])
def test_what_is_not_padded_is_refused(broken: bytes) -> None:
    with pytest.raises(NotOpened):
        unpad(broken)


@given(st.binary(max_size=100))
def test_base64_is_undone_and_nothing_else_is_read(data: bytes) -> None:
    assert from_base64(to_base64(data)) == data


@pytest.mark.parametrize("text", ["=", "A", "AAA", "AA=A", "A A=", "AAA=\n", "ÄAA=", "AA-_"])
def test_base64_with_anything_else_in_it_is_refused(text: str) -> None:
    with pytest.raises(NotOpened):
        from_base64(text)


@pytest.mark.parametrize("field", sorted(OTHER))
def test_every_field_is_bound_to_the_value(field: str) -> None:
    assert set(OTHER) == set(type(meta()).model_fields)
    sealed = seal_record(DEK, VAULT, meta(), b"value")
    assert open_record(DEK, VAULT, sealed) == b"value"
    changed = meta().model_copy(update={field: OTHER[field]}).model_dump(mode="json")
    with pytest.raises(NotOpened):
        open_record(DEK, VAULT, StoredRecord({**sealed.raw, "meta": changed}))


def test_a_record_is_bound_to_its_vault_and_key() -> None:
    sealed = seal_record(DEK, VAULT, meta(), b"value")
    for key, vault in ((DEK, "1" * 32), (b"e" * 32, VAULT)):
        with pytest.raises(NotOpened):
            open_record(key, vault, sealed)
    again = seal_record(DEK, VAULT, meta(), b"value")
    assert again.raw["salt"] != sealed.raw["salt"] and again.raw["sealed"] != sealed.raw["sealed"]


def test_a_data_key_is_bound_to_its_vault_and_scope() -> None:
    keys = RootKeys.fresh(frozenset({"alice"}))
    wrapped = keys.new_dek(VAULT, "shared")
    assert len(keys.open_dek(VAULT, "shared", wrapped)) == 32
    for vault, scope in (("1" * 32, "shared"), (VAULT, "personal:alice")):
        with pytest.raises(VaultTampered):
            keys.open_dek(vault, scope, wrapped)


@pytest.mark.parametrize(
    "change",
    [
        {"info": {"owner": "bob"}}, {"info": {"id": "slot_x"}}, {"info": {"place": "/elsewhere"}},
        {"info": {"created": BORN + timedelta(days=1)}}, {"salt": b"s" * 16}, {"nonce": b"n" * 12},
        {"wrapped": b"w" * 80},
    ],
)  # fmt: skip
def test_every_field_is_bound_to_a_slot(change: dict[str, Any]) -> None:
    keys = RootKeys.fresh(frozenset({"alice"}))
    slot = make_slot(VAULT, NewSlot(ALICE, "alice"), BORN, keys.root, keys.personal["alice"])
    assert open_slot(VAULT, slot, ALICE) == (keys.root, keys.personal["alice"]) and is_intact(VAULT, slot, keys.root)
    info = slot.info.model_copy(update=change.pop("info", {}))
    changed: StoredSlot = slot.model_copy(update={"info": info, **change})
    with pytest.raises(NotOpened):
        open_slot(VAULT, changed, ALICE)
    assert not is_intact(VAULT, changed, keys.root)
    with pytest.raises(NotOpened):
        open_slot("1" * 32, slot, ALICE)


def test_a_passphrase_slot_is_bound_to_its_cost() -> None:
    keys = RootKeys.fresh(frozenset({"alice"}))
    slot = make_slot(VAULT, NewSlot(PASSPHRASE, "alice", cost=CHEAP), BORN, keys.root, keys.personal["alice"])
    cheaper = slot.model_copy(update={"cost": Cost(memory_kib=19456, passes=2, lanes=1)})
    with pytest.raises(NotOpened):
        open_slot(VAULT, cheaper, PASSPHRASE)


def test_keys_are_stretched_as_the_reference_program_does() -> None:
    """`echo -n password | argon2 somesalt16bytes! -id -t 2 -k 19456 -p 1 -l 32 -r`."""
    cost = Cost(memory_kib=19456, passes=2, lanes=1)
    assert (
        stretch(b"password", b"somesalt16bytes!", cost).hex()
        == "b4f5c0f0a45a331503aa85453a4cf9a9c7a2cac6a688c48bc41adc0b9b00b66a"
    )
    assert Cost() == Cost(memory_kib=65536, passes=3, lanes=4)


def test_wiped_keys_are_zeros_everywhere() -> None:
    keys = RootKeys.fresh(frozenset({"alice"}))
    shared, own = keys.extended(), keys.personal["alice"]
    keys.wipe()
    assert keys.wiped and shared.wiped and not any(own) and "alice" not in repr(keys)
