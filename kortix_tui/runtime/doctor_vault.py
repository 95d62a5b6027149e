"""The vault's row of `kortix doctor`: can it be opened when it is needed, and also after a loss?"""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kortix_tui.base.errors import VaultFailed
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Level, VaultState
from kortix_tui.runtime.doctor import Check

if TYPE_CHECKING:
    from kortix_tui.vault.slots import SlotInfo

BROKEN: Final = (VaultState.TAMPERED, VaultState.CORRUPT, VaultState.ROLLED_BACK)
_REPAIR: Final = "Run: kortix vault status, then see: kortix vault repair --help"


def vault_check(home: Home) -> Check:
    """Look at the vault without opening it, and at this machine's keyring. Blocks for some seconds at most."""
    from kortix_tui.runtime.secret_sources import keyring_state
    from kortix_tui.vault.vault import Vault

    keyring = keyring_state()
    state, known = _last_said(home)
    if not home.vault.exists():
        if known:
            return _row(
                Level.FAIL, f"{home.vault} is gone", "Bring it back from a backup; see: kortix vault status"
            )  # fmt: skip
        return _row(Level.OK, f"there is none yet; the first secret, or kortix vault init, makes one. {keyring.says}")
    try:
        slots = Vault.load(home.vault).slots
    except VaultFailed as error:
        return _row(Level.FAIL, error.message, error.hint or _REPAIR)
    if state in BROKEN:
        return _row(Level.FAIL, f"it is {state}, and nothing is released from it", _REPAIR)
    faults, fix = list[str](), ""
    for slot in slots:
        if slot.type == "keyfile" and (fault := _key_file_fault(slot)):
            faults.append(fault)
            fix = "Bring the key file back, or take it away: kortix vault slots rm ID"
        if slot.type == "keyring" and not keyring.usable:
            faults.append(f"its key in the keyring cannot be had now: {keyring.says}")
            fix = keyring.hint
    if not any(slot.type == "recovery" for slot in slots):
        faults.append("it has no recovery key, so losing the others loses all values")
        fix = fix or "Run: kortix vault recovery"
    mode = stat.S_IMODE(home.vault.stat().st_mode)
    kinds = ", ".join(slot.type.value for slot in slots)
    text = f"it is {state or VaultState.LOCKED}, mode {mode:04o}, and opens by {kinds}. {keyring.says}"
    if faults:
        return _row(Level.WARN, f"{'; '.join(faults)}. Else {text}", fix)
    return _row(Level.OK, text)


def _last_said(home: Home) -> tuple[str | None, bool]:
    """The state as the host said last, and whether there was ever a vault. Makes and changes nothing."""
    if not home.database.exists():
        return None, False
    with contextlib.suppress(sqlite3.Error):
        address = f"file:{quote(str(home.database))}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True, timeout=1.0)) as database:
            row = database.execute("SELECT state, vault_id FROM vault WHERE id = 1").fetchone()
            return (str(row[0]), row[1] is not None) if row else (None, False)
    return None, False


def _key_file_fault(slot: SlotInfo) -> str | None:
    from kortix_tui.vault import keyfile

    try:
        keyfile.load(Path(slot.place) if slot.place else keyfile.default_path())
    except VaultFailed as error:
        return error.message.removesuffix(".")
    return None


def _row(level: Level, message: str, fix: str | None = None) -> Check:
    return Check(id="vault", title="Vault", level=level, message=message, fix=fix)
