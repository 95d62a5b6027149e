"""Dialogs and the message line: slow to say yes, quick to say no."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from console_source import FixedClock
from textual import events

from kortix_tui.console.widgets.command_line import Command, CommandRegistry, Unknown
from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier
from kortix_tui.console.widgets.message_line import MessageLine, Purpose
from kortix_tui.console.widgets.text_pane import TextPane

Until = Callable[..., Awaitable[None]]


def dialog(clock: FixedClock, tier: Tier = Tier.LASTING) -> ConfirmDialog:
    return ConfirmDialog(
        "Merge?", act="merge", facts=[("commit", "3f2a")], effect="It is pushed.", tier=tier, name="k7m2",
        clock=clock.monotonic,
    )  # fmt: skip


@pytest.mark.parametrize(("key", "answer"), [("y", True), ("enter", False), ("n", False), ("q", False)])
async def test_only_y_says_yes(widget_app: Callable[..., Any], until: Until, key: str, answer: bool) -> None:
    clock, answers = FixedClock(), list[object]()
    app = widget_app(TextPane())
    async with app.run_test() as pilot:
        app.push_screen(dialog(clock), answers.append)
        await pilot.pause()
        await pilot.press(key)
        assert answers == [], "too soon"
        clock.pass_guard()
        await pilot.press("x", "a", "space")
        assert answers == []
        await pilot.press(key)
        await until(pilot, lambda: answers == [answer])


@pytest.mark.parametrize("tier", Tier)
async def test_esc_alone_does_not_wait(widget_app: Callable[..., Any], until: Until, tier: Tier) -> None:
    """It decides nothing, and where it was swallowed the dialog took the keys meant for the screen below it."""
    clock, answers = FixedClock(), list[object]()
    app = widget_app(TextPane())
    async with app.run_test() as pilot:
        app.push_screen(dialog(clock, tier), answers.append)
        await pilot.pause()
        await pilot.press("y", *"k7m2", "enter")
        assert answers == [], "too soon"
        await pilot.press("escape")
        await until(pilot, lambda: answers == [False])


async def test_new_content_makes_keys_wait_again(widget_app: Callable[..., Any], until: Until) -> None:
    clock, answers = FixedClock(), list[object]()
    app = widget_app(TextPane())
    async with app.run_test() as pilot:
        shown = dialog(clock)
        app.push_screen(shown, answers.append)
        await pilot.pause()
        clock.pass_guard()
        shown.change([("commit", "beef")], "It is another one.")
        await pilot.press("y")
        assert answers == []
        assert "beef" in app.screen_text()
        clock.pass_guard()
        await pilot.press("y")
        await until(pilot, lambda: answers == [True])


async def test_a_name_is_typed_never_pasted(widget_app: Callable[..., Any], until: Until) -> None:
    clock, answers = FixedClock(), list[object]()
    app = widget_app(TextPane())
    async with app.run_test() as pilot:
        app.push_screen(dialog(clock, Tier.DESTRUCTIVE), answers.append)
        await pilot.pause()
        await pilot.press(*"k7m2", "enter")
        assert answers == []
        clock.pass_guard()
        app.post_message(events.Paste("k7m2"))
        await pilot.pause()
        assert "pasting is off" in app.screen_text()
        await pilot.press("enter")
        assert answers == []
        await pilot.press(*"k7m2", "enter")
        await until(pilot, lambda: answers == [True])


async def test_a_name_can_be_refused(widget_app: Callable[..., Any], until: Until) -> None:
    clock, answers = FixedClock(), list[object]()
    app = widget_app(TextPane())
    async with app.run_test() as pilot:
        app.push_screen(dialog(clock, Tier.DESTRUCTIVE), answers.append)
        await pilot.pause()
        clock.pass_guard()
        await pilot.press("q", "escape")
        await until(pilot, lambda: answers == [False])


async def test_the_line_remembers_and_gives_the_focus_back(widget_app: Callable[..., Any]) -> None:
    line, pane = MessageLine(), TextPane(id="pane")
    app = widget_app(pane, line)
    async with app.run_test(message_hook=app.heard.append) as pilot:
        pane.focus()
        line.say("stored")
        await pilot.pause()
        assert "stored" in app.screen_text()
        for text in ("one", "two"):
            line.ask(Purpose.COMMAND)
            await pilot.press(*text, "enter")
        line.ask(Purpose.COMMAND)
        await pilot.press("up", "up", "down", "enter")
        said = [event.text for event in app.heard if isinstance(event, MessageLine.Submitted)]
        assert [text for place, text in enumerate(said) if place == 0 or said[place - 1] != text] == ["one", "two"]
        assert app.focused is pane
        line.ask(Purpose.FILTER, "kept")
        await pilot.press("escape")
        assert any(isinstance(event, MessageLine.Cancelled) for event in app.heard)
        assert line.asking is None


async def test_tab_completes_as_far_as_it_is_sure(widget_app: Callable[..., Any]) -> None:
    line = MessageLine()
    app = widget_app(line)
    async with app.run_test() as pilot:
        line.ask(
            Purpose.COMMAND, complete=lambda text: [w for w in ("session.new", "session.stop") if w.startswith(text)]
        )
        await pilot.press("s", "tab")
        assert line._input.value == "session."
        await pilot.press("n", "tab")
        assert line._input.value == "session.new "


def test_commands_are_found_by_a_unique_beginning() -> None:
    ran: list[str] = []
    registry = CommandRegistry(
        [
            Command(("sessions", "s"), "Sessions", ran.append, "FILTER", lambda _: ("running", "waiting")),
            Command(("theme",), "Theme", ran.append),
            Command(("themes",), "Themes", ran.append),
        ]
    )
    found = registry.find("ses  running ")
    assert not isinstance(found, Unknown)
    found[0].run(found[1])
    assert ran == ["running"]
    exact = registry.find("theme")
    assert not isinstance(exact, Unknown)
    unknown = registry.find("the")
    assert isinstance(unknown, Unknown)
    assert unknown.near == ("theme", "themes")
    assert "tab" in Unknown("x", ()).message.lower()
    assert registry.completions("se") == ["sessions"]
    assert registry.completions("s r") == ["s running"]
    assert registry.completions("nope x") == []
    with pytest.raises(ValueError, match="theme"):
        registry.add(Command(("theme",), "Again", ran.append))
