"""Widths and tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.text import visible_line
from kortix_tui.cli.cells import Column, cell_width, fit, layout


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("abc", 3), ("漢字", 4), ("e\u0301", 1), ("ｗide", 5), ("→…", 2), ("한글", 4), ("👩", 2), ("ü", 1)],
)
def test_cells_are_counted_as_terminals_do(text: str, width: int) -> None:
    assert cell_width(text) == width


@given(st.text(max_size=40).map(visible_line), st.integers(0, 30), st.booleans())
def test_fitted_text_has_exactly_the_width(text: str, width: int, right: bool) -> None:
    assert cell_width(fit(text, width, right=right)) == width


def test_what_is_cut_ends_with_an_ellipsis() -> None:
    assert fit("abcdef", 4) == "abc…"
    assert fit("漢字漢字", 4) == "漢… "
    assert fit("7", 3, right=True) == "  7"


COLUMNS = (
    Column("ID"),
    Column("AGENT", drop=2),
    Column("CR", drop=1),
    Column("AGE", right=True),
    Column("TITLE", flexible=True),
)
ROWS = [("kab", "builder", "#1 open", "3m", "漢字 title that is quite long"), ("kcd", "x", "", "12h", "short")]


def test_a_table_lines_up_and_keeps_everything_without_a_width() -> None:
    assert layout(COLUMNS, ROWS) == [
        "ID   AGENT    CR       AGE  TITLE",
        "kab  builder  #1 open   3m  漢字 title that is quite long",
        "kcd  x                 12h  short",
    ]


def test_a_narrow_table_drops_columns_then_cuts_the_flexible_one() -> None:
    lines = layout(COLUMNS, ROWS, width=32)
    assert lines[0] == "ID   CR       AGE  TITLE"
    assert lines[1] == "kab  #1 open   3m  漢字 title t…"
    assert layout(COLUMNS, ROWS, width=24)[0] == "ID   AGE  TITLE"


@given(st.lists(st.tuples(*[st.text(max_size=30).map(visible_line)] * 5), max_size=8), st.integers(60, 200))
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, ...]], width: int) -> None:
    columns = [
        Column("A", flexible=True),
        Column("B", drop=1),
        Column("C", drop=2),
        Column("D", drop=3),
        Column("E", flexible=True),
    ]
    assert all(cell_width(line) <= width for line in layout(columns, rows, width=width))


def test_styles_come_only_with_colour() -> None:
    columns = (Column("S", style=lambda text: "32" if text == "ok" else ""),)
    assert layout(columns, [("ok",), ("no",)]) == ["S", "ok", "no"]
    assert layout(columns, [("ok",), ("no",)], colour=True) == ["\x1b[1mS\x1b[0m", "\x1b[32mok\x1b[0m", "no"]
