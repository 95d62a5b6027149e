"""Cases from the field: work, statuses and processes that must survive what people and machines do to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import desk as desk_module
import pytest
from desk import Desk, git, wait_for

from kortix_tui.base.words import Activity, PromptState, SessionStatus
from kortix_tui.runtime.views import SessionView

pytestmark = pytest.mark.docker
DOOMED = Path(desk_module.__file__).with_name("doomed_host.py")


def host(desk: Desk, where: str = "never") -> subprocess.Popen[bytes]:
    environment = {**os.environ, "KORTIX_HOME": str(desk.home.path)}
    return subprocess.Popen([sys.executable, str(DOOMED), where], env=environment)


def end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def rescued(desk: Desk, session: SessionView, name: str) -> str:
    ref = desk.runtime.sessions.show(session.id).rescues[-1].ref
    return git(desk.home.mirror(desk.project.id), "show", f"{ref}:{name}")


def test_a_killed_host_and_a_restarted_container_lose_no_uncommitted_work(desk: Desk) -> None:
    """https://github.com/BloopAI/vibe-kanban/issues/880 and https://github.com/docker/sbx-releases/issues/413"""
    desk.runtime.stop_hosting()
    ensure, desk.runtime.context.ensure_host = desk.runtime.context.ensure_host, lambda: None
    session = desk.start("echo precious > never-committed.txt; echo began; sleep 1000")
    process = host(desk)
    wait_for(lambda: "began" in desk.text(session))
    end(process)
    subprocess.run(["docker", "restart", "-t", "1", f"kortix-{session.id}"], check=True, capture_output=True)
    desk.runtime.context.ensure_host = ensure
    desk.runtime.start_hosting()
    assert desk.settle(session).state in (PromptState.FAILED, PromptState.UNKNOWN)
    assert rescued(desk, session, "never-committed.txt") == "precious"
    assert desk.say(session, "cat never-committed.txt").state is PromptState.FINISHED


def test_commits_made_behind_our_back_survive_removal(desk: Desk) -> None:
    """https://github.com/anthropics/claude-code/issues/79899: git is asked, not memory."""
    session, _ = desk.run("true")
    desk.shell(session, "cd /workspace && echo precious > five && git add five && git commit -qm Five")
    desk.gone(session)
    assert rescued(desk, session, "five") == "precious"


def test_the_warning_before_a_removal_names_what_is_lost(desk: Desk) -> None:
    """https://github.com/microsoft/vscode/issues/286100 and https://github.com/docker/sbx-releases/issues/562"""
    session, _ = desk.run("true")
    assert "lost" in desk.runtime.sessions.removal_preview(session.id).note


def test_files_are_there_after_the_second_and_third_resume(desk: Desk) -> None:
    """https://github.com/e2b-dev/E2B/issues/884 and https://github.com/e2b-dev/E2B/issues/736"""
    session, _ = desk.run("echo 0 >> ~/log; echo 0 >> ignored; echo ignored > .gitignore")
    for number in (1, 2, 3):
        desk.runtime.sessions.stop(session.id)
        desk.until(session, SessionStatus.STOPPED)
        desk.say(session, f"echo {number} >> ~/log; echo {number} >> ignored; cat ~/log ignored | tr -d '\\n'; echo")
    assert "01230123\n" in desk.text(session)


def test_a_container_that_somebody_collected_does_not_leave_its_session_starting_for_ever(desk: Desk) -> None:
    """https://github.com/OpenHands/OpenHands/issues/12684"""
    session, _ = desk.run("echo kept > f")
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    subprocess.run(["docker", "rm", "-f", f"kortix-{session.id}"], check=True, capture_output=True)
    assert desk.say(session, "cat f").state is PromptState.FINISHED
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    subprocess.run(["docker", "rm", "-f", f"kortix-{session.id}"], check=True, capture_output=True)
    volumes = [f"kortix-{session.id}-{role}" for role in ("workspace", "home", "journal")]
    subprocess.run(["docker", "volume", "rm", *volumes], check=True, capture_output=True)
    assert desk.say(session, "test -e f || echo a new clone; cat hello.txt").state is PromptState.FINISHED
    assert "a new clone\nhello" in desk.text(session)


def test_a_disk_that_was_taken_away_under_a_running_turn_does_not_run_it_twice(desk: Desk) -> None:
    """https://github.com/docker/sbx-releases/issues/109"""
    session = desk.start("echo ran; sleep 1000")
    wait_for(lambda: "ran" in desk.text(session))
    subprocess.run(["docker", "rm", "-f", f"kortix-{session.id}"], check=True, capture_output=True)
    volumes = [f"kortix-{session.id}-{role}" for role in ("workspace", "home", "journal")]
    subprocess.run(["docker", "volume", "rm", "-f", *volumes], capture_output=True)
    desk.until(session, SessionStatus.STOPPED)
    assert desk.last(session).state is PromptState.UNKNOWN
    assert desk.text(session).count("ran\n") == 1


def test_five_sandboxes_of_a_killed_host_are_found_by_their_labels(desk: Desk) -> None:
    """https://github.com/traceroot-ai/traceroot/issues/2101"""
    desk.runtime.stop_hosting()
    ensure, desk.runtime.context.ensure_host = desk.runtime.context.ensure_host, lambda: None
    sessions = [desk.start(f"echo began {number}; sleep 3; echo done {number}") for number in range(5)]
    process = host(desk)
    wait_for(lambda: all("began" in desk.text(session) for session in sessions), 120)
    end(process)
    desk.runtime.context.ensure_host = ensure
    desk.runtime.start_hosting()
    for number, session in enumerate(sessions):
        assert desk.settle(session).state is PromptState.FINISHED
        assert desk.text(session).count(f"done {number}\n") == 1
        assert desk.view(session).status is SessionStatus.RUNNING


def test_a_queue_of_three_survives_a_killed_host(desk: Desk) -> None:
    """https://github.com/microsoft/vscode/issues/317129"""
    desk.runtime.stop_hosting()
    ensure, desk.runtime.context.ensure_host = desk.runtime.context.ensure_host, lambda: None
    session = desk.start("echo first; sleep 2")
    for word in ("second", "third"):
        desk.runtime.sessions.prompt(session.id, f"echo {word}", queue=True)
    process = host(desk)
    wait_for(lambda: "first" in desk.text(session))
    end(process)
    desk.runtime.context.ensure_host = ensure
    desk.runtime.start_hosting()
    desk.settle(session)
    text = desk.text(session)
    assert text.index("first\n") < text.index("second\n") < text.index("third\n")


def test_a_helper_that_goes_on_is_not_work_and_a_session_tells_since_when_it_idles(desk: Desk) -> None:
    """agent-of-empires#3712 and https://github.com/Untrivial-ai/agent-orchestrator/issues/2641"""
    session, _ = desk.run("nohup sleep 1000 >/dev/null 2>&1 & echo started")
    assert session.activity is Activity.IDLE
    since = session.active_at
    desk.shell(session, "true")
    assert desk.view(session).active_at == since


def test_a_broken_connection_during_a_turn_changes_no_status(desk: Desk) -> None:
    """https://github.com/PocketShell-io/pocketshell/issues/1570 and https://github.com/coder/coder/issues/19893"""
    session = desk.start("for i in $(seq 60); do echo line $i; sleep 0.1; done")
    wait_for(lambda: "line 5\n" in desk.text(session))
    desk.restart()  # every connection is gone, and comes back
    seen = set[tuple[SessionStatus, Activity]]()
    while desk.last(session).state is PromptState.RUNNING:
        view = desk.view(session)
        if desk.last(session).state is PromptState.RUNNING:
            seen.add((view.status, view.activity))
        time.sleep(0.05)
    assert seen == {(SessionStatus.RUNNING, Activity.WORKING)}
    lines = [line for line in desk.text(session).splitlines() if line.startswith("line ")]
    assert lines == [f"line {number}" for number in range(1, 61)]


def test_a_frozen_sandbox_hangs_nothing_else(desk: Desk) -> None:
    """https://github.com/docker/sbx-releases/issues/163 and https://github.com/e2b-dev/E2B/pull/1203"""
    frozen, _ = desk.run("true")
    other, _ = desk.run("true")
    subprocess.run(["docker", "pause", f"kortix-{frozen.id}"], check=True, capture_output=True)
    desk.runtime.sessions.prompt(frozen.id, "echo thawed", queue=True)
    assert desk.say(other, "echo fine").state is PromptState.FINISHED
    subprocess.run(["docker", "unpause", f"kortix-{frozen.id}"], check=True, capture_output=True)
    assert desk.settle(frozen).state is PromptState.FINISHED


def test_every_process_of_a_wrapped_agent_ends_with_its_turn(desk: Desk) -> None:
    """https://github.com/OpenHands/software-agent-sdk/issues/4901 and wso2/labs-agentic-engineer#717"""
    session = desk.start('sh -c \'trap "" TERM; sh -c "sleep 4321; true"; true\' & echo began; wait')
    wait_for(lambda: "began" in desk.text(session))
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    assert subprocess.run(["pgrep", "-f", "sleep 4321"], capture_output=True).returncode == 1


def test_a_wrapper_script_as_agent_keeps_its_status(desk: Desk) -> None:
    """https://github.com/agent-of-empires/agent-of-empires/pull/2030"""
    (desk.repository / "run.sh").write_text("#!/bin/sh\nsh -s\nexit $?\n")
    (desk.repository / "run.sh").chmod(0o755)
    text = (desk.repository / "agents" / "script.md").read_text()
    (desk.repository / "agents" / "script.md").write_text(text.replace("[sh, -s]", "[./run.sh]"))
    git(desk.repository, "add", "-A")
    git(desk.repository, "commit", "-qm", "Wrap")
    _, prompt = desk.run("exit 9")
    assert prompt.state is PromptState.FAILED and prompt.exit_code == 9


def test_the_supervisors_environment_holds_no_secret_and_is_not_the_agents_to_read(desk: Desk) -> None:
    """https://github.com/inflexa-ai/inflexa/issues/88"""
    session, _ = desk.run(
        "cat /proc/1/environ && echo read; cat /proc/7/environ; cat /var/lib/kortix/channel.key; true"
    )
    text = desk.text(session)
    key = desk.runtime.context.store.one("SELECT channel_key FROM sessions WHERE id = ?", (session.id,))
    assert key and key[0] and key[0] not in text and "KORTIX_TOKEN" not in text


@pytest.mark.parametrize("stage", ["provisioning", "working", "idle"])
def test_a_sandbox_that_is_killed_at_any_stage_comes_to_a_sound_end(desk: Desk, stage: str) -> None:
    """https://github.com/OpenHands/OpenHands-Cloud/issues/40"""
    session = desk.start("echo precious > f; echo began; sleep 2")
    name = f"kortix-{session.id}"

    def kill() -> bool:
        return subprocess.run(["docker", "kill", name], capture_output=True).returncode == 0

    if stage == "provisioning":
        wait_for(kill)
    elif stage == "working":
        wait_for(lambda: "began" in desk.text(session))
        kill()
    else:
        desk.settle(session)
        kill()
    view = wait_for(
        lambda: (v := desk.view(session)).status in (SessionStatus.STOPPED, SessionStatus.FAILED) and v, 120
    )
    assert isinstance(view, SessionView) and view.reason_text
    desk.runtime.sessions.resume(session.id)
    wait_for(lambda: desk.view(session).status is SessionStatus.RUNNING)
    assert desk.say(session, "echo alive").state is PromptState.FINISHED
    desk.gone(session)


def test_a_stop_and_a_resume_at_once_end_in_a_running_session(desk: Desk) -> None:
    session, _ = desk.run("true")
    for _ in range(3):
        desk.runtime.sessions.stop(session.id)
        desk.runtime.sessions.resume(session.id)
    desk.runtime.sessions.prompt(session.id, "echo alive", queue=True)
    assert desk.settle(session).state is PromptState.FINISHED
    wait_for(lambda: desk.view(session).status is SessionStatus.RUNNING)


def test_prompts_in_the_moment_of_idle_stops_are_all_answered(desk: Desk) -> None:
    session, _ = desk.run("true", idle_minutes=0.01)
    for number in range(6):
        time.sleep(0.55 + number * 0.02)  # about when it falls idle
        desk.runtime.sessions.prompt(session.id, f"echo answer {number}", queue=True)
    desk.settle(session)
    assert all(f"answer {number}\n" in desk.text(session) for number in range(6))


def test_removing_a_working_session_ends_the_turn_and_saves_the_work(desk: Desk) -> None:
    session = desk.start("echo precious > f; echo began; sleep 1000")
    wait_for(lambda: "began" in desk.text(session))
    desk.gone(session)
    assert rescued(desk, session, "f") == "precious"
    assert desk.last(session).state in (PromptState.FAILED, PromptState.UNKNOWN)


def test_hand_over_while_a_turn_ends(desk: Desk) -> None:
    """https://github.com/vals-ai/Valkyrie/pull/217"""
    session = desk.start("echo precious > f; exit 4")
    for _ in range(8):
        desk.restart()
    assert desk.settle(session).exit_code == 4
    assert rescued(desk, session, "f") == "precious"


def test_a_read_only_home_fails_loudly(short_folder: Path) -> None:
    """https://github.com/OpenHands/OpenHands/issues/16511"""
    folder = short_folder / "ro"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,ro", "none", str(folder)], check=True)
    try:
        environment = {**os.environ, "KORTIX_HOME": str(folder / "home")}
        command = [sys.executable, "-m", "kortix_tui.cli.main", "sessions", "ls"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    finally:
        subprocess.run(["umount", str(folder)], check=True)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "ead-only" in done.stderr and str(folder) in done.stderr


def test_a_host_ended_by_a_signal_leaves_its_sandboxes_to_the_next(desk: Desk) -> None:
    """https://github.com/OpenHands/OpenHands/issues/1791: what runs on is listed, and can be ended."""
    desk.runtime.stop_hosting()
    ensure, desk.runtime.context.ensure_host = desk.runtime.context.ensure_host, lambda: None
    session = desk.start("echo began; sleep 1000")
    process = host(desk)
    wait_for(lambda: "began" in desk.text(session))
    process.send_signal(signal.SIGTERM)
    process.wait()
    assert [view.id for view in desk.runtime.sessions.list() if view.status is SessionStatus.RUNNING] == [session.id]
    desk.runtime.context.ensure_host = ensure
    desk.runtime.start_hosting()
    desk.gone(session)
