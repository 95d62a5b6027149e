"""The styles that widgets of the line API paint with: a role of the text → colours of the active theme."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError

from kortix_tui.console.widgets.sgr import Ink

# Role → the theme variables to look at, in order; the last ones exist in every Textual theme.
_FOREGROUNDS: dict[str, tuple[str, ...]] = {
    "text": ("foreground",),
    "muted": ("kx-muted", "foreground"),
    "rule": ("kx-rule", "kx-muted", "panel"),
    "primary": ("primary",),
    "accent": ("accent", "primary"),
    "success": ("success",),
    "warning": ("warning",),
    "error": ("error",),
    "state.provisioning": ("kx-state-provisioning", "secondary"),
    "state.running": ("kx-state-running", "success"),
    "state.waiting": ("kx-state-waiting", "warning"),
    "state.idle": ("kx-state-idle", "kx-muted", "foreground"),
    "state.stopped": ("kx-state-stopped", "kx-muted", "foreground"),
    "state.failed": ("kx-state-failed", "error"),
    "risk.low": ("kx-risk-low", "success"),
    "risk.medium": ("kx-risk-medium", "warning"),
    "risk.high": ("kx-risk-high", "error"),
    "diff.add": ("kx-diff-add", "success"),
    "diff.remove": ("kx-diff-remove", "error"),
    "syntax.keyword": ("kx-syntax-keyword", "primary"),
    "syntax.name": ("kx-syntax-name", "foreground"),
    "syntax.function": ("kx-syntax-function", "secondary"),
    "syntax.type": ("kx-syntax-type", "secondary"),
    "syntax.string": ("kx-syntax-string", "success"),
    "syntax.number": ("kx-syntax-number", "accent"),
    "syntax.comment": ("kx-syntax-comment", "kx-muted", "foreground"),
    "syntax.operator": ("kx-syntax-operator", "foreground"),
}
_BACKGROUNDS: dict[str, tuple[str, ...]] = {
    "cursor": ("kx-cursor", "panel"),
    "cursor.unfocused": ("kx-cursor-unfocused", "surface"),
    "match": ("kx-match", "panel"),
    "bar": ("surface",),
    "diff.add.line": ("kx-diff-add-background", "background"),
    "diff.remove.line": ("kx-diff-remove-background", "background"),
    "diff.add.word": ("kx-diff-add-emphasis", "surface"),
    "diff.remove.word": ("kx-diff-remove-emphasis", "surface"),
}
# What programs call black, red, green, yellow, blue, magenta, cyan and white, then the bright ones. Black and white
# are the theme's quiet and plain text: on any background both can be read.
_NORMAL_INK: tuple[tuple[str, ...], ...] = (
    ("kx-muted", "foreground"),
    ("error",),
    ("success",),
    ("warning",),
    ("primary",),
    ("secondary", "primary"),
    ("kx-syntax-type", "primary"),
    ("foreground",),
)
_INK = _NORMAL_INK * 2
_GREY = Color(128, 128, 128)
_BOLD = {"state.waiting", "state.failed", "risk.high", "accent", "diff.add", "diff.remove"}
# Without colour, attributes carry what the background did. Words and glyphs are there in any case.
_COLOURLESS: dict[str, Style] = {
    "cursor": Style(reverse=True),
    "cursor.unfocused": Style(underline=True),
    "match": Style(reverse=True, bold=True),
    "bar": Style(),
    "diff.add.line": Style(bold=True),
    "diff.remove.line": Style(),
    "diff.add.word": Style(underline=True),
    "diff.remove.word": Style(underline=True),
}


class Palette:
    """Styles by role, made from the active theme. Widgets of the line API paint with these."""

    def __init__(self, variables: Mapping[str, str], *, colourless: bool = False) -> None:
        self._styles: dict[str, Style] = {}
        for role, names in _FOREGROUNDS.items():
            colour = _first(variables, names)
            self._styles[role] = Style(
                color=None if colour is None or colourless else colour.rich_color, bold=role in _BOLD or None
            )
        for role, names in _BACKGROUNDS.items():
            colour = _first(variables, names)
            if colourless:
                self._styles[role] = _COLOURLESS[role]
            else:
                self._styles[role] = Style(bgcolor=None if colour is None else colour.rich_color)
        self._styles["title"] = self._styles["text"] + Style(bold=True)
        self._styles["title.focused"] = self._styles["primary"] + Style(bold=True)
        self._styles["rule.focused"] = self._styles["primary"]
        # A character that would have been hidden: must catch the eye in any theme.
        self._styles["hidden"] = self._styles["warning"] + Style(reverse=True)
        self._styles["key"] = self._styles["accent"]
        self.ink = Ink(
            colours=tuple((_first(variables, names) or _GREY).rich_color for names in _INK),
            paper=(_first(variables, ("background",)) or _GREY).rich_color,
        )

    def __getitem__(self, role: str) -> Style:
        return self._styles[role]

    def get(self, role: str) -> Style:
        """The role's style, or that of plain text for an unknown role."""
        return self._styles.get(role, self._styles["text"])


def _first(variables: Mapping[str, str], names: tuple[str, ...]) -> Color | None:
    for name in names:
        value = variables.get(name)
        if value:
            try:
                return Color.parse(value)
            except ColorParseError:
                continue
    return None


_palettes: WeakKeyDictionary[App[Any], tuple[Mapping[str, str], Palette]] = WeakKeyDictionary()


def palette_of(app: App[Any]) -> Palette:
    """The palette of the app's active theme, made once per theme change."""
    variables = app.theme_variables
    known = _palettes.get(app)
    # Textual makes a new mapping with every change of theme, so identity is the cheapest test.
    if known is not None and known[0] is variables:
        return known[1]
    palette = Palette(variables, colourless=bool(getattr(app, "colourless", False)))
    _palettes[app] = (variables, palette)
    return palette
