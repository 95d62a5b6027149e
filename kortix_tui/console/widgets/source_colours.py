"""Syntax colours for rows of a patch, computed by Pygments in small pieces as they are looked at.

Both sides of a hunk are lexed on their own (context and added lines; context and removed lines), so that a
string that ends in a changed line is coloured right. What is looked at is untrusted: lines and pieces are
limited in size, and a file whose lexing is slow stays plain from then on.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from kortix_tui.console.widgets.patch import Kind, PatchModel

if TYPE_CHECKING:
    from pygments.lexer import Lexer

PIECE_ROWS = 200
LINE_LIMIT = 500
"""Characters of one line that are lexed; longer lines are data, not source."""
SLOW_SECONDS = 0.25
Span = tuple[int, int, str]
"""First and last character (exclusive) of a row's raw text, and the role of its style."""

_ROLES = (
    ("Token.Comment", "syntax.comment"),
    ("Token.Literal.String.Doc", "syntax.comment"),
    ("Token.Literal.String", "syntax.string"),
    ("Token.Literal.Number", "syntax.number"),
    ("Token.Keyword.Type", "syntax.type"),
    ("Token.Keyword", "syntax.keyword"),
    ("Token.Operator.Word", "syntax.keyword"),
    ("Token.Operator", "syntax.operator"),
    ("Token.Name.Function", "syntax.function"),
    ("Token.Name.Class", "syntax.type"),
    ("Token.Name.Builtin", "syntax.type"),
    ("Token.Name.Exception", "syntax.type"),
    ("Token.Name.Decorator", "syntax.function"),
    ("Token.Name.Tag", "syntax.keyword"),
    ("Token.Name.Attribute", "syntax.function"),
)


@lru_cache(maxsize=512)
def _role(token: str) -> str | None:
    return next((role for prefix, role in _ROLES if token.startswith(prefix)), None)


@lru_cache(maxsize=64)
def _lexer_for(name: str) -> Lexer | None:
    from pygments.lexers import find_lexer_class_for_filename

    found = find_lexer_class_for_filename(name)
    return None if found is None else found(stripnl=False, ensurenl=False)


class SourceColours:
    """Colours of the rows of one patch; keeps what it has computed."""

    def __init__(self, model: PatchModel, clock: Callable[[], float] = time.monotonic) -> None:
        self._model = model
        self._clock = clock
        self._known: dict[int, list[Span]] = {}
        self._plain: set[int] = set()

    def spans(self, row: int) -> list[Span]:
        """The coloured parts of one row; empty for what is not source or has no lexer."""
        known = self._known.get(row)
        if known is None:
            self._lex_around(row)
            known = self._known.setdefault(row, [])
        return known

    def _lex_around(self, row: int) -> None:
        model = self._model
        file = model.file_at(row)
        if file is None or file in self._plain or model.kind(row) not in {Kind.CONTEXT, Kind.ADD, Kind.REMOVE}:
            return
        lexer = _lexer_for(model.files[file].path.rsplit("/", 1)[-1])
        if lexer is None:
            self._plain.add(file)
            return
        start, stop = self._piece(row)
        began = self._clock()
        for side in (Kind.REMOVE, Kind.ADD):
            # The new side comes second, so that context lines get its colours.
            rows = [
                index
                for index in range(start, stop)
                if model.kind(index) in {Kind.CONTEXT, side} and len(model.raw(index)) <= LINE_LIMIT
            ]
            self._lex(lexer, rows)
        if self._clock() - began > SLOW_SECONDS:
            self._plain.add(file)

    def _piece(self, row: int) -> tuple[int, int]:
        """The rows lexed together: a part of one hunk."""
        hunks = self._model.hunks
        place = bisect_right(hunks, row)
        first = hunks[place - 1] + 1 if place else 0
        last = hunks[place] if place < len(hunks) else len(self._model)
        start = first + (row - first) // PIECE_ROWS * PIECE_ROWS
        return start, min(start + PIECE_ROWS, last)

    def _lex(self, lexer: Lexer, rows: list[int]) -> None:
        if not rows:
            return
        lines = [self._model.raw(index) for index in rows]
        spans: list[list[Span]] = [[] for _ in rows]
        line, column = 0, 0
        for _, token, value in lexer.get_tokens_unprocessed("\n".join(lines)):
            role = _role(str(token))
            for place, part in enumerate(value.split("\n")):
                if place:
                    line, column = line + 1, 0
                if line >= len(rows):
                    break
                if role is not None and part:
                    spans[line].append((column, column + len(part), role))
                column += len(part)
        for index, found in zip(rows, spans, strict=True):
            self._known[index] = found
