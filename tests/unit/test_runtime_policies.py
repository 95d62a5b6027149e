"""Policies through the runtime: pages, edits as change requests, replay; real git, a real store, no engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from policy_bench import MANIFEST, PolicyBench

from kortix_tui.base.errors import Ambiguous, InvalidInput, NotFound, StoreFailed
from kortix_tui.base.ids import new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.connectors.model import Action, Catalogue, HttpOperation, RuleSource
from kortix_tui.broker.policy import Counted
from kortix_tui.manifest.check import check
from kortix_tui.manifest.connectors import Connector
from kortix_tui.manifest.policies import Condition, PolicyRule
from kortix_tui.manifest.source import FolderSource
from kortix_tui.runtime.call_usage import RecordedUsage
from kortix_tui.runtime.catalogue_store import accepted, definition_hash, pack, unpack
from kortix_tui.store.audit import SYSTEM


@pytest.fixture
def bench(home: Home, repository: Path) -> Iterator[PolicyBench]:
    bench = PolicyBench(home, repository)
    yield bench
    bench.runtime.close()


# ---- the page ------------------------------------------------------------------------------------------------


def test_the_page_says_for_every_action_what_happens_and_which_rules_do_nothing(bench: PolicyBench) -> None:
    view = bench.runtime.policies.view(bench.project, "mail")
    assert (view.project, view.connector, view.default_mode, view.sensitive) == ("acme", "mail", "risk", False)
    assert [(action.name, action.risk, action.verdict, action.rule) for action in view.actions] == [
        ("get_tickets", Risk.READ, Verdict.RUN, "connector rule 1: match get_*"),
        ("send_reply", Risk.WRITE, Verdict.ASK, "connector rule 2: match *"),
        ("delete_ticket", Risk.DESTRUCTIVE, Verdict.ASK, "connector rule 2: match *"),
    ]
    assert (view.actions[1].method, view.actions[1].path) == ("POST", "/replies")
    assert [(rule.match, rule.verdict, rule.matches, rule.decides, rule.note) for rule in view.rules] == [
        ("get_*", Verdict.RUN, 1, 1, None),
        ("*", Verdict.ASK, 3, 2, None),
        ("delete_*", Verdict.BLOCK, 1, 0, "never reached: rule 2 decides before it"),
    ]
    events = [event.event for event in bench.runtime.audit.list()]
    assert "connector.policy.read" in events


def test_a_page_of_a_connector_that_was_never_read_says_so(home: Home, repository: Path) -> None:
    text = MANIFEST.replace("    routes:\n", "    spec: https://mail.example/openapi.json\n    routes:\n")
    bench = PolicyBench(home, repository, text)
    view = bench.runtime.policies.view(bench.project, "mail")
    assert view.actions == ()
    assert {rule.note for rule in view.rules} == {"actions are not known yet: `kortix connectors sync mail` reads them"}
    with pytest.raises(NotFound):
        bench.runtime.policies.view(bench.project, "nothing")
    bench.runtime.close()


# ---- catalogues ----------------------------------------------------------------------------------------------


def connector_of(bench: PolicyBench, text: str = MANIFEST) -> Connector:
    (bench.repository / "kortix.yaml").write_text(text)
    report = check(FolderSource(bench.repository))
    assert report.manifest is not None, report.errors
    manifest = report.manifest
    return manifest.connectors[0]


def test_a_definition_is_everything_of_a_connector_but_its_policies(bench: PolicyBench) -> None:
    before = definition_hash(connector_of(bench))
    policy = MANIFEST.replace("action: block", "action: always_run")
    assert definition_hash(connector_of(bench, policy)) == before
    for old, new in (("mail.example", "post.example"), ("path: /tickets", "path: /all"), ("slug: mail", "slug: post")):
        text = MANIFEST.replace(old, new).replace("[mail]", "[post]" if "slug" in old else "[mail]")
        assert definition_hash(connector_of(bench, text)) != before
    # Integers that canonical JSON cannot hold are part of it, too.
    large = MANIFEST.replace("path: /replies", "path: /replies, parameters: {n: {maximum: 90071992547409929}}")
    less = large.replace("9929", "9928")
    assert len({before, definition_hash(connector_of(bench, large)), definition_hash(connector_of(bench, less))}) == 3


def test_only_what_was_accepted_in_this_definition_is_in_force(bench: PolicyBench) -> None:
    store = bench.runtime.context.store
    operation = HttpOperation(method="GET", path="/x")
    catalogues = {
        name: Catalogue(
            title=name, document_hash="d", base_url=None,
            actions=(Action(name=name, title=name, risk=Risk.READ, input_schema={}, operation=operation),),
        )
        for name in ("new", "old", "parked")
    }  # fmt: skip
    with store.write() as tx:
        for name, definition, state in (("new", "d1", "accepted"), ("old", "d0", "past"), ("parked", "d2", "pending")):
            tx.execute(
                "INSERT INTO catalogues (id, project_id, connector, definition, document, state, actions, body,"
                " created_by, created_at) VALUES (?, ?, 'mail', ?, 'd', ?, 1, ?, 'op', ?)",
                (new_id("cat"), bench.project.id, definition, state, pack(catalogues[name]), tx.now_text),
            )
        tx.audit("test", scope="x", actor=SYSTEM)
    assert accepted(store, bench.project.id, "mail", "d1") == catalogues["new"]
    for where in (("mail", "d0"), ("mail", "d2"), ("post", "d1")):
        assert accepted(store, bench.project.id, *where) is None
    assert accepted(store, "prj_other", "mail", "d1") is None
    assert unpack(pack(catalogues["new"])) == catalogues["new"]
    whole = pack(catalogues["new"])
    for damaged in (b"", b"{}", whole[:-6], whole[:10]):
        with pytest.raises(StoreFailed, match="cannot be read"):
            unpack(damaged)


# ---- usage ---------------------------------------------------------------------------------------------------


def test_limits_count_what_ran_or_may_still_run(bench: PolicyBench) -> None:
    for state in ("pending", "approved", "executing", "done", "failed", "unknown"):
        bench.call("send_reply", {"n": 2}, state=state, minutes=5)
    for state in ("refused", "denied", "expired", "superseded"):
        bench.call("send_reply", {"n": 2}, state=state, minutes=5)
    bench.call("send_reply", {"n": 2}, minutes=61)
    bench.call("get_tickets", {"n": 2}, minutes=5)
    usage = RecordedUsage(bench.runtime.context.store, bench.project.id)
    counted = Counted("mail", PolicyRule(match="send_*", action="block"))
    hour, day = usage.now - timedelta(hours=1), usage.now - timedelta(days=1)
    assert (usage.calls(counted, hour), usage.calls(counted, day)) == (6, 7)
    assert usage.total(counted, "n", hour) == Decimal(12) and usage.total(counted, "other", hour) is None
    assert RecordedUsage(bench.runtime.context.store, "prj_other").calls(counted, day) == 0


# ---- edits ---------------------------------------------------------------------------------------------------


def test_a_rule_is_a_change_request_that_a_person_merges(bench: PolicyBench) -> None:
    edits, project = bench.runtime.edits, bench.project
    result = edits.set_rule(project, connector="mail", match="send_*", verdict=Verdict.BLOCK)
    assert (result.project, result.number, result.already) == ("acme", 1, False)
    change = bench.runtime.changes.find(project, 1)
    assert change.title == "Block send_* of mail"
    assert "merge" in change.description
    assert bench.diff(1) == ['+      - match: "send_*"', "+        action: block"]
    assert bench.manifest() == MANIFEST
    again = edits.set_rule(project, connector="mail", match="send_*", verdict=Verdict.BLOCK)
    assert (again.number, again.already) == (1, True)
    bench.merge(1)
    assert bench.runtime.policies.view(project, "mail").actions[1].verdict is Verdict.BLOCK
    assert edits.set_rule(project, connector="mail", match="send_*", verdict=Verdict.BLOCK).number is None
    back = edits.remove_rule(project, connector="mail", match="send_*")
    assert bench.runtime.changes.find(project, 2).title == "Remove the rule send_* of mail"
    assert back.number == 2
    bench.merge(2)
    assert bench.manifest() == MANIFEST
    assert edits.remove_rule(project, connector="mail", match="send_*").number is None


def test_a_rule_of_the_project_and_the_default_mode(bench: PolicyBench) -> None:
    edits, project = bench.runtime.edits, bench.project
    condition = Condition(arg="to", match="*@ours.example", negate=True)
    edits.set_rule(project, connector=None, match="*.send_*", verdict=Verdict.ASK, conditions=[condition])
    assert bench.runtime.changes.find(project, 1).title == "Ask before *.send_* of the project under conditions"
    assert bench.diff(1) == [
        "+policies:",
        '+  - {match: "*.send_*", action: require_approval, conditions: [{arg: to, match: "*@ours.example", '
        "negate: true}]}",
    ]
    edits.set_default_mode(project, "allow_all")
    assert bench.runtime.changes.find(project, 2).title == "Run all calls that no rule matches"
    assert bench.diff(2) == [
        "-  default_mode: risk  # asks before writes", "+  default_mode: allow_all  # asks before writes"
    ]  # fmt: skip
    assert edits.set_default_mode(project, "risk").already


def test_two_rules_of_one_match_are_different_edits(bench: PolicyBench) -> None:
    edits, project = bench.runtime.edits, bench.project
    one = edits.set_rule(project, connector="mail", match="send_*", verdict=Verdict.ASK)
    other = edits.set_rule(
        project, connector="mail", match="send_*", verdict=Verdict.RUN, conditions=[Condition(max_calls=2, per="day")]
    )
    assert (one.number, other.number) == (1, 2)
    bench.merge(1)
    bench.runtime.changes.show(project, 2)
    third = edits.set_rule(
        project, connector="mail", match="send_*", verdict=Verdict.RUN, conditions=[Condition(max_calls=2, per="day")]
    )
    bench.merge(third.number or 0)
    with pytest.raises(Ambiguous, match="2 rules"):
        edits.remove_rule(project, connector="mail", match="send_*")


def test_edits_that_make_no_sense_are_refused_and_leave_nothing(bench: PolicyBench) -> None:
    edits, project = bench.runtime.edits, bench.project
    with pytest.raises(NotFound, match="declares no connector `post`"):
        edits.set_rule(project, connector="post", match="*", verdict=Verdict.ASK)
    with pytest.raises(InvalidInput, match="regular expression"):
        edits.set_rule(project, connector="mail", match="/(a+)+/", verdict=Verdict.ASK)
    with pytest.raises(InvalidInput, match="regular expression"):
        edits.set_rule(project, connector="mail", match="/(a|aa)+$/", verdict=Verdict.ASK)
    with pytest.raises(InvalidInput, match="no such mode"):
        edits.set_default_mode(project, "everything")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        edits.remove_rule(project, connector="mail", match="x" * 700)
    assert bench.runtime.changes.list() == []


# ---- replay --------------------------------------------------------------------------------------------------


def test_a_changed_policy_is_run_over_the_recorded_calls(bench: PolicyBench) -> None:
    bench.call("get_tickets", verdict="always_run", minutes=50, risk="read")
    sent = bench.call("send_reply", {"to": "a@ours.example"}, minutes=40)
    other = bench.call("send_reply", {"to": "b@evil.example"}, minutes=30, state="denied")
    gone = bench.call("forward", minutes=20)
    deleted = bench.call("delete_ticket", minutes=10, verdict="block", state="refused", code="policy_block")
    bench.call("send_reply", minutes=5, state="refused", code="connector_not_assigned")
    ours = '      - {match: send_*, action: always_run, conditions: [{arg: to, match: "*@ours.example"}]}\n'
    text = MANIFEST.replace("    policies:\n", f"    policies:\n{ours}")
    result = bench.runtime.policies.replay(bench.project, text.encode())
    assert (result.calls, result.skipped) == (5, 1)
    assert (result.would_run, result.would_ask, result.would_block) == (2, 2, 0)
    assert [(line.call_id, line.action, line.was, line.now) for line in result.changed] == [
        (sent, "mail.send_reply", Verdict.ASK, Verdict.RUN),
        (deleted, "mail.delete_ticket", Verdict.BLOCK, Verdict.ASK),
    ]
    assert result.changed[0].rule == "connector rule 1: match send_*"
    assert {other, gone}.isdisjoint(line.call_id for line in result.changed)


def test_replay_counts_limits_as_they_were_at_each_call(bench: PolicyBench) -> None:
    calls = [bench.call("send_reply", minutes=minutes) for minutes in (200, 100, 90, 80, 10)]
    limit = "      - {match: send_*, action: always_run, conditions: [{max_calls: 2, per: hour}]}\n"
    text = MANIFEST.replace("    policies:\n", f"    policies:\n{limit}")
    result = bench.runtime.policies.replay(bench.project, text.encode())
    assert [line.call_id for line in result.changed] == [calls[0], calls[1], calls[2], calls[4]]
    assert (result.would_run, result.would_ask) == (4, 1)


def test_what_memory_or_the_operator_let_run_counts_as_asked(bench: PolicyBench) -> None:
    for source in ("memory", "operator"):
        bench.call("send_reply", verdict="always_run", rule=RuleSource.model_validate({"source": source}))
    assert bench.runtime.policies.replay(bench.project, MANIFEST.encode()).changed == ()


def test_a_change_request_is_replayed_at_its_head(bench: PolicyBench) -> None:
    call = bench.call("send_reply")
    bench.runtime.edits.set_rule(bench.project, connector="mail", match="send_*", verdict=Verdict.BLOCK)
    result = bench.runtime.policies.replay(bench.project, 1)
    assert [(line.call_id, line.now) for line in result.changed] == [(call, Verdict.BLOCK)]
    with pytest.raises(NotFound, match="no change request 9"):
        bench.runtime.policies.replay(bench.project, 9)
    with pytest.raises(InvalidInput, match="the given file is not valid"):
        bench.runtime.policies.replay(bench.project, b"kortix_version: 3\n")


def test_calls_of_a_connector_that_is_gone_or_off_are_skipped(bench: PolicyBench) -> None:
    bench.call("send_reply")
    off = MANIFEST.replace("provider: http\n", "provider: http\n    enabled: false\n")
    assert bench.runtime.policies.replay(bench.project, off.encode()).skipped == 1


def test_the_policy_in_the_help_page_is_valid(bench: PolicyBench) -> None:
    page = (Path(__file__).resolve().parents[2] / "kortix_tui" / "help" / "policy.md").read_text("utf-8")
    policy = page.partition("```yaml\n")[2].partition("```")[0]
    (bench.repository / "kortix.yaml").write_text(
        f"kortix_version: 2\ndefault_agent: script\n{policy}\nagents: {{script: {{}}}}\n"
    )
    report = check(FolderSource(bench.repository))
    assert report.manifest is not None, report.errors
    assert len(report.manifest.connectors[0].policies[1].conditions) == 2
