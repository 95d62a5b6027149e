"""The inbox has everything that waits, of every kind; the same keys open it and say no to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from console_source import MemorySource, a_day
from textual import events
from textual.app import App
from textual.pilot import Pilot

from kortix_tui.base.words import ChangeStatus, Exposure, VaultState
from kortix_tui.console.app import KortixApp
from kortix_tui.console.forms.secret_forms import ProvideForm
from kortix_tui.console.forms.unlock_form import UnlockForm
from kortix_tui.console.screens.change import ChangeScreen
from kortix_tui.console.screens.inbox import InboxScreen
from kortix_tui.console.standing import tabs_of
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.table import VirtualTable

Make = Callable[..., KortixApp]
Until = Callable[..., Awaitable[None]]
Shown = Callable[[App[Any]], str]
VALUE = "sk_live_51HqLyjWDarjtT1zdp7dc"


def a_full_inbox() -> MemorySource:
    source = a_day()
    source.vault.state, source.vault.waiting = VaultState.LOCKED, (source.session_rows[0].id,)
    return source


async def begin(app: KortixApp, pilot: Pilot[Any], until: Until) -> None:
    await until(pilot, lambda: app.facts.loaded and app.facts.vault is not None and app.facts.host.here)
    await pilot.press("3")
    await until(pilot, lambda: isinstance(app.screen, InboxScreen))


def pass_guard(app: KortixApp) -> None:
    app.clock.pass_guard()  # type: ignore[attr-defined]


def message(app: KortixApp) -> str:
    screen = app.view_screen
    assert screen is not None
    return screen.query_one(MessageLine).text


async def test_all_kinds_are_there_oldest_first_and_counted(console: Make, until: Until, shown: Shown) -> None:
    app = console(a_full_inbox())
    async with app.run_test(size=(120, 40)) as pilot:
        await begin(app, pilot, until)
        assert [item.reference for item in app.facts.inbox] == ["acme-api#3", "acme-api#4", "srq_1", "vault"]
        assert [tab.count for tab in tabs_of(app, app.facts)] == [6, 4, 4, 6, 0]
        assert "INBOX 4!" in shown(app)
        await pilot.press("slash", *"kind", "colon", *"secret", "enter")
        assert app.screen.query_one(VirtualTable).shown == 1
        await until(pilot, lambda: "asks for LEDGER_TOKEN" in shown(app))
        assert "not granted" in shown(app)
        assert "[b]urgent[/b]␛[31m" in shown(app), "what an agent says stays text"


async def test_a_change_request_is_opened_and_closed(console: Make, until: Until) -> None:
    source = a_full_inbox()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: source.change_rows[2].status is ChangeStatus.CLOSED)
        await until(pilot, lambda: app.facts.inbox[0].reference == "acme-api#4")
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
        assert "Read it first" in message(app)


async def test_a_value_is_given_unseen(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("j", "j", "enter")
        await until(pilot, lambda: isinstance(app.screen, ProvideForm))
        for words in ("agent refactor of acme-api", "the migration calls", "no: it gets nothing", "connector"):
            assert words in shown(app)
        pass_guard(app)
        app.post_message(events.Paste(VALUE))
        await pilot.pause()
        assert VALUE not in shown(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: source.secrets.values.get("LEDGER_TOKEN") == VALUE.encode())
        assert source.secrets.rows[-1].exposure is Exposure.CONNECTOR
        await until(pilot, lambda: "srq_1" not in [item.reference for item in app.facts.inbox])


async def test_keys_typed_ahead_neither_answer_nor_fill_in(console: Make, until: Until, shown: Shown) -> None:
    """What a slow link brings late was meant for the list, not for a dialog that nobody has seen."""
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        for key in ("j", "j", "enter", "j", "k", "x", "enter", "ctrl+s"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, ProvideForm))
        await until(pilot, lambda: "typed before this was shown" in shown(app))
        pass_guard(app)
        await pilot.press("ctrl+s")
        assert "typed before this was shown" in shown(app)
        assert source.calls == []
        await pilot.press("ctrl+u", *VALUE, "enter")
        await until(pilot, lambda: source.secrets.values.get("LEDGER_TOKEN") == VALUE.encode())


async def test_no_is_said_to_an_agent(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("j", "j", "m")
        await pilot.pause()
        assert isinstance(app.screen, InboxScreen), "there is nothing to merge"
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "Say no to refactor?" in shown(app)
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: ("decline", "srq_1") in source.calls)


async def test_the_vault_is_unlocked_from_here(console: Make, until: Until, shown: Shown) -> None:
    source = a_full_inbox()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("G", "enter")
        await until(pilot, lambda: isinstance(app.screen, UnlockForm))
        assert "1 session waits for it" in shown(app)
        pass_guard(app)
        await pilot.press(*"correct horse battery", "enter")
        await until(pilot, lambda: app.facts.vault_state is VaultState.UNLOCKED)
        await until(pilot, lambda: "vault" not in [item.reference for item in app.facts.inbox])
