"""What may be said of a crash: which exception, and where. Never its message, nor what any variable held.

A message may quote a value, and Textual's own screen for crashes shows the values of variables. A value of the vault
must not get into the terminal's scrollback or a log that way.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import Final

from kortix_tui.base.text import visible_line

MOST_FRAMES: Final = 40
ExceptionInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def describe(error: BaseException) -> str:
    """Types and places of an exception and of those that led to it, the first one first."""
    return "\n".join(_lines(error, set()))


def _lines(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen:
        return
    seen.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None:
        yield from _lines(before, seen)
        yield "then:"
    yield visible_line(type(error).__qualname__)
    frames = traceback.StackSummary.extract(
        traceback.walk_tb(error.__traceback__), limit=-MOST_FRAMES, lookup_lines=False
    )
    for frame in frames:
        yield f"  {visible_line(frame.filename)}:{frame.lineno} in {visible_line(frame.name)}"
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield "one of several:"
            yield from _lines(one, seen)


class PlaceFormatter(logging.Formatter):
    """Logs exceptions by type and place."""

    def formatException(self, ei: ExceptionInfo) -> str:  # noqa: N802 - the base class's name
        """The exception without its message."""
        return describe(ei[1]) if ei[1] is not None else ""
