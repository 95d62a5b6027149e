"""Themes: shipped ones can be read, bad ones are named and skipped."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.color import Color
from textual.theme import BUILTIN_THEMES

from kortix_tui.base.errors import InvalidInput, NotFound
from kortix_tui.console.palette import _BACKGROUNDS, _FOREGROUNDS, Palette
from kortix_tui.console.theme import ThemeFile, ThemeShelf
from kortix_tui.console.widgets.sgr import contrast

TEXT_CONTRAST = 4.5
SHELF = ThemeShelf([Path(__file__).parents[2] / "themes"])
SHIPPED = [SHELF.open(name) for name in SHELF.names]
# Decoration that carries no words.
DECORATION = {"rule"}


def palette(theme: ThemeFile) -> Palette:
    textual = theme.to_textual()
    return Palette({**textual.to_color_system().generate(), **textual.variables})


def test_the_shipped_themes_are_whole() -> None:
    assert {theme.name for theme in SHIPPED} >= {"kortix-dark", "kortix-light"}
    for theme in SHIPPED:
        assert None not in theme.model_dump().values()


@pytest.mark.parametrize("theme", SHIPPED, ids=lambda theme: theme.name)
def test_every_text_can_be_read(theme: ThemeFile) -> None:
    styles = palette(theme)
    surfaces = {"background": theme.background, "surface": theme.surface, "panel": theme.panel}
    backs = {name: Color.parse(value) for name, value in surfaces.items() if value}
    lists = [*backs.values(), styles["cursor"].bgcolor, styles["cursor.unfocused"].bgcolor]
    failures = []
    for role in _FOREGROUNDS:
        if role in DECORATION:
            continue
        behind = lists
        if role.startswith("syntax.") or role == "text":
            behind = [backs["background"], *(styles[f"diff.{side}.{part}"].bgcolor
                      for side in ("add", "remove") for part in ("line", "word"))]  # fmt: skip
        elif role.startswith("diff."):
            behind = [backs["surface"], styles[f"{role}.line"].bgcolor]
        for colour in behind:
            front = styles[role].color
            assert front is not None
            assert colour is not None
            ratio = contrast(front, colour)
            if ratio < TEXT_CONTRAST:
                failures.append(f"{role} on {colour.name}: {ratio:.2f}")
    match = styles["match"].bgcolor
    front = styles["text"].color
    assert match is not None
    assert front is not None
    assert contrast(front, match) >= TEXT_CONTRAST
    assert not failures, failures


def test_every_role_has_a_style_in_any_theme() -> None:
    for theme in BUILTIN_THEMES.values():
        found = Palette({**theme.to_color_system().generate(), **theme.variables})
        assert all(found[role] is not None for role in (*_FOREGROUNDS, *_BACKGROUNDS))
    plain = Palette({}, colourless=True)
    assert all(plain[role].color is None and plain[role].bgcolor is None for role in (*_FOREGROUNDS, *_BACKGROUNDS))
    assert plain["cursor"].reverse


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("name: [", "mine.yaml:"),
        ("name: mine\nprimary: red", "mine.yaml:2"),
        ("name: mine\nprimary: '#112233'\ntypo: 1", "mine.yaml:3:1: unknown key `typo`"),
        ("name: mine\nprimary: '#112233'\nstate: {running: '#1'}", "`#1` is not a colour"),
        ("name: other\nprimary: '#112233'", "called other"),
        ("name: mine", "`primary` is missing"),
        ("- 1", "mapping"),
        ("", "mapping"),
        ("#" * 70_000, "larger"),
    ],
)
def test_a_bad_theme_is_named(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(InvalidInput) as caught:
        ThemeShelf([tmp_path]).open("mine")
    assert words in caught.value.message


def test_bad_files_are_told_and_good_ones_serve(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("{")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "good.yaml").write_text("name: good\nprimary: '#336699'\n")
    shelf = ThemeShelf([tmp_path, tmp_path / "missing"])
    assert shelf.names == ["bad", "binary", "folder", "good"]
    for name in ("bad", "binary", "folder"):
        with pytest.raises(InvalidInput, match=name):
            shelf.open(name)
    assert shelf.open("good").primary == "#336699"
    with pytest.raises(NotFound, match="good"):
        shelf.open("none")


def test_the_later_of_two_themes_with_one_name_wins(tmp_path: Path) -> None:
    for folder, colour in (("one", "#111111"), ("two", "#222222")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "t.yaml").write_text(f"name: t\nprimary: '{colour}'\n")
    assert ThemeShelf([tmp_path / "one", tmp_path / "two"]).open("t").primary == "#222222"
