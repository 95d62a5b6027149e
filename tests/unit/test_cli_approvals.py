"""`kortix review` about calls: all that would be sent is shown, and only a person at a terminal decides."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from at_terminal import AtTerminal
from call_desk import Desk

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run

SHOWN = ("POST https://billing.example/v1/refunds", "content-type: application/json", '"amount": 4200', "unverified",
         "twice ‹U+202E›", "connector rule 1: match *", "none was approved before")  # fmt: skip


@pytest.fixture
def desk(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    for name in ("CLAUDECODE", "CLAUDE_CODE", "GEMINI_CLI"):
        monkeypatch.delenv(name, raising=False)
    made = Desk(home)
    yield made
    made.seeded.close()


def test_it_is_listed_and_shown_whole(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    digest = desk.ask()
    desk.ask(2, "delete_customer", "destructive")
    assert run(["review", "ls"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows[1:]] == ["call_2", "call_1"]
    assert "destructive" in rows[1]
    assert run(["review", "show", "call_1"]) == 0
    out = capsys.readouterr().out
    for words in (*SHOWN, digest):
        assert words in out
    assert run(["review", "show", "call_1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["digest"] == digest


def test_a_person_types_it(desk: Desk) -> None:
    desk.ask()
    with AtTerminal("review", "act", "call_1", "approve", rows=60) as terminal:
        terminal.see("Type «approve»")
        terminal.type("yes\n")
        terminal.see("Nothing was decided")
        assert terminal.end() == 1
    assert desk.state() == ("pending", None)
    with AtTerminal("review", "act", "call_1", "approve", rows=60) as terminal:
        screen = terminal.see("Type «approve»")
        for words in SHOWN:
            assert words in screen.decode()
        terminal.type("approve\n")
        terminal.see("Approved billing.create_refund; it is sent once.")
        assert terminal.end() == 0
    assert desk.state() == ("approved", None)


def test_what_destroys_is_typed_by_name_and_denied_with_a_note(desk: Desk) -> None:
    desk.ask(1, "delete_customer", "destructive")
    with AtTerminal("review", "act", "call_1", "approve", rows=60) as terminal:
        terminal.see("Type «delete_customer»")
        terminal.type("approve\n")
        terminal.see("Nothing was decided")
        assert terminal.end() == 1
    with AtTerminal("review", "act", "call_1", "deny", "--note", "ask first", rows=60) as terminal:
        terminal.see("Deny it? [y/N]")
        terminal.type("y\n")
        terminal.see("Denied billing.delete_customer")
        assert terminal.end() == 0
    assert desk.state() == ("denied", "ask first")


def test_it_is_remembered_by_its_shape(desk: Desk) -> None:
    desk.ask()
    with AtTerminal(
        "review", "act", "call_1", "approve", "--remember", "amount", "--times", "3", "--for", "2h", rows=60
    ) as terminal:
        terminal.see("Up to 3 calls of this session")
        terminal.see("Type «approve»")
        terminal.type("approve\n")
        terminal.see("Approved billing.create_refund")
        assert terminal.end() == 0
    assert desk.seeded.one("SELECT arguments, most, from_call FROM call_rules") == ('{"amount":4200}', 3, "call_1")


def test_without_a_terminal_nothing_is_decided(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    digest = desk.ask()
    assert run(["review", "act", "call_1", "approve"]) != 0
    assert "needs a terminal" in capsys.readouterr().err
    assert run(["review", "act", "call_1", "approve", "--digest", digest]) != 0
    assert "decisions.unattended" in capsys.readouterr().err
    assert desk.state() == ("pending", None)


def test_an_agents_shell_is_refused_unasked(desk: Desk) -> None:
    desk.ask()
    with AtTerminal("review", "act", "call_1", "approve", CLAUDECODE="1") as terminal:
        terminal.see("is for people")
    assert desk.state() == ("pending", None)


def test_another_digest_is_refused(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.ask()
    assert run(["review", "act", "call_1", "approve", "--digest", "0" * 64]) != 0
    assert "would not send what that digest says" in capsys.readouterr().err
    assert run(["review", "act", "call_1", "deny", "--digest", "0f"]) != 0
    assert desk.state() == ("pending", None)


def test_verdicts_of_other_kinds_do_not_fit(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.ask()
    assert run(["review", "act", "call_1", "merge"]) != 0
    assert "`approve` or `deny`" in capsys.readouterr().err
