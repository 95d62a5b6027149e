"""What happens to a call: order and precedence of rules, conditions, limits, and less privilege in every doubt."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.connectors.model import Decision
from kortix_tui.broker.policy import Counted, PastCall, PastCalls, PolicySet, decide, stricter
from kortix_tui.manifest.policies import Condition, PolicyRule, glob_matches

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)
RANK = {Verdict.RUN: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}
RUN, ASK, BLOCK = "always_run", "require_approval", "block"


def rule(match: str, action: str, *conditions: Condition) -> PolicyRule:
    return PolicyRule.model_validate({"match": match, "action": action, "conditions": list(conditions)})


def when(arg: str, match: str, *, negate: bool = False) -> Condition:
    return Condition(arg=arg, match=match, negate=negate)


def decided(
    *rules: PolicyRule,
    project: tuple[PolicyRule, ...] = (),
    action: str = "send",
    risk: Risk = Risk.WRITE,
    arguments: Mapping[str, Any] | None = None,
    past: tuple[PastCall, ...] = (),
    **policy: Any,
) -> Decision:
    return decide(
        PolicySet(project=project, connector=rules, **policy), connector="mail", action=action, risk=risk,
        arguments=arguments, usage=PastCalls(NOW, past),
    )  # fmt: skip


def verdict(*rules: PolicyRule, **options: Any) -> str:
    return decided(*rules, **options).verdict.value


def sent(minutes: float, arguments: Mapping[str, Any] | None = None, *, connector: str = "mail") -> PastCall:
    return PastCall(NOW - timedelta(minutes=minutes), connector, "send", arguments or {})


# ---- precedence ----------------------------------------------------------------------------------------------


def test_the_seeds_own_policy_reads_as_it_is_written() -> None:
    rules = (rule("get_*", RUN), rule("*", ASK))
    found = decided(*rules, action="get_customers", risk=Risk.READ)
    assert (found.verdict, found.rule.says()) == (Verdict.RUN, "connector rule 1: match get_*")
    found = decided(*rules, action="create_charge")
    assert (found.verdict, found.rule.says()) == (Verdict.ASK, "connector rule 2: match *")


def test_a_rule_of_the_project_comes_first_and_matches_the_full_name() -> None:
    found = decided(rule("*", RUN), project=(rule("mail.send", BLOCK),))
    assert (found.verdict, found.rule.source, found.rule.index) == (Verdict.BLOCK, "project", 0)
    assert verdict(rule("*", RUN), project=(rule("send", BLOCK),)) == RUN
    assert verdict(rule("mail.send", BLOCK)) == RUN  # a connector's own rules match the relative name
    assert verdict(rule("*", BLOCK), project=(rule("*.SEND", RUN),)) == RUN


@pytest.mark.parametrize(
    ("policy", "risk", "expected", "source"),
    [
        ({}, Risk.DESTRUCTIVE, RUN, "allow_all"),
        ({"default_mode": "risk"}, Risk.READ, RUN, "risk_default"),
        ({"default_mode": "risk"}, Risk.WRITE, ASK, "risk_default"),
        ({"default_mode": "risk"}, Risk.DESTRUCTIVE, ASK, "risk_default"),
        ({"sensitive": True}, Risk.READ, ASK, "sensitive"),
        ({"sensitive": True, "default_mode": "risk"}, Risk.READ, ASK, "sensitive"),
    ],
)
def test_what_no_rule_matches(policy: dict[str, Any], risk: Risk, expected: str, source: str) -> None:
    found = decided(rule("other", BLOCK), risk=risk, **policy)
    assert (found.verdict.value, found.rule.source) == (expected, source)


def test_rules_come_before_sensitive() -> None:
    assert verdict(rule("send", RUN), sensitive=True) == RUN


@pytest.mark.parametrize(
    ("match", "name", "fits"),
    [
        ("SEND", "send", True),
        ("se*", "resend", False),
        ("query.*", "query.a.b", True),
        ("se?d", "send", False),
        ("/end/", "send", True),
        ("/^end/", "send", False),
        ("/END$/", "send", True),
        ("/x|send/i", "send", True),
        ("/s.*e.*n.*d.*_.*x+/", "send" + "_x" * 30, True),
    ],
)
def test_matches_of_names(match: str, name: str, fits: bool) -> None:
    assert verdict(rule(match, BLOCK), action=name) == (BLOCK if fits else RUN)


# ---- conditions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "arguments", "fits"),
    [
        (when("to", "*@ours.example"), {"to": "A@OURS.example"}, True),
        (when("to", "*@ours.example"), {"to": "a@evil.example"}, False),
        (when("to", "*@ours.example", negate=True), {"to": "a@evil.example"}, True),
        (when("to", "*"), {}, False),
        (when("to", "*"), {"to": None}, False),
        (when("to", "x", negate=True), {}, False),
        (when("to", "x", negate=True), {"to": None}, False),
        (when("to", "*"), {"to": []}, False),
        (when("to", "a*"), {"to": ["a1", "a2"]}, True),
        (when("to", "a*"), {"to": ["b1", "b2"]}, False),
        (when("to", "a*", negate=True), {"to": ["b1", "b2"]}, True),
        (when("customer.id", "7"), {"customer": {"id": 7}}, True),
        (when("customer.id", "7"), {"customer.id": 7}, True),
        (when("customer.id", "7"), {"customer": "7"}, False),
        (when("lines.id", "7"), {"lines": [{"id": 7}, {"id": 7}]}, True),
        (when("to.0", "a"), {"to": ["a", "b"]}, True),
        (when("to", "/@ours.example$/"), {"to": ["a@ours.example"] * 250}, True),
        (when("to.9", "a"), {"to": ["a", "b"]}, False),
        (when("live", "true"), {"live": True}, True),
        (when("amount", "100"), {"amount": 100.0}, True),
        (when("amount", "100"), {"amount": 1e2}, True),
        (when("amount", "36893488147419103232"), {"amount": 2**65}, True),
        (when("to", "/^a@x\\.example$/"), {"to": "a@x.example"}, True),
        (when("to", "/^a@x\\.example$/"), {"to": "a@x.example\n"}, False),
        (when("to", "/[$]$/"), {"to": "5$"}, True),
        (when("to", "/^[*+{]+\\*\\+$/"), {"to": "+" * 254 + "*+"}, True),  # one repetition: the others are plain
        (when("to", "/^a$/m"), {"to": "b\na"}, True),
    ],
)
@pytest.mark.parametrize("action", [RUN, ASK, BLOCK])
def test_a_condition_holds_or_does_not_whatever_the_rule_does(
    condition: Condition, arguments: dict[str, Any], fits: bool, action: str
) -> None:
    other = BLOCK if action == RUN else RUN
    assert verdict(rule("*", action, condition), rule("*", other), arguments=arguments) == (action if fits else other)


@pytest.mark.parametrize(
    ("condition", "arguments"),
    [
        (when("to", "*@ours.example"), None),  # not known
        (when("to", "*@ours.example"), {"to": {"name": "a"}}),
        (when("to", "*@ours.example"), {"to": ["a@ours.example", "b@evil.example"]}),
        (when("to", "*@ours.example", negate=True), {"to": ["a@ours.example", "b@evil.example"]}),
        (when("to", "*@ours.example"), {"to": ["a@ours.example", None]}),
        (when("lines.id", "7"), {"lines": [{"id": 7}, {}]}),
        (when("a.b", "1"), {"a": {"b": 1}, "a.b": 2}),  # two ways to read the path that differ
        (when("to", "/a/"), {"to": "a" * 257}),
        (when("to", "/a/"), {"to": ["a" * 241] * 17}),
        (when("to", "/1/"), {"to": [1] * 4097}),
        (when("to", "/.*a.*b.*c/"), {"to": "a" * 129}),
        (when("to", "/a+.*b{2,}[*+].*\\*.*c/"), {"to": "a" * 25}),
        (when("to", "a*"), {"to": "a" * (1 << 21)}),
        (Condition.model_construct(arg="to", match="/(/"), {"to": "("}),
        (Condition.model_construct(arg="to"), {"to": "x"}),
        (Condition.model_construct(match="x"), {"to": "x"}),
        (Condition.model_construct(), {"to": "x"}),
        (Condition.model_construct(max_calls=100), {}),
        (Condition(max_calls=100, per="day").model_copy(update={"per": "week"}), {}),
        (Condition.model_construct(max_sum=100.0, per="day"), {"amount": 1}),
        (Condition(arg="amount", max_sum=100, per="day"), {"amount": "1"}),
        (Condition(arg="amount", max_sum=100, per="day"), {"amount": True}),
        (Condition(arg="amount", max_sum=100, per="day"), {"amount": -5}),
        (Condition(arg="amount", max_sum=100, per="day"), {"amount": float("nan")}),
        (Condition(arg="amount", max_sum=100, per="day"), {"amount": float("inf")}),
        (Condition(arg="amount", max_sum=100, per="day"), {}),
        (Condition(arg="amount", max_sum=100, per="day"), None),
    ],
)
def test_what_cannot_be_told_restricts_and_never_allows(condition: Condition, arguments: dict[str, Any] | None) -> None:
    def made(action: str) -> PolicyRule:
        return rule("*", action).model_copy(update={"conditions": (condition,)})

    assert verdict(made(RUN), rule("*", ASK), arguments=arguments) == ASK
    assert verdict(made(RUN), sensitive=True, arguments=arguments) == ASK
    assert verdict(made(ASK), rule("*", RUN), arguments=arguments) == ASK
    assert verdict(made(BLOCK), rule("*", RUN), arguments=arguments) == BLOCK
    # A rule that may ask does not keep a later one from blocking.
    assert verdict(made(ASK), rule("*", BLOCK), arguments=arguments) == BLOCK


def test_all_conditions_must_hold() -> None:
    both = rule("*", RUN, when("a", "1"), when("b", "2"))
    assert verdict(both, rule("*", ASK), arguments={"a": 1, "b": 2}) == RUN
    assert verdict(both, rule("*", ASK), arguments={"a": 1, "b": 3}) == ASK
    # One that certainly fails settles it, whatever cannot be told of the others.
    blocks = rule("*", BLOCK, when("a", "1"), when("b", "2"))
    assert verdict(blocks, arguments={"a": 0, "b": {}}) == RUN


# ---- limits --------------------------------------------------------------------------------------------------


def test_a_limit_on_the_number_of_calls_allows_up_to_it_and_restricts_beyond() -> None:
    limit = Condition(max_calls=2, per="hour")
    allows = (rule("send", RUN, limit), rule("*", ASK))
    blocks = (rule("send", BLOCK, limit), rule("*", RUN))
    for past, within in (((), True), ((sent(1),), True), ((sent(1), sent(59)), False), ((sent(1), sent(61)), True)):
        assert verdict(*allows, past=past) == (RUN if within else ASK)
        assert verdict(*blocks, past=past) == (RUN if within else BLOCK)


def test_a_limit_on_a_sum_counts_this_call_too() -> None:
    limit = Condition(arg="amount", max_sum=100, per="day")
    allows = (rule("send", RUN, limit), rule("*", ASK))
    past = (sent(10, {"amount": 60}), sent(20, {"amount": 30.5}))
    assert verdict(*allows, arguments={"amount": 9.5}, past=past) == RUN
    assert verdict(*allows, arguments={"amount": 9.51}, past=past) == ASK
    assert verdict(rule("*", BLOCK, limit), arguments={"amount": 9.5}, past=past) == RUN
    assert verdict(rule("*", BLOCK, limit), arguments={"amount": 10}, past=past) == BLOCK
    # Amounts of elements add up, so that a list is no way round.
    assert verdict(*allows, arguments={"amount": [60, 60]}) == ASK
    # A call before whose amount is not known leaves the sum unknown.
    assert verdict(*allows, arguments={"amount": 1}, past=(sent(10, {"amount": "9"}),)) == ASK


def test_a_limit_counts_what_its_rule_takes_in_and_nothing_else() -> None:
    ours = when("to", "*@ours.example")
    allows = (rule("send", RUN, ours, Condition(max_calls=1, per="hour")), rule("*", ASK))
    arguments = {"to": "a@ours.example"}
    assert verdict(*allows, arguments=arguments, past=(sent(1, {"to": "b@evil.example"}),)) == RUN
    assert verdict(*allows, arguments=arguments, past=(sent(1, {"to": "b@ours.example"}),)) == ASK
    assert verdict(*allows, arguments=arguments, past=(sent(1, {"to": {}}),)) == ASK  # may be one of them
    assert verdict(*allows, arguments=arguments, past=(sent(1, arguments, connector="post"),)) == RUN
    # A rule of the project counts over all connectors that it matches.
    project = (rule("*.send", ASK, Condition(max_calls=1, per="hour")),)
    assert verdict(project=project, past=(sent(1, connector="post"),)) == ASK
    assert verdict(project=project, past=(sent(61, connector="post"),)) == RUN


def test_unknown_usage_is_less_privilege() -> None:
    class Blind:
        now = NOW

        def calls(self, counted: Counted, since: datetime, /) -> int | None:
            return None

        def total(self, counted: Counted, arg: str, since: datetime, /) -> Decimal | None:
            return None

    limits = (Condition(max_calls=9, per="day"), Condition(arg="n", max_sum=9, per="day"))
    for limit in limits:
        for action, otherwise, expected in ((RUN, ASK, ASK), (BLOCK, RUN, BLOCK), (ASK, RUN, ASK)):
            policy = PolicySet(connector=(rule("*", action, limit), rule("*", otherwise)))
            found = decide(policy, connector="mail", action="send", risk=Risk.READ, arguments={"n": 1}, usage=Blind())
            assert found.verdict.value == expected


# ---- properties ----------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["get_a", "get_b", "send", "delete_all", "query.x"])
MATCHES = st.sampled_from(["*", "get_*", "mail.*", "*.send", "send", "*e*", "/^get_/", "/send$/i", "nothing"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=True) | st.sampled_from(["a", "b", "1", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "x.y"]), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.none() | st.dictionaries(st.sampled_from(["a", "b", "x", "x.y"]), VALUES, max_size=4)
PATHS = st.sampled_from(["a", "b", "x.y", "a.b", "a.0"])
SOUND = st.one_of(
    st.builds(Condition, arg=PATHS, match=st.sampled_from(["*", "a", "1", "/^a$/", "*b"]), negate=st.booleans()),
    st.builds(Condition, max_calls=st.integers(1, 3), per=st.sampled_from(["minute", "hour", "day"])),
    st.builds(Condition, arg=PATHS, max_sum=st.sampled_from([1.0, 2.5]), per=st.sampled_from(["hour", "day"])),
)
MALFORMED = st.builds(
    Condition.model_construct,
    arg=st.sampled_from([None, "a"]),
    match=st.sampled_from([None, "/(/", "/[/"]),
    max_calls=st.none(),
    max_sum=st.none(),
    per=st.sampled_from([None, "week"]),
)
ACTIONS = st.sampled_from([RUN, ASK, BLOCK])


def rules_of(conditions: st.SearchStrategy[Condition]) -> st.SearchStrategy[tuple[PolicyRule, ...]]:
    one = st.builds(
        PolicyRule.model_construct,
        match=MATCHES,
        action=ACTIONS,
        conditions=st.lists(conditions, max_size=3).map(tuple),
    )
    return st.lists(one, max_size=5).map(tuple)


PAST = st.lists(
    st.builds(lambda minutes, arguments: sent(minutes, arguments), st.integers(0, 2000), ARGUMENTS), max_size=4
).map(tuple)
POLICIES = st.builds(
    PolicySet.model_construct,
    project=rules_of(SOUND),
    connector=rules_of(SOUND),
    sensitive=st.booleans(),
    default_mode=st.sampled_from(["risk", "allow_all"]),
)


def of(
    policy: PolicySet, name: str, arguments: Any, past: tuple[PastCall, ...] = (), risk: Risk = Risk.WRITE
) -> Decision:
    return decide(policy, connector="mail", action=name, risk=risk, arguments=arguments, usage=PastCalls(NOW, past))


@given(POLICIES, NAMES, ARGUMENTS, PAST)
def test_every_call_gets_one_decision_and_always_the_same(
    policy: PolicySet, name: str, arguments: Any, past: tuple[PastCall, ...]
) -> None:
    found = of(policy, name, arguments, past)
    assert of(policy, name, arguments, tuple(reversed(past))) == found
    if found.rule.source in ("project", "connector"):
        rules = policy.project if found.rule.source == "project" else policy.connector
        assert found.rule.index is not None
        assert rules[found.rule.index].match == found.rule.match
        assert rules[found.rule.index].action == found.verdict


@given(POLICIES, rules_of(SOUND), NAMES, ARGUMENTS)
def test_rules_of_a_connector_never_loosen_what_the_project_decides(
    policy: PolicySet, others: tuple[PolicyRule, ...], name: str, arguments: Any
) -> None:
    found = of(policy, name, arguments)
    if found.rule.source == "project":
        other = of(policy.model_copy(update={"connector": others}), name, arguments)
        assert RANK[other.verdict] >= RANK[found.verdict]


@given(POLICIES, NAMES, ARGUMENTS)
def test_knowing_less_of_the_arguments_never_allows_more(policy: PolicySet, name: str, arguments: Any) -> None:
    only_arguments = {
        key: tuple(
            own.model_copy(update={"conditions": tuple(c for c in own.conditions if c.match is not None)})
            for own in getattr(policy, key)
        )
        for key in ("project", "connector")
    }
    plain = policy.model_copy(update=only_arguments)
    assert RANK[of(plain, name, None).verdict] >= RANK[of(plain, name, arguments).verdict]


@given(POLICIES, MALFORMED, MATCHES, ACTIONS, st.integers(0, 5), NAMES, ARGUMENTS)
def test_a_rule_with_a_malformed_condition_never_makes_a_policy_more_permissive(
    policy: PolicySet, condition: Condition, match: str, action: str, at: int, name: str, arguments: Any
) -> None:
    broken = rule(match, action).model_copy(update={"conditions": (condition,)})
    for key in ("project", "connector"):
        rules = getattr(policy, key)
        more = policy.model_copy(update={key: (*rules[:at], broken, *rules[at:])})
        assert RANK[of(more, name, arguments).verdict] >= RANK[of(policy, name, arguments).verdict]


@given(POLICIES, NAMES, ARGUMENTS)
def test_a_first_rule_without_conditions_decides_alone(policy: PolicySet, name: str, arguments: Any) -> None:
    for action in (RUN, ASK, BLOCK):
        first = policy.model_copy(update={"project": (rule("mail.*", action), *policy.project)})
        found = of(first, name, arguments)
        assert (found.verdict.value, found.rule.source, found.rule.index) == (action, "project", 0)


@given(POLICIES, POLICIES, NAMES, ARGUMENTS)
def test_the_stricter_of_two_decisions_is_one_of_them_and_not_looser_than_either(
    one: PolicySet, other: PolicySet, name: str, arguments: Any
) -> None:
    first, second = of(one, name, arguments), of(other, name, arguments)
    found = stricter(first, second)
    assert found in (first, second)
    assert RANK[found.verdict] == max(RANK[first.verdict], RANK[second.verdict])
    assert stricter(first, first) == first


@given(POLICIES)
def test_a_policy_survives_the_store(policy: PolicySet) -> None:
    assert PolicySet.model_validate_json(policy.model_dump_json()) == policy


@given(st.text("ab*.", max_size=8), st.text("ab.", max_size=10))
def test_globs_are_what_a_plain_definition_says(pattern: str, text: str) -> None:
    def plain(at: int, here: int) -> bool:
        if at == len(pattern):
            return here == len(text)
        if pattern[at] == "*":
            return any(plain(at + 1, later) for later in range(here, len(text) + 1))
        return here < len(text) and pattern[at] == text[here] and plain(at + 1, here + 1)

    assert glob_matches(pattern, text) is plain(0, 0)
