"""`kortix demo northwind-support`: twelve replies, each of them stopped until a person has decided."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from at_terminal import AtTerminal
from desk import wait_for

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.runtime.connector_views import ApprovalView
from kortix_tui.runtime.demo import SUPPORT, Demo, found_demos, make_demo, remove_demo, start_demo
from kortix_tui.runtime.demo_desk import HelpDesk
from kortix_tui.runtime.facade import Runtime

pytestmark = pytest.mark.docker
PHISHING, EXPIRES = "T-111", "T-112"
NOTE = "That is phishing | leave it alone."


@pytest.fixture
def folder(home: Home, short_folder: Path) -> Iterator[Path]:
    yield short_folder / "demo"
    for demo in found_demos(short_folder / "demo"):
        remove_demo(demo)


def tickets(folder: Path) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in json.loads((folder / "helpdesk/tickets.json").read_text())}


def sent(folder: Path) -> list[str]:
    return [number for number, one in tickets(folder).items() if "reply" in one]


def expire(folder: Path, ticket: str) -> None:
    """Let the time of the call about a ticket be over."""
    with closing(sqlite3.connect(folder / "home/state.db", timeout=30)) as store, store:
        changed = store.execute(
            "UPDATE calls SET expires_at = created_at WHERE state = 'pending' AND action = 'send_reply'"
            " AND json_extract(arguments, '$.ticket_id') = ?",
            (ticket,),
        )
        assert changed.rowcount == 1


@pytest.mark.timeout(300)
def test_a_person_at_the_terminal_decides_about_each_reply(folder: Path) -> None:
    with AtTerminal("demo", SUPPORT, "--no-console", "--yes", "--home", str(folder), columns=160) as terminal:
        for number in range(101, 113):
            ticket = f"T-{number}"
            page = terminal.see("[l]ater:", 120).decode()
            assert f"/tickets/{ticket}/reply" in page and "connector rule 4" in page
            assert sent(folder) == [f"T-{one}" for one in range(101, min(number, 111))], "it stops at each"
            if ticket == PHISHING:
                terminal.type("n\n")
                terminal.see("What is the agent told?")
                terminal.type(f"{NOTE}\n")
                terminal.see("Denied helpdesk.send_reply")
            elif ticket == EXPIRES:
                terminal.type("l\n")
                terminal.see("review act cal_")
                expire(folder, ticket)
            else:
                terminal.type("y\n")
                terminal.see("Approved helpdesk.send_reply")
        diff = terminal.see("Merge it:").decode()
        assert terminal.end() == 0
    assert "10 of 12 replies were sent" in diff
    row = next(line for line in diff.splitlines() if PHISHING in line and "draft kept" in line)
    assert NOTE.replace("|", "\\|") in row
    after = tickets(folder)
    assert sent(folder) == [f"T-{number}" for number in range(101, 111)]
    assert all(after[one]["status"] == "open" and after[one]["draft"] for one in (PHISHING, EXPIRES))
    assert all(one["reply"]["text"] == one["draft"] for one in after.values() if "reply" in one)
    _is_on_record(folder)


def _is_on_record(folder: Path) -> None:
    with Runtime.open(home=Home(folder / "home")) as runtime:
        project = runtime.projects.find(SUPPORT)
        calls = runtime.calls.list(project=project)
        asked = [one for one in calls if one.action == "send_reply"]
        states = {json.loads(one.arguments)["ticket_id"]: one.state for one in asked}
        assert states.pop(PHISHING) is CallState.DENIED
        assert states.pop(EXPIRES) is CallState.EXPIRED
        assert set(states.values()) == {CallState.DONE} and len(states) == 10
        assert {one.state for one in calls if one not in asked} == {CallState.DONE}
        assert sorted({one.action for one in calls}) == ["get_ticket", "list_tickets", "save_draft", "send_reply"]
        (change,) = runtime.changes.list()
        assert change.title == "Triage the open tickets"
        assert runtime.audit.verify().ok
        assert len(runtime.audit.list(event="connector.approval.approved", limit=100)) == 10


@pytest.mark.timeout(300)
def test_a_later_process_finds_the_desk_and_the_waiting_call_and_no_sandbox_has_the_token(folder: Path) -> None:
    demo = make_demo(folder, SUPPORT)
    with demo.open() as runtime, runtime.hosting():
        session = start_demo(runtime, demo)
        waiting = first_call(runtime)
    desk = HelpDesk(folder / "helpdesk")
    os.kill(json.loads((desk.folder / "process.json").read_text())["pid"], signal.SIGKILL)
    wait_for(lambda: not desk.alive)
    assert_nowhere(demo, f"kortix-{session.id}")
    with Runtime.open(home=demo.home) as runtime, runtime.hosting():  # as `KORTIX_HOME=… kortix` does
        assert desk.alive
        runtime.approvals.decide(
            waiting.id, digest=waiting.digest or "", approve=True, terminal=True, pinned=False
        )  # fmt: skip
        wait_for(lambda: sent(folder) == ["T-101"])
        following = wait_for(lambda: [one for one in runtime.approvals.pending() if one.id != waiting.id])
        assert isinstance(following, list) and "T-102" in following[0].arguments
        runtime.sessions.stop(session.id)
        wait_for(lambda: runtime.sessions.find(session.id).status == "stopped")
        assert sent(folder) == ["T-101"]


def first_call(runtime: Runtime) -> ApprovalView:
    found = wait_for(lambda: runtime.approvals.pending(), 120)
    assert isinstance(found, list)
    view: ApprovalView = found[0]
    assert view.risk == "write" and view.method == "POST" and "T-101" in view.arguments
    assert view.credential is not None and "authorization" in view.credential
    return view


def assert_nowhere(demo: Demo, container: str) -> None:
    """The token is in no file of the demo but the vault's, and not in the sandbox (invariant I2)."""
    assert demo.token is not None
    token = demo.token.use("a test")
    with_token = [path for path in demo.folder.rglob("*") if path.is_file() and token in path.read_bytes()]
    assert with_token == []
    seen = subprocess.run(["docker", "inspect", container], capture_output=True, timeout=60, check=True).stdout
    script = "grep -rsaFl -f - /proc/[0-9]*/environ /proc/[0-9]*/cmdline /workspace /home/agent /tmp /run; echo looked"
    found = subprocess.run(
        ["docker", "exec", "-i", "-u", "1000", container, "sh", "-c", script],
        input=token + b"\n", capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    assert found.stdout == b"looked\n"
    assert token not in seen
