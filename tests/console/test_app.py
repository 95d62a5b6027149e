"""What the keys do: every act goes through the bridge, names what it decides, and never holds the console up."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from console_source import MemorySource, a_change, a_day
from textual import events
from textual.app import App
from textual.pilot import Pilot

from kortix_tui.base.errors import EngineUnavailable, StoreFailed
from kortix_tui.base.words import ChangeStatus, SessionStatus
from kortix_tui.console.actions import ACTIONS, Action, Where
from kortix_tui.console.app import KortixApp
from kortix_tui.console.leaving import Leave
from kortix_tui.console.screens.change import ChangeScreen
from kortix_tui.console.screens.change_lists import ChangesScreen
from kortix_tui.console.screens.connectors import ConnectorsScreen
from kortix_tui.console.screens.inbox import InboxScreen
from kortix_tui.console.screens.quit_dialog import QuitDialog
from kortix_tui.console.screens.sessions import SessionsScreen
from kortix_tui.console.screens.vault import VaultScreen
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.diff_view import DiffView
from kortix_tui.console.widgets.log_pane import LogPane
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.prompt_dialogs import NewSessionDialog, PromptDialog
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.runtime.views import MergePreview

Make = Callable[..., KortixApp]
Until = Callable[..., Awaitable[None]]
Shown = Callable[[App[Any]], str]


async def begin(app: KortixApp, pilot: Pilot[Any], until: Until) -> None:
    await until(pilot, lambda: app.facts.loaded and app.facts.vault is not None and app.facts.host.here)


def pass_guard(app: KortixApp) -> None:
    app.clock.pass_guard()  # type: ignore[attr-defined]


def message(app: KortixApp) -> str:
    screen = app.view_screen
    assert screen is not None
    return screen.query_one(MessageLine).text


async def open_change(app: KortixApp, pilot: Pilot[Any], until: Until) -> ChangeScreen:
    await begin(app, pilot, until)
    await pilot.press("3", "enter")
    await until(pilot, lambda: isinstance(app.screen, ChangeScreen) and len(app.screen.query_one(DiffView).model) > 0)
    assert isinstance(app.screen, ChangeScreen)
    return app.screen


def test_every_action_is_there() -> None:
    owners: dict[Where, tuple[type, ...]] = {
        Where.ALL: (KortixApp, SessionsScreen),
        Where.MOVE: (LogPane,),
        Where.LIST: (VirtualTable, SessionsScreen),
        Where.PAGER: (LogPane, SessionsScreen),
        Where.LOG: (LogPane,),
        Where.DIFF: (DiffView,),
        Where.SESSIONS: (SessionsScreen,),
        Where.CHANGES: (ChangesScreen, ChangeScreen),
        Where.CHANGE: (ChangeScreen,),
        Where.INBOX: (InboxScreen,),
        Where.VAULT: (VaultScreen,),
        Where.CONNECTORS: (ConnectorsScreen,),
    }
    missing = [
        entry.id
        for entry in ACTIONS
        if entry.where is not Where.DIALOG
        and not any(hasattr(owner, f"action_{entry.method}") for owner in owners[entry.where])
    ]
    assert missing == []


DEEDS = [
    entry
    for entry in ACTIONS
    if entry.where in {Where.SESSIONS, Where.CHANGES, Where.INBOX, Where.VAULT, Where.CONNECTORS}
    and entry.id != "session.pin"
]


@pytest.mark.parametrize("entry", DEEDS, ids=lambda entry: entry.id)
def test_every_deed_has_a_command(entry: Action, capsys: pytest.CaptureFixture[str]) -> None:
    from kortix_tui.cli.main import run

    with pytest.raises(SystemExit) as left:
        run([*entry.command.split(), "--help"])
    assert left.value.code == 0
    assert f"kortix {entry.command}" in capsys.readouterr().out


def test_every_command_about_secrets_is_a_deed() -> None:
    secrets = "set ls show unset rotate share expose grant import requests"
    vault = "init status lock unlock passphrase slots/add slots/rm recovery rotate verify repair export import"
    wanted = {f"secrets {verb}" for verb in secrets.split()}
    wanted |= {f"vault {verb}".replace("/", " ") for verb in vault.split()}
    assert wanted - {entry.command for entry in ACTIONS} == set()


async def test_merge_names_the_head_and_takes_more_than_enter(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await open_change(app, pilot, until)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "3a7c00000000" in shown(app)
        await pilot.press("y")
        assert isinstance(app.screen, ConfirmDialog), "a key within the guard time was meant for something else"
        pass_guard(app)
        await pilot.press("enter")
        assert isinstance(app.screen, ChangeScreen)
        assert not [call for call in source.calls if call[0] == "merge"], "enter is Cancel"
        await pilot.press("m")
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: "merged into main" in message(app))
        assert [call for call in source.calls if call[0] == "merge"] == [("merge", 3, "3a7c" + "0" * 36)]
        await until(pilot, lambda: app.facts.changes[2].status is ChangeStatus.MERGED)
        await until(pilot, lambda: "✔ merged" in shown(app))
        assert app.can_run("change_merge") is False


async def test_a_change_that_moved_must_be_looked_at_again(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await open_change(app, pilot, until)
        moved = source.change_rows[2].model_copy(update={"head_commit": "beef" + "0" * 36})
        source.replace_change(moved)
        await until(pilot, lambda: "moved to beef00000000" in shown(app))
        await pilot.press("m")
        await pilot.pause()
        assert app.screen is screen
        await pilot.press("R")
        await until(pilot, lambda: not screen.moved and "merges cleanly" in shown(app))
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "beef00000000" in shown(app)


async def test_a_head_that_moves_behind_the_dialog_is_refused(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await open_change(app, pilot, until)
        await pilot.press("m")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        source.replace_change(source.change_rows[2].model_copy(update={"head_commit": "beef" + "0" * 36}))
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: "it moved" in message(app))
        assert source.change_rows[2].status is ChangeStatus.OPEN


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"conflicts": ("a.py", "b.py", "c.py", "d\x1b.py")}, "conflicts in a.py, b.py, c.py and 1 more"),
        ({"manifest_faults": ("kortix.yaml:3: no such agent",)}, "kortix.yaml would not be valid"),
        ({"refusal": "main is checked out and dirty. Commit first."}, "main is checked out and dirty"),
        ({"up_to_date": True}, "nothing to merge"),
    ],
)
async def test_what_cannot_be_merged_says_why(
    console: Make, until: Until, shown: Shown, fields: dict[str, Any], words: str
) -> None:
    source = a_day()
    values = {"base_commit": "b" * 40, "head_commit": "a" * 40, "can_merge": False, "up_to_date": False}
    source.previews["chg_3"] = MergePreview(**(values | {"fast_forward": False} | fields))
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        screen = await open_change(app, pilot, until)
        assert words in shown(app)
        await pilot.press("m")
        await pilot.pause()
        assert app.screen is screen


async def test_close_and_reopen(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("3", "x")
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: ("close", 3) in source.calls)
        await until(pilot, lambda: len([c for c in app.facts.changes if c.status is ChangeStatus.OPEN]) == 1)
        await pilot.press("2", "/", *"status:closed", "enter")
        await until(
            pilot, lambda: isinstance(app.screen, ChangesScreen) and app.screen.query_one(VirtualTable).shown == 2
        )
        await pilot.press("r")
        await until(pilot, lambda: any(call[0] == "reopen" for call in source.calls))


async def test_a_list_never_merges_what_was_not_read(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("3", "m")
        await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
        assert not [call for call in source.calls if call[0] == "merge"]
        assert "Read it first" in message(app)


async def test_stop_and_resume_are_done_at_once(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    first = source.session_rows[0].id
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("r")
        await pilot.press("x")
        await until(pilot, lambda: ("stop", first) in source.calls)
        assert ("resume", first) not in source.calls, "it was running"
        source.replace_session(source.session_rows[0].model_copy(update={"status": SessionStatus.STOPPED}))
        await until(pilot, lambda: app.facts.sessions[0].status is SessionStatus.STOPPED)
        await pilot.press("r")
        await until(pilot, lambda: ("resume", first) in source.calls)


async def test_deleting_takes_the_typed_name(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    first = source.session_rows[0].id
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("D")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "rescue ref" in shown(app)
        pass_guard(app)
        await pilot.press(*"wrong", "enter")
        assert "Nothing was done" in shown(app)
        await pilot.press(*["backspace"] * 5, *first, "enter")
        await until(pilot, lambda: ("remove", first) in source.calls)


async def test_a_new_session_and_another_prompt(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, NewSessionDialog))
        await pilot.press("ctrl+s")
        assert isinstance(app.screen, NewSessionDialog), "an empty prompt starts nothing"
        await pilot.press(*"Fix it", "enter", *"now", "shift+tab", *"refactor", "ctrl+s")
        await until(pilot, lambda: ("new", "Fix it\nnow", "acme-api", "refactor") in source.calls)
        await until(pilot, lambda: app.screen.query_one(VirtualTable).cursor == source.session_rows[0].id)
        await pilot.press("p")
        await until(pilot, lambda: isinstance(app.screen, PromptDialog))
        await pilot.press(*"go on", "ctrl+s")
        await until(pilot, lambda: ("prompt", source.session_rows[0].id, "go on", True) in source.calls)
        await pilot.press("n", "escape")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen))


async def test_the_log_follows_the_cursor_and_lives(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(140, 40)) as pilot:
        await begin(app, pilot, until)

        def says(text: str) -> bool:
            app.ticker.beat()
            return text in shown(app)

        await until(pilot, lambda: says("41 passed") and says("following the redirect"))
        source.print(source.session_rows[0].id, " in 2 s\n")
        await until(pilot, lambda: says("41 passed in 2 s"))
        source.print(source.session_rows[2].id, "the third speaks\n")
        await pilot.press("j", "j")
        await until(pilot, lambda: says("the third speaks"))
        await pilot.press("space", "g")
        await until(pilot, lambda: says("the third speaks") and says("41 passed in 2 s") and says("pinned"))
        await pilot.press("l", "/", *"PASSED", "enter")
        await until(pilot, lambda: says("/PASSED 1"))


async def test_views_filters_and_the_way_back(console: Make, until: Until) -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("2")
        assert isinstance(app.screen, ChangesScreen)
        await pilot.press("minus")
        assert isinstance(app.screen, SessionsScreen)
        await pilot.press("/", *"docs", "enter")
        assert app.screen.query_one(VirtualTable).shown == 1
        await pilot.press("escape")
        assert app.screen.query_one(VirtualTable).shown == 6
        await pilot.press("/", *"docs", "escape")
        assert app.screen.query_one(VirtualTable).shown == 6
        await pilot.press("l", "plus")
        assert not app.screen.query_one("#fleet").display
        await pilot.press("q")
        assert app.screen.query_one("#fleet").display
        await pilot.press("3", "enter")
        await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
        await pilot.press("f", "f", "tab", "0")
        await pilot.press("q")
        assert isinstance(app.screen, InboxScreen)
        await pilot.press("question_mark", "slash", *"merge", "escape", "q")
        assert isinstance(app.screen, InboxScreen)


async def test_the_first_pane_is_one_that_is_seen(console: Make, until: Until) -> None:
    """The focus on the hidden list of files took `j`, `/` and the rest, and nothing was seen of it."""
    app = console(a_day())
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await open_change(app, pilot, until)
        await pilot.press("0")
        assert app.focused is screen.query_one(DiffView)
        await pilot.press("f", "tab", "0")
        assert app.focused is screen.query_one("#files")
        await pilot.press("f", "0")
        assert app.focused is screen.query_one(DiffView)


async def test_keys_typed_ahead_go_where_they_were_meant(console: Make, until: Until) -> None:
    """A burst, as a slow link or a paste into the terminal makes it: nothing of a filter becomes an act."""
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        for key in ("slash", *"xrnqD", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: app.screen.query_one(VirtualTable).filter.text == "xrnqD")
        await until(pilot, lambda: isinstance(app.focused, VirtualTable))
        assert source.calls == []
        for key in ("3", "enter", "m", "y", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
        assert not [call for call in source.calls if call[0] == "merge"]


async def test_commands_are_typed(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)

        async def type_line(text: str) -> None:
            keys = {" ": "space", ":": "colon", ".": "full_stop"}
            await pilot.press("colon", *(keys.get(character, character) for character in text), "enter")

        await type_line("sessions failed")
        await until(pilot, lambda: app.screen.query_one(VirtualTable).shown == 1)
        await type_line("cr 3")
        await until(pilot, lambda: isinstance(app.screen, ChangeScreen))
        await pilot.press("q")
        await type_line("cr 99")
        assert "no change request 99" in message(app)
        await type_line("theme kortix-light")
        assert app.theme == "kortix-light"
        await type_line("theme nope")
        assert "kortix-dark" in message(app)
        await type_line(f"logs {source.session_rows[1].id}")
        await until(pilot, lambda: isinstance(app.screen, SessionsScreen) and isinstance(app.focused, LogPane) is False)
        await type_line("nonsense")
        assert "No command nonsense" in message(app)
        await type_line("session.new")
        await until(pilot, lambda: isinstance(app.screen, NewSessionDialog))
        await pilot.press("escape", "colon", *"ses", "tab")
        assert app.screen.query_one("#typed").value.startswith("session")  # type: ignore[attr-defined]
        await pilot.press("escape", "colon", "up")
        assert app.screen.query_one("#typed").value == "session.new"  # type: ignore[attr-defined]


async def test_the_console_answers_while_the_runtime_hangs(console: Make, until: Until) -> None:
    source = a_day()
    release = threading.Event()

    def hang(*_: object, **__: object) -> Any:
        release.wait(30)
        raise EngineUnavailable("No Docker engine answers.", hint="Start it.")

    source.sessions.stop = hang  # type: ignore[method-assign]
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("x", "j", "2", "3")
        assert isinstance(app.screen, InboxScreen)
        assert message(app) == ""
        release.set()
        await until(pilot, lambda: "No Docker engine answers. Start it." in message(app))


async def test_a_store_that_fails_is_said_and_survived(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        source.failure = StoreFailed("The disk is full.", hint="Free some space.")
        await until(pilot, lambda: "The disk is full" in message(app))
        assert len(app.facts.sessions) == 6, "what was known stays on the screen"
        source.failure = None
        source.replace_session(source.session_rows[0].model_copy(update={"title": "Fresh"}))
        await until(pilot, lambda: app.facts.sessions[0].title == "Fresh" and app.facts.problem is None)


async def test_an_act_that_breaks_is_said(console: Make, until: Until) -> None:
    source = a_day()

    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError("secret detail")

    source.sessions.stop = broken  # type: ignore[method-assign]
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("x")
        await until(pilot, lambda: "Something went wrong: ZeroDivisionError" in message(app))


@pytest.mark.parametrize(("key", "how"), [("b", Leave.BACKGROUND), ("s", Leave.STOP_ALL)])
async def test_leaving_a_host_with_work_is_a_choice(console: Make, until: Until, key: str, how: Leave) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("q")
        await until(pilot, lambda: isinstance(app.screen, QuitDialog))
        await pilot.press(key)
        assert isinstance(app.screen, QuitDialog), "not within the guard time"
        pass_guard(app)
        await pilot.press("y")
        assert isinstance(app.screen, QuitDialog), "it is not one of the choices"
        await pilot.press(key)
        await until(pilot, lambda: not app.is_running or app.return_value is not None)
    assert app.return_value is how
    stopped = [call for call in source.calls if call[0] == "stop"]
    assert len(stopped) == (4 if how is Leave.STOP_ALL else 0)


async def test_leaving_when_nothing_is_unfinished(console: Make, until: Until) -> None:
    app = console(MemorySource())
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("ctrl+q")
        pass_guard(app)
        await pilot.press("escape")
        assert isinstance(app.screen, SessionsScreen)
        await pilot.press("ctrl+c")
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value is Leave.QUIT


async def test_keys_can_be_moved_and_faults_are_said(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source, keymap={"session.stop": "s", "session.new": "1"}, theme="missing")
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        assert "session.new" in message(app)
        await pilot.press("x")
        await pilot.press("s")
        await until(pilot, lambda: any(call[0] == "stop" for call in source.calls))
        assert len([call for call in source.calls if call[0] == "stop"]) == 1


async def test_rows_that_come_do_not_move_the_cursor(console: Make, until: Until) -> None:
    source = a_day()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("3")
        table = app.screen.query_one(VirtualTable)
        assert table.cursor == "acme-api#3"
        source.change_rows.insert(0, a_change(9, source.session_rows[1], "Fresh", minutes=90))
        source.version += 1
        await until(pilot, lambda: table.total == 4)
        assert table.cursor == "acme-api#3"
        assert table.late == 1


async def test_resizing_changes_the_panes(console: Make, until: Until) -> None:
    app = console()
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        assert not app.screen.query_one("#second").display
        await pilot.resize_terminal(120, 30)
        await until(pilot, lambda: app.screen.query_one("#second").display)
        await pilot.resize_terminal(10, 3)
        await until(pilot, lambda: app.screen.has_class("-too-small"))
        await pilot.resize_terminal(1, 1)
        await pilot.resize_terminal(80, 24)
        await until(pilot, lambda: not app.screen.has_class("-too-small"))
