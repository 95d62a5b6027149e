"""How calls that wait and connectors look, at the smallest and at a comfortable size."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from console_source import MemorySource, a_day
from memory_calls import a_call, fill_calls, fill_connectors
from textual.pilot import Pilot

from kortix_tui.console.app import KortixApp

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["80x24", "160x50"])
THEMES = pytest.mark.parametrize("theme", ["kortix-dark", "kortix-light"])
Make = Callable[..., KortixApp]
PAST = "past the guard"
OPENS = {"a", "A", "B", "x", "n", "s", "e", "M", "enter"}


def is_shown(app: KortixApp) -> bool:
    """Whether everything was read, and the screen has it."""
    facts = app.facts
    read = facts.loaded and facts.vault is not None and facts.host.here and facts.connectors is not None
    waiting = [item for item in facts.inbox if item.risk is not None]
    return read and len(waiting) == len(facts.approvals) and app._taken is facts


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
                    continue
                before = app.screen
                await pilot.press(key)
                if key in OPENS and len(key) == 1:
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

        return run

    return make


def full() -> MemorySource:
    source = a_day()
    fill_calls(source)
    fill_connectors(source)
    return source


def long() -> MemorySource:
    source = a_day()
    arguments = {"text": "Dear customer,\n" + "we are sorry. " * 40, "to": "a\u202egnp.exe@example.org"}
    fields = {f"field_{number}": number for number in range(60)}
    source.approvals.rows = [a_call(1, source.session_rows[0], "send_mail", arguments=arguments | fields)]
    return source


@SIZES
@THEMES
def test_inbox_with_calls(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int], theme: str) -> None:
    assert snap_compare(console(full(), theme=theme), terminal_size=size, run_before=steps("3"))


@SIZES
@THEMES
def test_connectors(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int], theme: str) -> None:
    assert snap_compare(console(full(), theme=theme), terminal_size=size, run_before=steps("5", "j"))


SCENES: dict[str, tuple[list[str], Callable[[], MemorySource]]] = {
    "call": (["3", "j", "enter"], full),
    "call-end": (["3", "j", "enter", "G"], full),
    "call-long": (["3", "enter", "pagedown"], long),
    "call-early": (["3", "a"], full),
    "approve": (["3", "j", PAST, "a"], full),
    "approve-destructive": (["3", PAST, "a", PAST, *"delete"], full),
    "deny": (["3", PAST, "x", PAST, *"ask first"], full),
    "remember": (["3", "j", PAST, "A", PAST, "space"], full),
    "remember-lasting": (["3", "j", PAST, "A", PAST, "tab", "tab", "left"], full),
    "batch": (["3", "j", "j", PAST, "B"], full),
    "connect": (["5", "j", "n"], full),
    "accept": (["5", "j", "j", "s"], full),
    "rule": (["5", "e"], full),
    "gates": (["5", "j", "M"], full),
    "grant": (["5", "a"], full),
    "disconnect": (["5", "x"], full),
}


@SIZES
@pytest.mark.parametrize("name", SCENES)
def test_scene(snap_compare: Any, console: Make, steps: Any, size: tuple[int, int], name: str) -> None:
    keys, source = SCENES[name]
    named = {" ": "space"}
    assert snap_compare(console(source()), terminal_size=size, run_before=steps(*(named.get(key, key) for key in keys)))
