"""A change to read: unified rows with signs, line numbers, syntax colours, and nothing hidden."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from kortix_tui.base.text import HIDDEN, visible_line
from kortix_tui.console.actions import Where
from kortix_tui.console.keymap import bindings
from kortix_tui.console.widgets.cells import cut, width_of, window
from kortix_tui.console.widgets.log_pane import restyle
from kortix_tui.console.widgets.pager import Pager
from kortix_tui.console.widgets.patch import Kind, PatchModel
from kortix_tui.console.widgets.search import Search
from kortix_tui.console.widgets.source_colours import SourceColours

LINE_LIMIT = 4000
TAB = "    "
WARNING = "⚠"
_SIGNS = {Kind.ADD: "+", Kind.REMOVE: "-", Kind.CONTEXT: " "}
_LINE_ROLES = {Kind.ADD: "diff.add.line", Kind.REMOVE: "diff.remove.line"}
_SIGN_ROLES = {Kind.ADD: "diff.add", Kind.REMOVE: "diff.remove", Kind.CONTEXT: "muted"}


class DiffView(Pager):
    """Shows a `PatchModel`; opens 50,000 lines at once because it only works on what is seen."""

    BINDINGS = bindings(Where.PAGER, Where.DIFF)

    def __init__(
        self,
        model: PatchModel | None = None,
        *,
        empty: str = "No changes.",
        id: str | None = None,
        classes: str | None = None,
    ) -> None:
        super().__init__(id=id, classes=classes)
        self._empty = empty
        self._top = 0
        self._left = 0
        self._search: Search | None = None
        self._hit: int | None = None
        self._model = PatchModel()
        self._colours = SourceColours(self._model)
        self._emphasis: dict[int, tuple[int, int] | None] = {}
        if model is not None:
            self._take(model)

    # Data.

    @property
    def model(self) -> PatchModel:
        """What is shown."""
        return self._model

    def show(self, model: PatchModel, *, empty: str | None = None) -> None:
        """Show another patch from its beginning."""
        self._empty = self._empty if empty is None else empty
        self._take(model)
        self.moved()

    def _take(self, model: PatchModel) -> None:
        self._model = model
        self._colours = SourceColours(model)
        self._emphasis.clear()
        self._top = self._left = 0
        self._search = None
        self._hit = None

    # State.

    @property
    def file_index(self) -> int | None:
        """The file at the top of the pane."""
        return self._model.file_at(self._top) if len(self._model) else None

    @property
    def position(self) -> str:
        """File, hunk and search."""
        model = self._model
        if not len(model):
            return ""
        parts = []
        if self._search is not None:
            running = "" if self._search.complete(len(model)) else "…"
            parts.append(f"/{self._search.text} {self._search.count}{running}")
        file = model.file_at(self._top)
        parts.append(f"file {0 if file is None else file + 1}/{len(model.files)}")
        if model.hunks:
            hunk = model.hunk_at(self._top + 1)
            parts.append(f"hunk {1 if hunk is None else hunk + 1}/{len(model.hunks)}")
        shown = min(len(model), self._top + self.page)
        parts.append(f"{shown * 100 // len(model)}%")
        return " · ".join(parts)

    # Moving.

    def go(self, lines: int) -> None:
        """Scroll."""
        self._to(self._top + lines)

    def go_top(self) -> None:
        """To the first row."""
        self._to(0)

    def go_bottom(self) -> None:
        """To the last page."""
        self._to(len(self._model))

    def go_to_file(self, index: int) -> None:
        """To a file's heading."""
        if 0 <= index < len(self._model.files):
            self._to(self._model.files[index].first, keep_place=True)

    def slide(self, cells: int) -> None:
        """Scroll sideways."""
        self._left = max(0, self._left + cells)
        self.moved()

    def yank(self) -> str:
        """The path of the file at the top."""
        index = self.file_index
        return "" if index is None else self._model.files[index].path

    def _to(self, row: int, *, keep_place: bool = False) -> None:
        # A jump puts its target at the top even near the end, so that `next` always has a next.
        last = len(self._model) - 1 if keep_place else len(self._model) - self.page
        self._top = max(0, min(row, last))
        self.moved()

    def action_diff_next_hunk(self) -> None:
        """To the next hunk, or the next match while a search is on."""
        if self._search is not None:
            self._jump(self._search.after(self._hit if self._hit is not None else self._top - 1))
            return
        hunks = self._model.hunks
        place = bisect_right(hunks, self._top)
        if place < len(hunks):
            self._to(hunks[place], keep_place=True)

    def action_diff_previous_hunk(self) -> None:
        """To the previous hunk, or the previous match while a search is on."""
        if self._search is not None:
            self._jump(self._search.before(self._hit if self._hit is not None else self._top))
            return
        hunks = self._model.hunks
        place = bisect_left(hunks, self._top)
        if place > 0:
            self._to(hunks[place - 1], keep_place=True)

    def action_diff_next_file(self) -> None:
        """To the next file."""
        index = self.file_index
        self.go_to_file(0 if index is None else index + 1)

    def action_diff_previous_file(self) -> None:
        """To the start of this file, or to the previous one."""
        index = self.file_index
        if index is not None:
            at_start = self._top == self._model.files[index].first
            self.go_to_file(max(0, index - int(at_start)))

    # Search.

    def search(self, text: str) -> str:
        """Search from here on; an empty text ends the search. Gives a hint or an empty text."""
        self._hit = None
        if not text:
            self._search = None
            self.moved()
            return ""
        self._search = Search(text)
        self._search.advance(0, len(self._model), self._texts)
        self._jump(self._search.after(self._top - 1))
        return self._search.hint

    def on_frame(self) -> None:
        """Go on with a running search."""
        if self._search is not None and not self._search.complete(len(self._model)):
            self._search.advance(0, len(self._model), self._texts)
            self._dirty = True
        super().on_frame()

    def _texts(self, start: int, stop: int) -> list[str]:
        return [self._text(row) for row in range(start, stop)]

    def _text(self, row: int) -> str:
        if self._model.kind(row) is Kind.FILE:
            index = self._model.file_at(row)
            return "" if index is None else self._model.files[index].path
        return self._model.raw(row)

    def _jump(self, row: int | None) -> None:
        if row is None:
            self.moved()
            return
        self._hit = row
        self._to(row - self.page // 3)

    # Painting.

    def compose_frame(self, width: int, height: int) -> Sequence[Strip]:
        """The visible rows."""
        if not len(self._model):
            return [Strip([Segment(self._empty, self.palette["muted"])])]
        stop = min(len(self._model), self._top + height)
        return [Strip(self._row(row, width)) for row in range(self._top, stop)]

    def _row(self, row: int, width: int) -> list[Segment]:
        match self._model.kind(row):
            case Kind.FILE:
                return self._file_row(row, width)
            case Kind.HUNK:
                return self._hunk_row(row, width)
            case Kind.NOTE:
                text = f"{'':{self._gutter}}  {visible_line(self._model.raw(row)[:LINE_LIMIT])}"
                return [Segment(text, self.palette["muted"])]
            case kind:
                return self._line_row(row, kind, width)

    def _file_row(self, row: int, width: int) -> list[Segment]:
        palette = self.palette
        index = self._model.file_at(row)
        if index is None:
            return []
        file = self._model.files[index]
        bar = palette["bar"]
        counts = [Segment(f" +{file.additions}", palette["diff.add"] + bar)]
        counts.append(Segment(f" -{file.deletions} ", palette["diff.remove"] + bar))
        if file.hidden:
            counts.insert(0, Segment(f" {WARNING} {file.hidden} hidden", palette["hidden"]))
        name = file.path if file.old_path is None else f"{file.old_path} → {file.path}"
        facts = "".join(f" · {note}" for note in (file.status, *file.notes)) if file.status != "modified" else ""
        if file.status == "modified" and file.notes:
            facts = " · " + ", ".join(file.notes)
        taken = sum(width_of(segment.text) for segment in counts)
        room = max(1, width - taken - 3)
        name = cut(name, room)
        facts = cut(facts, room - width_of(name))
        space = " " * max(0, room - width_of(name) - width_of(facts))
        return [
            Segment(f" {file.sign} ", palette["accent"] + bar),
            Segment(name, palette["title"] + bar),
            Segment(facts + space, palette["muted"] + bar),
            *counts,
        ]

    def _hunk_row(self, row: int, width: int) -> list[Segment]:
        text = visible_line(self._model.raw(row)[:LINE_LIMIT])
        ranges, at, context = text[3:].partition(" @@")
        palette = self.palette
        # Light as a rule: it divides, and the line numbers below say the rest.
        lead = f"{'·' * self._gutter} "
        return window(
            [
                Segment(lead, palette["rule"]),
                Segment(f"@@ {ranges}{at}" if at else text, palette["state.provisioning"]),
                Segment(context, palette["muted"]),
            ],
            0,
            width,
            palette["text"],
        )

    @property
    def _digits(self) -> int:
        return 4 if self.size.width < 100 else 5

    @property
    def _gutter(self) -> int:
        return self._digits * 2 + 3

    def _line_row(self, row: int, kind: Kind, width: int) -> list[Segment]:
        palette = self.palette
        back = palette[_LINE_ROLES[kind]] if kind in _LINE_ROLES else Style.null()
        old, new = self._model.numbers(row)
        digits = self._digits
        gutter = f"{old or '':>{digits}} {new or '':>{digits}} "
        raw = self._model.raw(row)[:LINE_LIMIT]
        flagged = not raw.isascii() and HIDDEN.search(raw) is not None
        segments = self._source(row, raw, palette["text"] + back)
        if self._search is not None:
            spans = self._search.spans("".join(segment.text for segment in segments))
            segments = restyle(segments, spans, palette["match"])
        lead = [
            Segment(gutter, palette["muted"] + back),
            Segment(f"{_SIGNS[kind]}", palette[_SIGN_ROLES[kind]] + back),
            Segment(WARNING if flagged else " ", palette["hidden"] if flagged else palette["text"] + back),
        ]
        room = max(1, width - digits * 2 - 4)
        return lead + window(segments, self._left, room, palette["text"] + back)

    def _source(self, row: int, raw: str, base: Style) -> list[Segment]:
        """The text of a line with colours and emphasis, every character of it visible."""
        palette = self.palette
        styles = [(start, stop, palette[role]) for start, stop, role in self._colours.spans(row)]
        changed = self._changed_words(row)
        if changed is not None:
            kind = self._model.kind(row)
            word = palette["diff.add.word" if kind is Kind.ADD else "diff.remove.word"]
            coloured = _paint(raw, styles, base)
            coloured = restyle(coloured, [changed], word)
        else:
            coloured = _paint(raw, styles, base)
        return [part for segment in coloured for part in self._visible(segment)]

    def _visible(self, segment: Segment) -> list[Segment]:
        text = segment.text.replace("\t", TAB)
        if text.isascii() and text.isprintable():
            return [Segment(text, segment.style)]
        parts: list[Segment] = []
        start = 0
        for match in HIDDEN.finditer(text):
            if match.start() > start:
                parts.append(Segment(visible_line(text[start : match.start()]), segment.style))
            parts.append(Segment(visible_line(match.group()), self.palette["hidden"]))
            start = match.end()
        if start < len(text):
            parts.append(Segment(visible_line(text[start:]), segment.style))
        return parts

    def _changed_words(self, row: int) -> tuple[int, int] | None:
        """The part of a line that differs from its counterpart, where removed and added lines pair up."""
        if row not in self._emphasis:
            self._emphasis[row] = self._compare(row)
        return self._emphasis[row]

    def _compare(self, row: int) -> tuple[int, int] | None:
        model = self._model
        kind = model.kind(row)
        if kind is Kind.CONTEXT:
            return None
        first = last = row
        while first > 0 and row - first < LINE_LIMIT and model.kind(first - 1) in {Kind.ADD, Kind.REMOVE}:
            first -= 1
        while last + 1 < len(model) and last - row < LINE_LIMIT and model.kind(last + 1) in {Kind.ADD, Kind.REMOVE}:
            last += 1
        removed = [index for index in range(first, last + 1) if model.kind(index) is Kind.REMOVE]
        added = [index for index in range(first, last + 1) if model.kind(index) is Kind.ADD]
        # Blocks of unequal length are rewritten, not edited: pairing their lines would only confuse.
        if len(removed) != len(added):
            return None
        mine, theirs = (added, removed) if kind is Kind.ADD else (removed, added)
        return differing_part(model.raw(row)[:LINE_LIMIT], model.raw(theirs[mine.index(row)])[:LINE_LIMIT])


def differing_part(text: str, other: str) -> tuple[int, int] | None:
    """Where `text` differs from `other` between a common start and a common end; nothing if all does."""
    limit = min(len(text), len(other))
    start = 0
    while start < limit and text[start] == other[start]:
        start += 1
    end = 0
    while end < limit - start and text[-1 - end] == other[-1 - end]:
        end += 1
    stop = len(text) - end
    if stop <= start or stop - start > len(text) * 3 // 4:
        return None
    return start, stop


def _paint(text: str, spans: list[tuple[int, int, Style]], base: Style) -> list[Segment]:
    parts: list[Segment] = []
    place = 0
    for start, stop, style in spans:
        if start > place:
            parts.append(Segment(text[place:start], base))
        if stop > start and start < len(text):
            parts.append(Segment(text[start:stop], base + style))
        place = max(place, stop)
    if place < len(text):
        parts.append(Segment(text[place:], base))
    return parts
