"""Calls that wait for a person: what is shown is what is decided, once, and never by a key that came too soon."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from console_source import MemorySource, a_day
from hostile import corpus
from memory_calls import a_call, fill_calls
from textual import events
from textual.app import App
from textual.pilot import Pilot

from kortix_tui.base.words import CallState, Risk
from kortix_tui.console.app import KortixApp
from kortix_tui.console.forms.approval_forms import DenyForm, RememberForm
from kortix_tui.console.safety import is_clean
from kortix_tui.console.screens.approval import ApprovalScreen
from kortix_tui.console.screens.approval_page import approval_page
from kortix_tui.console.screens.inbox import InboxScreen
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.console.widgets.message_line import MessageLine
from kortix_tui.console.widgets.table import VirtualTable
from kortix_tui.runtime.connector_views import ApprovalView

Make = Callable[..., KortixApp]
Until = Callable[..., Awaitable[None]]
Shown = Callable[[App[Any]], str]


def calls_wait() -> MemorySource:
    source = a_day()
    fill_calls(source)
    return source


async def begin(app: KortixApp, pilot: Pilot[Any], until: Until) -> None:
    await until(pilot, lambda: app.facts.host.here and len(app.facts.approvals) == 4 and len(app.facts.inbox) == 7)
    await pilot.press("3")
    await until(pilot, lambda: isinstance(app.screen, InboxScreen))


def pass_guard(app: KortixApp) -> None:
    app.clock.pass_guard()  # type: ignore[attr-defined]


def message(app: KortixApp) -> str:
    screen = app.view_screen
    assert screen is not None
    return screen.query_one(MessageLine).text


def cursor(app: KortixApp) -> str | None:
    return app.screen.query_one(VirtualTable).cursor


def decisions(source: MemorySource) -> list[tuple[Any, ...]]:
    return [call[1:] for call in source.calls if call[0] == "decide"]


def page(view: ApprovalView, *, unfolded: bool = False) -> str:
    lines = approval_page(view, view.created_at, 100, unfolded=unfolded)
    return "\n".join("".join(part.text for part in line) for line in lines)


async def test_the_riskiest_and_oldest_come_first(console: Make, until: Until, shown: Shown) -> None:
    app = console(calls_wait())
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        table = app.screen.query_one(VirtualTable)
        assert table._shown[:4] == ["call_2", "call_1", "call_3", "call_4"]
        assert "‼ destructive" in shown(app)
        await pilot.press("slash", *"risk", "colon", *"write", "enter")
        assert table.shown == 3


async def test_a_call_is_approved_once_exactly_as_shown(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 40)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("j", "enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen) and "digest" in shown(app))
        for words in (
            "POST https://billing.example/v1/refunds", "content-type: application/json", '"amount": 4200', "unverified",
            "The customer was charged twice.", "connector rule 2: match *", "expires     in 23h",
            "default (bearer), in header authorization",
        ):  # fmt: skip
            assert words in shown(app)
        pass_guard(app)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        pass_guard(app)
        await pilot.press("enter")
        assert isinstance(app.screen, ApprovalScreen), "enter is Cancel"
        await pilot.press("a")
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: decisions(source) == [("call_1", True, None, None)])
        await until(pilot, lambda: "approved; it is about to be sent" in shown(app))
        await pilot.press("a")
        assert isinstance(app.screen, ApprovalScreen), "it is decided"


async def test_no_key_acts_before_the_call_was_seen(console: Make, until: Until, shown: Shown) -> None:
    """Also not one that was typed in time for the row that stood there before."""
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        for key in ("a", "x", "A", "B"):
            await pilot.press(key)
            assert isinstance(app.screen, InboxScreen), key
        assert "only just appeared" in message(app)
        pass_guard(app)
        await pilot.press("j", "a")
        assert isinstance(app.screen, InboxScreen), "another call came under the cursor"
        pass_guard(app)
        changed = source.approvals.show("call_1").model_copy(update={"digest": "f" * 64})
        source.approvals.replace(changed)
        await until(pilot, lambda: app.facts.approval("call_1") == changed)
        await pilot.press("a")
        assert isinstance(app.screen, InboxScreen), "what it would send has changed"
        pass_guard(app)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        await pilot.press("y", "enter", "n")
        assert isinstance(app.screen, ConfirmDialog), "and the dialog waits, too"
        assert decisions(source) == []


async def test_a_key_that_waited_in_a_queue_is_as_old_as_it_is(console: Make, until: Until) -> None:
    app = console(calls_wait())
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        key = events.Key("a", "a")
        key.time = app.clock.monotonic() + 0.1
        pass_guard(app)
        app.post_message(key)
        await until(pilot, lambda: "only just appeared" in message(app))
        assert isinstance(app.screen, InboxScreen)


async def test_what_destroys_is_approved_by_typing(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        pass_guard(app)
        await pilot.press("a")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "Type delete_customer to approve" in shown(app)
        pass_guard(app)
        await pilot.press("y", "enter")
        assert decisions(source) == []
        await pilot.press("backspace", *"delete_customer", "enter")
        await until(pilot, lambda: decisions(source) == [("call_2", True, None, None)])
        await until(pilot, lambda: cursor(app) == "call_1")


async def test_no_with_a_note(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        pass_guard(app)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, DenyForm))
        await pilot.press("enter", "ctrl+s", *"zz")
        assert isinstance(app.screen, DenyForm), "typed before it was seen"
        pass_guard(app)
        await pilot.press(*"ask first", "enter")
        await until(pilot, lambda: decisions(source) == [("call_2", False, "ask first", None)])
        await until(pilot, lambda: "the agent is told" in message(app))


async def test_next_is_the_most_urgent_whatever_the_rows(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        late = a_call(9, source.session_rows[0], "drop_all", risk=Risk.DESTRUCTIVE, minutes=0)
        source.approvals.add(late)
        await until(pilot, lambda: len(app.facts.inbox) == 8 and len(app.facts.approvals) == 5)
        table = app.screen.query_one(VirtualTable)
        assert table._shown[-1] == "call_9", "nothing moves under the hand"
        await pilot.press("n")
        assert cursor(app) == "call_9"
        await pilot.press("n")
        assert cursor(app) == "call_1"
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen) and "digest" in shown(app))
        await pilot.press("n")
        assert isinstance(app.screen, ApprovalScreen)
        assert app.screen._call_id == "call_3"
        await pilot.press("q")
        await until(pilot, lambda: table._shown[:2] == ["call_2", "call_9"])


async def test_identical_calls_are_approved_together(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        pass_guard(app)
        await pilot.press("B")
        assert isinstance(app.screen, InboxScreen), "nothing is identical to this one"
        await pilot.press("j", "j")
        pass_guard(app)
        await pilot.press("B")
        await until(pilot, lambda: isinstance(app.screen, ConfirmDialog))
        assert "Approve 2 identical calls of billing-api.send_mail?" in shown(app)
        assert "kaaaaaaaaaab" in shown(app) and "kaaaaaaaaaa3" in shown(app)
        source.approvals.replace(source.approvals.show("call_4").model_copy(update={"state": CallState.EXPIRED}))
        pass_guard(app)
        await pilot.press("y")
        await until(pilot, lambda: decisions(source) == [("call_3", True, None, None)])
        await until(pilot, lambda: "1 approved, 1 not" in message(app))


async def test_an_approval_is_remembered_by_its_shape(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("j")
        pass_guard(app)
        await pilot.press("A")
        await until(pilot, lambda: isinstance(app.screen, RememberForm))
        pass_guard(app)
        await pilot.press("space", "j", "space", "j", "space", "ctrl+s")
        await until(pilot, lambda: "Bind at least one" in shown(app))
        await pilot.press("space", "tab", "backspace", "backspace", "3", "tab", "right", "tab", "right", "ctrl+s")
        await until(pilot, lambda: len(decisions(source)) == 1)
        ((_, approved, _, remember),) = decisions(source)
        assert approved
        assert (remember.arguments, remember.most, remember.hours) == (("reason",), 3, 1.0)
        assert not remember.this_session
        until_when = datetime(2026, 3, 14, 13, 4, 30, tzinfo=UTC).astimezone()
        said = f"Remembered as rul_{source.approvals.remembered[0].from_call}: 3 calls like it run unasked until "
        await until(pilot, lambda: f"{said}{until_when:%Y-%m-%d %H:%M}." in message(app))


async def test_calls_of_one_action_are_told_apart(console: Make, until: Until, shown: Shown) -> None:
    source = a_day()
    session = source.session_rows[0]
    source.approvals.rows = [
        a_call(1, session, arguments={"order": "81", "amount": 5}),
        a_call(2, session, arguments={"body": {"order": 82}, "dry": False}),
        a_call(3, session, arguments={}),
    ]
    app = console(source)
    async with app.run_test(size=(160, 40)) as pilot:
        await until(pilot, lambda: len(app.facts.approvals) == 3 and app.facts.host.here)
        await pilot.press("3")
        await until(pilot, lambda: 'billing-api.create_refund  order: "81", amount: 5' in shown(app))
        assert "billing-api.create_refund  order: 82, dry: false" in shown(app)


async def test_the_key_of_a_view_leads_from_a_page_to_its_list(console: Make, until: Until) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(80, 24)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen))
        await pilot.press("3")
        await until(pilot, lambda: isinstance(app.screen, InboxScreen))
        assert len(app.screen_stack) == 1


def test_the_page_of_a_finished_call_says_what_came_back() -> None:
    session = a_day().session_rows[0]
    finished: dict[str, Any] = {"state": CallState.DONE, "status": 201, "bytes": 1234, "duration_ms": 87.4}
    assert "HTTP 201, 1,234 bytes, after 87 ms" in page(a_call(1, session, **finished))
    assert "after 2.5 s" in page(a_call(1, session, **(finished | {"duration_ms": 2500.0})))
    assert "answer  " not in page(a_call(1, session, state=CallState.DENIED))


async def test_what_was_decided_elsewhere_is_said(console: Make, until: Until, shown: Shown) -> None:
    source = calls_wait()
    app = console(source)
    async with app.run_test(size=(100, 30)) as pilot:
        await begin(app, pilot, until)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen) and "digest" in shown(app))
        pass_guard(app)
        await pilot.press("x")
        await until(pilot, lambda: isinstance(app.screen, DenyForm))
        source.approvals.replace(source.approvals.show("call_2").model_copy(update={"state": CallState.APPROVED}))
        pass_guard(app)
        await pilot.press("ctrl+s")
        await until(pilot, lambda: "is approved already" in shown(app))
        assert decisions(source) == []


def test_every_byte_can_be_reached_and_what_is_folded_is_counted() -> None:
    session = a_day().session_rows[0]
    many = {f"key{number}": f"value {number}" for number in range(120)}
    view = a_call(1, session, arguments=many | {"long": "é" * 9000, "last": "end"})
    folded, whole = page(view), page(view, unfolded=True)
    assert "▸ 84 more lines, " in folded
    for text in (*many, *many.values(), '"last": "end"'):
        assert text in whole
    assert whole.count("é") >= 2 * 9000
    assert "folded here" not in whole
    for line in whole.splitlines():
        assert len(line) <= 100


def test_nothing_hides_in_it() -> None:
    session = a_day().session_rows[0]
    text = "a\x1b[2J\u202egnp.exe"
    view = a_call(1, session, arguments={"to": text}, headers=(("x-note", text),), reason=text, url=f"https://h/{text}")
    shown_page = page(view)
    assert "\x1b" not in shown_page
    assert "\u202e" not in shown_page
    assert shown_page.count("‹U+202E›") >= 5


def test_the_last_approved_call_is_compared_value_by_value() -> None:
    source = calls_wait()
    found = page(source.approvals.show("call_1"))
    assert "~ amount" in found and "- 4000" in found and "+ 4200" in found
    assert "1 value the same" in found
    assert "none was approved before" in page(source.approvals.show("call_2"))


@pytest.mark.parametrize("unfolded", [False, True])
def test_hostile_text_stays_text(unfolded: bool) -> None:
    session = a_day().session_rows[0]
    for text in corpus():
        view = a_call(
            1, session, arguments={text: [text]}, reason=text, url=text, headers=((text, text),), rule_says=text,
            credential=text, session_title=text, agent=text, last_approved=json.dumps({"old": text}), message=text,
            note=text, state=CallState.DENIED, decided_by=text, decided_at=session.created_at,
        )  # fmt: skip
        for line in approval_page(view, view.created_at, 80, unfolded=unfolded):
            assert all(is_clean(part.text) for part in line), text
