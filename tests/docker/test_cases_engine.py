"""Cases from the field: an engine that goes away under running sessions, and comes back."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from desk import Desk, git, wait_for
from own_engine import OwnEngine, own_engine

from kortix_tui.base.paths import Home
from kortix_tui.base.words import PromptState, SessionStatus

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(400),
    # The Docker SDK does not close the socket of a connection that was refused.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def engine() -> Iterator[OwnEngine]:
    listed = subprocess.run(
        ["docker", "images", "--filter", "reference=kortix-base", "--format", "{{.Repository}}:{{.Tag}}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    with own_engine() as made:
        made.load(*listed.stdout.split())
        yield made


@pytest.fixture
def away(home: Home, repository: object, engine: OwnEngine) -> Iterator[Desk]:
    """A desk whose sandboxes are on an engine of its own."""
    desk = Desk(home, repository, docker={"endpoint": engine.endpoint})  # type: ignore[arg-type]
    yield desk
    desk.runtime.close()


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_an_engine_restart_in_mid_session_loses_nothing(away: Desk, engine: OwnEngine, how: str) -> None:
    """https://github.com/docker/sbx-releases/issues/413 and security.md 2.6"""
    desk = away
    session = desk.start("echo precious > work.txt; echo began; sleep 1000")
    idle, _ = desk.run("echo precious too > other.txt")
    desk.runtime.sessions.prompt(session.id, "cat work.txt", queue=True)
    wait_for(lambda: "began" in desk.text(session))
    getattr(engine, how)()
    if how == "stop":
        for each in (session, idle):
            wait_for(lambda each=each: desk.view(each).reason == "engine_unavailable")
            assert desk.view(each).status is SessionStatus.RUNNING
    engine.start()
    for each in (session, idle):
        stopped = desk.until(each, SessionStatus.STOPPED)
        assert stopped.reason == "sandbox_died", stopped.reason_text
    first, second = desk.runtime.sessions.prompts(session.id)
    # An engine that ends its containers in order lets the supervisor say how the turn ended.
    assert first.state in (PromptState.FAILED, PromptState.UNKNOWN), first.message
    assert second.state is PromptState.QUEUED
    rescue = desk.runtime.sessions.show(session.id).rescues[-1]
    mirror = desk.home.mirror(desk.project.id)
    assert git(mirror, "show", f"{rescue.ref}:work.txt") == "precious"
    desk.runtime.sessions.resume(session.id)
    assert desk.settle(session).state is PromptState.FINISHED
    assert desk.text(session).count("precious\n") == 1
    for each in (session, idle):
        desk.gone(each)
    assert engine.docker("ps", "-aq") == "" and engine.docker("volume", "ls", "-q") == ""


def test_a_stop_and_a_removal_while_the_engine_is_away_are_done_when_it_is_back(away: Desk, engine: OwnEngine) -> None:
    """https://github.com/traceroot-ai/traceroot/issues/2101"""
    desk = away
    first, _ = desk.run("echo precious > a.txt")
    second, _ = desk.run("echo precious > b.txt")
    engine.stop()
    desk.runtime.sessions.stop(first.id)
    desk.runtime.sessions.remove(second.id)
    wait_for(lambda: desk.view(second).reason == "engine_unavailable")
    assert desk.view(second).removed_at is None
    engine.start()
    assert desk.until(first, SessionStatus.STOPPED).reason == "stopped"
    wait_for(lambda: desk.view(second).removed_at is not None)
    mirror = desk.home.mirror(desk.project.id)
    for session, name in ((first, "a.txt"), (second, "b.txt")):
        ref = desk.runtime.sessions.show(session.id).rescues[-1].ref
        assert git(mirror, "show", f"{ref}:{name}") == "precious"
    desk.gone(first)
    assert engine.docker("ps", "-aq") == "" and engine.docker("volume", "ls", "-q") == ""


def test_a_session_that_is_being_made_when_the_engine_goes_fails_with_a_reason_and_keeps_its_prompt(
    away: Desk, engine: OwnEngine
) -> None:
    """https://github.com/OpenHands/OpenHands/issues/12684"""
    desk = away
    engine.stop()
    session = desk.start("echo here")
    view = desk.until(session, SessionStatus.FAILED)
    assert view.reason == "engine_unavailable"
    assert desk.last(session).state is PromptState.QUEUED
    engine.start()
    desk.runtime.sessions.resume(session.id)
    assert desk.settle(session).state is PromptState.FINISHED
    desk.gone(session)
