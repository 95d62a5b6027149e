"""The link of the audit chain that the vault keeps; only an open vault can vouch for it."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.errors import KortixError, VaultFailed
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_client import call
from kortix_tui.runtime.vault_calls import AuditAnchorCall, VaultAnchor
from kortix_tui.runtime.vault_keys import quiet_keys
from kortix_tui.store import lock
from kortix_tui.store.audit import Anchor
from kortix_tui.vault.vault import Vault

ASK_S: Final = 30.0


def vault_anchor(context: Context) -> Anchor | None:
    """What the vault says of the chain; `None` where it says nothing, or is locked or damaged."""
    if lock.is_locked(context.store):
        try:
            found, _ = call(context, AuditAnchorCall.verb, AuditAnchorCall(), VaultAnchor, deadline_s=ASK_S)
        except KortixError:
            pass
        else:
            if found.seq:
                return Anchor(seq=found.seq, hash=found.hash, where="the vault")
    try:
        vault = Vault.load(context.home.vault)
    except VaultFailed:
        return None  # `vault status` says what is wrong with it
    if not _unlocked(vault):
        return None
    anchor = vault.anchor
    vault.lock()
    return Anchor(seq=anchor.seq, hash=anchor.hash, where="the vault") if anchor else None


def _unlocked(vault: Vault) -> bool:
    for key in quiet_keys(vault.slots):
        if (found := key()) is not None:
            try:
                vault.unlock(found)
            except VaultFailed:
                continue
            return True
    return False
