"""While a host opens the vault: until values are found in texts, nothing of a session that holds any is stored."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from bank import OPERATOR, VALUE, Bank, open_bank

from kortix_tui.base.errors import StoreFailed, VaultLocked
from kortix_tui.base.paths import Home
from kortix_tui.runtime import custody as custody_module
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.vault_acts import VaultActs
from kortix_tui.runtime.vault_calls import UnlockVault
from kortix_tui.vault.redaction import Redactor
from kortix_tui.vault.vault import Vault


@pytest.fixture
async def bank(home: Home, short_folder: Path) -> AsyncIterator[Bank]:
    async with open_bank(home, short_folder) as bank:
        await bank.store()
        await bank.deliver()
        yield bank


async def test_an_open_vault_whose_values_are_not_known_yet_counts_as_locked(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bank.custody.close()
    begun, go_on, learn = threading.Event(), threading.Event(), custody_module._redactor

    def slowly(vault: Vault) -> Redactor:
        assert vault.unlocked
        begun.set()
        assert go_on.wait(30)
        return learn(vault)

    monkeypatch.setattr(custody_module, "_redactor", slowly)
    after = Custody(bank.custody.context, bank.ledger, lambda: None)
    running = asyncio.create_task(after.run())
    try:
        await asyncio.to_thread(begun.wait, 30)
        assert not after.unlocked and after.holding(bank.session_id) == "the vault is locked"
        with pytest.raises(VaultLocked):
            after.opened()
        go_on.set()
        await after.settled()
        assert after.unlocked and after.holding(bank.session_id) is None and after.redactor.hits(VALUE)
    finally:
        go_on.set()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await after.close()


async def test_a_store_that_fails_while_the_vault_is_opened_leaves_it_locked(
    bank: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bank.custody.lock(OPERATOR)
    acts = VaultActs(bank.custody)

    async def fails(_: object) -> None:
        raise StoreFailed("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(bank.ledger, "write", fails)
        with pytest.raises(StoreFailed):
            await acts.unlock(UnlockVault(), (), OPERATOR)
    assert not bank.custody.unlocked and bank.custody.holding(bank.session_id) is not None
    await acts.unlock(UnlockVault(), (), OPERATOR)
    assert bank.custody.unlocked and bank.custody.redactor.hits(VALUE)
