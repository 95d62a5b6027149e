"""The field for what must never be seen: what it takes, and that nothing of it comes out."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
from console_source import FixedClock
from textual import events
from textual.app import App
from textual.pilot import Pilot

from kortix_tui.console.widgets.masked_entry import DOTS, MAX_BYTES, MaskedEntry
from kortix_tui.runtime.secret_sources import Secret

CANARY = "c4nary-Kx7Zq9W2"
Make = Callable[..., Any]


def value(secret: Secret) -> bytes:
    return secret.use("the test looks at it")


def ready(clock: FixedClock, **options: Any) -> MaskedEntry:
    entry = MaskedEntry("Value", clock=clock.monotonic, id="value", **options)
    clock.pass_guard()
    return entry


async def paste(app: App[Any], pilot: Pilot[Any], text: str) -> events.Paste:
    event = events.Paste(text)
    app.post_message(event)
    await pilot.pause()
    return event


async def test_typed_text_is_taken_and_never_drawn(widget_app: Make) -> None:
    entry = ready(FixedClock())
    app = widget_app(entry)
    async with app.run_test(size=(60, 3)) as pilot:
        entry.focus()
        assert "never shown" in app.screen_text()
        await pilot.press(*"ab", "space", "é", "?")
        assert value(entry.secret()) == "ab é?".encode()
        one = app.screen_text()
        await pilot.press(*CANARY)
        assert app.screen_text() == one, "the length is not shown"
        assert DOTS in one
        assert CANARY not in app.export_screenshot()
        await pilot.press(*["backspace"] * (len(CANARY) + 2))
        assert value(entry.secret()) == b"ab ", "a character of two bytes goes whole"
        await pilot.press("ctrl+u")
        assert entry.empty
        assert "never shown" in app.screen_text()


async def test_keys_that_are_not_text_go_on(widget_app: Make) -> None:
    first, second = ready(FixedClock()), MaskedEntry("Other", id="other")
    app = widget_app(first, second)
    async with app.run_test(size=(60, 3)) as pilot:
        first.focus()
        await pilot.press("left", "f2", "tab")
        assert first.empty
        assert second.has_focus


@pytest.mark.parametrize(
    ("pasted", "stored", "shown"),
    [
        ("one line", b"one line", ""),
        ("one line\r\n", b"one line", ""),
        ("a\rb\r", b"a\nb", "2 lines"),
        ("a\r\nb\r\n\r\nd", b"a\nb\n\nd", "4 lines"),
        ("tab\tkept", b"tab\tkept", ""),
    ],
)
async def test_pastes_keep_their_lines(widget_app: Make, pasted: str, stored: bytes, shown: str) -> None:
    entry = ready(FixedClock(), lines=True)
    app = widget_app(entry)
    async with app.run_test(size=(60, 3)) as pilot:
        entry.focus()
        await paste(app, pilot, pasted)
        assert value(entry.secret()) == stored
        assert (shown in app.screen_text()) and ("lines" in app.screen_text()) is bool(shown)


@pytest.mark.parametrize(
    ("text", "fault"),
    [("two\nlines", "one line only"), ("not \ufffd text", "not text"), ("x" * (MAX_BYTES + 1), "more than 64 KiB")],
)
async def test_what_cannot_be_taken_is_not_taken_in_part(widget_app: Make, text: str, fault: str) -> None:
    entry = ready(FixedClock())
    app = widget_app(entry)
    async with app.run_test(size=(100, 3)) as pilot:
        entry.focus()
        await paste(app, pilot, text)
        assert fault in app.screen_text()
        await pilot.press(*"more")
        assert entry.empty
        assert fault in entry.fault
        await pilot.press("ctrl+u", *"good")
        assert value(entry.secret()) == b"good"
        assert not entry.fault


async def test_what_was_typed_ahead_is_no_beginning_of_a_value(widget_app: Make) -> None:
    clock = FixedClock()
    entry = MaskedEntry("Value", clock=clock.monotonic, id="value")
    app = widget_app(entry)
    async with app.run_test(size=(100, 3)) as pilot:
        entry.focus()
        await pilot.press(*"xr", "enter")
        clock.pass_guard()
        await pilot.press(*"rest of it")
        await paste(app, pilot, "and more")
        assert entry.empty
        assert "typed before this was shown" in app.screen_text()
        await pilot.press("ctrl+u", *"all of it")
        assert value(entry.secret()) == b"all of it"


async def test_enter_says_so_and_carries_nothing(widget_app: Make) -> None:
    heard: list[MaskedEntry.Submitted] = []

    class Listening(MaskedEntry):
        def on_masked_entry_submitted(self, event: MaskedEntry.Submitted) -> None:
            heard.append(event)

    clock = FixedClock()
    entry = Listening("Value", clock=clock.monotonic)
    clock.pass_guard()
    app = widget_app(entry)
    async with app.run_test(size=(60, 3)) as pilot:
        entry.focus()
        await pilot.press(*CANARY, "enter")
        assert [event.control for event in heard] == [entry]
        assert CANARY not in str(vars(heard[0]))


async def test_messages_are_emptied_and_the_buffer_is_overwritten(widget_app: Make) -> None:
    entry = ready(FixedClock())
    app = widget_app(entry)
    async with app.run_test(size=(60, 3)) as pilot:
        entry.focus()
        pasted = await paste(app, pilot, CANARY)
        assert pasted.text == ""
        key = events.Key("Q", "Q")
        app.post_message(key)
        await pilot.pause()
        assert (key.key, key.character) == ("masked", None)
        buffer = entry._buffer
        kept = memoryview(buffer)[:]
        assert bytes(kept).endswith(b"Q")
        kept.release()
        entry.remove()
        await pilot.pause()
        assert buffer == b""
        gc.collect()
        left = [one for one in gc.get_objects() if isinstance(one, events.Paste) and CANARY in one.text]
        assert left == []


async def test_nothing_can_be_selected_or_copied(widget_app: Make) -> None:
    entry = ready(FixedClock())
    app = widget_app(entry)
    async with app.run_test(size=(60, 3)) as pilot:
        entry.focus()
        await pilot.press(*CANARY)
        app.screen.text_select_all()
        await pilot.pause()
        assert not app.screen.get_selected_text(), "also when all is selected"
        assert CANARY not in repr(entry)
