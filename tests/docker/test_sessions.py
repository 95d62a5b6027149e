"""A session's life against the real engine."""

from __future__ import annotations

import subprocess

import pytest
from desk import Desk, git, wait_for

from kortix_tui.base.errors import Refused
from kortix_tui.base.words import Activity, PromptState, SessionStatus

pytestmark = pytest.mark.docker


def test_a_prompt_becomes_a_commit_on_the_sessions_branch(desk: Desk) -> None:
    session, prompt = desk.run("echo more >> hello.txt && git commit -qam More && git push -q && echo pushed")
    assert prompt.state is PromptState.FINISHED and prompt.exit_code == 0
    assert session.status is SessionStatus.RUNNING and session.activity is Activity.IDLE
    assert (session.files, session.additions, session.deletions) == (1, 1, 0)
    assert "pushed" in desk.text(session)
    mirror = desk.home.mirror(desk.project.id)
    assert git(mirror, "show", f"{session.id}:hello.txt") == "hello\nmore"
    assert git(desk.repository, "branch", "--list", session.id) == ""


def test_the_prompt_arrives_by_input_file_and_variable(desk: Desk) -> None:
    # The script itself came by standard input.
    session, prompt = desk.run('printf %s "$KORTIX_PROMPT" | wc -c; wc -c < "$KORTIX_PROMPT_FILE"')
    size = str(len(prompt.text.encode()))
    assert desk.text(session).split().count(size) == 2


def test_a_large_prompt_is_not_in_the_environment(desk: Desk) -> None:
    filler = "# " + "x" * 70_000
    session, prompt = desk.run(f'echo "[${{KORTIX_PROMPT-absent}}]"; wc -c < "$KORTIX_PROMPT_FILE"\n{filler}')
    assert "[absent]" in desk.text(session)
    assert str(len(prompt.text.encode())) in desk.text(session)


def test_a_failed_turn_keeps_its_status_and_the_session(desk: Desk) -> None:
    session, prompt = desk.run("echo oops >&2; exit 7")
    assert prompt.state is PromptState.FAILED and prompt.exit_code == 7
    assert session.status is SessionStatus.RUNNING
    assert desk.say(session, "echo again").state is PromptState.FINISHED


def test_prompts_wait_in_order_and_share_the_clone(desk: Desk) -> None:
    session = desk.start("sleep 1; echo 1 >> order.txt")
    with pytest.raises(Refused, match="--queue"):
        desk.runtime.sessions.prompt(session.id, "echo no")
    for number in (2, 3):
        desk.runtime.sessions.prompt(session.id, f"echo {number} >> order.txt; cat order.txt", queue=True)
    desk.settle(session)
    assert "1\n2\n3\n" in desk.text(session)
    assert [prompt.state for prompt in desk.runtime.sessions.prompts(session.id)] == [PromptState.FINISHED] * 3


def test_a_queued_prompt_can_be_taken_back(desk: Desk) -> None:
    session = desk.start("sleep 2")
    late = desk.runtime.sessions.prompt(session.id, "echo never", queue=True)
    desk.runtime.sessions.remove_prompt(late.id)
    desk.settle(session)
    assert "never" not in desk.text(session)


def test_stop_and_resume_keep_the_disk_and_lose_the_processes(desk: Desk) -> None:
    session, _ = desk.run("echo kept > ignored.txt; echo home > ~/here; nohup sleep 1000 >/dev/null 2>&1 &")
    desk.runtime.sessions.stop(session.id)
    stopped = desk.until(session, SessionStatus.STOPPED)
    assert stopped.reason == "stopped"
    prompt = desk.say(session, "cat ignored.txt ~/here; pgrep sleep || echo none")
    assert prompt.state is PromptState.FINISHED
    assert desk.text(session).endswith("kept\nhome\nnone\n") or "kept\nhome\nnone\n" in desk.text(session)


def test_stopping_ends_a_running_turn(desk: Desk) -> None:
    session = desk.start("echo began; sleep 1000")
    wait_for(lambda: "began" in desk.text(session))
    desk.runtime.sessions.stop(session.id)
    desk.until(session, SessionStatus.STOPPED)
    last = desk.last(session)
    assert last.state is PromptState.FAILED and "Stopped" in (last.message or "")


def test_an_idle_session_stops_by_itself(desk: Desk) -> None:
    session, _ = desk.run("true", idle_minutes=0.02)
    stopped = desk.until(session, SessionStatus.STOPPED)
    assert stopped.reason == "idle" and "without work" in (stopped.reason_text or "")


def test_removal_leaves_no_container_no_volume_and_no_branch(desk: Desk) -> None:
    session, _ = desk.run("echo x > f; git add f; git commit -qm F; git push -q")
    desk.gone(session)
    mark = f"label=kortix.session={session.id}"
    for listing in (["docker", "ps", "-aq"], ["docker", "volume", "ls", "-q"]):
        found = subprocess.run([*listing, "--filter", mark], capture_output=True, text=True, check=True)
        assert found.stdout == ""
    mirror = desk.home.mirror(desk.project.id)
    assert git(mirror, "for-each-ref", f"refs/heads/{session.id}") == ""
    assert git(mirror, "for-each-ref", f"refs/kortix/heads/{session.id}") != ""
    assert desk.runtime.sessions.list() == []
    assert [view.id for view in desk.runtime.sessions.list(removed=True)] == [session.id]


def test_without_repository_access_there_is_no_clone(desk: Desk) -> None:
    session, prompt = desk.run(
        "ls -A | wc -l; git ls-remote http://127.0.0.1:8118/v1/git/repo.git || echo refused", agent="blind"
    )
    assert prompt.state is PromptState.FINISHED
    assert desk.text(session).startswith("Building") or "0\n" in desk.text(session)
    assert "refused" in desk.text(session)


def test_no_secret_is_in_the_containers_configuration(desk: Desk) -> None:
    session, _ = desk.run("echo $KORTIX_TOKEN")
    token = desk.text(session).split()[-1]
    assert len(token) == 64
    shown = subprocess.run(["docker", "inspect", f"kortix-{session.id}"], capture_output=True, text=True, check=True)
    assert token not in shown.stdout
