"""Cases from the field: ceilings, time-outs, full disks, floods, and builds that nobody waits for any more."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest
from cramped import cramped
from desk import Desk, git, sweep, wait_for

from kortix_tui.base.paths import Home
from kortix_tui.base.words import PromptState, SessionStatus

pytestmark = pytest.mark.docker


def running(desk: Desk) -> int:
    return sum(view.status is SessionStatus.RUNNING for view in desk.runtime.sessions.list())


def test_sessions_beyond_the_ceiling_wait_and_say_so(desk: Desk) -> None:
    """https://github.com/aws/bedrock-agentcore-starter-toolkit/issues/498"""
    with desk.ruled(ceilings={"running_sessions": 2}):
        sessions = [desk.start(f"echo {number}; sleep 1") for number in range(4)]
        waiting = wait_for(lambda: [view for view in map(desk.view, sessions) if view.reason == "capacity"])
        assert isinstance(waiting, list)
        assert all("2 sessions" in (view.reason_text or "") for view in waiting)
        assert all(view.status is SessionStatus.PROVISIONING for view in waiting)
        for session in sessions[:2]:
            desk.settle(session)
        assert running(desk) == 2
        for session in sessions[:2]:
            desk.runtime.sessions.stop(session.id)
        for session in sessions[2:]:
            assert desk.settle(session).state is PromptState.FINISHED
            assert desk.view(session).reason is None
        # A waiting session can be stopped and removed like any other.
        fifth = desk.start("true")
        wait_for(lambda: desk.view(fifth).reason == "capacity")
        desk.gone(fifth)


def test_a_turn_that_takes_too_long_is_ended_and_its_work_saved(desk: Desk) -> None:
    """https://github.com/openclaw/openclaw/issues/29497"""
    with desk.ruled(sandbox={"prompt_timeout_minutes": 0.03}):
        session, prompt = desk.run("echo precious > new.txt; echo began; sleep 1000 & wait")
        assert prompt.state is PromptState.FAILED and "Timed out" in (prompt.message or "")
        rescue = desk.runtime.sessions.show(session.id).rescues[-1]
        assert git(desk.home.mirror(desk.project.id), "show", f"{rescue.ref}:new.txt") == "precious"
        assert desk.say(session, "echo next").state is PromptState.FINISHED


def test_a_long_silent_turn_is_not_idle(desk: Desk) -> None:
    """https://github.com/fabro-sh/fabro/pull/766"""
    session, prompt = desk.run("sleep 4", idle_minutes=0.02)
    assert prompt.state is PromptState.FINISHED
    assert desk.until(session, SessionStatus.STOPPED).reason == "idle"


SLOW = """\
kortix_version: 2
default_agent: script
sandbox:
  default: slow
  templates:
    - slug: slow
      name: Slow
      dockerfile: sandbox/Dockerfile
agents:
  script: {kortix_permissions: [project.gitops.push]}
"""


def test_a_stop_while_an_image_is_built_is_obeyed_at_once_and_keeps_the_prompt(desk: Desk) -> None:
    """https://github.com/mastra-ai/mastra/pull/24484"""
    (desk.repository / "kortix.yaml").write_text(SLOW)
    (desk.repository / "sandbox").mkdir()
    (desk.repository / "sandbox" / "Dockerfile").write_text(f"FROM kortix-base\nRUN echo {time.time()}; sleep 300\n")
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", "Slow")
    session = desk.start("true")
    wait_for(lambda: "sleep 300" in desk.text(session), 150)
    desk.runtime.sessions.stop(session.id)
    wait_for(lambda: desk.view(session).status is SessionStatus.STOPPED, 15)
    assert desk.last(session).state is PromptState.QUEUED
    other = desk.start("true", template="slow")
    wait_for(lambda: "sleep 300" in desk.text(other))
    desk.runtime.sessions.remove(other.id)
    wait_for(lambda: desk.view(other).removed_at is not None, 15)


def test_a_flood_of_output_is_stored_in_order_within_bounded_memory(desk: Desk) -> None:
    """https://github.com/anomalyco/opencode/issues/24445"""
    before = _resident()
    session, prompt = desk.run("seq 1 1500000")
    assert prompt.state is PromptState.FINISHED
    reader, expected, last = desk.runtime.sessions.records(session.id), 1, ""
    while records := reader.read():
        for record in records:
            if record.kind == "output" and record.stream == "stdout":
                *lines, last = (last + record.text).split("\n")
                for line in lines:
                    assert line == str(expected)
                    expected += 1
    assert expected == 1_500_001
    assert _resident() - before < 200 << 20


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_disk_that_fills_up_in_mid_turn_stops_no_work_and_loses_no_output(
    short_folder: Path, repository: Path
) -> None:
    """https://github.com/docker/desktop-feedback/issues/105"""
    with cramped(short_folder / "disk", "1200m") as disk:
        home = Home(disk.folder / "home")
        home.prepare()
        desk = Desk(home, repository)
        install = desk.runtime.context.store.install_id
        try:
            session = desk.start("echo began; while [ ! -e go ]; do sleep 0.1; done; seq 1 200000; echo precious > new")
            wait_for(lambda: "began" in desk.text(session))
            disk.fill(left=30 << 20)
            desk.shell(session, "touch /workspace/go")
            wait_for(lambda: desk.view(session).reason == "disk_full")
            assert "space" in (desk.view(session).reason_text or "")
            assert desk.view(session).status is SessionStatus.RUNNING
            assert desk.last(session).state is PromptState.RUNNING
            disk.empty()
            assert desk.settle(session).state is PromptState.FINISHED
            wait_for(lambda: desk.view(session).reason is None)
            assert desk.text(session).split("began\n")[1].startswith("".join(f"{n}\n" for n in range(1, 200001)))
        finally:
            desk.runtime.close()
            sweep(install)


def test_a_disk_without_a_single_byte_lets_the_host_live(short_folder: Path, repository: Path) -> None:
    """https://github.com/docker/desktop-feedback/issues/105"""
    with cramped(short_folder / "disk", "1200m") as disk:
        home = Home(disk.folder / "home")
        home.prepare()
        desk = Desk(home, repository)
        install = desk.runtime.context.store.install_id
        try:
            session = desk.start("echo began; while [ ! -e go ]; do sleep 0.1; done; seq 1 50000; echo the end")
            wait_for(lambda: "began" in desk.text(session))
            disk.fill()
            desk.shell(session, "touch /workspace/go")
            time.sleep(3)  # writes of every kind fail meanwhile; there is no sign to wait for: nothing can be written
            disk.empty()
            assert desk.settle(session).state is PromptState.FINISHED
            assert "50000\nthe end" in desk.text(session)
            assert desk.runtime.audit.verify().ok
        finally:
            desk.runtime.close()
            sweep(install)


@pytest.mark.timeout(400)
def test_twenty_sessions_at_once(desk: Desk) -> None:
    """https://github.com/agent-of-empires/agent-of-empires/pull/971"""
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    sessions = [
        desk.start(f"echo {number} > mine; git add mine; git commit -qm {number}; git push -q") for number in range(20)
    ]
    for number, session in enumerate(sessions):
        assert desk.settle(session, 300).state is PromptState.FINISHED
        assert git(desk.home.mirror(desk.project.id), "show", f"{session.id}:mine") == str(number)
    for session in sessions:
        desk.runtime.sessions.remove(session.id)
    wait_for(lambda: desk.runtime.sessions.list() == [], 300)
    assert len(list(Path("/proc/self/fd").iterdir())) < descriptors + 40


def test_an_image_with_a_volume_leaves_no_anonymous_volumes(desk: Desk) -> None:
    """https://github.com/dotnet/crank/pull/884 and https://github.com/agent-of-empires/agent-of-empires/pull/1066"""
    (desk.repository / "kortix.yaml").write_text(SLOW)
    (desk.repository / "sandbox").mkdir()
    (desk.repository / "sandbox" / "Dockerfile").write_text("FROM kortix-base\nVOLUME /data /cache\n")
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", "Volumes")
    before = _anonymous()
    for _ in range(2):
        session, prompt = desk.run("true")
        assert prompt.state is PromptState.FINISHED
        desk.gone(session)
    assert not _anonymous() - before


def _anonymous() -> set[str]:
    listed = subprocess.run(["docker", "volume", "ls", "-q"], capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split() if len(name) == 64}
