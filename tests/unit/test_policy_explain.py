"""What a policy does to every action, and which of its rules do nothing."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.connectors.model import Action, HttpOperation
from kortix_tui.broker.policy import Explanation, PastCalls, PolicySet, condition_says, explain
from kortix_tui.manifest.check import check
from kortix_tui.manifest.policies import Condition, PolicyRule

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


def action(name: str, risk: Risk = Risk.READ) -> Action:
    operation = HttpOperation(method="GET", path="/x")
    return Action(name=name, title=name, risk=risk, input_schema={"type": "object"}, operation=operation)


ACTIONS = (action("get_a"), action("get_b"), action("send", Risk.WRITE), action("delete_all", Risk.DESTRUCTIVE))


def rule(match: str, verdict: str, *conditions: Condition) -> PolicyRule:
    return PolicyRule.model_validate({"match": match, "action": verdict, "conditions": list(conditions)})


def explained(policy: PolicySet) -> Explanation:
    return explain(policy, "mail", ACTIONS, PastCalls(NOW))


def test_every_action_has_its_verdict_and_the_rule_that_says_so() -> None:
    policy = PolicySet(connector=(rule("get_*", "always_run"), rule("delete_*", "block")), default_mode="risk")
    found = [(each.action.name, each.decision.verdict, each.decision.rule.says()) for each in explained(policy).actions]
    assert found == [
        ("get_a", Verdict.RUN, "connector rule 1: match get_*"),
        ("get_b", Verdict.RUN, "connector rule 1: match get_*"),
        ("send", Verdict.ASK, "default_mode: risk (no rule matches)"),
        ("delete_all", Verdict.BLOCK, "connector rule 2: match delete_*"),
    ]
    assert [(each.matches, each.decides, each.note) for each in explained(policy).rules] == [(2, 2, None), (1, 1, None)]


def test_rules_that_do_nothing_are_marked() -> None:
    policy = PolicySet(
        project=(rule("*.delete_*", "block"), rule("other.*", "block")),
        connector=(
            rule("getCustomers", "always_run"), rule("delete_all", "always_run"), rule("get_*", "always_run"),
            rule("get_a", "block"), rule("*", "require_approval"), rule("s*", "block"),
        ),
    )  # fmt: skip
    assert [(each.matches, each.decides, each.note) for each in explained(policy).rules] == [
        (1, 1, None),
        (0, 0, "matches nothing of this connector"),
        (0, 0, "matches nothing"),
        (1, 0, "never reached: project rule 1 decides before it"),
        (2, 2, None),
        (1, 0, "never reached: rule 3 decides before it"),
        (4, 1, None),
        (1, 0, "never reached: rule 5 decides before it"),
    ]


def test_a_rule_that_several_shut_out_says_so() -> None:
    policy = PolicySet(connector=(rule("get_a", "block"), rule("get_b", "block"), rule("get_*", "always_run")))
    assert explained(policy).rules[2].note == "never reached: rule 1 and others decide before it"


def test_conditions_leave_later_rules_reachable_and_the_verdict_open() -> None:
    only = rule("send", "always_run", Condition(arg="to", match="*@ours.example"))
    policy = PolicySet(connector=(only, rule("send", "require_approval")))
    explanation = explained(policy)
    assert [each.note for each in explanation.rules] == [None, None]
    assert [each.decides for each in explanation.rules] == [1, 0]
    send = explanation.actions[2]
    assert (send.decision.verdict, send.conditional) == (Verdict.ASK, True)
    assert not explanation.actions[0].conditional
    # What stands behind a rule that decides for certain changes nothing.
    hidden = PolicySet(connector=(rule("*", "block"), only))
    assert not explained(hidden).actions[2].conditional


def test_without_arguments_the_verdict_is_the_stricter_one() -> None:
    blocks = rule("send", "block", Condition(arg="to", match="*@evil.example"))
    assert explained(PolicySet(connector=(blocks,))).actions[2].decision.verdict is Verdict.BLOCK


@pytest.mark.parametrize(
    ("condition", "verdict", "words"),
    [
        (Condition(arg="to", match="*@x"), "block", "to matches *@x"),
        (Condition(arg="to", match="*@x", negate=True), "block", "to does not match *@x"),
        (Condition(max_calls=1, per="minute"), "always_run", "up to 1 call a minute"),
        (Condition(max_calls=5, per="hour"), "block", "beyond 5 calls an hour"),
        (Condition(arg="amount", max_sum=500, per="day"), "always_run", "up to a sum of 500 of amount a day"),
    ],
)
def test_conditions_in_words(condition: Condition, verdict: str, words: str) -> None:
    assert condition_says(condition, verdict) == words


MANIFEST = """\
kortix_version: 2
default_agent: a
policies: [{match: "mail.*", action: require_approval}]
connectors:
  - {slug: mail, provider: http, base_url: "https://mail.example", sensitive: true,
     policies: [{match: "get_*", action: always_run}]}
  - {slug: open, provider: http, base_url: "https://open.example"}
agents: {a: {}}
"""


class OneFile:
    def read(self, path: str) -> bytes | None:
        if path == "agents/a.md":
            return b"---\nharness: command\ncommand: [sh]\n---\nx\n"
        return MANIFEST.encode() if path == "kortix.yaml" else None

    def list(self, path: str) -> list[str]:
        return []


def test_a_policy_is_what_the_manifest_says_of_the_connector() -> None:
    manifest = check(OneFile()).manifest
    assert manifest is not None
    mail, other = manifest.connectors
    policy = PolicySet.of(manifest, mail)
    assert policy == PolicySet(
        project=(rule("mail.*", "require_approval"),), connector=(rule("get_*", "always_run"),), sensitive=True
    )
    assert not policy.gates_off
    assert not PolicySet.of(manifest, other).gates_off  # a rule of the project may be about it
    assert PolicySet().gates_off
    assert PolicySet(connector=(rule("*", "always_run"),)).gates_off
    assert not PolicySet(default_mode="risk").gates_off
