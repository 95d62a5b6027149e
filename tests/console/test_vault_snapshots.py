"""How the vault's screen and its dialogs look. Masked fields have something in them: it must not be in any picture."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from console_source import MemorySource, a_day
from textual import events
from textual.pilot import Pilot

from kortix_tui.base.words import VaultState
from kortix_tui.console.app import KortixApp
from kortix_tui.console.widgets.masked_entry import MaskedEntry
from kortix_tui.runtime import secret_sources

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["80x24", "160x50"])
THEMES = pytest.mark.parametrize("theme", ["kortix-dark", "kortix-light"])
Make = Callable[..., KortixApp]
PAST = "past the guard"
FILL = "fill masked fields"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    found = secret_sources.KeyringView(usable=False, says="No Secret Service answers here.", hint="")
    monkeypatch.setattr(secret_sources, "keyring_state", lambda: found)
    monkeypatch.setattr(secret_sources, "systemd_key_given", lambda: False)
    monkeypatch.setattr("kortix_tui.console.forms.key_forms.key_file_path", lambda given: given or "~/vault.key")


def is_shown(app: KortixApp) -> bool:
    """Whether everything was read, and the screen has it: what a dialog covers is not painted anew at once."""
    facts = app.facts
    return facts.loaded and facts.vault is not None and facts.host.here and app._taken is facts


@pytest.fixture
def steps(until: Callable[..., Awaitable[None]]) -> Callable[..., Callable[[Pilot[Any]], Awaitable[None]]]:
    """Keys to press once the facts are there; then everything that moves by itself stands still."""

    def make(*keys: str) -> Callable[[Pilot[Any]], Awaitable[None]]:
        async def run(pilot: Pilot[Any]) -> None:
            app = pilot.app
            assert isinstance(app, KortixApp)
            await until(pilot, lambda: is_shown(app))
            for key in keys:
                if key == PAST:
                    app.clock.pass_guard()  # type: ignore[attr-defined]
                elif key == FILL:
                    for entry in app.screen.query(MaskedEntry):
                        if entry in app.screen.focus_chain:
                            entry.focus()
                            app.post_message(events.Paste("c4nary"))
                            await pilot.pause()
                else:
                    before = app.screen
                    await pilot.press(key)
                    if key in {"a", "n", "enter"}:
                        # What needs the runtime opens its dialog when the answer is there.
                        for _ in range(50):
                            await asyncio.sleep(0.01)
                            if app.screen is not before:
                                break
            page = app.screen_stack[0]
            await until(pilot, lambda: getattr(page, "_reading", None) is None)
            for field in app.screen.query("Input, TextArea"):
                field.cursor_blink = False  # type: ignore[attr-defined]
            app.ticker.beat()
            await pilot.pause()
            assert "c4nary" not in app.export_screenshot()

        return run

    return make


def locked() -> MemorySource:
    source = a_day()
    source.vault.state, source.vault.waiting = VaultState.LOCKED, (source.session_rows[0].id,)
    return source


def rolled_back() -> MemorySource:
    source = a_day()
    source.vault.state = VaultState.ROLLED_BACK
    source.vault.reason = "Its generation is 12, but 15 was seen."
    source.vault.previous = "generation 11, of 2026-03-14T11:00:00Z"
    return source


def none_yet() -> MemorySource:
    source = MemorySource()
    source.project_rows = a_day().project_rows
    return source


@SIZES
@THEMES
def test_vault(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int], theme: str) -> None:
    assert snap_compare(console(theme=theme), terminal_size=size, run_before=steps("4"))


@SIZES
def test_vault_locked(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int]) -> None:
    assert snap_compare(console(locked()), terminal_size=size, run_before=steps("4", "j", "j", "j"))


@SIZES
def test_vault_empty(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int]) -> None:
    assert snap_compare(console(none_yet()), terminal_size=size, run_before=steps("4"))


@SIZES
def test_inbox_of_all_kinds(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int]) -> None:
    assert snap_compare(console(locked()), terminal_size=size, run_before=steps("3", "j", "j"))


DIALOGS: dict[str, tuple[list[str], Callable[[], MemorySource]]] = {
    "new": (["4", "n", PAST, *"STRIPE_KEY", FILL], a_day),
    "rotate": (["4", "r", PAST, FILL], a_day),
    "early": (["4", "r", "x"], a_day),
    "expose": (["4", "e"], a_day),
    "grant": (["4", "a"], a_day),
    "share": (["4", "O"], a_day),
    "unset": (["4", "D"], a_day),
    "provide": (["3", "j", "j", "enter", PAST, FILL], a_day),
    "lock": (["4", "L"], a_day),
    "unlock": (["4", "U", PAST, FILL], locked),
    "init": (["4", "n", PAST, FILL], none_yet),
    "passphrase": (["4", "colon", *"vault.passphrase", "enter", PAST, FILL], a_day),
    "repair": (["4", "colon", *"vault.repair", "enter", PAST, FILL], rolled_back),
    "export": (["4", "E", PAST, FILL], a_day),
    "import": (["4", "I"], a_day),
    "restore": (["4", "colon", *"vault.import", "enter", PAST, FILL], a_day),
    "recovery": (["4", "colon", *"vault.recovery", "enter", PAST, "y", "enter"], a_day),
    "status": (["4", "colon", *"vault.status", "enter"], a_day),
}


@SIZES
@pytest.mark.parametrize("name", DIALOGS)
def test_dialog(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int], name: str) -> None:
    keys, source = DIALOGS[name]
    named = {".": "full_stop"}
    assert snap_compare(console(source()), terminal_size=size, run_before=steps(*(named.get(key, key) for key in keys)))
