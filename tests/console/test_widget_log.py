"""LogPane: follows, holds still, searches, and shows colours but nothing else of a terminal's language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rich.color import Color
from rich.style import Style

from kortix_tui.console.widgets.lines import LineRing, LogLine
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.search import Search
from kortix_tui.console.widgets.sgr import Ink, contrast, last_rewrite, segments_of

BASE = Style(color="#d0d0d0")
INK = Ink(tuple(Color.parse(f"#{index:x}0f0f0") for index in range(16)), Color.parse("#101010"))


def lines(*texts: str) -> list[LogLine]:
    return [LogLine(text) for text in texts]


async def test_follow_shows_the_end_and_scrolling_holds_still(widget_app: Callable[..., Any]) -> None:
    ring = LineRing()
    pane = LogPane(ring)
    app = widget_app(pane)
    async with app.run_test(size=(40, 10)) as pilot:
        ring.extend(lines(*(f"line {index}" for index in range(100))))
        app.beat()
        await pilot.pause()
        assert app.screen_text().splitlines()[-1].startswith("line 99")
        await pilot.press("tab", "k")
        assert not pane.follow
        before = app.screen_text()
        ring.extend(lines("fresh"))
        app.beat()
        await pilot.pause()
        assert app.screen_text() == before
        assert pane.new_lines == 2
        assert "2 below" in pane.position
        await pilot.press("G")
        app.beat()
        await pilot.pause()
        assert "fresh" in app.screen_text()
        assert pane.follow


async def test_a_million_lines_only_cost_the_ring(widget_app: Callable[..., Any]) -> None:
    ring = LineRing(limit=500)
    pane = LogPane(ring)
    app = widget_app(pane)
    async with app.run_test(size=(40, 10)) as pilot:
        for start in range(0, 100_000, 5_000):
            ring.extend(lines(*(f"n{index}" for index in range(start, start + 5_000))))
            app.beat()
        await pilot.pause()
        assert (ring.first, ring.end) == (99_500, 100_000)
        await pilot.press("tab", "g")
        assert app.screen_text().splitlines()[0].startswith("n99500")


async def test_a_frozen_pane_survives_the_loss_of_its_lines(widget_app: Callable[..., Any]) -> None:
    ring = LineRing(limit=50)
    pane = LogPane(ring)
    app = widget_app(pane)
    async with app.run_test(size=(40, 10)) as pilot:
        ring.extend(lines(*(f"a{index}" for index in range(50))))
        await pilot.press("tab", "g")
        ring.extend(lines(*(f"b{index}" for index in range(50))))
        app.beat()
        await pilot.pause()
        assert app.screen_text().splitlines()[0].startswith("b0")


async def test_search_finds_and_turns_around(widget_app: Callable[..., Any]) -> None:
    ring = LineRing()
    ring.extend(lines(*(f"row {index} {'needle' if index in {5, 50} else ''}" for index in range(100))))
    pane = LogPane(ring)
    app = widget_app(pane)
    async with app.run_test(size=(40, 12)) as pilot:
        await pilot.press("tab")
        assert pane.search("NEEDLE") == ""
        assert pane._search is not None
        assert pane._search.count == 0, "a capital makes it exact"
        pane.search("needle")
        await pilot.pause()
        assert "row 50" in app.screen_text()
        await pilot.press("n")
        assert pane._hit == 5
        await pilot.press("n")
        assert pane._hit == 50
        await pilot.press("N")
        assert pane._hit == 5
        assert "literally" in pane.search("~(")


async def test_wrapping_and_sideways(widget_app: Callable[..., Any]) -> None:
    ring = LineRing()
    ring.extend(lines("abcdefghij" * 3))
    pane = LogPane(ring)
    app = widget_app(pane)
    async with app.run_test(size=(20, 6)) as pilot:
        await pilot.press("tab", "l")
        assert app.screen_text().splitlines()[0] == "ijabcdefghijabcdefgh"
        await pilot.press("w")
        assert app.screen_text().splitlines()[:2] == ["abcdefghijabcdefghij", "abcdefghij"]


def test_search_works_in_slices_within_a_budget() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.008
        return now[0]

    search = Search("x", clock)
    read = lambda start, stop: ["x"] * (stop - start)  # noqa: E731
    search.advance(0, 5_000, read)
    assert 0 < search.count < 5_000
    while not search.complete(5_000):
        search.advance(0, 5_000, read)
    assert search.count == 5_000


def test_colours_are_kept_and_the_rest_is_text() -> None:
    parts = segments_of("a\x1b[1;31mb\x1b[0mc\x1b[38;5;200md\x1b[48;2;1;2;3me\x1b[999mf", BASE, INK)
    assert "".join(part.text for part in parts) == "abcdef"
    assert parts[1].style is not None
    assert parts[1].style.bold
    assert parts[2].style == BASE
    assert segments_of("cut \x1b[3", BASE, INK)[-1].text == "cut ␛[3"
    for bad in ("\x1b[;;;m", "\x1b[38m", "\x1b[38;5m", "\x1b[38;5;999m", "\x1b[48;2;1m", "\x1b[38;2;300;0;0m"):
        assert "".join(part.text for part in segments_of(f"x{bad}y", BASE, INK)) == "xy"


def test_text_cannot_be_hidden_by_its_colour() -> None:
    for codes in ("38;2;16;16;16", "38;5;233", "30;40", "8", "38;2;250;250;250;48;2;255;255;255"):
        for part in segments_of(f"\x1b[{codes}msecret", BASE, INK):
            assert part.style is not None
            assert part.style.color is not None
            assert contrast(part.style.color, part.style.bgcolor or INK.paper) >= 3, codes


def test_a_progress_bar_shows_its_last_state() -> None:
    assert last_rewrite("1%␍50%␍100%") == "␍100%"
    assert last_rewrite("plain") == "plain"
    assert last_rewrite("␍ ␍") == ""
