"""Who is at the keyboard: a person's own secrets follow that person, and are lost to a session for good (I3)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.decisions import is_attended
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.audit import SYSTEM, Actor

ANNA = Actor(kind="human", name="anna", via="cli", tty="/dev/pts/3")
CONSOLE = ANNA.model_copy(update={"via": "console", "tty": None})
SCRIPT = ANNA.model_copy(update={"tty": None})
OTHER = ANNA.model_copy(update={"name": "eve"})
AGENT = Actor(kind="agent", name="builder", via="sandbox", tty="/dev/pts/3")


@pytest.mark.parametrize(
    ("actor", "environment", "attended"),
    [
        (ANNA, {}, True),
        (CONSOLE, {}, True),
        (SCRIPT, {}, False),
        (AGENT, {}, False),
        (SYSTEM, {}, False),
        (ANNA, {"CLAUDECODE": "1"}, False),
        (CONSOLE, {"CODEX_SANDBOX": "1"}, False),
        (ANNA, {"KORTIX_SESSION_ID": "k"}, False),
        (ANNA, {"TERM": "xterm"}, True),
    ],
)
def test_a_person_is_there_at_a_terminal_and_not_behind_an_agent(
    actor: Actor, environment: dict[str, str], attended: bool
) -> None:
    assert is_attended(actor, environment) is attended


@pytest.fixture
def runtime(home: Home) -> Iterator[Runtime]:
    seeded = Seeded(home)
    seeded.lead()
    seeded.project()
    with Runtime(home, Settings(), operator_actor("cli")) as made:
        yield made
    seeded.close()


@pytest.mark.parametrize(
    ("senders", "attended"),
    [
        ([ANNA], True),
        ([CONSOLE, ANNA, CONSOLE], True),
        ([SCRIPT], False),
        ([SCRIPT, ANNA], False),
        ([ANNA, SCRIPT], False),
        ([ANNA, SCRIPT, ANNA], False),
        ([ANNA, OTHER, ANNA], False),
    ],
)
def test_a_session_is_attended_until_somebody_else_prompts_it(
    runtime: Runtime, senders: list[Actor], attended: bool
) -> None:
    first, *others = senders
    runtime.context.actor = first
    session = runtime.sessions.new("Do it", project=runtime.projects.find("acme"))
    for sender in others:
        runtime.context.actor = sender
        runtime.sessions.prompt(session.id, "And this", queue=True)
    assert runtime.sessions.find(session.id).attended is attended


def test_a_prompt_of_an_agent_program_takes_it_away(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime.context.actor = ANNA
    session = runtime.sessions.new("Do it", project=runtime.projects.find("acme"))
    assert session.attended
    monkeypatch.setenv("CLAUDECODE", "1")
    runtime.sessions.prompt(session.id, "And this", queue=True)
    assert not runtime.sessions.find(session.id).attended
