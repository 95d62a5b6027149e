"""Every byte of a vault that a passphrase opens: no flipped bit is accepted, also where the key is derived from it."""

from __future__ import annotations

from pathlib import Path

import pytest
from strongbox import CHEAP, PASSPHRASE, meta, put, reopened, value

from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.slots import NewSlot
from kortix_tui.vault.vault import Vault

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def test_one_flipped_bit_in_every_byte_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "vault.kxv"
    put(Vault.create(path, [NewSlot(PASSPHRASE, "alice", cost=CHEAP)]), meta(), b"the value")
    whole = path.read_bytes()
    failures = set[str]()
    for at in range(len(whole)):
        changed = bytearray(whole)
        changed[at] ^= 1 << at % 8
        with path.open("r+b") as file:
            file.write(changed)
        # A cost that is flipped to another one that is allowed may take a second; one that is not allowed takes none.
        with pytest.raises(VaultFailed) as caught:
            reopened(path, PASSPHRASE)
        failures.add(type(caught.value).__name__)
    assert failures == {"Corrupt", "WrongKey", "VaultTampered"}
    path.write_bytes(whole)
    assert value(reopened(path, PASSPHRASE), "sec_1") == b"the value"
