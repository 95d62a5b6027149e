"""Approvals in memory do what the real ones do: the same tests run against both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from call_desk import Desk
from console_source import MemorySource, a_project, a_session
from memory_calls import a_call

from kortix_tui.base.errors import Conflict, NotFound
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import CallState, Risk
from kortix_tui.console.source import Source
from kortix_tui.runtime.call_memory import Remember
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.inbox import ItemKind


class Stage:
    """A source with two calls that wait, of which the second is the riskier one."""

    def __init__(self, source: Source, ask: Callable[[int, str, str], object]) -> None:
        self.source = source
        ask(1, "create_refund", "write")
        ask(2, "delete_customer", "destructive")


def in_memory() -> Stage:
    memory = MemorySource()
    memory.project_rows = [a_project("acme")]
    session = a_session(1, "Do it", project="acme", project_id="prj_acme")
    memory.session_rows = [session]
    return Stage(
        memory, lambda number, action, risk: memory.approvals.add(a_call(number, session, action, risk=Risk(risk)))
    )


@pytest.fixture(params=["memory", "real"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "memory":
        yield in_memory()
        return
    home: Home = request.getfixturevalue("home")
    desk = Desk(home)
    with Runtime(home, Settings(), operator_actor("console"), kind="console") as runtime:
        yield Stage(runtime, desk.ask)
    desk.seeded.close()


def test_it_satisfies_the_protocol(stage: Stage) -> None:
    source: Source = stage.source
    for part, names in {
        "approvals": ("pending", "show", "decide", "rules"),
        "connectors": ("list", "auth", "pending", "sync", "accept"),
        "connections": ("connect", "authorize", "authorization", "cancel", "remove"),
        "policies": ("view",),
        "edits": ("grant", "set_rule", "set_default_mode"),
    }.items():
        assert all(callable(getattr(getattr(source, part), name)) for name in names)


def test_the_riskiest_waits_first_and_is_in_the_inbox(stage: Stage) -> None:
    pending = stage.source.approvals.pending()
    assert [(view.id, view.risk) for view in pending] == [("call_2", Risk.DESTRUCTIVE), ("call_1", Risk.WRITE)]
    items = [item for item in stage.source.inbox.list() if item.kind is ItemKind.APPROVAL]
    assert [(item.reference, item.risk) for item in items] == [("call_2", Risk.DESTRUCTIVE), ("call_1", Risk.WRITE)]


def test_what_is_sent_is_there_to_be_seen(stage: Stage) -> None:
    view = stage.source.approvals.show("call_1")
    assert (view.method, view.url) == ("POST", "https://billing.example/v1/refunds")
    assert view.headers == (("content-type", "application/json"),)
    assert view.body is not None
    assert view.body_bytes == len(view.body)
    assert view.waiting
    assert (view.last_approved, view.identical) == (None, ())
    with pytest.raises(NotFound):
        stage.source.approvals.show("call_9")


def test_it_is_decided_once_and_only_as_it_was_shown(stage: Stage) -> None:
    approvals = stage.source.approvals
    first, second = approvals.show("call_1"), approvals.show("call_2")
    with pytest.raises(Conflict):
        approvals.decide("call_1", digest="0" * 64, approve=True, terminal=True, pinned=True)
    remember = Remember(arguments=("amount",))
    done = approvals.decide(
        "call_1", digest=first.digest or "", approve=True, remember=remember, terminal=True, pinned=True
    )
    assert (done.id, done.state) == ("call_1", CallState.APPROVED)
    with pytest.raises(Conflict):
        approvals.decide("call_1", digest=first.digest or "", approve=False, terminal=True, pinned=True)
    denied = approvals.decide(
        "call_2", digest=second.digest or "", approve=False, note="ask first", terminal=True, pinned=True
    )
    assert (denied.state, denied.note) == (CallState.DENIED, "ask first")
    assert list(approvals.pending()) == []
    assert [item for item in stage.source.inbox.list() if item.kind is ItemKind.APPROVAL] == []
    assert approvals.show("call_2").note == "ask first"
