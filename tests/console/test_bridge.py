"""The bridge and the transcript: facts come whole, logs come in order, nothing waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from console_source import MemorySource, a_day
from desk import wait_for
from memory_calls import a_call

from kortix_tui.base.errors import KortixError, StoreFailed
from kortix_tui.base.words import Risk
from kortix_tui.console.bridge import KEPT_LOGS, Bridge
from kortix_tui.console.source import Source
from kortix_tui.console.transcript import Transcript
from kortix_tui.console.widgets.lines import LineRing
from kortix_tui.store.records import Record


@pytest.fixture
def started() -> Iterator[Callable[[MemorySource], Bridge]]:
    made: list[Bridge] = []

    def start(source: MemorySource) -> Bridge:
        bridge = Bridge(source)
        bridge.start(lambda: None)
        made.append(bridge)
        return bridge

    yield start
    for bridge in made:
        bridge.stop()


def text(ring: LineRing) -> list[str]:
    return [line.text for line in ring.read(ring.first, ring.end)]


def test_facts_follow_the_store(started: Callable[[MemorySource], Bridge]) -> None:
    source = a_day()
    bridge = started(source)
    wait_for(lambda: bridge.facts.loaded and bridge.facts.vault is not None and bridge.facts.host.here)
    before = bridge.facts
    source.replace_session(source.session_rows[0].model_copy(update={"title": "Fresh"}))
    wait_for(lambda: bridge.facts.sessions[0].title == "Fresh")
    assert before.sessions[0].title != "Fresh", "facts that were handed out never change"


def test_answers_come_on_the_thread_that_takes_them(started: Callable[[MemorySource], Bridge]) -> None:
    bridge = started(a_day())
    seen: list[tuple[str, object]] = []

    def fail(_: Source) -> None:
        raise StoreFailed("full")

    def crash(_: Source) -> None:
        raise RuntimeError("boom")

    def note(kind: str) -> Callable[[object], None]:
        return lambda value: seen.append((f"{kind} {threading.current_thread() is threading.main_thread()}", value))

    for act in (lambda _: 7, fail, crash):
        bridge.submit(act, note("done"), note("failed"))

    def all_came() -> bool:
        bridge.take_answers()
        return len(seen) == 3

    wait_for(all_came)
    kinds = sorted(kind for kind, _ in seen)
    assert kinds == ["done True", "failed True", "failed True"]
    assert all(isinstance(value, KortixError) for kind, value in seen if kind.startswith("failed"))


def test_a_slow_act_holds_nobody_up(started: Callable[[MemorySource], Bridge]) -> None:
    source = a_day()
    bridge = started(source)
    release = threading.Event()
    done: list[str] = []
    bridge.submit(lambda _: release.wait(30), lambda _: done.append("slow"), lambda _: None)
    bridge.submit(lambda _: None, lambda _: done.append("quick"), lambda _: None)

    def quick_came() -> bool:
        bridge.take_answers()
        return done == ["quick"]

    wait_for(quick_came)
    source.print(source.session_rows[0].id, "still alive\n")
    ring = bridge.follow(source.session_rows[0].id)
    wait_for(lambda: any("still alive" in line for line in text(ring)))
    release.set()


def test_only_what_is_shown_is_followed(started: Callable[[MemorySource], Bridge]) -> None:
    source = a_day()
    bridge = started(source)
    first, second = source.session_rows[0].id, source.session_rows[1].id
    ring = bridge.follow(first)
    wait_for(lambda: ring.end)
    bridge.follow(second)
    bridge.follow_only({second})
    assert bridge.follow(first) is ring, "a log that was left comes back as it was"
    for number in range(50):
        bridge.follow(f"k{number}")
        bridge.follow_only({f"k{number}"})
    assert len(bridge._followed) <= KEPT_LOGS + 1


def test_a_log_that_cannot_be_read_says_so_once(started: Callable[[MemorySource], Bridge]) -> None:
    source = a_day()

    def broken(*_: object, **__: object) -> Any:
        raise StoreFailed("The record is damaged.")

    source.sessions.records = broken  # type: ignore[method-assign]
    bridge = started(source)
    ring = bridge.follow(source.session_rows[0].id)
    wait_for(lambda: ring.end == 1)
    assert "damaged" in text(ring)[0]


@pytest.mark.timeout(60)
def test_stopping_does_not_wait_for_a_hanging_act() -> None:
    bridge = Bridge(a_day())
    bridge.start(lambda: None)
    release = threading.Event()
    bridge.submit(lambda _: release.wait(600), lambda _: None, lambda _: None)
    bridge.stop()  # would hang for a minute if it waited, and the test's own deadline would end it
    release.set()


def record(text: str = "", kind: str = "output", **fields: Any) -> Record:
    values: dict[str, Any] = {"n": 1, "at": datetime(2026, 1, 1, tzinfo=UTC), "source": "sandbox", "turn": "t"}
    return (
        Record(kind=kind, text=text, stream="stdout", **(values | fields))
        if kind == "output"
        else Record(kind=kind, text=text, **(values | fields))
    )


def test_output_is_put_together_into_lines() -> None:
    ring = LineRing()
    feed = Transcript(ring).feed
    feed([record("one\ntw")])
    assert text(ring) == ["one", "tw"]
    feed([record("o"), record("\n\nthree")])
    assert text(ring) == ["one", "two", "", "three"]
    feed([record(kind="turn_ended", data={"reason": "exited", "exit_code": 3}, stream=None)])
    feed([record(" and more\n", turn="t2")])
    assert text(ring) == ["one", "two", "", "three", "the agent ended with exit status 3", " and more"]


@pytest.mark.parametrize(
    ("kind", "data", "words"),
    [
        ("note", {}, "saved \u241b]0;x"),
        ("state", {"name": "clone_failed", "message": "no such branch"}, "clone failed: no such branch"),
        ("turn_started", {}, "the agent started"),
        ("turn_ended", {"reason": "cancelled"}, "the agent was stopped"),
        ("turn_ended", {"reason": "not_started"}, "the agent could not be started: no reason given"),
        ("turn_ended", {"signal": 9}, "the agent was ended by signal 9"),
        ("gap", {}, "some output is missing here: it came faster than it could be kept"),
    ],
)
def test_what_happened_is_said(kind: str, data: dict[str, Any], words: str) -> None:
    ring = LineRing()
    Transcript(ring).feed([record("saved \x1b]0;x", kind=kind, data=data)])
    assert text(ring) == [words]


def test_an_unknown_record_says_nothing() -> None:
    ring = LineRing()
    Transcript(ring).feed([record(kind="news")])
    assert ring.end == 0


@pytest.mark.parametrize("stuck", ["vault.status", "connectors.list"])
def test_what_hangs_keeps_no_call_back(started: Callable[[MemorySource], Bridge], stuck: str) -> None:
    source, released = a_day(), threading.Event()
    owner, _, name = stuck.partition(".")
    setattr(getattr(source, owner), name, lambda *_: [] if released.wait(60) else None)
    bridge = started(source)

    def calls() -> list[str]:
        return [item.reference for item in bridge.facts.inbox if item.risk is not None]

    session = source.session_rows[0]
    source.approvals.add(a_call(1, session))
    wait_for(lambda: calls() == ["call_1"])
    source.approvals.add(a_call(2, session, "drop", risk=Risk.DESTRUCTIVE))
    wait_for(lambda: calls() == ["call_2", "call_1"])
    released.set()
