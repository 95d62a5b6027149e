"""`kortix cr` and `review` on a real mirror and a real source; the host is the command's own process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from at_terminal import AtTerminal
from desk import git
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run


class Proposal:
    """A stopped session whose branch is in the mirror, with its change request."""

    def __init__(self, seeded: Seeded, repository: Path) -> None:
        self.seeded = seeded
        self.repository = repository
        assert run(["projects", "add", str(repository), "--slug", "acme"]) == 0
        self.project = str(seeded.one("SELECT id FROM projects")[0])
        self.mirror = seeded.home.mirror(self.project)
        self.base = git(repository, "rev-parse", "main")
        self.session = seeded.session(
            self.project, status="stopped", wanted="stopped", title="Greet \x1b[2J", files=1, additions=1, deletions=1
        )
        self.head = self.push("hello\x1b]0;evil\x07 world\n")
        seeded.change(
            self.session, project=self.project, title="Greet everybody", base_commit=self.base, head_commit=self.head,
            description="Because.",
        )  # fmt: skip

    def push(self, text: str) -> str:
        """A commit on the session's branch, as it arrives through the door."""
        tree = self.repository.parent / "tree"
        if not tree.exists():
            git(self.repository, "clone", "-q", str(self.repository), str(tree))
        (tree / "hello.txt").write_text(text)
        git(tree, "commit", "-qam", "Greet")
        git(tree, "push", "-q", str(self.mirror), f"HEAD:refs/heads/{self.session}")
        return git(tree, "rev-parse", "HEAD")

    def move(self) -> str:
        """The session pushes again."""
        head = self.push("later\n")
        self.seeded.set("change_requests", f"chg_{self.session}1", head_commit=head)
        return head


@pytest.fixture
def proposal(home: Home, repository: Path) -> Iterator[Proposal]:
    seeded = Seeded(home)
    yield Proposal(seeded, repository)
    seeded.close()


def test_lists_and_the_inbox(proposal: Proposal, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    for arguments in (["cr", "ls", "--json"], ["cr", "ls", "--status", "open", "--json"]):
        assert run(arguments) == 0
        (row,) = json.loads(capsys.readouterr().out)
        assert (row["project"], row["number"], row["head_commit"]) == ("acme", 1, proposal.head)
    assert run(["review", "ls", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["kind"], row["reference"], row["title"]) == ("change request", "acme#1", "Greet everybody")
    assert run(["review", "ls"]) == 0
    assert "acme#1  change request" in capsys.readouterr().out
    assert run(["review", "show", "acme#1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["change"]["number"] == 1
    assert run(["cr", "ls", "--filter", "greet"]) == 0
    assert "acme#1" in capsys.readouterr().out
    assert run(["review", "ls", "--filter", "nothing"]) == 0
    assert capsys.readouterr() == ("", "kortix: Nothing waits for you.\n")


def test_show_and_diff_make_everything_visible(proposal: Proposal, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["cr", "show", "1"]) == 0
    page = capsys.readouterr().out
    assert "Greet everybody" in page and "It merges cleanly" in page and "hello.txt" in page and "Because." in page
    assert run(["cr", "diff", "acme#1"]) == 0
    captured = capsys.readouterr()
    assert "-hello\n+hello␛]0;evil␇ world\n" in captured.out
    assert f"Shown at {proposal.head[:12]}. Merge it: kortix cr merge acme#1" in captured.err
    assert not set(page + captured.out) & {"\x1b", "\x07"}
    assert run(["cr", "diff", "1", "--stat"]) == 0
    assert "1 file, +1 -1" in capsys.readouterr().out
    assert run(["cr", "diff", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["head"] == proposal.head
    assert run(["cr", "preview", "1"]) == 0
    assert run(["cr", "show", "7"]) == 1
    assert "has no change request 7" in capsys.readouterr().err


def test_nobody_merges_without_a_terminal(proposal: Proposal, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cr", "diff", "1"]) == 0
    capsys.readouterr()
    assert run(["cr", "merge", "1"]) == 1
    assert "needs a terminal, or the exact commit with --at" in capsys.readouterr().err
    assert run(["cr", "merge", "1", "--at", proposal.head]) == 1
    assert "without a terminal is off" in capsys.readouterr().err
    assert run(["cr", "close", "1", "--at", proposal.head]) == 1
    capsys.readouterr()
    assert git(proposal.repository, "rev-parse", "main") == proposal.base
    denied = "SELECT count(*) FROM audit WHERE outcome = 'denied' AND event = ?"
    assert proposal.seeded.one(denied, "change_request.merge") == (2,)
    assert proposal.seeded.one(denied, "change_request.close") == (1,)


def test_an_agent_program_never_merges(
    proposal: Proposal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _allow_unattended(monkeypatch, proposal.seeded.home)
    monkeypatch.setenv("CLAUDECODE", "1")
    assert run(["cr", "merge", "1", "--at", proposal.head]) == 1
    assert "CLAUDECODE is set" in capsys.readouterr().err
    assert git(proposal.repository, "rev-parse", "main") == proposal.base


def test_the_operator_may_allow_unattended_merges_of_a_named_commit(
    proposal: Proposal, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _allow_unattended(monkeypatch, proposal.seeded.home)
    capsys.readouterr()
    assert run(["cr", "merge", "1", "--at", proposal.head[:12], "--message", "Greet them", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["reviewed_head"] == proposal.head
    assert git(proposal.repository, "rev-parse", "main") == result["merge_commit"]
    assert git(proposal.repository, "log", "-1", "--format=%s") == "Greet them"
    assert run(["cr", "merge", "1", "--at", proposal.head]) == 1
    assert "is merged" in capsys.readouterr().err


def _allow_unattended(monkeypatch: pytest.MonkeyPatch, home: Home) -> None:
    config = home.path.parent / "config"
    config.mkdir()
    (config / "config.yaml").write_text("decisions:\n  unattended: allow\n")


def test_at_a_terminal_it_repeats_what_is_merged_and_wants_the_word(proposal: Proposal) -> None:
    assert run(["cr", "diff", "1"]) == 0
    with AtTerminal("cr", "merge", "1") as terminal:
        asked = terminal.see("Type «merge» to merge it into main:").decode()
        for part in ("Greet everybody", proposal.session, "1 file, +1 -1", proposal.head[:12], "Greet ␛[2J"):
            assert part in asked
        terminal.type("yes\n")
        assert terminal.end() == 1
    assert git(proposal.repository, "rev-parse", "main") == proposal.base
    with AtTerminal("cr", "merge", "acme#1") as terminal:
        terminal.see("Type «merge»")
        terminal.type("merge\n")
        terminal.see("Merged acme#1 as ")
        assert terminal.end() == 0
    assert git(proposal.repository, "show", "main:hello.txt").startswith("hello\x1b")


def test_what_was_not_shown_or_moved_is_not_merged(proposal: Proposal) -> None:
    with AtTerminal("cr", "merge", "1") as terminal:
        terminal.see("was not shown to you yet")
        assert terminal.end() == 1
    assert run(["cr", "diff", "1"]) == 0
    proposal.move()
    with AtTerminal("cr", "merge", "1") as terminal:
        terminal.see("it moved")
        assert terminal.end() == 1
    assert git(proposal.repository, "rev-parse", "main") == proposal.base


def test_a_push_while_the_question_stands_is_not_merged(proposal: Proposal) -> None:
    assert run(["cr", "diff", "1"]) == 0
    with AtTerminal("cr", "merge", "1") as terminal:
        terminal.see("Type «merge»")
        proposal.move()
        terminal.type("merge\n")
        terminal.see("it moved")
        assert terminal.end() == 1
    assert git(proposal.repository, "rev-parse", "main") == proposal.base


def test_close_and_reopen(proposal: Proposal, capsys: pytest.CaptureFixture[str]) -> None:
    with AtTerminal("cr", "close", "1") as terminal:
        terminal.see("Close it without merging? [y/N]")
        terminal.type("y\n")
        terminal.see("acme#1 is closed")
        assert terminal.end() == 0
    assert run(["cr", "reopen", "1"]) == 0
    assert "acme#1 is open" in capsys.readouterr().out
    with AtTerminal("cr", "close", "1", "--at", "0" * 40) as terminal:
        terminal.see("it moved")
        assert terminal.end() == 1


def test_a_question_can_be_left_with_ctrl_c(proposal: Proposal) -> None:
    assert run(["cr", "diff", "1"]) == 0
    with AtTerminal("cr", "merge", "1") as terminal:
        terminal.see("Type «merge»")
        terminal.process.send_signal(2)
        assert terminal.end() == 130
    assert git(proposal.repository, "rev-parse", "main") == proposal.base
