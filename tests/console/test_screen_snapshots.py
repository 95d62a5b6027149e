"""How each screen looks, at the smallest and at a comfortable size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from console_source import MemorySource
from textual.pilot import Pilot

from kortix_tui.console.app import KortixApp

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["80x24", "160x50"])
THEMES = pytest.mark.parametrize("theme", ["kortix-dark", "kortix-light"])
Steps = Callable[[Pilot[Any]], Awaitable[None]]
Make = Callable[..., KortixApp]


@pytest.fixture
def settle(until: Callable[..., Awaitable[None]]) -> Callable[..., Steps]:
    """Steps that wait for the facts, press keys, and wait for what they brought."""

    def make(*keys: str, ready: Callable[[KortixApp], bool] = lambda app: app.facts.loaded) -> Steps:
        async def steps(pilot: Pilot[Any]) -> None:
            app = pilot.app
            assert isinstance(app, KortixApp)
            await until(pilot, lambda: is_shown(app))
            for key in keys:
                await pilot.press(key)
            await until(pilot, lambda: ready(app))
            for field in app.screen.query("Input, TextArea"):
                field.cursor_blink = False  # type: ignore[attr-defined]
            app.ticker.beat()
            await pilot.pause()

        return steps

    return make


def is_shown(app: KortixApp) -> bool:
    """Whether everything was read, and the screen has it: what a dialog covers is not painted anew at once."""
    facts = app.facts
    return facts.loaded and facts.vault is not None and facts.host.here and app._taken is facts


def logs_are_there(app: KortixApp) -> bool:
    return all(followed.ring.end for key, followed in app.bridge._followed.items() if followed.wanted)


def is_read(app: KortixApp) -> bool:
    return bool(app.screen.query("DiffView") and len(app.screen.query_one("#diff").model))


@SIZES
@THEMES
def test_sessions(
    snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int], theme: str
) -> None:
    steps = settle(ready=logs_are_there)
    assert snap_compare(console(theme=theme), terminal_size=size, run_before=steps)


@SIZES
def test_sessions_empty(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    assert snap_compare(console(MemorySource()), terminal_size=size, run_before=settle())


@SIZES
@THEMES
def test_inbox(
    snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int], theme: str
) -> None:
    assert snap_compare(console(theme=theme), terminal_size=size, run_before=settle("3"))


@SIZES
def test_changes(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    assert snap_compare(console(), terminal_size=size, run_before=settle("2", "j"))


@SIZES
@THEMES
def test_change(
    snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int], theme: str
) -> None:
    steps = settle("3", "enter", ready=is_read)
    assert snap_compare(console(theme=theme), terminal_size=size, run_before=steps)


@SIZES
def test_merge_dialog(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await settle("3", "enter", ready=is_read)(pilot)
        await settle("m")(pilot)

    assert snap_compare(console(), terminal_size=size, run_before=steps)


@SIZES
def test_new_session(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    assert snap_compare(console(), terminal_size=size, run_before=settle("n", *"Fix it", ready=logs_are_there))


@SIZES
def test_help(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    assert snap_compare(console(), terminal_size=size, run_before=settle("?", ready=logs_are_there))


@SIZES
def test_palette(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    async def steps(pilot: Pilot[Any]) -> None:
        await settle("ctrl+p", ready=logs_are_there)(pilot)
        # The palette takes its time on purpose: it shows nothing until it knows what there is.
        await settle(ready=lambda app: app.screen.query_one("CommandList").option_count > 10)(pilot)
        await pilot.app.workers.wait_for_complete()

    assert snap_compare(console(), terminal_size=size, run_before=steps)


@SIZES
def test_filtering(snap_compare: Any, console: Make, settle: Callable[..., Steps], size: tuple[int, int]) -> None:
    assert snap_compare(console(), terminal_size=size, run_before=settle("/", *"acme !docs", ready=logs_are_there))


def test_too_small(snap_compare: Any, console: Make, settle: Callable[..., Steps]) -> None:
    assert snap_compare(console(), terminal_size=(30, 8), run_before=settle())
