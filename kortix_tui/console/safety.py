"""The last gate before the terminal: whatever a widget drew, no control byte and no link leaves it (I10).

Text is made visible where it enters the program (`kortix_tui.base.text`). This second layer exists because
every stock widget of Textual writes raw ESC, OSC and C1 bytes through, and one forgotten place would be enough.
"""

from __future__ import annotations

import re

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

# C0, DEL, C1; Arabic letter mark, direction marks, line and paragraph separator, embeddings and overrides,
# isolates; lone surrogates (not encodable); tag characters. All draw nothing: removing them, rather than
# replacing, keeps the cell count that the layout was made with.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\U000e0000-\U000e007f]"
)


def is_clean(text: str) -> bool:
    """Whether the text can be written to a terminal as it is."""
    return text.isprintable() or _FORBIDDEN.search(text) is None


class OutputFilter(LineFilter):
    """Removes control characters, bidirectional controls and hyperlinks from every painted line."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the same list where nothing had to be removed, which is nearly always."""
        for segment in segments:
            if segment.control or not is_clean(segment.text) or (segment.style and segment.style.link):
                return [self._clean(part) for part in segments if not part.control]
        return segments

    @staticmethod
    def _clean(segment: Segment) -> Segment:
        style = segment.style
        if style is not None and style.link:
            # OSC 8 is written from the style, so a link is a way out for text that we never see as text.
            style = style.update_link(None)
        text = segment.text
        return Segment(text if text.isprintable() else _FORBIDDEN.sub("", text), style)


class ColourlessFilter(LineFilter):
    """Drops every colour and keeps bold, underline and reverse: `NO_COLOR` and dumb terminals.

    Textual answers `NO_COLOR` with greys that are written as colours; people who set it mean none.
    """

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """Return the segments with the colours of their styles removed."""
        return [
            segment if segment.style is None else Segment(segment.text, _without_colour(segment.style))
            for segment in segments
        ]


def _without_colour(style: Style) -> Style:
    return Style(
        bold=style.bold, italic=style.italic, underline=style.underline, reverse=style.reverse, strike=style.strike
    )
