"""A list of rows on the line API: ten thousand rows cost what is visible.

The cursor belongs to a row, not to a place: new data, a filter or a sort never put another row under it.
New rows are appended and counted; order changes only when the person asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.message import Message
from textual.strip import Strip

from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import bindings
from kortix_tui.console.widgets.cells import fit
from kortix_tui.console.widgets.filter import Filter
from kortix_tui.console.widgets.pager import Pager

GAP = 2
MARKER = 2
"""Cells before the first column: the cursor sign, so that it is seen without colour."""
MARGIN = 1
"""Cells after the last column."""


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: Name of the cell.
        title: Heading.
        width: Cells it needs.
        priority: Columns with higher numbers are dropped first when it gets narrow; 0 is never dropped.
        grow: Whether it takes what is left over (one column does).
        right: Numbers go to the right edge.
    """

    key: str
    title: str
    width: int
    priority: int = 0
    grow: bool = False
    right: bool = False


@dataclass(frozen=True)
class Cell:
    """Safe text of one cell, the role of its style, and what it sorts by when that is not its text."""

    text: str
    role: str = "text"
    order: float | str | None = None


@dataclass(frozen=True)
class Row:
    """One row. `text` is what a bare filter word looks at."""

    id: str
    cells: Mapping[str, Cell]
    text: str = ""
    fields: Mapping[str, str] = field(default_factory=dict)


class VirtualTable(Pager):
    """A filterable, sortable list with a cursor."""

    BINDINGS = bindings(Where.LIST)

    class Highlighted(Message):
        """The cursor is on another row, or on none."""

        def __init__(self, table: VirtualTable, row_id: str | None) -> None:
            super().__init__()
            self.table = table
            self.row_id = row_id

        @property
        def control(self) -> VirtualTable:
            """The table."""
            return self.table

    class Selected(Message):
        """The person opened a row."""

        def __init__(self, table: VirtualTable, row_id: str) -> None:
            super().__init__()
            self.table = table
            self.row_id = row_id

        @property
        def control(self) -> VirtualTable:
            """The table."""
            return self.table

    def __init__(
        self,
        columns: Sequence[Column],
        *,
        empty: str = "Nothing here yet.",
        header: bool = True,
        sort: tuple[str, bool] | None = None,
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        """Make an empty table.

        Args:
            columns: From left to right.
            empty: Shown when there is no row.
            header: Whether to show headings.
            sort: Column key and whether descending; without it rows keep the order they come in.
            id: The widget's id.
            classes: The widget's classes.
        """
        super().__init__(id=id, classes=classes)
        self._columns = tuple(columns)
        self._empty = empty
        self._header = header
        self._sort = sort
        self._rows: dict[str, Row] = {}
        self._order: list[str] = []
        self._shown: list[str] = []
        self._filter = Filter()
        self._cursor: str | None = None
        self._cursor_index = 0
        self._top = 0
        self._late = 0

    # Data.

    def set_rows(self, rows: Iterable[Row], *, resort: bool = False) -> None:
        """Show these rows; paints with the next tick.

        Args:
            rows: All rows, best order first.
            resort: Take the order anew. Otherwise rows that are known stay where they are, and new ones
                come last.
        """
        fresh = {row.id: row for row in rows}
        if resort or not self._order:
            self._order = self._sorted(fresh.values())
            self._late = 0
        else:
            known = [row_id for row_id in self._order if row_id in fresh]
            present = set(known)
            added = [row_id for row_id in fresh if row_id not in present]
            self._order = known + added
            self._late += len(added)
        self._rows = fresh
        self._apply_filter()
        self.mark_dirty()

    def resort(self) -> None:
        """Bring all rows into order; the cursor stays on its row."""
        self._order = self._sorted(self._rows.values())
        self._late = 0
        self._apply_filter()
        self._keep_cursor_visible()
        self.moved()

    def sort_by(self, key: str, *, descending: bool = False) -> None:
        """Sort by a column."""
        self._sort = (key, descending)
        self.resort()

    def set_filter(self, text: str) -> Filter:
        """Show only what matches; gives the parsed filter with its hint."""
        self._filter = Filter.parse(text)
        self._apply_filter()
        self._keep_cursor_visible()
        self.moved()
        return self._filter

    def _sorted(self, rows: Iterable[Row]) -> list[str]:
        rows = list(rows)
        if self._sort is not None:
            key, descending = self._sort
            rows.sort(key=_order_by(key), reverse=descending)
        return [row.id for row in rows]

    def _apply_filter(self) -> None:
        if self._filter:
            rows = self._rows
            self._shown = [
                row_id
                for row_id in self._order
                if self._filter.matches(rows[row_id].fields, rows[row_id].text or _all_text(rows[row_id]))
            ]
        else:
            self._shown = self._order
        before = self._cursor
        if self._shown:
            try:
                self._cursor_index = self._shown.index(before) if before is not None else 0
            except ValueError:
                # The row is gone or filtered out: the one that took its place is the nearest.
                self._cursor_index = min(self._cursor_index, len(self._shown) - 1)
            self._cursor = self._shown[self._cursor_index]
        else:
            self._cursor, self._cursor_index = None, 0
        self._top = max(0, min(self._top, len(self._shown) - self._body_height))
        if self._cursor != before:
            self._keep_cursor_visible()
            self.post_message(self.Highlighted(self, self._cursor))

    # State.

    @property
    def cursor(self) -> str | None:
        """Id of the row under the cursor."""
        return self._cursor

    @property
    def filter(self) -> Filter:
        """The active filter."""
        return self._filter

    @property
    def total(self) -> int:
        """How many rows there are, shown or not."""
        return len(self._rows)

    @property
    def shown(self) -> int:
        """How many rows pass the filter."""
        return len(self._shown)

    def heading(self, name: str) -> str:
        """A title with counts and the filter: `Sessions [3/9] /wait`."""
        if not self.filter:
            return f"{name} [{self.total}]"
        return f"{name} [{self.shown}/{self.total}] /{self.filter.text}"

    @property
    def late(self) -> int:
        """How many rows came since the last sort, and so stand at the end."""
        return self._late

    @property
    def position(self) -> str:
        """Rows that came since the last sort, and how far the cursor is in a long list."""
        parts = [f"+{self._late} new at the end"] if self._late else []
        if len(self._shown) > self._body_height:
            parts.append(f"{self._cursor_index + 1}/{len(self._shown)}")
        return " · ".join(parts)

    def row(self, row_id: str) -> Row | None:
        """The row of that id."""
        return self._rows.get(row_id)

    def select(self, row_id: str) -> bool:
        """Put the cursor on a row; whether it is shown."""
        try:
            index = self._shown.index(row_id)
        except ValueError:
            return False
        self._set_cursor(index)
        return True

    # Moving.

    @property
    def _body_height(self) -> int:
        return max(1, self.size.height - int(self._header))

    @property
    def page(self) -> int:
        """Rows on one page."""
        return self._body_height

    def go(self, lines: int) -> None:
        """Move the cursor."""
        self._set_cursor(self._cursor_index + lines)

    def go_top(self) -> None:
        """To the first row."""
        self._set_cursor(0)

    def go_bottom(self) -> None:
        """To the last row."""
        self._set_cursor(len(self._shown) - 1)

    def yank(self) -> str:
        """The id of the row under the cursor."""
        return self._cursor or ""

    def _set_cursor(self, index: int) -> None:
        if not self._shown:
            return
        index = max(0, min(index, len(self._shown) - 1))
        changed = self._shown[index] != self._cursor
        self._cursor_index, self._cursor = index, self._shown[index]
        self._keep_cursor_visible()
        self.moved()
        if changed:
            self.post_message(self.Highlighted(self, self._cursor))

    def _keep_cursor_visible(self) -> None:
        height = self._body_height
        if self._cursor_index < self._top:
            self._top = self._cursor_index
        elif self._cursor_index >= self._top + height:
            self._top = self._cursor_index - height + 1

    def on_resize(self, event: events.Resize) -> None:
        """Keep the cursor in sight."""
        self._keep_cursor_visible()
        super().on_resize(event)

    def on_focus(self) -> None:
        """Show the strong cursor."""
        self.repaint()

    def on_blur(self) -> None:
        """Show the quiet cursor."""
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor where the mouse is; a second click opens."""
        line = event.y - int(self._header)
        if line >= 0 and self._top + line < len(self._shown):
            self._set_cursor(self._top + line)
            if event.chain == 2:
                self.action_list_select()

    def action_list_select(self) -> None:
        """Open the row under the cursor."""
        if self._cursor is not None:
            self.post_message(self.Selected(self, self._cursor))

    def action_list_sort(self) -> None:
        """Sort by the next column, first down, then up."""
        keys = [column.key for column in self._columns if column.title]
        if not keys:
            return
        if self._sort is None:
            self.sort_by(keys[0])
        elif not self._sort[1]:
            self.sort_by(self._sort[0], descending=True)
        else:
            place = keys.index(self._sort[0]) if self._sort[0] in keys else -1
            self.sort_by(keys[(place + 1) % len(keys)])

    # Painting.

    def layout_columns(self, width: int) -> list[tuple[Column, int]]:
        """The columns that have room, with their widths. Those of least importance go first."""
        chosen = list(self._columns)

        def needed() -> int:
            return MARKER + MARGIN + sum(column.width for column in chosen) + GAP * max(0, len(chosen) - 1)

        while needed() > width:
            droppable = [column for column in chosen if column.priority > 0]
            if not droppable:
                break
            chosen.remove(max(droppable, key=lambda column: column.priority))
        spare = max(0, width - needed())
        over = max(0, needed() - width)
        sizes = []
        for column in chosen:
            size = column.width
            if column.grow:
                # The growing column also gives way first, down to a few readable cells.
                taken = min(over, max(0, size - 6))
                size += spare - taken
                over -= taken
                spare = 0
            sizes.append((column, size))
        return sizes

    def compose_frame(self, width: int, height: int) -> Sequence[Strip]:
        """Headings and the visible rows."""
        columns = self.layout_columns(width)
        lines: list[Strip] = []
        if self._header:
            lines.append(self._heading(columns))
        if not self._shown:
            text = "No row matches the filter; esc clears it." if self._filter else self._empty
            lines.append(Strip([Segment("  " + text, self.palette["muted"])]))
            return lines
        visible = range(self._top, min(self._top + height - len(lines), len(self._shown)))
        lines.extend(
            self._line(self._rows[self._shown[index]], columns, index == self._cursor_index, width) for index in visible
        )
        return lines

    def _heading(self, columns: list[tuple[Column, int]]) -> Strip:
        style = self.palette["muted"]
        parts = [" " * MARKER]
        for place, (column, size) in enumerate(columns):
            title = column.title
            if self._sort is not None and self._sort[0] == column.key:
                title = f"{title}{'↓' if self._sort[1] else '↑'}"
            parts.append((" " * GAP if place else "") + fit(title, size, right=column.right))
        return Strip([Segment("".join(parts), style)])

    def _line(self, row: Row, columns: list[tuple[Column, int]], current: bool, width: int) -> Strip:
        palette = self.palette
        back = Style.null()
        if current:
            back = palette["cursor"] if self.has_focus else palette["cursor.unfocused"]
        plain = palette["text"] + back
        sign = "▌ " if current else "  "
        segments = [Segment(sign, palette["primary"] + back if current and self.has_focus else plain)]
        used = MARKER
        for place, (column, size) in enumerate(columns):
            if place:
                segments.append(Segment(" " * GAP, plain))
                used += GAP
            cell = row.cells.get(column.key)
            style = plain if cell is None else palette.get(cell.role) + back
            if current and not place:
                style += Style(bold=True)
            segments.append(Segment(fit(cell.text if cell else "", size, right=column.right), style))
            used += size
        if used < width:
            segments.append(Segment(" " * (width - used), plain))
        return Strip(segments)


def _all_text(row: Row) -> str:
    return " ".join(cell.text for cell in row.cells.values())


def _order_by(key: str) -> Callable[[Row], tuple[bool, float, str]]:
    def order(row: Row) -> tuple[bool, float, str]:
        cell = row.cells.get(key)
        value: float | str = "" if cell is None else cell.text if cell.order is None else cell.order
        if isinstance(value, str):
            return (True, 0.0, value.lower())
        return (False, value, "")

    return order
