"""Connectors as rows and as pages: whether calls work, who may make them, and what happens to each action."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import ConnectionState, Verdict
from kortix_tui.broker.connectors.model import CatalogueDifference
from kortix_tui.console.screens.approval_page import RISK
from kortix_tui.console.screens.secret_pages import Lines, field
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.cells import fit
from kortix_tui.console.widgets.table import Cell, Column, Row
from kortix_tui.runtime.connector_views import ActionView, ConnectionView, ConnectorView, PolicyView, RuleView

CONNECTOR_COLUMNS: Final = (
    Column("slug", "CONNECTOR", 16, grow=True),
    Column("state", "STATE", 16),
    Column("gates", "GATES", 13),
    Column("actions", "ACTIONS", 7, right=True),
    Column("agents", "AGENTS", 14, priority=1),
    Column("accounts", "ACCOUNTS", 16, priority=4),
    Column("provider", "PROVIDER", 8, priority=3),
    Column("place", "WHERE", 30, priority=5),
    Column("project", "PROJECT", 12, priority=2),
)
VERDICT: Final = {
    Verdict.RUN: ("Allow", "success"),
    Verdict.ASK: ("Ask", "state.waiting"),
    Verdict.BLOCK: ("Block", "error"),
}
_CONNECTION: Final = {
    ConnectionState.READY: ("● ready", "success"),
    ConnectionState.EXPIRED: ("! expired", "warning"),
    ConnectionState.REVOKED: ("! revoked", "error"),
}
MOST_NAMED: Final = 12
NAME_CELLS: Final = 34


def key_of(connector: ConnectorView) -> str:
    """The row of a connector."""
    return f"{connector.project}/{connector.slug}"


def state_of(connector: ConnectorView) -> tuple[str, str]:
    """Whether it works, in a word with its glyph, and its role."""
    if not connector.enabled:
        return "■ disabled", "muted"
    if connector.pending:
        return "? changed", "state.waiting"
    if not connector.connected:
        return "! not ready", "warning"
    return "● connected", "success"


def _gates(connector: ConnectorView) -> tuple[str, str]:
    if connector.gates_off:
        return "! off: no ask", "risk.high"
    return "on", "success"


def connector_row(connector: ConnectorView) -> Row:
    """A connector in the list."""
    state, role = state_of(connector)
    gates, gates_role = _gates(connector)
    agents = ", ".join(visible_line(agent) for agent in connector.agents)
    accounts = ", ".join(visible_line(one.account) for one in connector.connections)
    fields = {
        "connector": visible_line(connector.slug),
        "name": visible_line(connector.name or ""),
        "state": state,
        "gates": "off" if connector.gates_off else "on",
        "agents": agents,
        "provider": visible_line(connector.provider),
        "project": connector.project,
        "place": visible_line(connector.place),
    }
    actions = "" if connector.actions is None else str(connector.actions)
    return Row(
        key_of(connector),
        {
            "slug": Cell(fields["connector"]),
            "state": Cell(state, role),
            "gates": Cell(gates, gates_role),
            "actions": Cell(actions or "unknown", "text" if actions else "muted", order=float(connector.actions or 0)),
            "agents": Cell(agents or "none", "text" if agents else "muted"),
            "accounts": Cell(accounts or ("not needed" if connector.auth == "none" else "none"), "muted"),
            "provider": Cell(fields["provider"], "muted"),
            "place": Cell(fields["place"], "muted"),
            "project": Cell(connector.project, "muted"),
        },
        text=" ".join(fields.values()),
        fields=fields,
    )


def gates_line(connectors: Sequence[ConnectorView], faults: Sequence[tuple[str, str]], key: str) -> list[Part]:
    """Where gates are off, in plain sight, and what changes that; else that they are on.

    Args:
        connectors: All that are known.
        faults: Projects whose connectors cannot be read, and why.
        key: The key that offers to change it.
    """
    if faults:
        slug, why = faults[0]
        return [Part(f" ! {slug}: {visible_line(why)}", "error")]
    off = [one for one in connectors if one.gates_off]
    if not connectors:
        return [Part(" Agents reach no outside system: kortix.yaml declares no connector.", "muted")]
    if not off:
        return [
            Part(" ✔ gates are on", "success"),
            Part("  every connector has a rule, or asks by default", "muted"),
        ]
    names = ", ".join(visible_line(one.slug) for one in off[:MOST_NAMED])
    more = f" and {len(off) - MOST_NAMED} more" if len(off) > MOST_NAMED else ""
    return [
        Part(f" ! gates are off: {names}{more}", "risk.high"),
        Part(" (every call runs)  ", "warning"),
        Part(key, "key"),
        Part(" offers to change that", "muted"),
    ]


def connector_page(connector: ConnectorView, policy: PolicyView | None, now: datetime, width: int) -> Lines:
    """Everything about a connector but its credentials' values.

    Args:
        connector: As the list has it.
        policy: Its rules and actions; `None` while they are being read.
        now: For ages.
        width: Cells of the page.
    """
    state, role = state_of(connector)
    lines = field("state", state, width, role)
    if connector.problem:
        lines += field("to do", visible_line(connector.problem), width, "warning")
    if connector.pending:
        news = "it has changed where it comes from: A shows what, to accept it"
        lines += field("document", news, width, "state.waiting")
    lines += field("where", visible_line(f"{connector.provider}, {connector.place}"), width)
    lines += field("auth", visible_line(connector.auth), width)
    agents = ", ".join(visible_line(agent) for agent in connector.agents)
    lines += field("agents", agents or "none may use it: a lets one", width, "text" if agents else "muted")
    if connector.gates_off:
        lines += field("gates", "! off: every call runs unasked; M offers to change that", width, "risk.high")
    else:
        lines += field("gates", f"on; where no rule matches: {_default_says(connector)}", width)
    lines += [[], _heading("Accounts")]
    none = [[Part(f"   {_no_account(connector)}", "muted")]]
    lines += [_connection(one, now) for one in connector.connections] or none
    if policy is None:
        return [*lines, [], [Part(" Reading its policy…", "muted")]]
    lines += [[], _heading("Rules", "the first that matches decides; the project's come first")]
    lines += [_rule(rule) for rule in policy.rules] or [[Part("   none", "muted")]]
    lines += [
        [],
        _heading(f"Actions [{len(policy.actions)}]", "what would happen, and why; * arguments or limits can change it"),
    ]
    lines += [_action(action) for action in policy.actions] or [[Part("   not known before s has read them", "muted")]]
    return lines


def _default_says(connector: ConnectorView) -> str:
    if connector.sensitive:
        return "Ask, because it is marked sensitive"
    return "reads Allow, others Ask (risk)" if connector.default_mode == "risk" else "Allow (allow_all)"


def _no_account(connector: ConnectorView) -> str:
    return "none needed" if connector.auth == "none" else "none: n connects one"


def _heading(text: str, note: str = "") -> list[Part]:
    return [Part(f" {text}", "title"), Part(f"   {note}" if note else "", "muted")]


def _connection(one: ConnectionView, now: datetime) -> list[Part]:
    state, role = _CONNECTION[one.state]
    used = f"used {age(one.used_at, now)} ago" if one.used_at else "never used"
    return [
        Part(f"   {fit(visible_line(one.account), 16)} "),
        Part(fit(state, 11), role),
        Part(fit(visible_line(one.auth), 10), "muted"),
        Part(f"{'default, ' * one.is_default}{used}", "muted"),
    ]


def _rule(rule: RuleView) -> list[Part]:
    word, role = VERDICT[rule.verdict]
    conditions = f" if {' and '.join(rule.conditions)}" if rule.conditions else ""
    parts = [
        Part(f"   {fit(f'{rule.source} {rule.index + 1}', 13)}", "muted"),
        Part(fit(word, 6), role),
        Part(f"{visible_line(rule.match + conditions)}  "),
    ]
    if rule.note:
        parts.append(Part(f"! {visible_line(rule.note)}", "warning"))
    elif rule.conditions or not rule.decides:
        # Its own conditions, or those of rules before it, are not known to hold before a call has its arguments.
        parts.append(Part(f"may decide up to {rule.matches}", "muted"))
    else:
        parts.append(Part(f"decides {rule.decides} of {rule.matches}", "muted"))
    return parts


def _action(action: ActionView) -> list[Part]:
    word, role = VERDICT[action.verdict]
    sign, risk_role, _ = RISK[action.risk]
    parts = [Part(f"   {fit(visible_line(action.name), NAME_CELLS)} "), Part(fit(sign, 14), risk_role)]
    if action.unavailable:
        return [*parts, Part(f"cannot be called: {visible_line(action.unavailable)}", "muted")]
    parts.append(Part(fit(f"{word}{'*' * action.conditional}", 7), role))
    return [*parts, Part(visible_line(action.rule), "muted")]


def difference_lines(found: CatalogueDifference) -> Lines:
    """What a changed document changes, action by action; the most dangerous first."""
    lines: Lines = []
    if found.base_url is not None:
        old, new = (visible_line(url or "none") for url in found.base_url)
        lines.append([Part(" ! calls go to ", "risk.high"), Part(new, "title"), Part(f" instead of {old}")])
    for names, word, role in (
        (found.riskier, "! riskier", "risk.high"),
        (tuple(name for name in found.changed if name not in found.riskier), "~ changed", "state.waiting"),
        (found.added, "+ added", "diff.add"),
        (found.removed, "- removed", "diff.remove"),
    ):
        lines += [[Part(f" {fit(word, 11)}", role), Part(visible_line(name))] for name in names]
    return lines or [[Part(" no action changes", "muted")]]
