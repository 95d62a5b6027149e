"""A live log: follows the end without layout, freezes when the person scrolls, searches, wraps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kortix_tui.base.text import without_sgr
from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import bindings
from kortix_tui.console.widgets.cells import fit, width_of, window
from kortix_tui.console.widgets.lines import LineRing, LineStore, LogLine
from kortix_tui.console.widgets.pager import Pager
from kortix_tui.console.widgets.search import Search
from kortix_tui.console.widgets.sgr import segments_of

SOURCE_WIDTH = 8
_SOURCE_ROLES = {"agent": "primary", "host": "muted", "git": "state.provisioning", "you": "accent", "error": "error"}


class LogPane(Pager):
    """Shows a `LineStore`. Holds only the state of the view."""

    BINDINGS = bindings(Where.PAGER, Where.LOG)

    def __init__(
        self,
        store: LineStore | None = None,
        *,
        empty: str = "No output yet.",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._store: LineStore = store or LineRing()
        self._empty = empty
        self.follow = True
        self.wrap = False
        self.show_time = True
        self._top = 0
        self._left = 0
        self._seen = self._store.revision
        self._search: Search | None = None
        self._hit: int | None = None

    # Data.

    @property
    def store(self) -> LineStore:
        """Where the lines come from."""
        return self._store

    def show(self, store: LineStore, *, empty: str | None = None) -> None:
        """Show another log, at its end."""
        self._store = store
        self._empty = self._empty if empty is None else empty
        self.follow = True
        self._left = 0
        self._search = None
        self._hit = None
        self._seen = store.revision
        self.moved()

    def on_frame(self) -> None:
        """Take in what came: one repaint a tick however many lines there are."""
        end = self._store.end
        if self._search is not None and not self._search.complete(end):
            self._search.advance(self._store.first, end, self._plain)
            self._dirty = True
        revision = self._store.revision
        if revision != self._seen:
            self._seen = revision
            self._dirty = True
        super().on_frame()

    def _plain(self, start: int, stop: int) -> list[str]:
        return [without_sgr(line.text) for line in self._store.read(start, stop)]

    # State.

    @property
    def new_lines(self) -> int:
        """Lines below what is shown."""
        return 0 if self.follow else max(0, self._store.end - self._top - self.size.height)

    @property
    def position(self) -> str:
        """Whether it follows, how much there is, what is searched."""
        parts = []
        if self._search is not None:
            running = "" if self._search.complete(self._store.end) else "…"
            parts.append(f"/{self._search.text} {self._search.count}{running}")
        if self.follow:
            parts.append("follow")
        else:
            parts.append(f"{self.new_lines} below" if self.new_lines else "end")
        count = self._store.end - self._store.first
        parts.append(f"{count} line{'s' * (count != 1)}")
        return " · ".join(parts)

    # Moving.

    def go(self, lines: int) -> None:
        """Scroll; leaving the end stops following, reaching it does not start it again by itself."""
        last = self._last_top()
        current = last if self.follow else self._top
        target = max(self._store.first, min(current + lines, last))
        if self.follow and target >= last:
            return
        self.follow = False
        self._top = target
        self.moved()

    def go_top(self) -> None:
        """To the oldest line."""
        self.follow = False
        self._top = self._store.first
        self.moved()

    def go_bottom(self) -> None:
        """To the newest line, and follow."""
        self.follow = True
        self.moved()

    def slide(self, cells: int) -> None:
        """Scroll sideways."""
        if not self.wrap:
            self._left = max(0, self._left + cells)
            self.moved()

    def yank(self) -> str:
        """The match, or the last visible line."""
        number = self._hit
        if number is None:
            number = self._store.end - 1 if self.follow else min(self._top + self.page, self._store.end) - 1
        return "\n".join(self._plain(number, number + 1))

    def _last_top(self) -> int:
        """The first line of the last page."""
        if not self.wrap:
            return max(self._store.first, self._store.end - self.page)
        rows, number = 0, self._store.end
        for line in reversed(self._store.read(max(self._store.first, self._store.end - self.page), self._store.end)):
            rows += len(self._rows(number - 1, line, self.size.width))
            if rows > self.page:
                break
            number -= 1
        return number

    def action_log_follow(self) -> None:
        """Follow, or hold still."""
        if self.follow:
            self._top = self._last_top()
            self.follow = False
        else:
            self.follow = True
        self.moved()

    def action_log_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.wrap = not self.wrap
        self._left = 0
        self.moved()

    def action_log_time(self) -> None:
        """Show or hide times."""
        self.show_time = not self.show_time
        self.moved()

    # Search.

    def search(self, text: str) -> str:
        """Search from here on; an empty text ends the search. Gives a hint or an empty text."""
        self._hit = None
        if not text:
            self._search = None
            self.moved()
            return ""
        self._search = Search(text)
        self._search.advance(self._store.first, self._store.end, self._plain)
        self._jump(self._search.before(self._bottom()))
        return self._search.hint

    def _bottom(self) -> int:
        return self._store.end if self.follow else min(self._store.end, self._top + self.page)

    def action_log_next_match(self) -> None:
        """To the next match."""
        if self._search is not None:
            self._jump(self._search.after(self._hit if self._hit is not None else self._bottom() - self.page))

    def action_log_previous_match(self) -> None:
        """To the previous match."""
        if self._search is not None:
            self._jump(self._search.before(self._hit if self._hit is not None else self._bottom()))

    def _jump(self, number: int | None) -> None:
        if number is not None:
            self._hit = number
            self.follow = False
            self._top = max(self._store.first, min(number - self.page // 3, self._last_top()))
        self.moved()

    # Painting.

    def compose_frame(self, width: int, height: int) -> Sequence[Strip]:
        """The tail while following, otherwise the lines from a fixed one on."""
        store = self._store
        first, end = store.first, store.end
        if end == first:
            return [Strip([Segment(self._empty, self.palette["muted"])])]
        if not self.follow:
            self._top = max(self._top, first)
            start = self._top
        else:
            start = max(first, end - height)
        stop = min(end, start + height)
        rows: list[list[Segment]] = []
        for number, line in enumerate(store.read(start, stop), start):
            rows.extend(self._rows(number, line, width))
        rows = rows[-height:] if self.follow else rows[:height]
        return [Strip(row) for row in rows]

    def _rows(self, number: int, line: LogLine, width: int) -> list[list[Segment]]:
        palette = self.palette
        lead = self._lead(line)
        lead_width = sum(width_of(segment.text) for segment in lead)
        room = max(1, width - lead_width)
        body = segments_of(line.text, palette["text"], palette.ink)
        if self._search is not None:
            body = self._marked(body, self._search, number)
        if not self.wrap:
            return [lead + window(body, self._left, room, palette["text"])]
        total = sum(width_of(segment.text) for segment in body)
        rows = [lead + window(body, 0, room, palette["text"])]
        indent = [Segment(" " * lead_width, palette["text"])]
        rows.extend(indent + window(body, start, room, palette["text"]) for start in range(room, total, room))
        return rows

    def _lead(self, line: LogLine) -> list[Segment]:
        palette = self.palette
        lead = []
        if self.show_time and line.at:
            lead.append(Segment(line.at + " ", palette["muted"]))
        if line.source:
            style = palette.get(_SOURCE_ROLES.get(line.source, "muted"))
            lead.append(Segment(fit(line.source, SOURCE_WIDTH), style))
        return lead

    def _marked(self, body: list[Segment], search: Search, number: int) -> list[Segment]:
        spans = search.spans("".join(segment.text for segment in body))
        mark = self.palette["match"]
        if number == self._hit:
            mark += Style(bold=True, underline=True)
        return restyle(body, spans, mark)


def restyle(segments: list[Segment], spans: list[tuple[int, int]], style: Style) -> list[Segment]:
    """Lay a style over ranges of characters."""
    if not spans:
        return segments
    cuts = sorted({place for span in spans for place in span})
    result: list[Segment] = []
    offset = 0
    for text, own, _ in segments:
        places = [0, *(cut - offset for cut in cuts if 0 < cut - offset < len(text)), len(text)]
        for start, stop in pairwise(places):
            middle = offset + start
            inside = any(low <= middle < high for low, high in spans)
            result.append(Segment(text[start:stop], (own or Style.null()) + style if inside else own))
        offset += len(text)
    return result
