"""`kortix policy` and the policy verbs of `kortix connectors`: what is printed, what is refused."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from policy_bench import MANIFEST, PolicyBench

from kortix_tui.base.clock import to_text
from kortix_tui.base.paths import Home
from kortix_tui.cli.change_page import opened
from kortix_tui.cli.main import run
from kortix_tui.cli.parsing import Parser, Verbs
from kortix_tui.cli.policies import add_policies_verb, add_policy_group, conditions_of
from kortix_tui.runtime.edits import EditResult
from kortix_tui.store.audit import SYSTEM

Shown = pytest.CaptureFixture[str]


@pytest.fixture
def bench(home: Home, repository: Path) -> Iterator[PolicyBench]:
    bench = PolicyBench(home, repository)
    yield bench
    bench.runtime.close()


def connectors(*arguments: str) -> None:
    """The verbs as `kortix connectors` mounts them."""
    parser = Parser(prog="kortix connectors")
    verbs = Verbs(parser)
    add_policies_verb(verbs)
    add_policy_group(verbs)
    parsed = parser.read(arguments)
    parsed.run(parsed)


def test_the_page_of_a_connector(bench: PolicyBench, capfd: Shown) -> None:
    connectors("policies", "mail")
    out = capfd.readouterr().out
    assert "What no rule matches: reads run, writes and destructive calls ask." in out
    lines = [line.split() for line in out.splitlines()]
    assert ["send_reply", "write", "Ask", "connector", "rule", "2:", "match", "*"] in lines
    assert ["get_tickets", "read", "Allow", "connector", "rule", "1:", "match", "get_*"] in lines
    (never,) = [line for line in out.splitlines() if "never reached" in line]
    assert "delete_*" in never and "Block" in never
    connectors("policies", "mail", "--filter", "ticket", "--json")
    view = json.loads(capfd.readouterr().out)
    assert [action["verdict"] for action in view["actions"]] == ["always_run", "require_approval", "require_approval"]


def test_gates_that_are_off_are_said_in_plain_sight(home: Home, repository: Path, capfd: Shown) -> None:
    start, end = MANIFEST.index("    policies:"), MANIFEST.index("agents:")
    text = MANIFEST[:start] + MANIFEST[end:]
    bench = PolicyBench(home, repository, text.replace("default_mode: risk", "default_mode: allow_all"))
    connectors("policies", "mail")
    bench.runtime.close()
    out = capfd.readouterr().out
    assert "Gates are off" in out and "kortix connectors policy mode risk" in out
    assert "default_mode: allow_all" in out


def test_rules_and_the_mode_become_change_requests(bench: PolicyBench, capfd: Shown) -> None:
    connectors("policy", "set", "mail", "send_*", "block")
    out, error = capfd.readouterr()
    assert out == "Change request acme#1 is open: Block for send_* of mail.\n"
    assert "kortix policy replay --cr acme#1" in error and "kortix cr diff acme#1" in error
    connectors("policy", "set", "mail", "send_*", "block")
    assert "acme#1 is open already" in capfd.readouterr().out
    connectors("policy", "set", "mail", "get_*", "allow", "--json")
    assert json.loads(capfd.readouterr().out)["number"] is None
    connectors("policy", "rm", "mail", "delete_*")
    assert capfd.readouterr().out == "Change request acme#2 is open: no rule delete_* of mail.\n"
    connectors("policy", "mode", "allow_all")
    assert capfd.readouterr().out == "Change request acme#3 is open: default_mode: allow_all.\n"
    assert run(["policy", "mode", "risk"]) == 0
    assert "says so already" in capfd.readouterr().out
    assert (
        run(["policy", "set", "*.delete_*", "block", "--condition", "id!=7", "--max-calls", "2", "--per", "day"]) == 0
    )
    assert capfd.readouterr().out == "Change request acme#4 is open: Block for *.delete_* of every connector.\n"
    assert bench.diff(4)[1] == (
        '+  - {match: "*.delete_*", action: block, conditions: [{arg: id, match: "7", negate: true}, '
        "{max_calls: 2, per: day}]}"
    )


def test_an_edit_that_was_moved_is_to_be_read_again() -> None:
    made = EditResult(project="acme", number=1, session_id="k", head_commit="c", already=True, moved=True)
    assert opened(made, "main") == "is open already; it now starts from the newest main: read it again"
    assert opened(made.model_copy(update={"moved": False}), "main") == "is open already"


def test_what_is_not_there_is_refused_with_a_hint(bench: PolicyBench, capfd: Shown) -> None:
    for arguments, said in (
        (["policy", "set", "a", "perhaps"], "invalid choice"),
        (["policy", "set", "/(/", "ask"], "regular expression is invalid"),
        (["policy", "set", "a", "ask", "--condition", "to"], "no condition"),
        (["policy", "set", "a", "ask", "--condition", "a..b=c"], "not an argument's path"),
        (["policy", "set", "a", "ask", "--condition", "to=/(/"], "regular expression is invalid"),
        (["policy", "set", "a", "ask", "--max-calls", "0", "--per", "day"], "at least 1"),
        (["policy", "set", "a", "ask", "--max-calls", "3"], "needs a number and a time"),
        (["policy", "set", "a", "ask", "--per", "day"], "needs a number and a time"),
        (["policy", "set", "a", "ask", "--max-sum", "n=much", "--per", "day"], "no limit"),
        (["policy", "set", "a", "ask", "--max-sum", "n=nan", "--per", "day"], "no condition"),
        (["policy", "set", "a", "ask", "--max-sum", "5", "--per", "day"], "no condition"),
        (["policy", "replay"], "Name a file or a change request"),
        (["policy", "replay", "x", "--cr", "1"], "Name a file or a change request"),
        (["policy", "replay", "nowhere.yaml"], "cannot be read"),
        (["policy", "replay", "--cr", "9"], "no change request 9"),
        (["policy", "rules", "revoke", "rul_nothing"], "No remembered approval"),
    ):
        assert run(arguments) in (1, 2), arguments
        assert said in capfd.readouterr().err, arguments
    assert bench.runtime.changes.list() == []


def conditions(*arguments: str) -> list[dict[str, Any]]:
    parser = Parser(prog="kortix connectors")
    add_policy_group(Verbs(parser))
    parsed = parser.read(["policy", "set", "m", "x", "ask", *arguments])
    return [condition.model_dump(exclude_defaults=True) for condition in conditions_of(parsed)]


def test_conditions_from_the_command_line() -> None:
    assert conditions("--condition", "to=*@x.example", "--condition", "a.b!=c=d") == [
        {"arg": "to", "match": "*@x.example"}, {"arg": "a.b", "match": "c=d", "negate": True}
    ]  # fmt: skip
    assert conditions("--max-calls", "3", "--per", "minute", "--max-sum", "amount=2.50") == [
        {"max_calls": 3, "per": "minute"}, {"arg": "amount", "max_sum": 2.5, "per": "minute"}
    ]  # fmt: skip
    assert conditions() == []


def test_replay_of_a_file_and_of_standard_input(
    bench: PolicyBench, capfd: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = bench.call("send_reply")
    bench.call("get_tickets", verdict="always_run", risk="read")
    bench.call("gone")
    file = tmp_path / "kortix.yaml"
    file.write_text(MANIFEST.replace("action: require_approval", "action: block"))
    assert run(["policy", "replay", str(file)]) == 0
    out = capfd.readouterr().out
    assert out.startswith("3 recorded calls: 1 would run, 0 would ask, 1 would be blocked. 1 call of what it does not")
    (row,) = [line for line in out.splitlines() if "mail.send_reply" in line]
    assert row.split()[:3] == ["mail.send_reply", "Ask", "Block"] and call in row
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MANIFEST.encode())))
    assert run(["policy", "replay", "-"]) == 0
    out, error = capfd.readouterr()
    assert "0 would be blocked" in out and "None of them would be decided otherwise" in error
    file.write_bytes(b"#" * (256 * 1024 + 1))
    assert run(["policy", "replay", str(file)]) == 1
    assert "larger than 256 KiB" in capfd.readouterr().err


def test_replay_of_a_change_request(bench: PolicyBench, capfd: Shown) -> None:
    bench.call("delete_ticket", risk="destructive")
    assert run(["policy", "set", "mail.delete_*", "block"]) == 0
    capfd.readouterr()
    assert run(["policy", "replay", "--cr", "acme#1", "--json"]) == 0
    result = json.loads(capfd.readouterr().out)
    assert (result["would_block"], result["changed"][0]["now"]) == (1, "block")
    assert result["changed"][0]["rule"] == "project rule 1: match mail.delete_*"


def test_remembered_approvals_are_listed_and_revoked(bench: PolicyBench, capfd: Shown) -> None:
    assert run(["policy", "rules", "ls"]) == 0
    assert "No approval is remembered" in capfd.readouterr().err
    call = bench.call("send_reply")
    store = bench.runtime.context.store
    with store.write() as tx:
        for identity in ("rul_one", "rul_other"):
            tx.execute(
                "INSERT INTO call_rules (id, project_id, connector, action, arguments, most, from_call, created_by,"
                " created_at, expires_at) VALUES (?, ?, 'mail', 'send_reply', ?, 5, ?, 'op', ?, ?)",
                (
                    identity, bench.project.id, '{"to":"\\u202ea"}', call, tx.now_text,
                    to_text(tx.now.replace(year=tx.now.year + 1)),
                ),
            )  # fmt: skip
        tx.audit("test", scope="x", actor=SYSTEM)
    assert run(["policy", "rules", "ls", "--project", "acme"]) == 0
    out = capfd.readouterr().out
    assert "rul_one" in out and "mail.send_reply" in out and "0/5" in out and "in force" in out
    assert "SCOPE" in out and "project acme" in out
    for reference, said in (("rul_o", "rul_one"), ("", "No remembered approval"), ("x", "No remembered approval")):
        assert run(["policy", "rules", "revoke", reference]) != 0
        assert said in capfd.readouterr().err
    assert run(["policy", "rules", "revoke", "rul_on"]) == 0
    assert capfd.readouterr().out == "Revoked rul_one: calls of mail.send_reply ask again.\n"
    assert run(["policy", "rules", "ls", "--json"]) == 0
    other, rule = json.loads(capfd.readouterr().out)
    assert other["active"] is True
    assert rule["active"] is False and rule["revoked_by"]


def test_the_record_is_searched_by_what_events_were_about(bench: PolicyBench, capfd: Shown) -> None:
    with bench.runtime.context.store.write() as tx:
        tx.audit("connector.call.done", scope="mail.send_reply", actor=SYSTEM, call="cal_wanted")
        tx.audit("connector.call.done", scope="mail.send_reply", actor=SYSTEM, call="cal_other")
    assert run(["audit", "ls", "--filter", "cal_wanted", "--json"]) == 0
    assert [event["detail"]["call"] for event in json.loads(capfd.readouterr().out)] == ["cal_wanted"]
    assert run(["audit", "ls", "--filter", "cal_nothing", "--limit", "1"]) == 0
    assert "No event fits among the newest 1; see --limit." in capfd.readouterr().err
