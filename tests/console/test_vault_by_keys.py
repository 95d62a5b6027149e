"""The life of a secret by keys alone, on a real host, a real vault file and a real repository."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from console_source import FixedClock
from desk import Desk, git, make_repository
from textual import events
from textual.pilot import Pilot

from kortix_tui.base.paths import Home
from kortix_tui.base.words import VaultState
from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.forms.key_forms import KeyForm
from kortix_tui.console.forms.recovery_dialog import RecoveryDialog
from kortix_tui.console.forms.secret_forms import GrantForm, NewSecretForm, RotateForm
from kortix_tui.console.forms.unlock_form import UnlockForm
from kortix_tui.console.screens.vault import VaultScreen
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.runtime import secret_sources

VALUE = "sk_live_51HqLyjWDarjtT1zdp7dc"
NEWER = "sk_live_51HqLyjWDnewerVALUE77\nin two lines\n"
PASSPHRASE = "correct horse battery"


@pytest.fixture
def bare(home: Home, short_folder: Path) -> Iterator[Desk]:
    """A project in a home without a vault, as on a machine without a keyring."""
    desk = Desk(home, make_repository(short_folder / "repo"))
    yield desk
    desk.runtime.close()


async def until(pilot: Pilot[Any], condition: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)
    await pilot.pause()


def value(desk: Desk, identifier: str) -> bytes:
    """What the vault has, read with the passphrase from its file: the host gives no value to anybody."""
    from kortix_tui.vault.slots import SlotKey
    from kortix_tui.vault.vault import Vault

    vault = Vault.load(desk.runtime.context.home.vault)
    vault.unlock(SlotKey.passphrase(PASSPHRASE))
    found = next(meta for meta in vault.metas() if meta.identifier == identifier and not meta.retired)
    return vault.read(found.id).use("the test looks at it")


async def test_the_life_of_a_secret(bare: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    no_keyring = secret_sources.KeyringView(usable=False, says="There is no keyring.", hint="")
    monkeypatch.setattr(secret_sources, "keyring_state", lambda: no_keyring)
    bridge = Bridge(bare.runtime)
    clock = FixedClock()
    app = KortixApp(bridge, terminal=Terminal.detect({}), clock=clock)

    async def at(pilot: Pilot[Any], screen: type) -> None:
        await until(pilot, lambda: isinstance(app.screen, screen))
        clock.pass_guard()

    async def paste(pilot: Pilot[Any], text: str) -> None:
        app.post_message(events.Paste(text))
        await pilot.pause()

    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.facts.loaded and app.facts.host.here and app.facts.vault is not None)
            await pilot.press("4", "n")

            # There is no vault yet: it is made first.
            await at(pilot, KeyForm)
            await pilot.press("tab")
            await paste(pilot, PASSPHRASE)
            await pilot.press("enter")
            await paste(pilot, PASSPHRASE)
            await pilot.press("enter")
            await at(pilot, RecoveryDialog)
            assert isinstance(app.screen, RecoveryDialog)
            await pilot.press(*app.screen._groups[-1], "enter")

            # A new secret.
            await at(pilot, NewSecretForm)
            await pilot.press(*"STRIPE_API_KEY", *["tab"] * 4)
            await paste(pilot, VALUE)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: [row.identifier for row in app.facts.secrets] == ["STRIPE_API_KEY"])
            assert app.facts.vault_state is VaultState.UNLOCKED
            assert app.facts.secrets[0].agents == ("greedy", "teller")
            assert value(bare, "STRIPE_API_KEY") == VALUE.encode()

            # A newer value, of two lines.
            await at(pilot, VaultScreen)
            await pilot.press("r")
            await at(pilot, RotateForm)
            await paste(pilot, NEWER)
            await pilot.press("enter")
            await until(pilot, lambda: app.facts.secrets[0].version == 2)
            assert value(bare, "STRIPE_API_KEY") == NEWER.removesuffix("\n").encode()

            # A grant for another agent: a change request, not a change.
            await at(pilot, VaultScreen)
            await pilot.press("a")
            await at(pilot, GrantForm)
            await pilot.press("ctrl+s")
            await until(pilot, lambda: [change.number for change in app.facts.changes] == [1])
            await until(pilot, lambda: len(app.facts.inbox) == 1)
            assert git(bare.repository, "show", "main:kortix.yaml").count("STRIPE_API_KEY") == 1

            # Locked: what needs it asks for the passphrase first.
            await at(pilot, VaultScreen)
            await pilot.press("L")
            await at(pilot, ConfirmDialog)
            await pilot.press("y")
            await until(pilot, lambda: app.facts.vault_state is VaultState.LOCKED)
            await at(pilot, VaultScreen)
            await pilot.press("D")
            await at(pilot, UnlockForm)
            await paste(pilot, PASSPHRASE + "\r")
            await pilot.press("enter")
            await at(pilot, ConfirmDialog)
            assert app.facts.vault_state is VaultState.UNLOCKED
            await pilot.press(*"STRIPE_API_KEY", "enter")
            await until(pilot, lambda: app.facts.secrets == ())
    finally:
        bridge.stop()
    events_of = [one.event for one in reversed(bare.runtime.audit.list(limit=1000))]
    wanted = [
        "vault.create", "secret.create", "secret.rotate", "change_request.create", "vault.lock", "vault.unlock",
        "secret.delete",
    ]  # fmt: skip
    assert [event for event in events_of if event in wanted] == wanted
