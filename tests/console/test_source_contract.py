"""The runtime in memory does what the real one does: the same tests run against both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from console_source import MemorySource, a_change, a_project, a_session
from seeded import Seeded

from kortix_tui.base.errors import KortixError, NotFound, Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.base.words import ChangeStatus, PromptState, SessionStatus, Wanted
from kortix_tui.console.source import Source
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.records import RecordWriter


class Stage:
    """A source with one project, one running session and one open change request."""

    def __init__(self, source: Source, session: str) -> None:
        self.source = source
        self.session = session

    def print(self, text: str) -> None:
        raise NotImplementedError


class MemoryStage(Stage):
    def __init__(self) -> None:
        self.memory = MemorySource()
        self.memory.project_rows = [a_project("acme")]
        session = a_session(1, "Do it", project="acme", project_id="prj_acme", change=1, change_status="open")
        self.memory.session_rows = [session]
        self.memory.change_rows = [a_change(1, session, "A change")]
        super().__init__(self.memory, session.id)

    def print(self, text: str) -> None:
        self.memory.print(self.session, text)


class RealStage(Stage):
    def __init__(self, seeded: Seeded, runtime: Runtime) -> None:
        seeded.project()
        session = seeded.session()
        seeded.change(session)
        self._records = runtime.context.home.records(session)
        super().__init__(runtime, session)

    def print(self, text: str) -> None:
        from datetime import UTC, datetime

        writer = RecordWriter(self._records)
        writer.append(at=datetime.now(UTC), source="sandbox", kind="output", text=text, stream="stdout", turn="t1")
        writer.close()


@pytest.fixture(params=["memory", "real"])
def stage(request: pytest.FixtureRequest) -> Iterator[Stage]:
    if request.param == "memory":
        yield MemoryStage()
        return
    home: Home = request.getfixturevalue("home")
    seeded = Seeded(home)
    seeded.lead()  # another process is the host, so that nothing starts
    with Runtime(home, Settings(), operator_actor("console"), kind="console") as runtime:
        yield RealStage(seeded, runtime)
    seeded.close()


def test_it_satisfies_the_protocol(stage: Stage) -> None:
    source: Source = stage.source
    for part, names in {
        "sessions": ("list", "find", "new", "prompt", "stop", "resume", "remove", "removal_preview", "records"),
        "changes": ("list", "show", "patch", "merge", "close", "reopen"),
        "projects": ("list",),
    }.items():
        assert all(callable(getattr(getattr(source, part), name)) for name in names)


def test_lists(stage: Stage) -> None:
    source = stage.source
    (session,) = source.sessions.list()
    (change,) = source.changes.list()
    (project,) = source.projects.list()
    assert (session.id, session.project, session.change, session.change_status) == (stage.session, "acme", 1, "open")
    assert (change.number, change.session_id, change.project, change.status) == (1, session.id, "acme", "open")
    assert change.shown_head is None
    assert project.slug == "acme"
    assert source.unfinished() == 1


def test_finding(stage: Stage) -> None:
    assert stage.source.sessions.find(stage.session[:8]).id == stage.session
    with pytest.raises(NotFound):
        stage.source.sessions.find("kzzzzzzz")


def test_a_new_session_is_first_and_waits_for_the_host(stage: Stage) -> None:
    source = stage.source
    made = source.sessions.new("Fix it\nplease", project=source.projects.list()[0], agent="refactor")
    newest = source.sessions.list()[0]
    assert (newest.id, newest.title, newest.agent) == (made.id, "Fix it", "refactor")
    assert (newest.status, newest.queued) == (SessionStatus.PROVISIONING, 1)
    assert source.unfinished() == 2


def test_prompts_queue(stage: Stage) -> None:
    queued = stage.source.sessions.find(stage.session).queued
    prompt = stage.source.sessions.prompt(stage.session, "More", queue=True)
    assert (prompt.session_id, prompt.text, prompt.state) == (stage.session, "More", PromptState.QUEUED)
    assert stage.source.sessions.find(stage.session).queued == queued + 1


def test_stop_resume_remove(stage: Stage) -> None:
    sessions = stage.source.sessions
    assert sessions.stop(stage.session).wanted is Wanted.STOPPED
    resumed = sessions.resume(stage.session)
    assert (resumed.wanted, resumed.status) == (Wanted.RUNNING, SessionStatus.RUNNING)
    preview = sessions.removal_preview(stage.session)
    assert preview.running
    assert preview.session.id == stage.session
    assert "rescue" in preview.note
    assert sessions.remove(stage.session).wanted is Wanted.REMOVED


def test_close_and_reopen(stage: Stage) -> None:
    source = stage.source
    project = source.projects.list()[0]
    with pytest.raises(Refused):
        source.changes.reopen(project, 1)
    closed = source.changes.close(project, 1)
    assert closed.status is ChangeStatus.CLOSED
    assert closed.decided_by
    with pytest.raises(Refused):
        source.changes.close(project, 1)
    opened = source.changes.reopen(project, 1)
    assert (opened.status, opened.decided_by) == (ChangeStatus.OPEN, None)
    with pytest.raises(NotFound):
        source.changes.close(project, 99)


def test_merging_another_head_is_refused(stage: Stage) -> None:
    source = stage.source
    with pytest.raises(KortixError) as caught:
        source.changes.merge(source.projects.list()[0], 1, at="f" * 40)
    assert caught.value.code == "conflict"
    assert "moved" in caught.value.message
    assert source.changes.list()[0].status is ChangeStatus.OPEN


def test_records_are_followed(stage: Stage) -> None:
    stage.print("one\n")
    reader: Any = stage.source.sessions.records(stage.session, tail=100)
    assert [record.text for record in reader.read(10)] == ["one\n"]
    assert list(reader.read(10)) == []
    stage.print("two\n")
    stage.print("three\n")
    assert [record.text for record in reader.read(1)] == ["two\n"]
    assert [record.text for record in reader.read(10)] == ["three\n"]
    assert [record.text for record in stage.source.sessions.records(stage.session, tail=1).read(10)] == ["three\n"]


def test_a_change_is_noticed_from_another_thread(stage: Stage) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as other:
        before = other.submit(stage.source.data_version).result()
        stage.source.sessions.stop(stage.session)
        assert other.submit(stage.source.data_version).result() != before
