"""Edits of rules on calls, in the text of a manifest: comments, order, style and every other byte stay."""

from __future__ import annotations

import copy
import re
from decimal import Decimal
from typing import Any, Final

from pydantic import ValidationError

from kortix_tui.base.errors import Ambiguous, InvalidInput, NotFound
from kortix_tui.base.faults import choose
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.manifest.assembly import MANIFEST
from kortix_tui.manifest.marks import Mapping, Node, Scalar, Sequence, last_character
from kortix_tui.manifest.policies import Condition, DefaultMode, PolicyRule, covers
from kortix_tui.manifest.splicing import Draft, Splice, spelled

_PLAIN_MATCH: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.*-]*\Z")


def set_rule(
    source: bytes, rule: PolicyRule, *, connector: str | None, first: bool = False, file: str = MANIFEST
) -> bytes:
    """Write a rule, or give another action to the rule that has its match and its conditions.

    A new one comes last, but before a rule that would keep it from ever being reached.

    Args:
        source: The file that declares the connector, or `kortix.yaml` for a rule of the project.
        rule: What is to hold.
        connector: Whose rules; `None` for those of the project.
        first: Put it before all others.
        file: How messages call the file.

    Returns:
        The edited file; the very same bytes when it says so already.

    Raises:
        NotFound: The file declares no such connector.
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    if visible_line(rule.match) != rule.match:
        raise InvalidInput("The match holds characters that cannot be seen.", hint="Write it in plain characters.")
    rules = _Rules(source, connector, file)
    at = rules.find(rule)
    limit = 0 if first else rules.barrier(rule)
    if at is not None and at <= limit:
        return source if rules.written[at].action == rule.action else rules.with_action(at, rule.action)
    if at is not None:
        source = rules.without(at)
        rules = _Rules(source, connector, file)
    return rules.with_rule(limit, rule)


def remove_rule(
    source: bytes,
    match: str,
    *,
    connector: str | None,
    conditions: tuple[Condition, ...] | None = None,
    file: str = MANIFEST,
) -> bytes:
    """Take a rule out.

    Args:
        source: As for `set_rule`.
        match: The rule's match, as it is written.
        connector: As for `set_rule`.
        conditions: The rule's conditions, where several rules have that match; `None` when there is only one.
        file: How messages call the file.

    Returns:
        The edited file; the very same bytes when it has no such rule.

    Raises:
        Ambiguous: Several rules have that match, and no conditions say which is meant.
        NotFound: The file declares no such connector.
        InvalidInput: As for `set_rule`.
    """
    rules = _Rules(source, connector, file)
    found = [
        at
        for at, rule in enumerate(rules.written)
        if rule.match == match and (conditions is None or rule.conditions == conditions)
    ]
    if not found:
        return source
    if conditions is None and len({rules.written[at].conditions for at in found}) > 1:
        raise Ambiguous(
            f"`{rules.path}` has {len(found)} rules with the match `{visible_line(match)}`.",
            hint="Name the conditions of the one that is meant, too.",
        )
    for at in reversed(found):
        source = _Rules(source, connector, file).without(at)
    return source


def set_default_mode(source: bytes, mode: DefaultMode, *, file: str = MANIFEST) -> bytes:
    """Set `policy.default_mode`.

    Args:
        source: `kortix.yaml`.
        mode: `risk` or `allow_all`.
        file: How messages call the file.

    Returns:
        The edited file; the very same bytes when it says so already, or by leaving it out.

    Raises:
        InvalidInput: The file is not plain YAML, or it cannot be edited without touching something else.
    """
    draft = Draft(source, file)
    root = _root(draft)
    policy = draft.data.get("policy")
    if policy is not None and not isinstance(policy, dict):
        raise InvalidInput(f"{draft.file}: `policy` is not a mapping.", hint="Write `policy: {default_mode: risk}`.")
    if (policy or {}).get("default_mode", "allow_all") == mode:
        return source
    expected = {**draft.data, "policy": {**(policy or {}), "default_mode": mode}}
    path, entry = "policy.default_mode", f"default_mode: {mode}"
    if "policy" not in draft.data:
        splices = draft.new_entry(root, ["policy:", f"  {entry}"], f"policy: {{{entry}}}", path)
        return draft.edited(splices, expected, root, path)
    key, value = draft.entry(root, "policy")
    if not isinstance(value, Mapping):
        splices = [draft.written(key, value, f"{{{entry}}}")]
    elif (old := value.entry("default_mode")) is None:
        splices = draft.new_entry(value, [entry], entry, path)
    else:
        splices = [draft.written(*old, mode)]
    return draft.edited(splices, expected, key, path)


def _root(draft: Draft) -> Mapping:
    if not isinstance(draft.data, dict) or not isinstance(draft.root, Mapping):
        raise InvalidInput(f"{draft.file} is not a mapping.", hint="Write `key: value`, one a line.")
    return draft.root


class _Rules:
    """The rules of a connector, or of the project, in one text.

    Attributes:
        path: Of the list, for messages.
        written: The rules in order.
    """

    def __init__(self, source: bytes, connector: str | None, file: str) -> None:
        self._draft = draft = Draft(source, file)
        self._slot: int | None = None
        self._holder = _root(draft)
        entry: Any = draft.data
        self.path = "policies"
        if connector is not None:
            self._slot, self._holder = self._connector(connector)
            entry = draft.data["connectors"][self._slot]
            self.path = f"connectors.{visible_line(shorten(connector, 60))}.policies"
        self._list = self._holder.entry("policies")
        items = entry.get("policies") or []
        try:
            self.written = [PolicyRule.model_validate(item) for item in items]
        except (ValidationError, TypeError) as error:
            raise InvalidInput(
                f"{draft.place_of(self._here)}: `{self.path}` holds something that is no rule.",
                hint="Run `kortix validate`, and correct it by hand first.",
            ) from error
        self._items: list[Any] = items

    @property
    def _here(self) -> Node:
        return self._list[0] if self._list else self._holder

    def _connector(self, slug: str) -> tuple[int, Mapping]:
        data = self._draft.data.get("connectors")
        entries = data if isinstance(data, list) else []
        slugs = [entry.get("slug") if isinstance(entry, dict) else None for entry in entries]
        if slug not in slugs:
            raise NotFound(
                f"{self._draft.file} declares no connector `{visible_line(shorten(slug, 60))}`.",
                hint=choose(slug, [name for name in slugs if isinstance(name, str)]),
            )
        at = slugs.index(slug)
        key, value = self._draft.entry(self._draft.root, "connectors")
        holder = value.items[at] if isinstance(value, Sequence) and at < len(value.items) else None
        if not isinstance(holder, Mapping):
            self._draft.by_hand(key, "connectors")
        return at, holder

    # ---- reading ------------------------------------------------------------------------------------------

    def find(self, rule: PolicyRule) -> int | None:
        """The first rule with this match and these conditions."""
        wanted = (rule.match, rule.conditions)
        return next((at for at, own in enumerate(self.written) if (own.match, own.conditions) == wanted), None)

    def barrier(self, rule: PolicyRule) -> int:
        """The last place at which a rule is still reached."""
        return next(
            (at for at, own in enumerate(self.written) if not own.conditions and covers(own.match, rule.match)),
            len(self.written),
        )

    # ---- the three changes --------------------------------------------------------------------------------

    def with_action(self, at: int, action: str) -> bytes:
        """Another action for a rule."""
        item = self._sequence.items[at]
        found = item.entry("action") if isinstance(item, Mapping) else None
        if found is None or not isinstance(found[1], Scalar) or found[1].style not in ("", "'", '"'):
            self._draft.by_hand(item, self.path)
        quote = found[1].style
        items = [*self._items]
        items[at] = {**items[at], "action": action}
        return self._edited([self._draft.written(*found, f"{quote}{action}{quote}")], items)

    def without(self, at: int) -> bytes:
        """One rule less."""
        assert self._list is not None  # noqa: S101 - it names a rule
        key, sequence = self._list[0], self._sequence
        if sequence.flow:
            splices = self._draft.out_of_flow(sequence, at)
        else:
            splices = self._draft.out_of_block(key, sequence, at, self.path)
        return self._edited(splices, [*self._items[:at], *self._items[at + 1 :]])

    def with_rule(self, at: int, rule: PolicyRule) -> bytes:
        """One rule more, at a place."""
        return self._edited(self._inserting(at, rule), [*self._items[:at], _plain(rule), *self._items[at:]])

    def _inserting(self, at: int, rule: PolicyRule) -> list[Splice]:
        draft = self._draft
        fields = self._fields(rule)
        flow = f"{{{', '.join(fields)}}}"
        if self._list is None:
            return draft.new_entry(self._holder, ["policies:", f"  - {flow}"], f"policies: [{flow}]", self.path)
        key, value = self._list
        if not isinstance(value, Sequence):
            return [draft.written(key, value, f"[{flow}]")]
        if value.flow:
            if at < len(value.items):
                return [draft.before_in_flow(value.items[at], flow)]
            return draft.into_flow(value, value.items, flow)
        neighbour = value.items[max(0, at - 1)]
        prefix = draft.item_prefix(neighbour, self.path)
        after = last_character(neighbour) if at else key.end
        if after is None:
            draft.by_hand(neighbour, self.path)
        if isinstance(neighbour, Mapping) and not neighbour.flow:
            flow = (draft.lines.newline(after) + " " * len(prefix)).join(fields)
        return [draft.new_line(after, prefix + flow)]

    @property
    def _sequence(self) -> Sequence:
        if self._list is None or not isinstance(self._list[1], Sequence):
            self._draft.by_hand(self._here, self.path)
        return self._list[1]

    def _edited(self, splices: list[Splice], items: list[Any]) -> bytes:
        expected = copy.deepcopy(self._draft.data)
        holder = expected if self._slot is None else expected["connectors"][self._slot]
        holder["policies"] = items
        return self._draft.edited(splices, expected, self._here, self.path)

    # ---- spelling -----------------------------------------------------------------------------------------

    def _fields(self, rule: PolicyRule) -> list[str]:
        fields = [f"match: {self._match(rule.match)}", f"action: {rule.action}"]
        if rule.conditions:
            fields.append(f"conditions: [{', '.join(map(_condition_text, rule.conditions))}]")
        return fields

    def _match(self, match: str) -> str:
        """A match, in quotes unless all other rules have theirs without."""
        items = self._list[1].items if self._list and isinstance(self._list[1], Sequence) else ()
        found = [item.entry("match") for item in items if isinstance(item, Mapping)]
        styles = {entry[1].style for entry in found if entry and isinstance(entry[1], Scalar)}
        return spelled(match) if styles == {""} and _PLAIN_MATCH.match(match) else _quoted(match)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _plain(rule: PolicyRule) -> dict[str, Any]:
    """A rule as the data of a file."""
    data: dict[str, Any] = {"match": rule.match, "action": rule.action}
    if rule.conditions:
        data["conditions"] = [_plain_condition(condition) for condition in rule.conditions]
    return data


def _plain_condition(condition: Condition) -> dict[str, Any]:
    data = condition.model_dump(exclude_defaults=True)
    if condition.max_sum is not None and condition.max_sum.is_integer():
        data["max_sum"] = int(condition.max_sum)
    return data


def _condition_text(condition: Condition) -> str:
    def text(key: str, value: Any) -> str:
        match value:
            case bool():
                return f"{key}: {'true' if value else 'false'}"
            case str() if key == "match":
                return f"{key}: {_quoted(value)}"
            case str():
                return f"{key}: {spelled(value)}"
            case float():
                return f"{key}: {Decimal(repr(value)):f}"  # an exponent would be read as a text
            case _:
                return f"{key}: {value}"

    return f"{{{', '.join(text(key, value) for key, value in _plain_condition(condition).items())}}}"
