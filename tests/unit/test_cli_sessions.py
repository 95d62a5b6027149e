"""`kortix sessions` on rows in a store; the host is the test."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from desk import git
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.repository.mirror import Mirror
from kortix_tui.runtime import context, listing
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.listing import session_lines
from kortix_tui.runtime.views import BUILD_MARK
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.records import RecordWriter


@pytest.fixture
def seeded(home: Home) -> Iterator[Seeded]:
    made = Seeded(home)
    made.lead()
    made.project()
    yield made
    made.close()


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> pytest.CaptureFixture[str]:
    return capsys


def ok(*arguments: str) -> None:
    assert run(list(arguments)) == 0


# Lists


def test_an_empty_list_says_so_beside_the_output(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    ok("sessions", "ls")
    assert printed.readouterr() == ("", "kortix: There are no sessions yet.\n")
    ok("sessions", "ls", "--json")
    assert json.loads(printed.readouterr().out) == []


def test_a_list_can_be_cut_to_a_status(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    busy = seeded.session(activity="working", title="Busy")
    idle = seeded.session(activity="idle", title="Idle")
    # What a session did last says nothing once it has stopped.
    done = seeded.session(status="stopped", activity="working", title="Done")
    gone = seeded.session(status="stopped", removed_at="2026-01-01T00:00:00.000000Z", title="Gone")
    wanted = {"running": {busy, idle}, "working": {busy}, "stopped": {done}, "removed": {gone}, "failed": set()}
    for status, sessions in wanted.items():
        ok("sessions", "ls", "--status", status, "--json")
        assert {each["id"] for each in json.loads(printed.readouterr().out)} == sessions
        ok("sessions", "ls", "--status", status)
        out, error = printed.readouterr()
        assert {line.split()[0] for line in out.splitlines()[1:]} == sessions
        assert sessions or error == "kortix: There are no sessions that fit.\n"
    assert run(["sessions", "ls", "--status", "dead"]) == 2


def test_the_short_way_and_the_long_way_print_the_same(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    busy = seeded.session(activity="working", files=2, additions=10, deletions=3, title="One")
    seeded.prompt(busy, "next")
    done = seeded.session(status="stopped", title="Two")
    seeded.change(done, status="merged")
    seeded.rescue(done)
    seeded.session(status="failed", title="Three")
    assert session_lines(seeded.home) is None  # not recorded as read yet
    ok("sessions", "ls")
    long_way = printed.readouterr().out
    lines = session_lines(seeded.home)
    assert lines is not None
    assert {line.title for line in lines} == {"One", "Two", "Three"}
    ok("sessions", "ls")
    assert printed.readouterr().out == long_way
    assert "working" in long_way and "+10 -3" in long_way and "#1 merged" in long_way


def test_the_short_way_knows_the_actor_and_the_window_of_the_long_way(seeded: Seeded) -> None:
    assert listing.READ_WINDOW == context.READ_WINDOW
    ok("sessions", "ls")
    assert seeded.one("SELECT performed_by FROM seen WHERE event = 'session.list'") == (operator_actor("cli").label,)
    assert session_lines(seeded.home) == []
    assert session_lines(seeded.home, now=datetime.now(UTC) + listing.READ_WINDOW * 2) is None


def test_the_short_way_is_not_taken_where_the_home_needs_a_look(seeded: Seeded, tmp_path: Path) -> None:
    ok("sessions", "ls")
    assert session_lines(Home(tmp_path / "absent")) is None
    seeded.home.path.chmod(0o755)
    assert session_lines(seeded.home) is None
    seeded.home.path.chmod(0o700)
    seeded.store.connection.execute("PRAGMA user_version = 99")
    assert session_lines(seeded.home) is None


def test_reading_is_recorded_once_however_often_it_is_listed(seeded: Seeded) -> None:
    for _ in range(3):
        ok("sessions", "ls")
    assert seeded.one("SELECT count(*) FROM audit WHERE event = 'session.list'") == (1,)


def test_json_has_the_whole_view(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    ok("sessions", "ls", "--json")
    (row,) = json.loads(printed.readouterr().out)
    assert (row["id"], row["project"], row["status"], row["queued"], row["change"]) == (
        session,
        "acme",
        "running",
        1,
        None,
    )
    assert row["created_at"].endswith("Z")


def test_filter_project_and_all(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    seeded.project("other")
    seeded.session(title="Red")
    seeded.session("prj_other", title="Blue")
    seeded.session(title="Gone", removed_at="2026-01-01T00:00:00.000Z")
    ok("sessions", "ls", "--filter", "rED")
    assert printed.readouterr().out.count("\n") == 2
    ok("sessions", "ls", "--project", "other", "--json")
    assert [row["title"] for row in json.loads(printed.readouterr().out)] == ["Blue"]
    ok("sessions", "ls", "-a")
    assert "removed" in printed.readouterr().out
    assert run(["sessions", "ls", "--project", "nope"]) == 1
    assert "acme, other" in printed.readouterr().err


def test_hostile_text_is_visible_everywhere(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b]52;c;eA==\x07 \u202e\x9b31m"
    session = seeded.session(title=evil, reason_text=evil, agent=evil, prompt=f"{evil}\nmore")
    seeded.change(session, title=evil)
    for arguments in (
        ["ls"],
        ["ls", "-a"],
        ["show", session],
        ["queue", "ls", session],
        ["ls", "--json"],
        ["show", session, "--json"],
    ):
        ok("sessions", *arguments)
        out = printed.readouterr().out
        assert not set(out) & {"\x1b", "\x07", "\u202e", "\x9b"}, arguments


# One session


def test_show_says_what_was_rescued_and_how_to_get_it(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session(reason_text="Stopped after 15 min.", base_commit="d" * 40)
    seeded.change(session)
    seeded.rescue(session)
    ok("sessions", "info", session[:5])
    out = printed.readouterr().out
    mirror = seeded.home.mirror("prj_acme")
    assert f"git fetch {mirror} refs/kortix/rescue/{session}/1 && git switch -c rescued-{session}-1 FETCH_HEAD" in out
    assert f"kortix sessions rescue join {session} 1" in out
    assert "Stopped after 15 min." in out and "acme#1  open" in out and "main at dddddddddddd" in out
    ok("sessions", "show", session, "--json")
    assert json.loads(printed.readouterr().out)["rescues"][0]["files"] == 2
    ok("sessions", "rescue", "ls", session, "--json")
    assert json.loads(printed.readouterr().out)[0]["ref"] == f"refs/kortix/rescue/{session}/1"


def test_logs_print_output_as_it_is_and_mark_the_rest(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    now = datetime.now(UTC)
    writer = RecordWriter(seeded.home.records(session))
    writer.append(at=now, source="host", kind="note", text="Sandbox ready.")
    writer.append(at=now, source="sandbox", kind="state", data={"name": "clone_done", "message": ""})
    writer.append(at=now, source="sandbox", kind="output", stream="stdout", turn="t", text="one\ntw")
    writer.append(at=now, source="sandbox", kind="output", stream="stdout", turn="t", text="o \x1b[31mred\x1b[0m\n")
    writer.append(at=now, source="sandbox", kind="output", stream="stdout", turn="t", text="cut")
    writer.append(at=now, source="sandbox", kind="output", stream="stderr", turn="t", text="error\n")
    writer.append(at=now, source="sandbox", kind="turn_ended", turn="t", data={"reason": "exited", "exit_code": 0})
    writer.close()
    ok("sessions", "log", session)
    lines = printed.readouterr().out.splitlines()
    assert lines[:2] == ["· Sandbox ready.", "· The repository is cloned."]
    assert lines[2:] == ["one", "two red", "cut", "error", "· The agent ended with exit status 0."]
    ok("sessions", "logs", session, "--tail", "2")
    assert printed.readouterr().out == "error\n· The agent ended with exit status 0.\n"
    ok("sessions", "logs", session, "-t")
    stamp = f"{now.astimezone():%H:%M:%S} "
    assert printed.readouterr().out.splitlines()[2:4] == [f"{stamp}one", f"{stamp}two red"]


def test_what_a_build_printed_is_shown_only_when_wanted(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session, now = seeded.session(), datetime.now(UTC)
    writer = RecordWriter(seeded.home.records(session))
    writer.append(at=now, source="host", kind="note", text="Building the image of template tools; this happens once.")
    writer.append(at=now, source="host", kind="note", text=f"{BUILD_MARK}Step 1/4 : FROM kortix-base")
    writer.append(at=now, source="sandbox", kind="note", text=f"{BUILD_MARK}a note of the agent hides nowhere")
    for name in ("clone_started", "clone_done", "ready"):
        writer.append(at=now, source="sandbox", kind="state", data={"name": name, "message": ""})
    writer.close()
    ok("sessions", "logs", session)
    plain = printed.readouterr().out.splitlines()
    assert plain == [
        "· Building the image of template tools; this happens once.", "· │ a note of the agent hides nowhere",
        "· Cloning the repository.", "· The repository is cloned.",
    ]  # fmt: skip
    ok("sessions", "logs", "--verbose", session)
    assert printed.readouterr().out.splitlines() == [plain[0], "│ Step 1/4 : FROM kortix-base", *plain[1:]]


def test_rescued_work_that_the_branch_has_is_not_offered_again(
    seeded: Seeded, repository: Path, printed: pytest.CaptureFixture[str]
) -> None:
    head, mirror = git(repository, "rev-parse", "HEAD"), seeded.home.mirror("prj_acme")
    asyncio.run(Mirror.create_from(mirror, str(repository)))
    session = seeded.session(status="stopped", reason="stopped", head_commit=head)
    seeded.rescue(session, 1)
    seeded.rescue(session, 2)
    with seeded.store.write() as tx:
        tx.execute("UPDATE rescues SET commit_id = ? WHERE n = 2", (head,))
        tx.audit("test.change", scope="rescue", actor=SYSTEM)
    ok("sessions", "show", session, "--json")
    assert json.loads(printed.readouterr().out)["joined_rescues"] == [2]
    ok("sessions", "show", session)
    page = printed.readouterr().out
    assert f"rescue join {session} 1" in page and f"rescue join {session} 2" not in page
    assert "ago (stop), joined" in page
    assert "Stopped by the operator." in page


def test_following_ends_with_the_session(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    writer = RecordWriter(seeded.home.records(session))

    def host() -> None:
        writer.append(at=datetime.now(UTC), source="host", kind="note", text="Going.")
        writer.close()
        seeded.set("sessions", session, status="stopped", wanted="stopped", reason_text="Stopped by you.")

    timer = threading.Timer(0.3, host)
    timer.start()
    ok("sessions", "logs", "-f", session)
    timer.join()
    captured = printed.readouterr()
    assert captured.out == "· Going.\n"
    assert captured.err == "kortix: Stopped by you.\n"


# Requests


def test_new_stores_the_prompt_and_prints_the_id(
    seeded: Seeded, printed: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ok("sessions", "new", "-p", "Fix the failing test in src/billing and open a change request", "--agent", "reviewer")
    captured = printed.readouterr()
    session = captured.out.strip()
    assert f"kortix sessions logs -f {session}" in captured.err
    assert seeded.one("SELECT agent, wanted, status FROM sessions WHERE id = ?", session) == (
        "reviewer", "running", "provisioning",
    )  # fmt: skip
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("from stdin ü\n".encode())))
    ok("sessions", "new", "-p", "-", "--json", "--idle", "2.5")
    row = json.loads(printed.readouterr().out)
    assert (row["title"], row["idle_minutes"]) == ("from stdin ü", 2.5)


def test_a_prompt_comes_from_a_file(seeded: Seeded, tmp_path: Path, printed: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "task.md"
    file.write_bytes(b"\xef\xbb\xbfDo this\n\nthen that\n")
    ok("sessions", "new", "--prompt-file", str(file))
    session = printed.readouterr().out.strip()
    assert seeded.one("SELECT text FROM prompts WHERE session_id = ?", session) == ("Do this\n\nthen that\n",)
    file.write_bytes(b"\xff\xfe")
    assert run(["sessions", "new", "--prompt-file", str(file)]) == 1
    assert "not valid UTF-8" in printed.readouterr().err
    assert run(["sessions", "new", "--prompt-file", str(tmp_path / "none")]) == 1
    assert "cannot be read: No such file" in printed.readouterr().err
    assert run(["sessions", "new", "-p", "   "]) == 1
    assert "The prompt is empty." in printed.readouterr().err


def test_chat_queues_only_when_asked(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    assert run(["sessions", "chat", session, "-p", "Then run the full test suite"]) == 1
    assert "Add --queue" in printed.readouterr().err
    ok("sessions", "chat", session, "-p", "Then run the full test suite", "--queue")
    ok("sessions", "queue", "ls", session, "--json")
    out = printed.readouterr().out
    assert [prompt["n"] for prompt in json.loads(out[out.index("[") :])] == [1, 2]
    ok("sessions", "queue", "rm", session, "2")
    assert seeded.one("SELECT state FROM prompts WHERE session_id = ? AND n = 2", session) == ("removed",)


def test_stop_resume_and_remove_only_say_what_is_wanted(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    ok("sessions", "stop", session)
    assert printed.readouterr().err == f"kortix: Session {session} will be stopped.\n"
    assert seeded.one("SELECT wanted FROM sessions WHERE id = ?", session) == ("stopped",)
    ok("sessions", "start", session)
    assert seeded.one("SELECT wanted FROM sessions WHERE id = ?", session) == ("running",)
    printed.readouterr()
    assert run(["sessions", "rm", session]) == 1
    assert "Add --yes" in printed.readouterr().err
    ok("sessions", "rm", session, "--yes", "--json")
    assert json.loads(printed.readouterr().out)["wanted"] == "removed"


def test_a_shell_needs_a_terminal(seeded: Seeded, printed: pytest.CaptureFixture[str]) -> None:
    session = seeded.session()
    assert run(["sessions", "shell", session]) == 1
    assert "A shell needs a terminal." in printed.readouterr().err
