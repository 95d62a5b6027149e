"""Themes: YAML files of colours, checked by a model and turned into Textual themes.

A theme's file is called after it: `kortix-dark.yaml` holds `kortix-dark`. So one theme can be opened without reading
the others, and of two folders with the same name the operator's wins.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator
from textual.theme import Theme

from kortix_tui.base import yaml
from kortix_tui.base.errors import InvalidInput, NotFound
from kortix_tui.base.paths import assets, config_folder
from kortix_tui.base.validation import Part, validate, wrong

DEFAULT_DARK = "kortix-dark"
_LIMITS = yaml.Limits(bytes=64 * 1024, depth=4, nodes=500)
_HEX = re.compile(r"#[0-9a-fA-F]{6}\Z")
_PREFIX = "kx-"


def _colour(value: str) -> str:
    if not _HEX.match(value):
        raise wrong(f"`{value}` is not a colour", 'Write it as "#rrggbb", in quotes.')
    return value.lower()


Colour = Annotated[str, AfterValidator(_colour)]


class StateColours(Part):
    """Colours of session states."""

    provisioning: Colour | None = None
    running: Colour | None = None
    waiting: Colour | None = None
    idle: Colour | None = None
    stopped: Colour | None = None
    failed: Colour | None = None


class DiffColours(Part):
    """Colours of a diff: signs, whole lines, and the words that changed within a line."""

    add: Colour | None = None
    remove: Colour | None = None
    add_background: Colour | None = None
    remove_background: Colour | None = None
    add_emphasis: Colour | None = None
    remove_emphasis: Colour | None = None


class RiskColours(Part):
    """Colours of risk levels."""

    low: Colour | None = None
    medium: Colour | None = None
    high: Colour | None = None


class SyntaxColours(Part):
    """Colours of source text."""

    keyword: Colour | None = None
    name: Colour | None = None
    function: Colour | None = None
    type: Colour | None = None
    string: Colour | None = None
    number: Colour | None = None
    comment: Colour | None = None
    operator: Colour | None = None


class ThemeFile(Part):
    """One theme. Every colour but `primary` may be left out."""

    name: str
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
    def read(cls, path: Path) -> Self:
        """Read one theme file.

        Raises:
            InvalidInput: It cannot be read, or a key or colour is wrong; the message names file and line.
        """
        try:
            if path.stat().st_size > _LIMITS.bytes:
                raise InvalidInput(f"{path.name}: larger than {_LIMITS.bytes // 1024} KiB; no theme is.")
            document = yaml.load(path.read_bytes(), file=path.name, limits=_LIMITS)
        except OSError as error:
            raise InvalidInput(f"{path.name}: the file cannot be read ({error.strerror}).") from error
        theme, faults = validate(cls, document.data, document)
        if theme is None:
            first = faults[0]
            raise InvalidInput(f"{first.location}: {first.message}.", hint=first.hint)
        if theme.name != path.stem:
            raise InvalidInput(f"{path.name}: the theme is called {theme.name}.", hint="Name the file after its theme.")
        return theme

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


class ThemeShelf:
    """The themes there are: shipped ones, and the operator's own."""

    def __init__(self, folders: Sequence[Path] | None = None) -> None:
        """Look which files there are; reads none of them.

        Args:
            folders: Where to look, the one that wins last.
        """
        places = folders if folders is not None else (assets("themes"), config_folder() / "themes")
        self._paths = {path.stem: path for folder in places for path in sorted(folder.glob("*.yaml"))}

    @property
    def names(self) -> list[str]:
        """Their names, good or bad."""
        return list(self._paths)

    def open(self, name: str) -> ThemeFile:
        """Read one.

        Raises:
            NotFound: There is no theme of that name.
            InvalidInput: Its file is wrong.
        """
        path = self._paths.get(name)
        if path is None:
            raise NotFound(f"There is no theme {name}.", hint=f"Known: {', '.join(self._paths)}.")
        return ThemeFile.read(path)
