"""Colour sequences in log lines, turned into styled segments when a line is painted.

Only well-formed SGR (`ESC [ … m`) reaches this module; everything else of a terminal's language was made
visible at the door. Parsing at paint costs what is on the screen, not what a chatty agent prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from rich.color import Color
from rich.segment import Segment
from rich.style import Style

READABLE = 3.0
"""Least contrast with the background: a program must not hide what it prints by painting it in that colour."""
LINE_LIMIT = 4000
"""Characters of one line that are drawn."""
_TOKEN = re.compile(r"\x1b\[([0-9;]*)m")
_RETURN = "␍"
_SET: dict[int, Style] = {
    1: Style(bold=True),
    3: Style(italic=True),
    4: Style(underline=True),
    7: Style(reverse=True),
    9: Style(strike=True),
    # 2 (dim) and 8 (conceal) make text hard or impossible to read; 5 and 6 blink. None of them is kept.
    22: Style(bold=False),
    23: Style(italic=False),
    24: Style(underline=False),
    27: Style(reverse=False),
    29: Style(strike=False),
}


@dataclass(frozen=True)
class Ink:
    """The sixteen colours that programs ask for by number, as the theme draws them, and the background."""

    colours: tuple[Color, ...]
    paper: Color


def segments_of(line: str, base: Style, ink: Ink) -> list[Segment]:
    """One line as segments.

    Args:
        line: Safe text, maybe with colour sequences.
        base: The style of text without any.
        ink: Colours of the theme.
    """
    line = last_rewrite(line)
    if len(line) > LINE_LIMIT:
        line = line[:LINE_LIMIT] + "…"
    if "\t" in line:
        line = line.expandtabs(8)
    if "\x1b" not in line:
        return [Segment(line, base)] if line else []
    found: list[Segment] = []
    style = base
    start = 0
    for match in _TOKEN.finditer(line):
        if match.start() > start:
            found.append(Segment(line[start : match.start()], style))
        style = apply(match.group(1), style, base, ink)
        start = match.end()
    if start < len(line):
        # A cut or malformed sequence leaves its ESC: shown, not sent.
        found.append(Segment(line[start:].replace("\x1b", "␛"), style))
    return found


def last_rewrite(line: str) -> str:
    """What a progress bar drew last. The sign stays, so that a rewritten line is seen to be one."""
    if _RETURN not in line:
        return line
    kept = [part for part in line.split(_RETURN) if part.strip()]
    return _RETURN + kept[-1] if kept else ""


@lru_cache(maxsize=2048)
def apply(codes: str, style: Style, base: Style, ink: Ink) -> Style:
    """The style after one sequence; unknown codes change nothing, and text stays readable."""
    numbers = [int(part) if part else 0 for part in codes.split(";")]
    index = 0
    while index < len(numbers):
        code = numbers[index]
        index += 1
        if code == 0:
            style = base
        elif code in _SET:
            style += _SET[code]
        elif code == 39:
            style += Style(color=base.color)
        elif code == 49:
            style = _without_background(style)
        elif 30 <= code <= 37 or 90 <= code <= 97:
            style += Style(color=ink.colours[code - 30 if code < 90 else code - 82])
        elif 40 <= code <= 47 or 100 <= code <= 107:
            style += Style(bgcolor=ink.colours[code - 40 if code < 100 else code - 92])
        elif code in {38, 48}:
            colour, used = _extended(numbers[index:], ink)
            index += used
            if colour is not None:
                style += Style(color=colour) if code == 38 else Style(bgcolor=colour)
    return _readable(style, base, ink)


def _without_background(style: Style) -> Style:
    return Style(
        color=style.color, bold=style.bold, italic=style.italic, underline=style.underline, reverse=style.reverse,
        strike=style.strike,
    )  # fmt: skip


def _readable(style: Style, base: Style, ink: Ink) -> Style:
    behind = style.bgcolor or ink.paper
    front = style.color
    if front is None or contrast(front, behind) >= READABLE:
        return style
    choices = [colour for colour in (base.color, ink.paper) if colour is not None]
    return style + Style(color=max(choices, key=lambda colour: contrast(colour, behind))) if choices else style


def contrast(one: Color, other: Color) -> float:
    """Contrast ratio of two colours as WCAG defines it: 1 for equal ones, 21 for black on white."""
    light = sorted((_luminance(one), _luminance(other)))
    return (light[1] + 0.05) / (light[0] + 0.05)


def _luminance(colour: Color) -> float:
    parts = [value / 255 for value in colour.get_truecolor()]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _extended(numbers: list[int], ink: Ink) -> tuple[Color | None, int]:
    match numbers:
        case [5, number, *_] if number < len(ink.colours):
            return ink.colours[number], 2
        case [5, number, *_] if number <= 255:
            return Color.from_rgb(*Color.from_ansi(number).get_truecolor()), 2
        case [2, red, green, blue, *_] if max(red, green, blue) <= 255:
            return Color.from_rgb(red, green, blue), 4
        case [5, *_]:
            return None, 2
        case [2, *_]:
            return None, 4
    return None, 0
