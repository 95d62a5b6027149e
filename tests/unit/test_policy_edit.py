"""Edits of rules: the data changes by exactly one rule, the text by nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kortix_tui.base.errors import Ambiguous, InvalidInput, NotFound
from kortix_tui.base.yaml import load
from kortix_tui.manifest.policies import Condition, PolicyRule, unreachable
from kortix_tui.manifest.policy_edit import remove_rule, set_default_mode, set_rule

HEAD = "kortix_version: 2  # keep\n"
TO = Condition(arg="to", match="*@x.example")


def rule(match: str = "send", action: str = "block", *conditions: Condition) -> PolicyRule:
    return PolicyRule.model_validate({"match": match, "action": action, "conditions": list(conditions)})


def with_rule(text: str, new: PolicyRule | None = None, *, connector: str | None = "m", first: bool = False) -> str:
    after = set_rule((HEAD + text).encode(), new or rule(), connector=connector, first=first).decode()
    assert after.startswith(HEAD)
    return after.removeprefix(HEAD)


def without(text: str, match: str = "send", *, connector: str | None = "m", **options: Any) -> str:
    return remove_rule((HEAD + text).encode(), match, connector=connector, **options).decode().removeprefix(HEAD)


NEW = '{match: "send", action: block}'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # No list yet.
        ("connectors:\n  - slug: m\n", f"connectors:\n  - slug: m\n    policies:\n      - {NEW}\n"),
        ("connectors:\n- slug: m  # why\n- slug: n\n",
         f"connectors:\n- slug: m  # why\n  policies:\n    - {NEW}\n- slug: n\n"),
        ("connectors: [{slug: m}]\n", f"connectors: [{{slug: m, policies: [{NEW}]}}]\n"),
        ("connectors:\n  - {slug: m, }\n", f"connectors:\n  - {{slug: m, policies: [{NEW}], }}\n"),
        ("connectors:\n  -\n    slug: m\n", f"connectors:\n  -\n    slug: m\n    policies:\n      - {NEW}\n"),
        ("connectors:\n  - slug: m", f"connectors:\n  - slug: m\n    policies:\n      - {NEW}"),
        ("connectors:\r\n  - slug: m\r\n", f"connectors:\r\n  - slug: m\r\n    policies:\r\n      - {NEW}\r\n"),
        ("connectors:\n  - slug: m\n    policies:\n", f"connectors:\n  - slug: m\n    policies: [{NEW}]\n"),
        ("connectors:\n  - slug: m\n    policies: []  # none\n",
         f"connectors:\n  - slug: m\n    policies: [{NEW}]  # none\n"),
        # A list in block style.
        ("connectors:\n  - slug: m\n    policies:\n      - {match: a, action: block} # 1\n      # end\n    name: M\n",
         "connectors:\n  - slug: m\n    policies:\n      - {match: a, action: block} # 1\n"
         "      - {match: send, action: block}\n      # end\n    name: M\n"),
        ("connectors:\n  - slug: m\n    policies:\n    - match: 'a'\n      action: block\n    name: M\n",
         "connectors:\n  - slug: m\n    policies:\n    - match: 'a'\n      action: block\n"
         '    - match: "send"\n      action: block\n    name: M\n'),
        # Before the rule that would shut it out, and behind what is said about that one.
        ("connectors:\n  - slug: m\n    policies:\n      - match: get_*\n        action: always_run\n"
         "      # everything else\n      - match: '*'\n        action: require_approval\n",
         "connectors:\n  - slug: m\n    policies:\n      - match: get_*\n        action: always_run\n"
         '      - match: "send"\n        action: block\n'
         "      # everything else\n      - match: '*'\n        action: require_approval\n"),
        ("connectors:\n  - slug: m\n    policies: # ours\n      # everything\n      - {match: '*', action: block}\n",
         f"connectors:\n  - slug: m\n    policies: # ours\n      - {NEW}\n      # everything\n"
         "      - {match: '*', action: block}\n"),
        # A list in flow style.
        ("connectors:\n  - slug: m\n    policies: [{match: a, action: block}] # c\n",
         "connectors:\n  - slug: m\n    policies: [{match: a, action: block}, {match: send, action: block}] # c\n"),
        ("connectors:\n  - slug: m\n    policies: [{match: '*', action: block}]\n",
         f"connectors:\n  - slug: m\n    policies: [{NEW}, {{match: '*', action: block}}]\n"),
        ("connectors:\n  - slug: m\n    policies: [\n      {match: a, action: block}, # 1\n"
         "      {match: '*', action: block} # 2\n    ]\n",
         "connectors:\n  - slug: m\n    policies: [\n      {match: a, action: block}, # 1\n"
         f"      {NEW},\n      {{match: '*', action: block}} # 2\n    ]\n"),
        # There already: only its action changes.
        ("connectors:\n  - slug: m\n    policies:\n      - match: send  # mail\n        action: always_run  # now\n",
         "connectors:\n  - slug: m\n    policies:\n      - match: send  # mail\n        action: block  # now\n"),
        ("connectors:\n  - slug: m\n    policies: [{action: 'always_run', match: \"send\"}]\n",
         "connectors:\n  - slug: m\n    policies: [{action: 'block', match: \"send\"}]\n"),
        # There already, but never reached: it moves.
        ("connectors:\n  - slug: m\n    policies:\n      - {match: '*', action: block}\n"
         "      - {match: send, action: always_run}\n",
         f"connectors:\n  - slug: m\n    policies:\n      - {NEW}\n      - {{match: '*', action: block}}\n"),
    ],
)  # fmt: skip
def test_a_rule_is_written_in_the_style_of_what_stands_there(before: str, after: str) -> None:
    assert with_rule(before) == after
    assert with_rule(after) == after  # says so already
    data: Any = load((HEAD + after).encode(), file="").data
    (entry,) = [one for one in data["connectors"] if one["slug"] == "m"]
    rules = [PolicyRule.model_validate(item) for item in entry["policies"]]
    assert rule() in rules
    assert rules.index(rule()) not in [later for later, _ in unreachable(rules)]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("agents: {}\n", f"agents: {{}}\npolicies:\n  - {NEW}\n"),
        ("agents:\n  a: {}\n# end\n", f"agents:\n  a: {{}}\npolicies:\n  - {NEW}\n# end\n"),
        ("policies:\n- {match: x, action: block}\n",
         "policies:\n- {match: x, action: block}\n- {match: send, action: block}\n"),
        ("policies: ~\n", f"policies: [{NEW}]\n"),
    ],
)  # fmt: skip
def test_a_rule_of_the_project_stands_at_the_root(before: str, after: str) -> None:
    assert with_rule(before, connector=None) == after


def test_first_goes_before_all_others_and_moves_what_is_there() -> None:
    text = "policies:\n  # reads\n  - match: get_*\n    action: always_run\n  - match: send\n    action: block\n"
    moved = with_rule(text, connector=None, first=True)
    assert moved == (
        "policies:\n  - match: send\n    action: block\n  # reads\n  - match: get_*\n    action: always_run\n"
    )
    assert with_rule(moved, connector=None, first=True) == moved
    other = with_rule(moved, rule("send", "always_run"), connector=None, first=True)
    assert other == moved.replace("action: block", "action: always_run")


def test_conditions_make_another_rule() -> None:
    limit = Condition(max_calls=3, per="hour")
    amount = Condition(arg="on", max_sum=0.00001, per="day")
    text = "policies:\n  - {match: send, action: require_approval}\n"
    one = with_rule(text, rule("send", "always_run", TO, limit), connector=None)
    conditions = '[{arg: to, match: "*@x.example"}, {max_calls: 3, per: hour}]'
    line = f"  - {{match: send, action: always_run, conditions: {conditions}}}\n"
    assert one == text.replace("policies:\n", f"policies:\n{line}")
    two = with_rule(one, rule("send", "block", amount), connector=None)
    assert 'conditions: [{arg: "on", max_sum: 0.00001, per: day}]' in two
    assert with_rule(one, rule("send", "block", TO, limit), connector=None) == one.replace("always_run", "block")
    # Whole numbers are written as people write them.
    assert "max_sum: 500," in with_rule(
        text, rule("x", "block", Condition(arg="n", max_sum=500, per="day")), connector=None
    )


@pytest.mark.parametrize(
    ("match", "written"),
    [
        ("get_*", "get_*"),
        ("*", '"*"'),
        ("null", '"null"'),
        ("y", '"y"'),
        ("a: b", '"a: b"'),
        ('say "x" \\', '"say \\"x\\" \\\\"'),
        ("/^get_[a-z]+$/i", '"/^get_[a-z]+$/i"'),
        ("größe_*", '"größe_*"'),
    ],
)
def test_a_match_is_quoted_where_it_must_be(match: str, written: str) -> None:
    text = "policies: [{match: x, action: block}]\n"
    after = with_rule(text, rule(match), connector=None)
    assert after == f"policies: [{{match: x, action: block}}, {{match: {written}, action: block}}]\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("connectors:\n  - slug: m\n    policies: [{match: send, action: block}] # c\n",
         "connectors:\n  - slug: m\n    policies: [] # c\n"),
        ("connectors:\n  - slug: m\n    policies:\n      # mail\n      - match: send\n        # no\n"
         "        action: block\n",
         "connectors:\n  - slug: m\n    policies: []\n      # mail\n"),
        ("connectors:\n  - slug: m\n    policies:\n      - match: a\n        action: block\n      - match: send\n"
         "        action: block",
         "connectors:\n  - slug: m\n    policies:\n      - match: a\n        action: block"),
        ("connectors:\n  - slug: m\n    policies:\n      - match: send\n        action: block  # no\n\n      # later\n"
         "      - match: b\n        action: block\n    name: M\n",
         "connectors:\n  - slug: m\n    policies:\n\n      # later\n      - match: b\n        action: block\n"
         "    name: M\n"),
        ("connectors:\n  - slug: m\n    policies: [\n      {match: send,\n       action: block}, # 1\n"
         "      {match: b, action: block}\n    ]\n",
         "connectors:\n  - slug: m\n    policies: [\n      {match: b, action: block}\n    ]\n"),
        ("connectors:\n  - slug: m\n    policies: [{match: a, action: block}, {match: send, action: block}]\n",
         "connectors:\n  - slug: m\n    policies: [{match: a, action: block}]\n"),
        ("connectors:\n  - slug: m\n", "connectors:\n  - slug: m\n"),
        ("connectors:\n  - slug: m\n    policies: [{match: a, action: block}]\n",
         "connectors:\n  - slug: m\n    policies: [{match: a, action: block}]\n"),
    ],
)  # fmt: skip
def test_a_rule_is_taken_out_and_what_stands_around_it_stays(before: str, after: str) -> None:
    assert without(before) == after


def test_conditions_say_which_rule_goes() -> None:
    text = (
        "policies:\n  - {match: send, action: always_run, conditions: [{arg: to, match: '*@x.example'}]}\n"
        "  - {match: send, action: block}\n"
    )
    with pytest.raises(Ambiguous, match="2 rules"):
        without(text, connector=None)
    assert without(text, connector=None, conditions=(TO,)) == "policies:\n  - {match: send, action: block}\n"
    assert without(text, connector=None, conditions=()).splitlines()[1:] == text.splitlines()[1:2]
    assert without(text, connector=None, conditions=(Condition(arg="to", match="y"),)) == text
    twice = "policies: [{match: send, action: block}, {match: send, action: always_run}]\n"
    assert without(twice, connector=None) == "policies: []\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("agents: {}\n", "agents: {}\npolicy:\n  default_mode: risk\n"),
        ("policy:\n  default_mode: allow_all  # for now\n", "policy:\n  default_mode: risk  # for now\n"),
        ("policy: {default_mode: 'allow_all'}\n", "policy: {default_mode: risk}\n"),
        ("policy:\nagents: {}\n", "policy: {default_mode: risk}\nagents: {}\n"),
        ("policy: {}\n", "policy: {default_mode: risk}\n"),
        ("policy: # c\n  default_mode:\n", "policy: # c\n  default_mode: risk\n"),
        ("policy:\n  default_mode: risk\n", "policy:\n  default_mode: risk\n"),
    ],
)
def test_the_default_mode_is_set_in_place(before: str, after: str) -> None:
    assert set_default_mode((HEAD + before).encode(), "risk").decode() == HEAD + after


def test_what_is_left_out_is_allow_all() -> None:
    assert set_default_mode(HEAD.encode(), "allow_all").decode() == HEAD
    assert set_default_mode(b"policy: {default_mode: risk}\n", "allow_all") == b"policy: {default_mode: allow_all}\n"


def test_a_byte_order_mark_stays() -> None:
    assert set_default_mode(b"\xef\xbb\xbfa: 1\n", "risk") == b"\xef\xbb\xbfa: 1\npolicy:\n  default_mode: risk\n"


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("connectors: []\n", NotFound),
        ("connectors: {m: 1}\n", NotFound),
        ("connectors: [{slug: n}]\n", NotFound),
        ("[]\n", InvalidInput),
        ("connectors: [{slug: m, policies: all}]\n", InvalidInput),
        ("connectors: [{slug: m, policies: [send]}]\n", InvalidInput),
        ("connectors: [{slug: m, policies: [{match: send}]}]\n", InvalidInput),
        ("connectors: [{slug: m, policies: 3}]\n", InvalidInput),
        ("connectors:\n  - slug: m\n    policies:\n      - match: send\n        action: |-\n          always_run\n",
         InvalidInput),
        ("connectors: &x [{slug: m}]\nother: *x\n", InvalidInput),
    ],
)  # fmt: skip
def test_what_cannot_be_edited_safely_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error) as raised:
        set_rule(text.encode(), rule(), connector="m")
    assert getattr(raised.value, "hint", None)


def test_a_match_that_cannot_be_seen_is_refused() -> None:
    with pytest.raises(InvalidInput, match="cannot be seen"):
        set_rule(b"a: 1\n", rule("send\u202e*"), connector=None)


def test_a_default_mode_that_is_no_mapping_is_refused() -> None:
    with pytest.raises(InvalidInput, match="not a mapping"):
        set_default_mode(b"policy: risk\n", "risk")


# ---- any text ------------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["get_*", "send", "*", "a", "b_*", "/x/", "no"])
CONDITIONS = st.lists(
    st.sampled_from([TO, Condition(max_calls=2, per="day"), Condition(arg="n", max_sum=2.5, per="hour")]),
    max_size=2, unique=True,
).map(tuple)  # fmt: skip
RULES = st.builds(PolicyRule, match=WORDS, action=st.sampled_from(["always_run", "require_approval", "block"]),
                  conditions=CONDITIONS)  # fmt: skip
STYLES = st.sampled_from(["flow", "inline", "block"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Rules as people write them, with comments anywhere."""
    rules, style, pad = draw(st.lists(RULES, max_size=4)), draw(STYLES), draw(st.sampled_from(["", "  "]))

    def comment() -> str:
        return draw(st.sampled_from(["", "", "  # why"]))

    def fields(one: PolicyRule) -> list[str]:
        data = one.model_dump(exclude_defaults=True, mode="json")
        conditions = [
            "{"
            + ", ".join(f"{key}: '{value}'" if key == "match" else f"{key}: {value}" for key, value in own.items())
            + "}"
            for own in data.get("conditions", ())
        ]
        quote = draw(st.sampled_from(["'", '"']))
        listed = [f"match: {quote}{one.match}{quote}", f"action: {one.action}"]
        return [*listed, f"conditions: [{', '.join(conditions)}]"] if conditions else listed

    if not rules:
        return draw(st.sampled_from(["x: 1\n", "policies:\n", "policies: []  # c\nx: 1\n", "x: |\n  text\n\n"]))
    if style == "inline":
        items = ", ".join("{" + ", ".join(fields(one)) + "}" for one in rules)
        return f"policies: [{items}]{comment()}\nx: 1\n"
    lines = [f"policies:{comment()}"]
    for one in rules:
        if draw(st.booleans()):
            lines.append(f"{pad}# about {one.action}")
        if style == "flow":
            lines.append(f"{pad}- {{{', '.join(fields(one))}}}{comment()}")
        else:
            lines.append(f"{pad}- " + f"{comment()}\n{pad}  ".join(fields(one)) + comment())
    return "\n".join([*lines, *draw(st.sampled_from([[], ["x: 1"], ["# end", "x: 1", ""]]))])


def rules_in(text: str) -> list[PolicyRule]:
    data: Any = load(text.encode(), file="").data
    return [PolicyRule.model_validate(item) for item in data.get("policies") or []]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts(), RULES, st.booleans())
def test_any_list_gains_a_rule_that_is_reached_and_keeps_its_other_lines(
    text: str, new: PolicyRule, first: bool
) -> None:
    before, edited = rules_in(text), set_rule(text.encode(), new, connector=None, first=first).decode()
    after = rules_in(edited)
    assert new in after
    at = after.index(new)
    assert at not in [later for later, _ in unreachable(after)]
    assert not first or at == 0
    same = [own for own in before if (own.match, own.conditions) == (new.match, new.conditions)]
    rest = [own for own in before if own not in same]
    assert [own for own in after if (own.match, own.conditions) != (new.match, new.conditions)] == rest
    assert set_rule(edited.encode(), new, connector=None, first=first).decode() == edited
    kept = [line for line in text.splitlines() if line.lstrip().startswith("#") or line.startswith("x:")]
    assert [line for line in edited.splitlines() if line in kept] == kept
    if not same:  # nothing but the new rule: all lines of a block list stay as they were
        gone = [line for line in text.splitlines() if line not in edited.splitlines()]
        assert not gone or "- " not in gone[0]


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts(), RULES)
def test_any_list_loses_a_rule_and_nothing_else(text: str, old: PolicyRule) -> None:
    before = rules_in(text)
    edited = remove_rule(text.encode(), old.match, connector=None, conditions=old.conditions).decode()
    assert rules_in(edited) == [own for own in before if (own.match, own.conditions) != (old.match, old.conditions)]
    kept = [line for line in text.splitlines() if line.lstrip().startswith("#") or line.startswith("x:")]
    assert [line for line in edited.splitlines() if line in kept] == kept


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(texts(), RULES.filter(lambda own: not own.conditions))
def test_a_new_rule_that_is_removed_again_leaves_the_old_text(text: str, new: PolicyRule) -> None:
    if any((own.match, own.conditions) == (new.match, new.conditions) for own in rules_in(text)) or not rules_in(text):
        return
    edited = set_rule(text.encode(), new, connector=None)
    assert remove_rule(edited, new.match, connector=None, conditions=()).decode() == text
