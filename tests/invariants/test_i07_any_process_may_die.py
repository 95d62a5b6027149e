"""I7: any process may die at any instant; the next start finds the truth again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import desk as desk_module
import pytest
from desk import Desk, git, sweep, wait_for

from kortix_tui.base.ids import new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.words import ChangeStatus, PromptState, SessionStatus
from kortix_tui.review.decision import DecideChange
from kortix_tui.store.audit import read_head

pytestmark = [pytest.mark.docker, pytest.mark.timeout(300)]
DOOMED = Path(desk_module.__file__).with_name("doomed_host.py")


class Doom:
    """Hosts that die, one after the other."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.deaths = 0

    def host(self, where: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "KORTIX_HOME": str(self.desk.home.path)}
        return subprocess.Popen([sys.executable, str(DOOMED), where], env=environment)

    def until(self, done: Callable[[], bool], where: str, most: int = 40) -> None:
        """Let hosts die at `where` until `done`."""
        while not done():
            assert self.deaths < most, "the hosts never get on"
            process = self.host(where)
            wait_for(lambda: process.poll() is not None or done(), 60)  # noqa: B023
            if process.poll() is None:
                process.kill()
            process.wait()
            self.deaths += 1


@pytest.fixture
def doom(desk: Desk) -> Iterator[Doom]:
    desk.runtime.stop_hosting()
    desk.runtime.context.ensure_host = lambda: None
    yield Doom(desk)


def ask_to_merge(desk: Desk) -> str:
    """Write the request that a console would write, without waiting for the answer."""
    change = desk.runtime.changes.list()[0]
    payload = DecideChange(change_id=change.id, reviewed_head=change.head_commit)
    identity, store = new_id("req"), desk.runtime.context.store
    with store.write() as tx:
        tx.execute(
            "INSERT INTO requests (id, kind, payload, state, actor, created_at) VALUES (?,?,?,'pending',?,?)",
            (
                identity, "change_request.merge", payload.model_dump_json(),
                desk.runtime.context.actor.model_dump_json(), tx.now_text,
            ),
        )  # fmt: skip
        tx.audit("change_request.merge", scope="test", actor=desk.runtime.context.actor)
    return identity


def state_of(desk: Desk, request: str) -> str:
    row = desk.runtime.context.store.one("SELECT state FROM requests WHERE id = ?", (request,))
    return str(row[0])


SCRIPT = """\
echo once >> ~/count
echo work >> hello.txt
git commit -qam Work
kortix cr open --title Work --description w
cat ~/count
"""


@pytest.mark.parametrize("where", ["commit:1", "commit:2"])
def test_hosts_that_die_at_every_write_still_bring_a_prompt_to_its_end_once(desk: Desk, doom: Doom, where: str) -> None:
    session = desk.start(SCRIPT)

    def answered() -> bool:
        return desk.last(session).state not in (PromptState.QUEUED, PromptState.RUNNING)

    doom.until(answered, where)
    assert doom.deaths > 3
    assert desk.last(session).state is PromptState.FINISHED
    assert desk.text(session).count("once\n") == 1, "the turn ran twice"
    assert [change.title for change in desk.runtime.changes.list()] == ["Work"]
    assert desk.runtime.audit.verify().ok


@pytest.mark.parametrize(
    "where",
    [
        "commit:1",
        "commit:2",
        "commit:3",
        "after:kortix_tui.repository.merge:merge_commit",
        "after:kortix_tui.repository.deliver:deliver",
        "after:kortix_tui.repository.merge:advance_base",
    ],
)
def test_a_merge_interrupted_anywhere_happens_once_or_not_at_all(desk: Desk, where: str) -> None:
    session, _ = desk.run(SCRIPT)
    before = git(desk.repository, "rev-parse", "main")
    desk.runtime.stop_hosting()
    ensure, desk.runtime.context.ensure_host = desk.runtime.context.ensure_host, lambda: None
    request = ask_to_merge(desk)
    doom = Doom(desk)
    process = doom.host(where)
    assert process.wait(60) == -signal.SIGKILL
    desk.runtime.context.ensure_host = ensure
    desk.runtime.start_hosting()
    wait_for(lambda: state_of(desk, request) in ("done", "failed"))
    change = desk.runtime.changes.list()[0]
    after = git(desk.repository, "rev-parse", "main")
    if change.status is ChangeStatus.MERGED:
        assert after == change.merge_commit
        assert git(desk.repository, "rev-parse", "main^1", "main^2").split() == [before, change.reviewed_head]
        assert git(desk.repository, "status", "--porcelain") == ""
    else:
        assert after == before and change.status is ChangeStatus.OPEN
        assert desk.runtime.changes.merge(desk.project, change.number, at=change.head_commit).merge_commit
    assert int(git(desk.repository, "rev-list", "--count", "--merges", "main")) == 1
    assert desk.view(session).status is SessionStatus.RUNNING


def test_a_killed_host_leaves_no_lock_and_its_sandbox_answers_to_the_next(desk: Desk, doom: Doom) -> None:
    session = desk.start("for i in $(seq 200); do echo line $i; sleep 0.02; done")
    process = doom.host("never")
    wait_for(lambda: "line 20\n" in desk.text(session))
    process.kill()
    process.wait()
    printed = desk.text(session)
    desk.runtime.start_hosting()
    prompt = desk.settle(session)
    assert prompt.state is PromptState.FINISHED
    text = desk.text(session)
    assert text.startswith(printed)
    lines = [line for line in text.splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, 201)], "a line was lost or repeated"


def test_a_dead_sandbox_ends_its_turn_as_unknown_and_its_work_is_saved(desk: Desk) -> None:
    session = desk.start("echo precious > work.txt; echo began; sleep 1000")
    wait_for(lambda: "began" in desk.text(session))
    subprocess.run(["docker", "kill", f"kortix-{session.id}"], check=True, capture_output=True)
    stopped = desk.until(session, SessionStatus.STOPPED)
    assert stopped.reason == "sandbox_died" and "resume" in (stopped.reason_text or "")
    assert desk.last(session).state is PromptState.UNKNOWN
    rescue = desk.runtime.sessions.show(session.id).rescues[-1]
    assert git(desk.home.mirror(desk.project.id), "show", f"{rescue.ref}:work.txt") == "precious"
    assert desk.say(session, "cat work.txt").state is PromptState.FINISHED


def test_a_second_process_takes_over_when_the_host_goes(desk: Desk, doom: Doom) -> None:
    first = doom.host("never")
    wait_for(lambda: (found := desk.runtime.host().host) is not None and found.pid == first.pid)
    second = doom.host("never")
    first.kill()
    first.wait()
    wait_for(lambda: (found := desk.runtime.host().host) is not None and found.pid == second.pid, 10)
    second.kill()
    second.wait()
    assert read_head(desk.home) is not None


def test_containers_of_lost_rows_are_ended_and_their_volumes_kept(home: Home, repository: Path) -> None:
    desk = Desk(home, repository)
    install = desk.runtime.context.store.install_id
    try:
        session, _ = desk.run("echo x")
        desk.runtime.stop_hosting()
        store = desk.runtime.context.store
        with store.write() as tx:  # as after a restore of an older database
            tx.execute("UPDATE sessions SET removed_at = ?, wanted = 'stopped' WHERE id = ?", (tx.now_text, session.id))
            tx.audit("test.restore", scope="test", actor=desk.runtime.context.actor)
        desk.runtime.start_hosting()
        mark = f"label=kortix.session={session.id}"

        def containers() -> str:
            listed = subprocess.run(["docker", "ps", "-aq", "--filter", mark], capture_output=True, text=True)
            return listed.stdout

        wait_for(lambda: containers() == "")
        volumes = subprocess.run(["docker", "volume", "ls", "-q", "--filter", mark], capture_output=True, text=True)
        assert len(volumes.stdout.split()) == 3
    finally:
        desk.runtime.close()
        sweep(install)


@pytest.mark.parametrize(
    "where",
    [
        "after:kortix_tui.sandbox.channel:Channel.welcome",
        "after:kortix_tui.runtime.ledger:Ledger.give_key",
        "after:kortix_tui.runtime.link:Link.rescue",
        "after:kortix_tui.sandbox.docker.provider:DockerProvider.start",
    ],
)
def test_a_host_that_dies_between_sandbox_and_store_locks_nobody_out(desk: Desk, doom: Doom, where: str) -> None:
    """The next one finds its supervisor, and no number of a rescue is used twice."""
    session = desk.start("echo precious > new.txt")
    process = doom.host(where)
    assert process.wait(60) == -signal.SIGKILL
    desk.runtime.start_hosting()
    assert desk.settle(session).state is PromptState.FINISHED
    desk.say(session, "echo precious > more.txt")
    desk.gone(session)
    noted = {rescue.ref: rescue.commit_id for rescue in desk.runtime.sessions.show(session.id).rescues}
    mirror = desk.home.mirror(desk.project.id)
    kept = git(mirror, "for-each-ref", "--format=%(refname) %(objectname)", f"refs/kortix/rescue/{session.id}")
    assert noted == dict(line.split() for line in kept.splitlines())
