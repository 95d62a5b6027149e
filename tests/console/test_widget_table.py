"""VirtualTable: the cursor belongs to a row, filters never fail, columns give way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kortix_tui.console.widgets.cells import cut, fit, width_of, window
from kortix_tui.console.widgets.filter import Filter
from kortix_tui.console.widgets.table import Cell, Column, Row, VirtualTable

COLUMNS = [
    Column("name", "NAME", 12, grow=True),
    Column("age", "AGE", 5, right=True),
    Column("cpu", "CPU", 6, priority=2),
    Column("repo", "REPO", 20, priority=1),
]


def row(name: str, age: int = 0) -> Row:
    cells = {"name": Cell(name), "age": Cell(f"{age}m", order=age), "cpu": Cell("1%"), "repo": Cell("acme/web")}
    return Row(name, cells, fields={"name": name, "state": "running" if age else "waiting"})


def ids(table: VirtualTable) -> list[str]:
    return list(table._shown)


async def test_cursor_stays_on_its_row_when_rows_come_and_go(widget_app: Callable[..., Any]) -> None:
    table = VirtualTable(COLUMNS)
    async with widget_app(table).run_test() as pilot:
        table.set_rows([row("a"), row("b"), row("c")])
        await pilot.press("tab", "j")
        assert table.cursor == "b"
        table.set_rows([row("new"), row("c"), row("b")])
        assert table.cursor == "b"
        assert ids(table) == ["b", "c", "new"], "what is new comes last, what is known keeps its place"
        assert table.late == 1


async def test_cursor_goes_to_the_neighbour_when_its_row_is_gone(widget_app: Callable[..., Any]) -> None:
    table = VirtualTable(COLUMNS)
    async with widget_app(table).run_test() as pilot:
        table.set_rows([row("a"), row("b"), row("c")])
        await pilot.press("tab", "j")
        table.set_rows([row("a"), row("c")])
        assert table.cursor == "c"
        table.set_rows([])
        assert table.cursor is None


async def test_sorting_is_asked_for_and_keeps_the_cursor(widget_app: Callable[..., Any]) -> None:
    table = VirtualTable(COLUMNS, sort=("age", True))
    async with widget_app(table).run_test() as pilot:
        table.set_rows([row("young", 1), row("old", 90)])
        assert ids(table) == ["old", "young"]
        table.select("young")
        table.set_rows([row("young", 100), row("old", 90)])
        assert ids(table) == ["old", "young"], "data alone never re-sorts"
        table.resort()
        assert ids(table) == ["young", "old"]
        assert table.cursor == "young"
        await pilot.press("tab", "S")
        assert table._sort == ("cpu", False)


async def test_filter_and_open(widget_app: Callable[..., Any]) -> None:
    table = VirtualTable(COLUMNS)
    app = widget_app(table)
    async with app.run_test(message_hook=app.heard.append) as pilot:
        table.set_rows([row("alpha"), row("beta", 3), row("gamma", 4)])
        table.set_filter("state:run !gamma")
        assert ids(table) == ["beta"]
        assert (table.shown, table.total) == (1, 3)
        await pilot.press("tab", "enter")
        assert {event.row_id for event in app.heard if isinstance(event, VirtualTable.Selected)} == {"beta"}
        table.set_filter("")
        assert table.shown == 3


async def test_paging_reaches_both_ends(widget_app: Callable[..., Any]) -> None:
    table = VirtualTable(COLUMNS)
    async with widget_app(table).run_test(size=(60, 12)) as pilot:
        table.set_rows(row(f"r{index:05d}") for index in range(10_000))
        await pilot.press("tab", "G")
        assert table.cursor == "r09999"
        await pilot.press("comma")
        assert table.cursor == "r09989"
        await pilot.press("ctrl+u", "ctrl+d", "pagedown", "j")
        assert table.cursor == "r09999"
        await pilot.press("g")
        assert table.cursor == "r00000"


def test_columns_give_way_by_priority() -> None:
    table = VirtualTable(COLUMNS)

    def keys(width: int) -> list[str]:
        return [column.key for column, _ in table.layout_columns(width)]

    assert keys(100) == ["name", "age", "cpu", "repo"]
    assert keys(46) == ["name", "age", "repo"]
    assert keys(23) == ["name", "age"]
    assert sum(size for _, size in table.layout_columns(100)) + 2 + 3 * 2 + 1 == 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["alpha run", "Beta wait"]),
        ("ALPHA", []),
        ("alp", ["alpha run"]),
        ("beta", ["Beta wait"]),
        ("!beta", ["alpha run"]),
        ("alp|wait", ["alpha run", "Beta wait"]),
        ("~^alpha.run$", ["alpha run"]),
        ("~(", []),
        ("!", []),
        ("|", ["alpha run", "Beta wait"]),
        ("first:a", ["alpha run"]),
        ("nothing:a", []),
    ],
)
def test_filter_language(text: str, expected: list[str]) -> None:
    found = Filter.parse(text)
    rows = {"alpha run": "a", "Beta wait": "b"}
    assert [name for name, first in rows.items() if found.matches({"first": first}, name)] == expected


def test_an_invalid_expression_is_taken_literally() -> None:
    found = Filter.parse("~([a")
    assert found.matches({}, "x ([a y")
    assert "literally" in found.hint


@pytest.mark.parametrize("text", ["plain", "日本語のタイトル", "🚀🚀 go", "a日b", "", "ｈａｌｆ"])
@pytest.mark.parametrize("width", [0, 1, 2, 5, 30])
def test_cells_are_exact(text: str, width: int) -> None:
    assert width_of(fit(text, width)) == width
    assert width_of(fit(text, width, right=True)) == width
    assert width_of(cut(text, width)) <= max(width, 0)


def test_a_window_cuts_wide_characters_to_spaces() -> None:
    from rich.segment import Segment
    from rich.style import Style

    parts = window([Segment("日本"), Segment("語x")], 1, 4, Style())
    assert "".join(part.text for part in parts) == " 本 "
