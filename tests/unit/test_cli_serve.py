"""`kortix serve`, `kortix host` and the background host, with nothing that needs an engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import wait_for
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.cli.main import run
from kortix_tui.runtime.background import BackgroundFailed, _only_idle, start_background
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store import lock
from kortix_tui.store.audit import SYSTEM

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    yield made
    leader = lock.holder(made.store)
    if leader is not None and leader.pid != os.getpid():
        os.kill(leader.pid, signal.SIGTERM)
        wait_for(lambda: not lock.is_locked(made.store))
    made.close()


def serve(*options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kortix_tui.cli.main", "serve", *options],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def unfinished(seeded: Seeded) -> None:
    """Work that no host here can end: a request that is never answered."""
    with seeded.store.write() as tx:
        tx.execute(
            "INSERT INTO requests (id, kind, payload, state, actor, created_at)"
            " VALUES ('r', 'x', '{}', 'running', ?, ?)",
            (operator_actor("cli").model_dump_json(), tx.now_text),
        )
        tx.audit("test.request", scope="test", actor=operator_actor("cli"))


def test_it_ends_when_nothing_is_left_to_do(seeded: Seeded) -> None:
    process = serve("--linger", "0.3s")
    out, error = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == "" and "nothing is left to do" in error


def test_it_leads_and_hands_over_on_sigterm(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    process = serve("--linger", "1h")
    wait_for(lambda: lock.is_locked(seeded.store))
    wait_for(lambda: seeded.home.control_socket.exists())
    assert run(["host", "--json"]) == 0
    view = json.loads(capsys.readouterr().out)
    assert (view["host"]["pid"], view["host"]["kind"], view["silent"]) == (process.pid, "serve", False)
    assert run(["host"]) == 0
    assert f"kill {process.pid}" in capsys.readouterr().out
    os.kill(view["host"]["pid"], signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not lock.is_locked(seeded.store)
    assert not seeded.home.control_socket.exists()


def test_a_second_one_stands_by_and_a_background_one_leaves(seeded: Seeded) -> None:
    seeded.lead()
    leaving = serve("--background", "--linger", "1h")
    _, error = leaving.communicate(timeout=60)
    assert leaving.returncode == 0 and "this one is not needed" in error
    standing = serve("--linger", "1h")
    assert standing.stderr is not None
    wait_for(lambda: "stands by" in standing.stderr.readline())
    seeded.leave()
    wait_for(lambda: (leader := lock.holder(seeded.store)) is not None and leader.pid == standing.pid)
    standing.send_signal(signal.SIGTERM)
    standing.communicate(timeout=60)
    assert standing.returncode == 0


def test_a_background_host_leads_in_a_session_of_its_own(seeded: Seeded, monkeypatch: pytest.MonkeyPatch) -> None:
    with Runtime(seeded.home, Settings(), operator_actor("cli")) as runtime:
        started = start_background(runtime.context)
        assert started is not None
        assert lock.holder(seeded.store) is not None
        assert os.getsid(started.pid) == started.pid
        assert os.readlink(f"/proc/{started.pid}/cwd") == "/"
        open_files = {os.readlink(f"/proc/{started.pid}/fd/{name}") for name in ("0", "1", "2")}
        assert open_files == {os.devnull, str(started.log)}
        assert started.log.stat().st_mode & 0o777 == 0o600
        assert start_background(runtime.context) is None  # somebody acts already
        os.kill(started.pid, signal.SIGTERM)
        os.waitpid(started.pid, 0)
        assert "asked to end" in started.log.read_text()


def test_a_background_host_that_cannot_start_says_why(seeded: Seeded) -> None:
    config = seeded.home.path.parent / "config"
    config.mkdir()
    with Runtime(seeded.home, Settings(), operator_actor("cli")) as runtime:
        (config / "config.yaml").write_text("sandbox: {provider: daytona}\n")
        with pytest.raises(BackgroundFailed, match="ended at once") as failure:
            start_background(runtime.context)
    assert "own Docker" in (seeded.home.path / "host.log").read_text()
    assert "host.log" in str(failure.value)


def test_a_command_without_a_host_starts_one_and_says_so(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    seeded.project()
    session = seeded.session(status="stopped", wanted="stopped")
    assert run(["sessions", "queue", "rm", session, "1"]) == 0
    assert "background host" not in capsys.readouterr().err  # nothing is left to do
    unfinished(seeded)
    session = seeded.session(status="stopped", wanted="stopped")
    assert run(["sessions", "queue", "rm", session, "1"]) == 0
    error = capsys.readouterr().err
    leader = lock.holder(seeded.store)
    assert leader is not None
    assert f"A background host goes on with the work (process {leader.pid})" in error
    os.kill(leader.pid, signal.SIGTERM)
    os.waitpid(leader.pid, 0)


def test_for_idle_sessions_alone_it_says_when_they_stop(seeded: Seeded, capsys: pytest.CaptureFixture[str]) -> None:
    seeded.project()
    session = seeded.session(idle_minutes=7)
    with seeded.store.write() as tx:
        tx.execute("UPDATE prompts SET state = 'finished'")
        tx.audit("test.change", scope="prompts", actor=SYSTEM)
    with Runtime(seeded.home, Settings(), operator_actor("cli")) as runtime:
        assert _only_idle(runtime.context) == (1, 7)
        seeded.prompt(session, "More")
        assert _only_idle(runtime.context) == (0, None)
