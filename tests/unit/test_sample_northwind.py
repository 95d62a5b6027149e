"""The support sample: its document gives the actions that its policy names, and its rules find the right words."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import kortix_tui.runtime
from kortix_tui.base.clock import SystemClock
from kortix_tui.base.paths import assets
from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.connectors.openapi.mapping import catalogue
from kortix_tui.broker.connectors.openapi.reading import read_document
from kortix_tui.broker.policy import PastCalls, PolicySet, decide
from kortix_tui.manifest.check import check
from kortix_tui.manifest.plan import plan_agent
from kortix_tui.manifest.source import FolderSource

SAMPLE = assets("sample-projects") / "northwind-support"
TICKETS = json.loads((Path(kortix_tui.runtime.__file__).parent / "demo_tickets.json").read_text("utf-8"))
KINDS = {
    "T-101": "damaged", "T-102": "delivery", "T-103": "billing", "T-104": "exchange", "T-105": "account",
    "T-106": "cancellation", "T-107": "warranty", "T-108": "invoice", "T-109": "privacy", "T-110": "complaint",
    "T-111": "suspicious", "T-112": "question",
}  # fmt: skip


def load(name: str) -> ModuleType:
    place = importlib.util.spec_from_file_location(name, SAMPLE / "tools" / f"{name}.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    sys.modules[name] = module
    place.loader.exec_module(module)
    return module


@pytest.fixture
def replies(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield load("replies")
    del sys.modules["replies"]


@pytest.fixture
def support(replies: ModuleType) -> Iterator[ModuleType]:
    yield load("support")
    del sys.modules["support"]


def test_only_replies_ask_and_the_agent_may_use_nothing_else() -> None:
    report = check(FolderSource(SAMPLE))
    assert report.manifest is not None
    (connector,) = report.manifest.connectors
    document = (SAMPLE / str(connector.spec)).read_bytes()  # type: ignore[union-attr]
    known = catalogue(read_document(document), data_hash="", base_url=connector.base_url, source_url=None)  # type: ignore[union-attr]
    assert known.notes == () and known.base_url == "http://127.0.0.1:4180"
    policy = PolicySet.of(report.manifest, connector)
    now = PastCalls(SystemClock().now())
    verdicts = {
        one.name: decide(policy, connector="helpdesk", action=one.name, risk=one.risk, arguments={}, usage=now).verdict
        for one in known.actions
    }
    assert verdicts == {
        "list_tickets": Verdict.RUN, "get_ticket": Verdict.RUN, "save_draft": Verdict.RUN, "send_reply": Verdict.ASK,
    }  # fmt: skip
    assert known.action("send_reply").risk is Risk.WRITE  # type: ignore[union-attr]
    plan = plan_agent(report)
    assert plan.grants.connectors.names == ("helpdesk",)


@pytest.mark.parametrize("ticket", TICKETS, ids=lambda one: one["id"])
def test_each_ticket_gets_the_reply_of_its_kind(replies: ModuleType, ticket: dict[str, Any]) -> None:
    made = replies.draft(ticket)
    assert made.kind == KINDS[ticket["id"]]
    assert made.urgency == ("high" if ticket["id"] in ("T-101", "T-103", "T-110") else "normal")
    first = ticket["customer"]["name"].split()[0]
    assert made.text.startswith(f"Hello {first},\n\n") and made.text.rstrip().endswith("Northwind Support")
    assert len(made.text.split()) < 120 and "{" not in made.text
    assert made.subject == f"Re: {ticket['subject']}"


def test_an_order_that_was_not_named_is_asked_for(replies: ModuleType) -> None:
    customer = {"name": "Ada Quist", "email": "ada@mail.example"}
    made = replies.draft({"id": "T-1", "subject": "Parcel", "text": "Where is my parcel?", "customer": customer})
    assert "your order (please tell us its number)" in made.text


@pytest.mark.parametrize(
    ("report", "state", "note"),
    [
        ({"state": "done", "status": 201}, "sent", ""),
        ({"state": "done", "status": 409}, "already answered", ""),
        ({"state": "done", "status": 500}, "refused by the help desk (500)", ""),
        ({"state": "denied", "note": "wait"}, "draft kept", "wait"),
        ({"state": "denied"}, "draft kept", "denied"),
        ({"state": "expired", "message": "Nobody decided in time."}, "draft kept", "expired: Nobody decided in time."),
        ({"state": "unknown", "message": "It may have run."}, "may have been sent", "It may have run."),
    ],
)
def test_what_became_of_a_reply_is_told_as_it_is(
    support: ModuleType, report: dict[str, Any], state: str, note: str
) -> None:
    assert support.outcome(report) == (state, note)


def test_the_table_has_the_urgent_ones_first_and_no_cell_breaks_it(replies: ModuleType, support: ModuleType) -> None:
    outcomes = [
        support.Outcome(one, replies.draft(one), "draft kept", "a | b\nc") for one in (TICKETS[1], TICKETS[9])
    ]  # fmt: skip
    rows = support.table(outcomes).splitlines()[-2:]
    assert [row[2:7] for row in rows] == ["T-110", "T-102"]
    assert all(row.endswith("| draft kept | a \\| b c |") for row in rows)
