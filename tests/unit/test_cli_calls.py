"""`kortix connectors calls`: the record of brokered calls, as a table and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from seeded import Seeded

from kortix_tui.base.paths import Home
from kortix_tui.cli.main import run
from kortix_tui.store.audit import SYSTEM


@pytest.fixture
def session(home: Home) -> Iterator[str]:
    seeded = Seeded(home)
    seeded.project()
    session = seeded.session()
    for number, (state, code, action) in enumerate(
        [("done", None, "get_customer"), ("denied", None, "create_refund"), ("refused", "policy_block", "\x1b[31mdrop")]
    ):
        row = {
            "id": f"cal_{number}", "project_id": "prj_acme", "session_id": session, "key": f"k{number}",
            "connector": "billing", "action": action, "risk": "write", "state": state, "verdict": "require_approval",
            "rule": json.dumps({"source": "risk_default", "index": None, "match": None, "rule_id": None}),
            "code": code, "reason": "", "arguments": "{}", "created_by": "agent", "duration_ms": 12.4,
            "created_at": f"2026-01-01T10:0{number}:00.000000Z", "status": 200 if state == "done" else None,
        }  # fmt: skip
        with seeded.store.write() as tx:
            marks = ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO calls ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))
            tx.audit("connector.call", scope=f"billing.{number}", actor=SYSTEM)
    yield session
    seeded.close()


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert run(["connectors", "calls", *words]) == 0
    return capsys.readouterr().out


def test_calls_are_listed_newest_first(session: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = printed(capsys).splitlines()
    assert head.split()[0] == "CALL" and len(lines) == 3
    assert "refused: policy_block" in lines[0] and "␛[31mdrop" in lines[0]
    assert "billing.get_customer" in lines[2] and "200" in lines[2] and "12 ms" in lines[2]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--state", "denied"), ["cal_1"]),
        (("--filter", "customer"), ["cal_0"]),
        (("--limit", "1"), ["cal_2"]),
        (("--state", "expired"), []),
    ],
)
def test_calls_can_be_narrowed(
    session: str, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], found: list[str]
) -> None:
    assert [one["id"] for one in json.loads(printed(capsys, *words, "--session", session, "--json"))] == found
