"""The whole path by keys alone, on a real runtime, a real sandbox and a real repository."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from desk import Desk, git
from textual.pilot import Pilot

from kortix_tui.console.app import KortixApp
from kortix_tui.console.bridge import Bridge
from kortix_tui.console.screens.change import ChangeScreen
from kortix_tui.console.terminal import Terminal
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.dialog import GUARD_SECONDS
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.prompt_dialogs import NewSessionDialog

pytestmark = pytest.mark.docker

SCRIPT = """echo working on it
echo more >> hello.txt
git commit -qam 'Say more'
kortix cr open --title 'Say more' --description 'A line.'
"""


async def until(pilot: Pilot[Any], condition: Callable[[], bool], seconds: float = 150.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)
    await pilot.pause()


async def test_from_prompt_to_merged_change(desk: Desk) -> None:
    bridge = Bridge(desk.runtime)
    app = KortixApp(bridge, terminal=Terminal.detect({}))
    try:
        async with app.run_test(size=(120, 40)) as pilot:
            await until(pilot, lambda: app.facts.loaded and len(app.facts.projects) == 1)
            await pilot.press("n")
            await until(pilot, lambda: isinstance(app.screen, NewSessionDialog))
            app.screen.query_one("#prompt").text = SCRIPT  # type: ignore[attr-defined]
            await pilot.press("ctrl+s")
            await until(pilot, lambda: len(app.facts.sessions) == 1)
            log = app.screen_stack[0].query_one("#log", LogPane)
            await until(pilot, lambda: any("working on it" in line.text for line in log.store.read(0, log.store.end)))
            await until(pilot, lambda: len(app.facts.changes) == len(app.facts.inbox) == 1)
            await pilot.press("3", "enter")
            await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
            view = app.screen.query_one(DiffView)
            await until(pilot, lambda: view.model.additions == 1 and view.model.deletions == 0)
            await until(pilot, lambda: app.can_run("change_merge"))
            await pilot.press("m")
            await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
            await asyncio.sleep(GUARD_SECONDS)  # the time in which a person's keys are not taken for an answer
            await pilot.press("y")
            await until(pilot, lambda: app.facts.changes[0].status == "merged")
    finally:
        bridge.stop()
    assert git(desk.repository, "show", "main:hello.txt") == "hello\nmore"
    merged = desk.runtime.changes.list()[0]
    assert merged.reviewed_head == merged.head_commit
    assert merged.decided_by
