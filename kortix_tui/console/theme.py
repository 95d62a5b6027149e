"""Themes: YAML files of colours, checked by a model, turned into a Textual theme and a palette of styles.

Colour is never the only carrier of a meaning: states have a glyph and a word, diff lines a sign.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self
from weakref import WeakKeyDictionary

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.theme import Theme

from kortix_tui.base.errors import InvalidInput, KortixError
from kortix_tui.base.paths import assets, config_folder
from kortix_tui.base.text import visible_line
from kortix_tui.console.widgets.sgr import Ink

DEFAULT_DARK = "kortix-dark"
DEFAULT_LIGHT = "kortix-light"
_MAX_BYTES = 64 * 1024
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,40}\Z")
_HEX = re.compile(r"#[0-9a-fA-F]{6}\Z")
_PREFIX = "kx-"


def _colour(value: str) -> str:
    if not _HEX.match(value):
        raise ValueError("a colour is written #rrggbb")
    return value.lower()


def _theme_name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError("a theme name has a-z, 0-9 and dashes")
    return value


Colour = Annotated[str, AfterValidator(_colour)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class StateColours(_Section):
    """Colours of session states."""

    provisioning: Colour | None = None
    running: Colour | None = None
    waiting: Colour | None = None
    idle: Colour | None = None
    stopped: Colour | None = None
    failed: Colour | None = None


class DiffColours(_Section):
    """Colours of a diff: signs, whole lines, and the words that changed within a line."""

    add: Colour | None = None
    remove: Colour | None = None
    add_background: Colour | None = None
    remove_background: Colour | None = None
    add_emphasis: Colour | None = None
    remove_emphasis: Colour | None = None


class RiskColours(_Section):
    """Colours of risk levels."""

    low: Colour | None = None
    medium: Colour | None = None
    high: Colour | None = None


class SyntaxColours(_Section):
    """Colours of source text."""

    keyword: Colour | None = None
    name: Colour | None = None
    function: Colour | None = None
    type: Colour | None = None
    string: Colour | None = None
    number: Colour | None = None
    comment: Colour | None = None
    operator: Colour | None = None


class ThemeFile(_Section):
    """One theme file. Every colour but `primary` may be left out."""

    name: Annotated[str, AfterValidator(_theme_name)]
    dark: bool = True
    primary: Colour
    secondary: Colour | None = None
    accent: Colour | None = None
    foreground: Colour | None = None
    background: Colour | None = None
    surface: Colour | None = None
    panel: Colour | None = None
    success: Colour | None = None
    warning: Colour | None = None
    error: Colour | None = None
    muted: Colour | None = None
    rule: Colour | None = None
    cursor: Colour | None = None
    cursor_unfocused: Colour | None = None
    match: Colour | None = None
    state: StateColours = StateColours()
    diff: DiffColours = DiffColours()
    risk: RiskColours = RiskColours()
    syntax: SyntaxColours = SyntaxColours()

    @classmethod
    def parse(cls, text: str, source: str) -> Self:
        """Read one theme file.

        Args:
            text: The YAML.
            source: The file's name for messages.

        Raises:
            InvalidInput: It is not YAML, or a key or colour is wrong; the message names the key.
        """
        import yaml

        try:
            data = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f" line {mark.line + 1}" if mark is not None else ""
            raise InvalidInput(f"Theme {source}{where}: this is not valid YAML.") from error
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            path = ".".join(str(part) for part in first["loc"])
            raise InvalidInput(
                visible_line(f"Theme {source}: {path or 'the file'}: {first['msg']}."),
                hint="See the shipped theme kortix-dark.yaml for every key.",
            ) from error

    def to_textual(self) -> Theme:
        """The same colours for Textual's style sheets; what Textual has no name for becomes a variable."""
        variables = {
            "block-cursor-background": self.cursor or self.primary,
            "block-cursor-text-style": "bold",
            "footer-key-foreground": self.accent or self.primary,
            "input-selection-background": f"{self.primary} 35%",
        }
        variables.update(self._roles())
        return Theme(
            name=self.name,
            primary=self.primary,
            secondary=self.secondary,
            accent=self.accent,
            foreground=self.foreground,
            background=self.background,
            surface=self.surface,
            panel=self.panel,
            success=self.success,
            warning=self.warning,
            error=self.error,
            dark=self.dark,
            variables=variables,
        )

    def _roles(self) -> dict[str, str]:
        roles = {
            name: value
            for name in ("muted", "rule", "cursor", "cursor_unfocused", "match")
            if (value := getattr(self, name)) is not None
        }
        for section in ("state", "diff", "risk", "syntax"):
            colours: dict[str, str | None] = getattr(self, section).model_dump()
            roles.update({f"{section}-{key}": value for key, value in colours.items() if value is not None})
        return {_PREFIX + key.replace("_", "-"): value for key, value in roles.items()}


@dataclass(frozen=True)
class ThemeProblem:
    """A theme file that could not be used; the console says so and goes on."""

    path: Path
    error: KortixError


def load_themes(folders: Iterable[Path] | None = None) -> tuple[list[ThemeFile], list[ThemeProblem]]:
    """Read the shipped themes and the operator's own; of two with one name the later wins.

    A bad file never stops the console: it becomes a problem to show.
    """
    found: dict[str, ThemeFile] = {}
    problems: list[ThemeProblem] = []
    for folder in folders if folders is not None else (assets("themes"), config_folder() / "themes"):
        for path in sorted(folder.glob("*.yaml")):
            try:
                theme = ThemeFile.parse(_read(path), path.name)
            except KortixError as error:
                problems.append(ThemeProblem(path, error))
            else:
                found[theme.name] = theme
    return list(found.values()), problems


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InvalidInput(f"Theme {path.name}: the file is larger than {_MAX_BYTES // 1024} KiB.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"Theme {path.name}: the file cannot be read.") from error


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

    @property
    def roles(self) -> frozenset[str]:
        """Every role that has a style."""
        return frozenset(self._styles)


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
