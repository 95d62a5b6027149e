"""How each widget looks, at the smallest and at a comfortable size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from textual.pilot import Pilot

from kortix_tui.console.keymap import Keymap, Where
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.help_overlay import HelpOverlay
from kortix_tui.console.widgets.lines import LineRing, LogLine
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.pane import Pane
from kortix_tui.console.widgets.patch import PatchModel
from kortix_tui.console.widgets.prompt_dialogs import NewSessionDialog
from kortix_tui.console.widgets.status_bar import Status, StatusBar, Tab, TabBar
from kortix_tui.console.widgets.table import Cell, Column, Row, VirtualTable
from kortix_tui.console.widgets.text_pane import TextPane

SIZES = pytest.mark.parametrize("size", [(80, 24), (160, 50)], ids=["80x24", "160x50"])
THEMES = pytest.mark.parametrize("theme", ["kortix-dark", "kortix-light"])

PATCH = "\n".join(
    [
        "diff --git a/acme/charges.py b/acme/charges.py",
        "index 1111111..2222222 100644",
        "--- a/acme/charges.py",
        "+++ b/acme/charges.py",
        "@@ -12,9 +12,10 @@ class Ledger:",
        ' """Money in, money out."""',
        " ",
        "-def charge(amount: int) -> Receipt:",
        '+def charge(amount: int, currency: str = "EUR") -> Receipt:',
        "     # The gateway wants minor units.",
        "     if amount <= 0:",
        '-        raise ValueError("amount must be positive")',
        '+        raise ValueError(f"amount must be positive, got {amount}")',
        "+    check(currency)",
        "     return Receipt(amount)",
        " ",
        " def refund(receipt: Receipt) -> None:",
        "@@ -40,3 +42,4 @@ def refund(receipt: Receipt) -> None:",
        " \treturn None",
        " ",
        " total = 0",
        '+if role != "user\u202e\u2066":  # check',
        "diff --git a/tests/test_charges.py b/tests/test_charges.py",
        "new file mode 100644",
        "--- /dev/null",
        "+++ b/tests/test_charges.py",
        "@@ -0,0 +1,3 @@",
        "+def test_charge():",
        '+    assert charge(100, "EUR").amount == 100',
        '+    print("支払い完了")',
        "\\ No newline at end of file",
        "diff --git a/logo.png b/logo.png",
        "index 3333333..4444444 100644",
        "Binary files a/logo.png and b/logo.png differ",
        "diff --git a/old.md b/new.md",
        "similarity index 100%",
        "rename from old.md",
        "rename to new.md",
        "",
    ]
)


def sessions() -> VirtualTable:
    table = VirtualTable(
        [
            Column("state", "STATE", 14),
            Column("title", "TITLE", 20, grow=True),
            Column("project", "PROJECT", 10, priority=3),
            Column("agent", "AGENT", 10, priority=4),
            Column("age", "AGE", 4, right=True),
            Column("diff", "DIFF", 10, priority=1, right=True),
            Column("id", "ID", 12, priority=5),
        ],
        sort=("age", False),
    )
    states = [
        ("● running", "state.running"),
        ("? waiting", "state.waiting"),
        ("◌ starting", "state.provisioning"),
        ("■ stopped", "state.stopped"),
        ("! failed", "state.failed"),
    ]
    titles = [
        "Add a currency to every charge",
        "支払い処理のテストを直す",
        "Bump the dependencies 🚀 and make the lock file reproducible again for everybody",
        "Docs pass",
        "Flaky tests",
    ]
    table.set_rows(
        Row(
            f"k{index:011d}",
            {
                "state": Cell(*states[index % 5]),
                "title": Cell(titles[index % 5]),
                "project": Cell("acme-api"),
                "agent": Cell("refactor", "muted"),
                "age": Cell(f"{index + 1}m", "muted", order=index),
                "diff": Cell(f"+{index * 7} -{index}"),
                "id": Cell(f"k{index:011d}"[:12], "muted"),
            },
        )
        for index in range(60)
    )
    return table


def log() -> LogPane:
    ring = LineRing()
    ring.extend(
        LogLine(text, f"12:03:{second:02d}", source)
        for second, (source, text) in enumerate(
            [
                ("host", "session started, acme-api at 3f2a91c"),
                ("agent", "reading src/acme/charges.py"),
                ("agent", "\x1b[32mPASSED\x1b[0m tests/test_charges.py::test_charge"),
                ("agent", "\x1b[1;31mFAILED\x1b[0m tests/test_refund.py::test_partial — \x1b[33mValueError\x1b[0m"),
                ("git", "push accepted: 2 commits on k7m2q4xw3abc"),
                ("agent", "a very long line " + "that goes on and on " * 12),
                ("agent", "10%␍55%␍100% done"),
                ("agent", "ESC was here: ␛]0;owned␇ and a bidi ‹U+202E› control"),
            ]
        )
    )
    return LogPane(ring)


@SIZES
@THEMES
def test_table(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int], theme: str) -> None:
    pane = Pane("Sessions [60]", sessions())
    assert snap_compare(widget_app(pane, theme=theme), terminal_size=size, press=["tab", "j", "j"])


@SIZES
@THEMES
def test_log(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int], theme: str) -> None:
    assert snap_compare(widget_app(Pane("Log", log()), theme=theme), terminal_size=size, press=["tab", "w"])


@SIZES
@THEMES
def test_diff(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int], theme: str) -> None:
    pane = Pane("Change 3", DiffView(PatchModel.parse(PATCH)))
    assert snap_compare(widget_app(pane, theme=theme), terminal_size=size, press=["tab"])


@SIZES
def test_bars(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int]) -> None:
    status = Status(host="this console", running=5, waiting=1, stopped=2, failed=1, inbox=2, place="ssh", clock="12:04")
    tabs = [Tab("1", "Sessions", 8), Tab("2", "Changes", 1), Tab("3", "Inbox", 2, urgent=True)]
    line = MessageLine()

    def before(pilot: Pilot[None]) -> None:
        line.say("Change request 3 merged into main at 3f2a91c.", keep=True)

    app = widget_app(StatusBar(status), TabBar(tabs, "Sessions"), line)
    assert snap_compare(app, terminal_size=size, run_before=before)


@SIZES
@pytest.mark.parametrize("tier", [Tier.LASTING, Tier.DESTRUCTIVE], ids=["lasting", "destructive"])
def test_confirm(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int], tier: Tier) -> None:
    dialog = ConfirmDialog(
        "Merge change request 3 into main?",
        act="merge",
        facts=[
            ("commit", "3f2a91c04d77"),
            ("title", "Add a currency\nto every [b]charge[/b]"),
            ("project", "acme-api"),
        ],
        effect="4 files, +48 -19. Pushed to the source repository at once.",
        tier=tier,
        name="acme-api",
    )

    async def before(pilot: Pilot[None]) -> None:
        pilot.app.push_screen(dialog)
        await pilot.pause()

    assert snap_compare(widget_app(Pane("Log", log())), terminal_size=size, run_before=before)


@SIZES
def test_help(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int]) -> None:
    overlay = HelpOverlay(
        Keymap({"session.stop": "X"}),
        [Where.SESSIONS, Where.LIST, Where.MOVE, Where.ALL],
        disabled={"session.resume": "it is running"},
    )

    async def before(pilot: Pilot[None]) -> None:
        pilot.app.push_screen(overlay)
        await pilot.pause()

    assert snap_compare(widget_app(TextPane([[Part("below")]])), terminal_size=size, run_before=before)


@SIZES
def test_new_session(snap_compare: Any, widget_app: Callable[..., Any], size: tuple[int, int]) -> None:
    dialog = NewSessionDialog(["acme-api", "web"], {"acme-api": ["refactor", "reviewer"]})

    async def before(pilot: Pilot[None]) -> None:
        pilot.app.push_screen(dialog)
        await pilot.pause()
        await pilot.press(*"Fix it")

    assert snap_compare(widget_app(TextPane([[Part("below")]])), terminal_size=size, run_before=before)
