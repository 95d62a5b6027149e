"""Connectors: what works, what happens to each action, and that permissions change by change request only."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from console_source import NOW, MemorySource, a_day
from hostile import corpus
from memory_calls import a_call, a_connection, a_connector, a_rule, an_action, fill_calls, fill_connectors
from textual import events
from textual.app import App
from textual.pilot import Pilot

from kortix_tui.base.words import Risk, VaultState, Verdict
from kortix_tui.broker.conditions import text_answer
from kortix_tui.broker.connectors.model import CatalogueDifference
from kortix_tui.console.app import KortixApp
from kortix_tui.console.forms.approval_forms import RememberForm, exactly
from kortix_tui.console.forms.authorizing_dialog import AuthorizingDialog
from kortix_tui.console.forms.connection_forms import (
    AuthorizeForm,
    ConnectForm,
    DisconnectForm,
    GrantConnectorForm,
    RuleForm,
)
from kortix_tui.console.forms.unlock_form import UnlockForm
from kortix_tui.console.safety import is_clean
from kortix_tui.console.screens.accept_dialog import AcceptDialog
from kortix_tui.console.screens.connector_rows import connector_page, connector_row, difference_lines, gates_line
from kortix_tui.console.screens.connectors import ConnectorsScreen
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.report import ReportDialog
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.runtime.connector_views import PolicyView

Make = Callable[..., KortixApp]
Until = Callable[..., Awaitable[None]]
Shown = Callable[[App[Any]], str]
VALUE = "ghp_51HqLyjWDarjtT1zdp7dc"


def connected() -> MemorySource:
    source = a_day()
    fill_connectors(source)
    return source


async def begin(app: KortixApp, pilot: Pilot[Any], until: Until, row: int = 0) -> None:
    """The view, with the cursor on a row and its page read."""
    await until(pilot, lambda: app.facts.connectors is not None and app.facts.vault is not None)
    await pilot.press("5")
    await until(pilot, lambda: isinstance(app.screen, ConnectorsScreen))
    for _ in range(row):
        await pilot.press("j")
    screen = app.screen
    assert isinstance(screen, ConnectorsScreen)
    await until(pilot, lambda: screen.selected is not None and screen._policy_of(screen.selected) is not None)


def pass_guard(app: KortixApp) -> None:
    app.clock.pass_guard()  # type: ignore[attr-defined]


def message(app: KortixApp) -> str:
    screen = app.view_screen
    assert screen is not None
    return screen.query_one(MessageLine).text


async def test_what_happens_and_why_is_in_plain_sight(console: Make, until: Until, shown: Shown) -> None:
    app = console(connected())
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        for words in (
            "gates are off: github, weather", "5 Connectors 4!", "reads Allow, others Ask (risk)",
            "Allow get_* if limit is 10", "never reached: rule 2 decides before it", "‼ destructive Block",
            "Allow* connector rule 1", "cannot be called: it is on another server",
        ):  # fmt: skip
            assert words in shown(app)
        await pilot.press("slash", *"gates", "colon", *"off", "enter")
        assert app.screen.query_one(VirtualTable).shown == 2


async def test_a_manifest_that_cannot_be_read_hides_no_other_project(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    source.connectors.faults["web"] = "kortix.yaml is not valid."
    app = console(source)
    async with app.run_test(size=(110, 30)) as pilot:
        await begin(app, pilot, until)
        assert "web: kortix.yaml is not valid." in shown(app)
        assert app.screen.query_one(VirtualTable).total == 3


async def test_gates_are_turned_on_by_a_change_request(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("M")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "writes and destructive calls wait for you" in shown(app)
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: ("mode", "acme-api", "risk") in source.calls)
        await until(pilot, lambda: "Change request 7" in message(app))


async def test_an_account_is_connected_unseen_and_its_actions_read(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until, 1)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, ConnectForm))
        assert "https://billing.example" in shown(app)
        pass_guard(app)
        app.post_message(events.Paste(VALUE))
        await pilot.pause()
        assert VALUE not in shown(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: source.connections.values == {"github/default": VALUE.encode()})
        await until(pilot, lambda: isinstance(app.screen, ReportDialog))
        assert ("sync", "github") in source.calls
        assert "4 actions at https://api.github.example/mcp" in shown(app)
        assert VALUE not in app.export_screenshot()


async def test_a_locked_vault_is_unlocked_first(console: Make, until: Until) -> None:
    source = connected()
    source.vault.state = VaultState.LOCKED
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, UnlockForm))


async def test_a_secret_that_is_there_can_be_bound(console: Make, until: Until) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, ConnectForm))
        pass_guard(app)
        await pilot.press("shift+tab", "right", "ctrl+s")
        wanted = ("connect", "billing-api", "default", None, "stripe-live", None)
        await until(pilot, lambda: wanted in source.calls)
        assert source.connections.values == {}


async def test_consent_is_waited_for_and_works_over_ssh(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    source.connectors.needs = source.connectors.needs.model_copy(
        update={"type": "oauth2", "grant": "authorization_code", "client_id": "kx"}
    )
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, AuthorizeForm))
        pass_guard(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, AuthorizingDialog))
        assert ("authorize", "billing-api", "default", "kx", False) in source.calls
        assert "https://login.example/authorize?client_id=c&state=s" in shown(app)
        await pilot.press(*"http", "enter")
        await until(pilot, lambda: isinstance(app.screen, ConnectorsScreen))
        assert source.connections.pasted == ["http"]
        await until(pilot, lambda: "billing-api is connected as default" in message(app))


async def test_consent_is_given_up(console: Make, until: Until) -> None:
    source = connected()
    source.connectors.needs = source.connectors.needs.model_copy(update={"type": "oauth2", "grant": "device"})
    app = console(source)
    async with app.run_test(size=(110, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("n")
        await until(pilot, lambda: isinstance(app.screen, AuthorizeForm))
        pass_guard(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: isinstance(app.screen, AuthorizingDialog))
        await pilot.press("escape")
        await until(pilot, lambda: ("cancel", "flow1") in source.calls)
        assert isinstance(app.screen, ConnectorsScreen)


async def test_what_changed_outside_is_shown_and_accepted(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until, 2)
        await pilot.press("s")
        await until(pilot, lambda: isinstance(app.screen, AcceptDialog))
        for words in ("! riskier  get_ticket", "~ changed  send_reply", "+ added    close_ticket", "- removed  old_se"):
            assert words in shown(app)
        assert "approvals remembered for it no longer hold" in " ".join(shown(app).split())
        assert "unsent" not in shown(app), "none waits"
        await pilot.press("y")
        assert isinstance(app.screen, AcceptDialog), "it was not seen yet"
        pass_guard(app)
        await pilot.press("enter")
        assert isinstance(app.screen, ConnectorsScreen), "enter leaves it"
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, AcceptDialog))
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: ("accept", "helpdesk", "cat_9", True) in source.calls)
        await until(pilot, lambda: app.facts.connector("acme-api/helpdesk").pending is False)  # type: ignore[union-attr]


async def test_accepting_says_how_many_waiting_calls_end(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    session = next(row for row in source.session_rows if row.project == "acme-api")
    other = next(row for row in source.session_rows if row.project != "acme-api")
    source.approvals.rows = [
        a_call(1, session, connector="helpdesk"),
        a_call(2, session, connector="helpdesk"),
        a_call(3, session, connector="billing-api"),
        a_call(4, other, connector="helpdesk"),
    ]
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until, 2)
        await until(pilot, lambda: len(app.facts.approvals) == 4)
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, AcceptDialog))
        assert "2 calls of it that wait end unsent" in " ".join(shown(app).split())


def test_a_rule_that_may_decide_is_not_shown_as_a_dead_one() -> None:
    rules = (
        a_rule(0, "*", Verdict.ASK, conditions=("amount is over 10",), matches=5, decides=5),
        a_rule(1, "get_*", Verdict.RUN, matches=2, decides=0),
        a_rule(2, "x_*", Verdict.RUN, matches=4, decides=3),
    )
    policy = PolicyView(
        project="acme-api", connector="billing", default_mode="risk", sensitive=False, rules=rules, actions=()
    )
    lines = ["".join(part.text for part in line) for line in connector_page(a_connector("billing"), policy, NOW, 100)]
    ends = [line.split("  ")[-1] for line in lines if line.startswith("   connector ")]
    assert ends == ["may decide up to 5", "may decide up to 2", "decides 3 of 4"]


async def test_a_rule_is_proposed(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, RuleForm))
        pass_guard(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "Which actions?" in shown(app))
        await pilot.press(*"send_*", "tab", "right", "right", "tab", *"to!=dana", "tab", "right", "ctrl+s")
        wanted = ("rule", "billing-api", "send_*", Verdict.BLOCK, True, [("to", "dana", True)])
        await until(pilot, lambda: wanted in source.calls)


async def test_an_agent_is_let_in_by_a_change_request(console: Make, until: Until) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, GrantConnectorForm))
        pass_guard(app)
        await pilot.press(*"reviewer", "ctrl+s")
        await until(
            pilot, lambda: ("grant", "connectors", "acme-api", "reviewer", "billing-api", False) in source.calls
        )


async def test_an_account_is_taken_away(console: Make, until: Until) -> None:
    source = connected()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, DisconnectForm))
        await pilot.press("ctrl+s")
        assert isinstance(app.screen, DisconnectForm), "it was not seen yet"
        pass_guard(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: ("remove connection", "billing-api", "default") in source.calls)


async def test_a_lasting_rule_from_a_call_is_a_change_request(console: Make, until: Until, shown: Shown) -> None:
    source = connected()
    fill_calls(source)
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await until(pilot, lambda: len(app.facts.approvals) == 4 and len(app.facts.inbox) == 7)
        await pilot.press("3", "j")
        await pilot.pause()
        pass_guard(app)
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, RememberForm))
        pass_guard(app)
        await pilot.press("j", "space", "tab", "tab", "left")
        await until(pilot, lambda: "counts once you merge it" in shown(app))
        await pilot.press("ctrl+s")
        conditions = [("amount", "4200", False), ("reason", "duplicate", False)]
        wanted = ("rule", "billing-api", "create_refund", Verdict.RUN, False, conditions)
        await until(pilot, lambda: wanted in source.calls)
        assert not [call for call in source.calls if call[0] == "decide"], "the call goes on waiting"


def test_a_rules_value_matches_nothing_else() -> None:
    for text in ("plain", "a*b", "/x/", " led", "two\nlines", "", "*"):
        match = exactly(text)
        assert text_answer(match, text).value == "yes" or not text
        for other in (f"{text}x", f"x{text}", "a-b", "anything"):
            assert text_answer(match, other).value != "yes" or not text


def test_hostile_text_stays_text() -> None:
    for text in corpus():
        connector = a_connector(
            "billing", name=text, agents=(text,), place=text, problem=text, auth=text, provider=text,
            connections=(a_connection("billing", text, auth=text),),
        )  # fmt: skip
        policy = PolicyView(
            project="acme-api", connector="billing", default_mode="risk", sensitive=False,
            rules=(a_rule(0, text, Verdict.RUN, conditions=(text,), note=text), a_rule(1, text, Verdict.ASK)),
            actions=(
                an_action(text, Risk.READ, Verdict.RUN, text),
                an_action(text, Risk.WRITE, Verdict.ASK, "", unavailable=text),
            ),
        )  # fmt: skip
        changed = CatalogueDifference(added=(text,), removed=(text,), changed=(text,), base_url=(text, None))
        lines = [
            *connector_page(connector, policy, NOW, 80), *difference_lines(changed),
            gates_line([connector.model_copy(update={"gates_off": True})], (), "M"),
            gates_line([], (("acme-api", text),), "M"),
        ]  # fmt: skip
        assert all(is_clean(part.text) for line in lines for part in line), text
        assert all(is_clean(cell.text) for cell in connector_row(connector).cells.values()), text
