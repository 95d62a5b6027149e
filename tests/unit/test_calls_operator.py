"""The operator's own calls: the same path, without a grant; what policy asks about needs the person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from brokered import OPERATOR, PRIVATE, Outside, brokered_repository, outside

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import CallState
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.audit import Actor
from kortix_tui.store.models import Project


@pytest.fixture
def system() -> Iterator[Outside]:
    with outside() as made:
        yield made


@pytest.fixture
def project(home: Home, short_folder: Path, system: Outside) -> str:
    return str(brokered_repository(short_folder / "repo", system.server.url("", "127.0.0.1").rstrip("/")))


def hosting(home: Home, project: str, actor: Actor = OPERATOR) -> tuple[Runtime, Project]:
    settings = Settings.model_validate(PRIVATE | {"docker": {"endpoint": f"unix://{home.path}/no.sock"}})
    runtime = Runtime(home, settings, actor)
    runtime.start_hosting()
    return runtime, runtime.projects.add(project)


def test_a_person_calls_and_it_is_on_record(home: Home, project: str, system: Outside) -> None:
    runtime, found = hosting(home, project)
    with runtime:
        read = runtime.calls.call(found, "desk", "get_ticket", '{"id": "7"}')
        assert (read.state, read.status) == (CallState.DONE, 200)
        write = runtime.calls.call(found, "desk", "send_reply", '{"id": "7", "text": "Hi"}', reason="By hand")
        assert write.state is CallState.DONE and len(system.effects) == 1
        view = runtime.calls.list(project=found)[0]
        assert (view.action, view.session_id, view.created_by) == ("send_reply", None, "op (cli)")
        assert view.rule_says == "called by the operator"
        assert [one.id for one in runtime.calls.list(state=CallState.DONE, limit=1)] == [write.id]


def test_a_program_reads_but_does_not_write(home: Home, project: str, system: Outside) -> None:
    runtime, found = hosting(home, project, Actor(kind="human", name="op", via="cli"))
    with runtime:
        assert runtime.calls.call(found, "desk", "get_ticket", '{"id": "7"}').state is CallState.DONE
        report = runtime.calls.call(found, "desk", "send_reply", '{"id": "7", "text": "Hi"}')
        assert (report.state, report.code) == (CallState.REFUSED, "needs_person") and system.effects == []


def test_what_is_blocked_is_blocked_for_the_operator_too(home: Home, project: str, system: Outside) -> None:
    runtime, found = hosting(home, project)
    with runtime:
        report = runtime.calls.call(found, "desk", "drop_ticket", '{"id": "07"}')
        assert (report.state, report.code) == (CallState.REFUSED, "policy_block")
        assert runtime.calls.call(found, "nothing", "at_all").code == "connector_not_found"
