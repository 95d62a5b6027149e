"""What happens to a call: which rule decides, in the order project, connector, `sensitive`, `default_mode`.

Whatever cannot be told is decided towards less privilege: a rule that allows does not apply, one that restricts does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.words import Risk, Verdict
from kortix_tui.broker.conditions import Answer, Counted, Usage, amount, argument_answer, name_answer, within
from kortix_tui.broker.connectors.model import Action, Decision, RuleSource
from kortix_tui.manifest.connectors import Connector
from kortix_tui.manifest.model import Manifest
from kortix_tui.manifest.policies import Condition, DefaultMode, PolicyRule

__all__ = [
    "Counted", "ExplainedAction", "ExplainedRule", "Explanation", "PastCall", "PastCalls", "PolicySet", "Usage",
    "condition_says", "decide", "explain", "stricter",
]  # fmt: skip

Source = Literal["project", "connector"]

_STRICTNESS: Final = {Verdict.RUN: 0, Verdict.ASK: 1, Verdict.BLOCK: 2}


class PolicySet(BaseModel):
    """Everything in a manifest that decides calls of one connector. Survives a trip through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: tuple[PolicyRule, ...] = ()
    connector: tuple[PolicyRule, ...] = ()
    sensitive: bool = False
    default_mode: DefaultMode = "allow_all"

    @classmethod
    def of(cls, manifest: Manifest, connector: Connector) -> PolicySet:
        """The policy of a connector under its manifest."""
        return cls(
            project=manifest.policies,
            connector=connector.policies,
            sensitive=connector.sensitive,
            default_mode=manifest.policy.default_mode,
        )

    @property
    def gates_off(self) -> bool:
        """Whether nothing ever asks or is blocked: the default allows, and no rule restricts."""
        restricts = any(Verdict(rule.action) is not Verdict.RUN for rule in (*self.project, *self.connector))
        return self.default_mode == "allow_all" and not self.sensitive and not restricts


@dataclass(frozen=True, slots=True)
class _Placed:
    """A rule and where it stands."""

    source: Source
    index: int
    rule: PolicyRule

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.rule.action)

    def names(self, connector: str, action: str) -> bool:
        name = f"{connector}.{action}" if self.source == "project" else action
        return name_answer(self.rule.match, name) is Answer.YES

    def decision(self) -> Decision:
        return Decision(
            verdict=self.verdict, rule=RuleSource(source=self.source, index=self.index, match=self.rule.match)
        )


def decide(
    policy: PolicySet,
    *,
    connector: str,
    action: str,
    risk: Risk,
    arguments: Mapping[str, Any] | None,
    usage: Usage,
) -> Decision:
    """What happens to a call.

    Args:
        policy: Of the call's connector.
        connector: Its slug.
        action: The action's name, relative to the connector.
        risk: Of the action.
        arguments: What the caller gave; `None` when that is not known.
        usage: What was called before, for rules with limits.
    """
    asks: Decision | None = None
    for placed in _placed(policy):
        if not placed.names(connector, action):
            continue
        applies = _applies(placed, connector, arguments, usage)
        if applies is Answer.YES or (applies is Answer.UNKNOWN and placed.verdict is Verdict.BLOCK):
            return _with(asks, placed.decision())
        if applies is Answer.UNKNOWN and placed.verdict is Verdict.ASK and asks is None:
            asks = placed.decision()  # at least; if it does not apply, a later rule may block
    return _with(asks, _default(policy, risk))


def stricter(one: Decision, other: Decision) -> Decision:
    """The decision with less privilege; `one` when they are alike.

    A session is bound by the policy that it began under and by what the base branch says now (invariant I3).
    """
    return other if _STRICTNESS[other.verdict] > _STRICTNESS[one.verdict] else one


def _with(asks: Decision | None, decision: Decision) -> Decision:
    return decision if asks is None else stricter(asks, decision)


def _placed(policy: PolicySet) -> Iterator[_Placed]:
    for index, rule in enumerate(policy.project):
        yield _Placed("project", index, rule)
    for index, rule in enumerate(policy.connector):
        yield _Placed("connector", index, rule)


def _applies(placed: _Placed, connector: str, arguments: Mapping[str, Any] | None, usage: Usage) -> Answer:
    """Whether all conditions of a rule whose name matches hold."""
    counted = Counted(connector if placed.source == "connector" else None, placed.rule)
    answers = {_condition(condition, placed, counted, arguments, usage) for condition in placed.rule.conditions}
    if Answer.NO in answers:
        return Answer.NO
    return Answer.UNKNOWN if Answer.UNKNOWN in answers else Answer.YES


def _condition(
    condition: Condition, placed: _Placed, counted: Counted, arguments: Mapping[str, Any] | None, usage: Usage
) -> Answer:
    if condition.max_calls is None and condition.max_sum is None:
        return argument_answer(condition, arguments)
    answer = within(condition, counted, arguments, usage)
    if answer is Answer.UNKNOWN or placed.verdict is Verdict.RUN:
        return answer
    return Answer.of(answer is Answer.NO)  # a rule that restricts begins where the limit ends


def _default(policy: PolicySet, risk: Risk) -> Decision:
    if policy.sensitive:
        return Decision(verdict=Verdict.ASK, rule=RuleSource(source="sensitive"))
    if policy.default_mode == "allow_all":
        return Decision(verdict=Verdict.RUN, rule=RuleSource(source="allow_all"))
    verdict = Verdict.RUN if risk is Risk.READ else Verdict.ASK
    return Decision(verdict=verdict, rule=RuleSource(source="risk_default"))


# ---- usage from a list of calls ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PastCall:
    """One call that counts towards limits."""

    at: datetime
    connector: str
    action: str
    arguments: Mapping[str, Any] | None


class PastCalls:
    """`Usage` of calls in memory: those up to the one that is decided.

    Args:
        now: The moment of the call that is decided.
        past: The calls that count, in any order.
    """

    def __init__(self, now: datetime, past: Iterable[PastCall] = ()) -> None:
        self._now = now
        self._past = sorted(past, key=lambda call: call.at)
        self._found: dict[Counted, list[PastCall]] = {}

    def at(self, now: datetime) -> PastCalls:
        """The same calls as another moment sees them."""
        other = PastCalls(now)
        other._past, other._found = self._past, self._found
        return other

    @property
    def now(self) -> datetime:
        """The moment of the call that is decided."""
        return self._now

    def calls(self, counted: Counted, since: datetime, /) -> int | None:
        """How many there were since."""
        return len(self._since(counted, since))

    def total(self, counted: Counted, arg: str, since: datetime, /) -> Decimal | None:
        """The sum of their amounts; `None` when one has none."""
        amounts = [amount(call.arguments, arg) for call in self._since(counted, since)]
        known = [value for value in amounts if value is not None]
        return sum(known, Decimal(0)) if len(known) == len(amounts) else None

    def _since(self, counted: Counted, since: datetime) -> list[PastCall]:
        found = self._found.get(counted)
        if found is None:
            found = [call for call in self._past if counted.takes(call.connector, call.action, call.arguments)]
            self._found[counted] = found
        first = bisect_right(found, since, key=lambda call: call.at)
        return found[first : bisect_right(found, self._now, key=lambda call: call.at)]


# ---- explaining ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExplainedRule:
    """One rule and what it does.

    Attributes:
        matches: Actions whose name it matches.
        decides: Actions for which it is the first rule that can decide.
        note: Why it does nothing, if so.
    """

    source: Source
    index: int
    rule: PolicyRule
    matches: int
    decides: int
    note: str | None


@dataclass(frozen=True, slots=True)
class ExplainedAction:
    """What happens to an action while its arguments are not known.

    Attributes:
        conditional: Whether arguments or limits can change it.
    """

    action: Action
    decision: Decision
    conditional: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """A whole policy over the actions of a connector."""

    rules: tuple[ExplainedRule, ...]
    actions: tuple[ExplainedAction, ...]


def explain(policy: PolicySet, connector: str, actions: Iterable[Action], usage: Usage) -> Explanation:
    """Say for every action what happens to it, and for every rule whether it does anything."""
    actions = tuple(actions)
    rules = tuple(_placed(policy))
    chains = [[placed for placed in rules if placed.names(connector, action.name)] for action in actions]
    reached = [_until_certain(chain) for chain in chains]
    explained = tuple(
        ExplainedAction(
            action,
            decide(policy, connector=connector, action=action.name, risk=action.risk, arguments=None, usage=usage),
            any(placed.rule.conditions for placed in chain),
        )
        for action, chain in zip(actions, reached, strict=True)
    )
    return Explanation(tuple(_explained(placed, chains, reached) for placed in rules), explained)


def _until_certain(chain: Sequence[_Placed]) -> list[_Placed]:
    """The rules that can decide: up to the first without conditions."""
    for place, placed in enumerate(chain):
        if not placed.rule.conditions:
            return list(chain[: place + 1])
    return list(chain)


def _explained(placed: _Placed, chains: list[list[_Placed]], reached: list[list[_Placed]]) -> ExplainedRule:
    named = [place for place, chain in enumerate(chains) if placed in chain]
    note = None
    if not named:
        note = "matches nothing" if placed.source == "connector" else "matches nothing of this connector"
    elif not any(placed in reached[place] for place in named):
        before = {reached[place][-1] for place in named}
        first = min(before, key=lambda rule: (rule.source == "connector", rule.index))
        many = "and others decide" if len(before) > 1 else "decides"
        kind = "" if first.source == placed.source else f"{first.source} "
        note = f"never reached: {kind}rule {first.index + 1} {many} before it"
    decides = sum(1 for place in named if reached[place][0] == placed)
    return ExplainedRule(placed.source, placed.index, placed.rule, len(named), decides, note)


def condition_says(condition: Condition, action: str) -> str:
    """A condition in words, for a person; `action` is that of its rule."""
    if condition.match is not None:
        return f"{condition.arg} {'does not match' if condition.negate else 'matches'} {condition.match}"
    bound = "up to" if action == Verdict.RUN else "beyond"
    per = "an hour" if condition.per == "hour" else f"a {condition.per}"
    if condition.max_calls is not None:
        calls = "call" if condition.max_calls == 1 else "calls"
        return f"{bound} {condition.max_calls} {calls} {per}"
    return f"{bound} a sum of {condition.max_sum:g} of {condition.arg} {per}"
