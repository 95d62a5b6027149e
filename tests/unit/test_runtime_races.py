"""What a person writes in the very moment in which the host writes: neither is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta

import pytest
from seeded import Seeded

from kortix_tui.base.errors import NotFound
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import PromptState, SessionStatus, Wanted
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.elapsed import Elapsed
from kortix_tui.runtime.facade import Runtime
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.places import Places
from kortix_tui.store.models import Prompt, Session


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    made.lead()
    made.project()
    yield made
    made.close()


@pytest.fixture
def runtime(seeded: Seeded) -> Iterator[Runtime]:
    with Runtime(seeded.home, Settings(), operator_actor("cli")) as made:
        yield made


@pytest.fixture
async def ledger(seeded: Seeded) -> AsyncIterator[Ledger]:
    assert seeded.lock is not None
    made = Ledger(seeded.store, seeded.lock.epoch)
    yield made
    await made.close()


def seen(ledger: Ledger, identity: str) -> Session:
    found = ledger.session(identity)
    assert found is not None
    return found


async def idle(seeded: Seeded, ledger: Ledger) -> Session:
    identity = seeded.session()
    session = seen(ledger, identity)
    prompt = ledger.prompt(identity, PromptState.QUEUED)
    assert prompt is not None
    await ledger.end_prompt(session, prompt, PromptState.FINISHED, exit_code=0, message=None)
    return seen(ledger, identity)


async def test_a_prompt_in_the_moment_of_the_idle_stop_is_answered(
    seeded: Seeded, runtime: Runtime, ledger: Ledger
) -> None:
    session = await idle(seeded, ledger)
    await asyncio.to_thread(runtime.sessions.prompt, session.id, "one more thing")
    assert not await ledger.fall_idle(session, "idle")
    assert seen(ledger, session.id).wanted is Wanted.RUNNING


async def test_a_resume_in_the_moment_of_the_idle_stop_counts(seeded: Seeded, runtime: Runtime, ledger: Ledger) -> None:
    session = await idle(seeded, ledger)
    assert await ledger.fall_idle(session, "idle")
    stopping = seen(ledger, session.id)
    await asyncio.to_thread(runtime.sessions.resume, session.id)
    await ledger.move(stopping, "test", status=SessionStatus.STOPPED, reason="idle", text="idle")
    after = seen(ledger, session.id)
    assert (after.wanted, after.status, after.reason) == (Wanted.RUNNING, SessionStatus.PROVISIONING, None)


async def test_a_removal_in_the_moment_of_a_failure_is_still_wanted(
    seeded: Seeded, runtime: Runtime, ledger: Ledger
) -> None:
    session = await idle(seeded, ledger)
    await asyncio.to_thread(runtime.sessions.remove, session.id)
    await ledger.move(session, "test", status=SessionStatus.FAILED, wanted=Wanted.STOPPED, reason="failed")
    assert seen(ledger, session.id).wanted is Wanted.REMOVED


async def test_a_prompt_that_was_taken_back_is_not_started(seeded: Seeded, runtime: Runtime, ledger: Ledger) -> None:
    identity = seeded.session()
    prompt = ledger.prompt(identity, PromptState.QUEUED)
    assert prompt is not None
    await asyncio.to_thread(runtime.sessions.remove_prompt, prompt.id)
    assert not await ledger.start_prompt(seen(ledger, identity), prompt)
    row = seeded.store.one(f"SELECT {Prompt.columns()} FROM prompts WHERE id = ?", (prompt.id,))
    assert Prompt.of(row or ()).state is PromptState.REMOVED


async def test_a_prompt_of_a_session_that_is_to_stop_stays_in_its_queue(
    seeded: Seeded, runtime: Runtime, ledger: Ledger
) -> None:
    identity = seeded.session()
    prompt = ledger.prompt(identity, PromptState.QUEUED)
    assert prompt is not None
    session = seen(ledger, identity)
    await asyncio.to_thread(runtime.sessions.stop, identity)
    assert not await ledger.start_prompt(session, prompt)
    assert ledger.prompt(identity, PromptState.QUEUED) == prompt


def test_a_project_that_was_just_removed_gets_no_session(seeded: Seeded, runtime: Runtime) -> None:
    project = runtime.projects.find("acme")
    runtime.projects.remove("acme")
    with pytest.raises(NotFound, match="removed"):
        runtime.sessions.new("Do it", project=project)


def test_resuming_forgets_why_it_had_stopped(seeded: Seeded, runtime: Runtime) -> None:
    identity = seeded.session(status="failed", wanted="stopped", reason="clone_failed", reason_text="No.")
    view = runtime.sessions.resume(identity)
    assert (view.status, view.reason, view.reason_text) == (SessionStatus.PROVISIONING, None, None)


def test_places_are_given_in_order_and_never_beyond_the_limit() -> None:
    places = Places(2)
    assert places.take("a") and places.take("b") and places.take("a")
    assert not places.take("c") and not places.take("d")
    places.leave("a")
    assert not places.take("d"), "c has waited longer"
    assert places.take("c")
    places.leave("d")
    places.leave("b")
    assert places.take("e")


def test_who_got_in_line_first_is_served_first_whoever_asks_first() -> None:
    places = Places(1)
    places.join("a")
    places.join("b")
    assert not places.take("b")
    assert places.take("a")
    places.leave("a")
    assert places.take("b")


def test_what_runs_already_has_a_place_above_the_limit() -> None:
    places = Places(1)
    places.hold("a")
    places.hold("b")
    assert not places.take("c")
    places.leave("a")
    assert not places.take("c")
    places.leave("b")
    assert places.take("c")


class Jumping:
    """A clock that somebody sets."""

    def __init__(self) -> None:
        self.wall = datetime(2026, 1, 1, tzinfo=UTC)
        self.ticks = 0.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.ticks


def test_a_clock_that_is_set_ends_nothing_and_delays_nothing() -> None:
    clock = Jumping()
    elapsed, begun = Elapsed(clock), clock.now()
    assert elapsed.since(begun) == 0
    clock.wall += timedelta(days=1)
    clock.ticks += 5
    assert elapsed.since(begun) == 5
    clock.wall -= timedelta(days=9)
    clock.ticks += 5
    assert elapsed.since(begun) == 10
    later = clock.wall + timedelta(days=20)
    assert elapsed.since(later) == 0, "a moment in the future is now"
    assert Elapsed(clock).since(clock.wall - timedelta(seconds=30)) == 30
