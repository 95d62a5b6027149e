"""I10: what comes from outside never reaches the terminal as control sequences or markup, and nothing hides."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hostile import AWKWARD, MARKUP, corpus
from pseudo_terminal import ALLOWED, CONTROL, PseudoTerminal
from rich.segment import Segment
from rich.style import Style
from textual.app import App, ComposeResult
from textual.color import Color
from textual.content import Content
from textual.filter import LineFilter
from textual.widget import Widget
from textual.widgets import Input, OptionList, Static, TextArea

from kortix_tui.base.text import visible, visible_line
from kortix_tui.console.safety import OutputFilter, is_clean
from kortix_tui.console.theme import ThemeShelf
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.choice_field import ChoiceField
from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.lines import LineRing, LogLine
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.patch import PatchModel
from kortix_tui.console.widgets.prompt_dialogs import NewSessionDialog, PromptDialog
from kortix_tui.console.widgets.status_bar import Status, StatusBar, Tab, TabBar
from kortix_tui.console.widgets.table import Cell, Column, Row, VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane

TEXTS = corpus()
PAGE = 28
APART = (*MARKUP, *AWKWARD)
"""What would be something else beside others."""
TOGETHER = TEXTS[: -len(APART)]
IN_DIALOGS = [*(" ".join(TOGETHER[at : at + PAGE]) for at in range(0, len(TOGETHER), PAGE)), *APART]


def table(texts: list[str]) -> Widget:
    made = VirtualTable([Column("a", texts[0], 20), Column("b", "B", 20, grow=True)])
    made.set_rows(Row(str(index), {"a": Cell(text), "b": Cell(text)}) for index, text in enumerate(texts))
    return made


def log(texts: list[str]) -> Widget:
    ring = LineRing()
    ring.extend(LogLine(text, text[:8], text[:8]) for text in texts)
    return LogPane(ring)


def diff(texts: list[str]) -> Widget:
    lines = [text.replace("\n", " ") for text in texts]
    head = f"diff --git a/{lines[0]} b/{lines[0]}\n--- a/{lines[0]}\n+++ b/{lines[-1]}.py\n"
    body = "".join(f" {line}\n-{line}\n+{line}x\n" for line in lines)
    return DiffView(PatchModel.parse(f"{head}@@ -1,{2 * len(lines)} +1,{2 * len(lines)} @@ {lines[0]}\n{body}"))


def said(texts: list[str]) -> Widget:
    line = MessageLine()
    line.call_after_refresh(line.say, " ".join(texts), "error", keep=True)
    return line


def status(texts: list[str]) -> Widget:
    return StatusBar(Status(host=texts[0], place=texts[-1], clock=texts[0]))


WIDGETS: dict[str, Callable[[list[str]], Widget]] = {
    "table": table,
    "log": log,
    "diff": diff,
    "text": lambda texts: TextPane([[Part(text)] for text in texts]),
    "rule": lambda texts: Pane(" ".join(texts), TextPane()),
    "message": said,
    "status": status,
    "tabs": lambda texts: TabBar([Tab(text, text, 1) for text in texts], texts[0]),
    "choice": lambda texts: ChoiceField(texts[0], texts),
    "static": lambda texts: Static(Content("\n".join(texts))),
    "raw markup off": lambda texts: Static("\n".join(texts), markup=False),
    "input": lambda texts: Input(" ".join(texts)),
    "area": lambda texts: TextArea("\n".join(texts)),
    "options": lambda texts: OptionList(*[Content(text) for text in texts]),
}
DIALOGS: dict[str, Callable[[str], Any]] = {
    "confirm": lambda text: ConfirmDialog(text, act=text, facts=[(text, text)], effect=text),
    "destructive": lambda text: ConfirmDialog(
        text, act="go", facts=[("a", text)], effect=text, tier=Tier.DESTRUCTIVE, name=text
    ),
    "new session": lambda text: NewSessionDialog([text, "b"], {text: [text]}),
    "prompt": lambda text: PromptDialog(text, text),
}


class Stage(App[None]):
    """An app with the console's last gate and nothing else of it."""

    ENABLE_COMMAND_PALETTE = False

    def __init__(self, make: Callable[[], Widget]) -> None:
        self._gate = OutputFilter()
        super().__init__()
        self._make = make
        self.quits = 0
        self.register_theme(ThemeShelf().open("kortix-dark").to_textual())
        self.theme = "kortix-dark"

    def compose(self) -> ComposeResult:
        yield self._make()

    def get_line_filters(self) -> list[LineFilter]:
        return [*super().get_line_filters(), self._gate]

    async def action_quit(self) -> None:
        self.quits += 1

    def painted(self) -> str:
        """What would be written to the terminal."""
        return "".join(strip.render(self.console) for strip in self.screen._compositor.render_strips())


def strangers(output: str) -> list[str]:
    rest = ALLOWED.sub("", output)
    return [rest[max(0, match.start() - 20) : match.end() + 20] for match in CONTROL.finditer(rest)]


def test_the_corpus_is_large() -> None:
    assert len(TEXTS) > 200
    assert tuple(TEXTS[-len(APART) :]) == APART


@pytest.mark.parametrize("name", WIDGETS)
async def test_no_widget_lets_anything_through(name: str) -> None:
    """The texts come raw, as if the first layer had been forgotten everywhere."""
    for start in range(0, len(TEXTS), PAGE):
        texts = TEXTS[start : start + PAGE]
        app = Stage(partial(WIDGETS[name], texts))
        async with app.run_test(size=(90, 30)) as pilot:
            await pilot.pause()
            output = app.painted()
            assert not strangers(output), (name, texts)
            await pilot.click(offset=(3, 2))
            assert app.quits == 0


@pytest.mark.parametrize("name", DIALOGS)
async def test_no_dialog_lets_anything_through(name: str) -> None:
    app = Stage(lambda: Static("below"))
    async with app.run_test(size=(90, 60)) as pilot:
        for text in IN_DIALOGS:
            dialog = DIALOGS[name](text)
            await app.push_screen(dialog)
            await pilot.pause()
            assert not strangers(app.painted()), (name, text)
            dialog.dismiss(None)
            await pilot.pause()
        assert app.quits == 0


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_gate_removes_and_keeps_the_width(text: str) -> None:
    segments = [Segment(text, Style(link="https://evil.example", bold=True)), Segment("tail", Style())]
    cleaned = OutputFilter().apply(segments, Color(0, 0, 0))
    joined = "".join(segment.text for segment in cleaned)
    assert is_clean(joined)
    assert joined.endswith("tail")
    assert not any(segment.style and segment.style.link for segment in cleaned)
    assert all(segment.style is None or not segment.control for segment in cleaned)


def test_the_gate_costs_nothing_where_nothing_is_wrong() -> None:
    segments = [Segment("日本 plain ❤", Style(bold=True))]
    assert OutputFilter().apply(segments, Color(0, 0, 0)) is segments


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_the_first_layer_shows_instead_of_hiding(text: str) -> None:
    for made in (visible(text), visible_line(text)):
        assert is_clean(made.replace("\n", "").replace("\t", ""))
    assert "\n" not in visible_line(text)
    assert visible(visible(text)) == visible(text)


@pytest.fixture(scope="module")
def hostile_session() -> Iterator[PseudoTerminal]:
    """One walk through the whole console with hostile text in every field that anybody outside can write."""
    with PseudoTerminal("hostile") as terminal:
        press = terminal.press
        press("", " 1/267 ")
        # The list of sessions, and the log of the first.
        press("j", " 2/267 ")
        press("jjjj", " 6/267 ")
        press("\x04", " 9/267 ")
        press("G", " 267/267 ")
        press("g", " follow · 805 lines ")
        press("l", "F follow")
        press("g", " 789 below ")
        press("wt", "\nagent   a␛[2Jb\n")
        press("/", "tab complete")
        press("a\r", " /a 489 · 779 below ")
        press("n", " 778 below ")
        press("0", "l logs")
        # Change requests, and one in the inbox.
        press("2", "Change request 1 of")
        press("jj", "Change request 3 of")
        press("3", "Inbox [534]")
        press("\r", "This change request changes nothing.")
        press("m", "Merge change request 267?")
        press("\x1b", gone="Merge change request")
        press("q", "x no")
        # A diff, its files, and the help above it.
        press(":", "tab complete")
        press("cr 1\r", "hidden characters")
        press("n", "hunk 1/267 ")
        press("]", " file 2/267 ")
        press("]", " file 3/267 ")
        press(" ", " file 6/267 ")
        press("\x04", " file 7/267 ")
        press("G", " 100% ")
        press("f", gone="Files [267]")
        press("f", "Files [267]")
        press("g", "▌ M  0-")
        press("0")
        press("?", "Show or hide the file list")
        press("G", "Why this console does not suspend")
        press("q", gone="filters   ·")
        press("q", "x no")
        # The vault's list and pages, and an agent's request in the inbox.
        press("4", "by their grants")
        press("j", " 2/267 ")
        press("jjj", " 5/267 ")
        press("\r", "/ search")
        press("\x04", " 21/278 ")
        press("0", "/ filter")
        press("3", "Inbox [534]")
        press("/", "tab complete")
        press("kind:secret\r", "Inbox [267/534]")
        press("j", " 2/267 ")
        press("\r", "An agent asks for")
        press("\x1b", gone="An agent asks for")
        press("x", "Say no to")
        press("\x1b", gone="Say no to")
        press("\x1b", "Inbox [534]")
        press("1", "l logs")
        press("D", "Type kaaa")
        press("\x1b", gone="Type kaaa")
        for wanted in ("click=app", "202E", "␛"):
            press("/", "tab complete")
            press(f"\x15{wanted}\r", f"/{wanted} ")  # ctrl+u clears the filter that is there
        terminal.quiet()  # nothing is cut off
        yield terminal


def test_the_terminal_only_gets_what_is_allowed(hostile_session: PseudoTerminal) -> None:
    assert hostile_session.process.poll() is None, "it survived"
    assert hostile_session.strangers() == []


def test_markup_from_outside_is_seen_as_it_stands(hostile_session: PseudoTerminal) -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", hostile_session.output.decode("utf-8", "replace"))
    assert "[@click=app.quit]x[/]" in text
    assert "‹U+202E›" in text
    assert "␛" in text


async def test_stored_and_live_text_are_the_same() -> None:
    """Sanitised on every path: what a log shows of a record is what the same text is when it is shown again."""
    for text in TEXTS:
        once = visible(text, sgr=True)
        assert visible(once, sgr=True) == once
    await asyncio.sleep(0)
