"""`--wait`: the exit status says how the turn ended, whoever is the host."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from desk import wait_for
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.store.records import RecordWriter

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    made.lead()
    made.project()
    yield made
    made.close()


@contextmanager
def host(seeded: Seeded, answer: Callable[[str, str], None]) -> Iterator[None]:
    """Answer the next prompt as a host would, in a thread of its own."""

    def act() -> None:
        def newest() -> object:
            return seeded.store.one(
                "SELECT id, session_id FROM prompts WHERE state = 'queued' ORDER BY created_at DESC"
            )

        found = wait_for(newest)
        assert isinstance(found, tuple)
        answer(found[0], found[1])

    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join(30)


def new(*options: str) -> int:
    return run(["sessions", "new", "-p", "Do it", "--wait", *options])


def test_0_when_the_turn_finished(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    def finish(prompt: str, session: str) -> None:
        seeded.set("sessions", session, status="running")
        writer = RecordWriter(seeded.home.records(session))
        writer.append(
            at=datetime.now(UTC), source="sandbox", kind="output", stream="stdout", turn=prompt, text="work\n"
        )
        writer.close()
        seeded.change(session)
        seeded.set("prompts", prompt, state="finished", exit_code=0)

    with host(seeded, finish):
        assert new() == 0
    captured = capsys.readouterr()
    session = captured.out.strip()
    assert f"kortix: Session {session}.\nwork\n" in captured.err
    assert "Change request acme#1 is open: kortix cr diff acme#1" in captured.err


def test_1_when_it_failed_with_the_reason(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(prompt: str, session: str) -> None:
        seeded.set("prompts", prompt, state="failed", exit_code=7, message="The agent ended with exit status 7.")

    with host(seeded, fail):
        assert new("--json") == 1
    captured = capsys.readouterr()
    assert json.loads(captured.out)["project"] == "acme"
    assert "The agent ended with exit status 7." in captured.err


def test_1_when_the_session_failed_before_its_turn(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(prompt: str, session: str) -> None:
        seeded.set("sessions", session, status="failed", wanted="stopped", reason_text="No Docker engine answers.")

    with host(seeded, fail):
        assert new() == 1
    assert "No Docker engine answers." in capsys.readouterr().err


def test_3_when_a_person_is_needed(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    def ask(prompt: str, session: str) -> None:
        seeded.set("prompts", prompt, state="running")
        seeded.set("sessions", session, status="running", activity="waiting")

    with host(seeded, ask):
        assert new() == 3
    assert "waits for you" in capsys.readouterr().err


def test_124_when_the_time_is_over_and_the_session_goes_on(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    assert new("--timeout", "0.2s") == 124
    assert "goes on" in capsys.readouterr().err
    assert seeded.one("SELECT wanted FROM sessions") == ("running",)


def test_130_when_interrupted_and_the_session_goes_on(seeded: Seeded) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "sessions", "new", "-p", "Do it", "--wait"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    wait_for(lambda: seeded.store.one("SELECT 1 FROM prompts"))
    assert process.stderr is not None
    assert process.stderr.readline().startswith("kortix: Session k")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert " goes on. Stop it: kortix sessions stop k" in error
    assert "Traceback" not in error
    assert seeded.one("SELECT wanted FROM sessions") == ("running",)


def test_chat_waits_for_its_own_prompt(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    writer = RecordWriter(seeded.home.records(session))
    writer.append(at=datetime.now(UTC), source="sandbox", kind="output", stream="stdout", turn="old", text="earlier\n")
    first = seeded.one("SELECT id FROM prompts")[0]
    seeded.set("prompts", str(first), state="finished")

    def finish(prompt: str, of: str) -> None:
        assert of == session
        writer.append(at=datetime.now(UTC), source="sandbox", kind="output", stream="stdout", turn=prompt, text="now\n")
        seeded.set("prompts", prompt, state="finished")

    with host(seeded, finish):
        assert run(["sessions", "chat", session, "-p", "More", "--wait"]) == 0
    writer.close()
    error = capsys.readouterr().err
    assert "now\n" in error and "earlier" not in error


def test_waiting_for_a_stop(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()

    def stop() -> None:
        wait_for(lambda: seeded.one("SELECT wanted FROM sessions") == ("stopped",))
        seeded.set("sessions", session, status="stopped")

    thread = threading.Thread(target=stop)
    thread.start()
    assert run(["sessions", "stop", session, "--wait"]) == 0
    thread.join(30)
    assert f"Session {session} is stopped." in capsys.readouterr().err


def test_a_removal_that_could_not_save_the_work_says_so(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()

    def refuse() -> None:
        wait_for(lambda: seeded.one("SELECT wanted FROM sessions") == ("removed",))
        seeded.set("sessions", session, status="failed", wanted="stopped", reason_text="Not removed: not saved.")

    thread = threading.Thread(target=refuse)
    thread.start()
    assert run(["sessions", "rm", session, "--yes", "--wait"]) == 1
    thread.join(30)
    assert "Not removed: not saved." in capsys.readouterr().err
