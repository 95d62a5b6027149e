"""I9: whatever of the world hangs, the console answers keys, and can be left."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from console_source import FixedClock, MemorySource, a_day
from textual import events
from textual.pilot import Pilot

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.screens.change import ChangeScreen
from kortix_tui.console.screens.quit_dialog import QuitDialog
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.widgets.help_overlay import HelpOverlay
from kortix_tui.console.widgets.message_line import MessageLine, Purpose

AT_START = (
    "start_hosting", "host", "unfinished", "data_version", "sessions.list", "sessions.records", "changes.list",
    "projects.list", "secrets.list", "secrets.requests", "inbox.list", "vault.status",
)  # fmt: skip
BY_KEYS: dict[str, tuple[str, ...]] = {
    "sessions.new": ("n", *"do it", "ctrl+s"),
    "sessions.prompt": ("p", *"go on", "ctrl+s"),
    "sessions.stop": ("x",),
    "sessions.resume": ("G", "r"),
    "sessions.removal_preview": ("D",),
    "changes.show": ("3", "enter"),
    "changes.patch": ("d",),
    "changes.close": ("3", "x", "GUARD", "y"),
    "changes.reopen": ("2", "G", "r"),
    "secrets.show": ("4",),
    "secrets.rotate": ("4", "r", "GUARD", *"a value", "enter", "escape"),
    "secrets.unset": ("4", "D", "GUARD", *"DATABASE_URL", "enter"),
    "secrets.decline": ("3", "j", "j", "x", "GUARD", "y"),
    "vault.lock": ("4", "L", "GUARD", "y"),
    "vault.verify": ("4", "colon", *"vault", "full_stop", *"verify", "enter"),
}


class Stuck:
    """Makes calls hang until the test lets them go."""

    def __init__(self) -> None:
        self._release = threading.Event()
        self.reached = threading.Event()

    def hang(self, source: MemorySource, call: str) -> None:
        owner_name, _, name = call.rpartition(".")
        owner = getattr(source, owner_name) if owner_name else source

        def wait(*_: object, **__: object) -> Any:
            self.reached.set()
            self._release.wait(120)
            raise EngineUnavailable("It hung.")

        setattr(owner, name, wait)

    def let_go(self) -> None:
        self._release.set()


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    made = Stuck()
    yield made
    made.let_go()


async def until(pilot: Pilot[Any], condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
    await pilot.pause()


async def press(app: KortixApp, *keys: str, shows: Callable[[], bool]) -> None:
    """Type as a person does, who does not wait for the processor to be idle as a pilot would."""
    for key in keys:
        app.post_message(events.Key(key, key if len(key) == 1 else None))
    async with asyncio.timeout(60):
        while not shows():
            await asyncio.sleep(0.01)


async def walk(app: KortixApp) -> None:
    """Keys of all kinds; each is answered although something hangs."""
    for key, view in (("2", "changes"), ("3", "inbox"), ("4", "vault")):
        await press(app, key, shows=lambda view=view: app.current_mode == view)  # type: ignore[misc]
    await press(app, "question_mark", shows=lambda: isinstance(app.screen, HelpOverlay))
    await press(app, "q", "1", shows=lambda: app.current_mode == "sessions")
    line = app.screen.query_one(MessageLine)
    await press(app, "j", "0", "slash", "x", shows=lambda: line.asking is Purpose.FILTER)
    await press(app, "escape", shows=lambda: line.asking is None)


async def leave(app: KortixApp) -> None:
    await press(app, "ctrl+q", shows=lambda: isinstance(app.screen, QuitDialog))
    app.clock.pass_guard()  # type: ignore[attr-defined]
    await press(app, "b" if app.facts.host.here else "y", shows=lambda: app.return_value is not None)


@pytest.mark.parametrize("call", [*AT_START, *BY_KEYS])
async def test_keys_are_answered_while_the_world_hangs(stuck: Stuck, call: str) -> None:
    source = a_day()
    bridge = Bridge(source)
    app = KortixApp(bridge, terminal=Terminal.detect({}), clock=FixedClock(), ticking=False)
    try:
        if call in AT_START:
            stuck.hang(source, call)
        async with app.run_test(size=(120, 40)) as pilot:
            if call in BY_KEYS:
                await until(pilot, lambda: app.facts.loaded and app.facts.vault is not None and app.facts.host.here)
                stuck.hang(source, call)
                for key in BY_KEYS[call]:
                    if key == "GUARD":
                        app.clock.pass_guard()  # type: ignore[attr-defined]
                    else:
                        await pilot.press(key)
            await until(pilot, stuck.reached.is_set)
            await walk(app)
            await leave(app)
    finally:
        stuck.let_go()
        bridge.stop()


async def test_a_merge_that_hangs_holds_nothing_up(stuck: Stuck) -> None:
    source = a_day()
    stuck.hang(source, "changes.merge")
    bridge = Bridge(source)
    app = KortixApp(bridge, terminal=Terminal.detect({}), clock=FixedClock(), ticking=False)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.facts.loaded and app.facts.vault is not None and app.facts.host.here)
            await pilot.press("3", "enter")
            await until(pilot, lambda: app.can_run("change_merge") and isinstance(app.screen, ChangeScreen))
            await pilot.press("m")
            app.clock.pass_guard()  # type: ignore[attr-defined]
            await pilot.press("y")
            await until(pilot, stuck.reached.is_set)
            await walk(app)
            await leave(app)
    finally:
        stuck.let_go()
        bridge.stop()


async def test_a_flood_of_output_leaves_the_keys_alone() -> None:
    """One repaint a tick however much comes; the ring keeps the newest."""
    source = a_day()
    bridge = Bridge(source)
    app = KortixApp(bridge, terminal=Terminal.detect({}), clock=FixedClock())
    ended = threading.Event()

    def flood() -> None:
        number = 0
        while not ended.is_set():
            number += 1
            source.print(source.session_rows[0].id, "".join(f"line {number}.{part} {'x' * 60}\n" for part in range(50)))
            if number % 20 == 0:
                ended.wait(0.01)

    writer = threading.Thread(target=flood, daemon=True)
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.facts.loaded and app.facts.vault is not None and app.facts.host.here)
            writer.start()
            root = app.screen_stack[0]
            log = root.query_one("#log")
            await until(pilot, lambda: log.store.end > 20_000)  # type: ignore[attr-defined]
            await walk(app)
            assert log.store.end - log.store.first <= 10_000  # type: ignore[attr-defined]
            frames = app.ticker.frames
            await until(pilot, lambda: app.ticker.frames > frames)
    finally:
        ended.set()
        bridge.stop()
