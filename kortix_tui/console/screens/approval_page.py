"""One call that waits for a person, as a page: exactly what will be sent, who asks, and which rule made it ask."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import Final

from kortix_tui.base.clock import age
from kortix_tui.base.json_text import Differing, difference, indented, is_json
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import CallState, Risk
from kortix_tui.console.screens.approval_text import MARGIN, Lines, block
from kortix_tui.console.screens.secret_pages import LABEL, field
from kortix_tui.console.widgets.bar import Part
from kortix_tui.runtime.connector_views import ApprovalView

RISK: Final = {
    Risk.READ: ("· read", "risk.low", "it only reads"),
    Risk.WRITE: ("! write", "risk.medium", "it changes something outside"),
    Risk.DESTRUCTIVE: ("‼ destructive", "risk.high", "it may destroy something outside, for good"),
}
SOON_S: Final = 3600
MOST_DIFFERING: Final = 20
STATES: Final = {
    CallState.APPROVED: ("✔ approved; it is about to be sent", "success"),
    CallState.EXECUTING: ("✔ approved; it is being sent", "success"),
    CallState.DONE: ("✔ approved, sent and answered", "success"),
    CallState.FAILED: ("✘ approved, and failed", "error"),
    CallState.UNKNOWN: ("! approved; it may have run, and is not repeated", "warning"),
    CallState.DENIED: ("■ denied", "state.stopped"),
    CallState.EXPIRED: ("■ expired before anybody decided", "state.stopped"),
    CallState.SUPERSEDED: (
        "■ no longer asked for: session, connector or credential changed",
        "state.stopped",
    ),
    CallState.REFUSED: ("■ refused by policy", "state.stopped"),
}
_SIGN: Final = {
    "added": ("+", "diff.add"),
    "removed": ("-", "diff.remove"),
    "changed": ("~", "state.waiting"),
}


def call_name(view: ApprovalView) -> str:
    """`connector.action`, safe."""
    return visible_line(f"{view.connector}.{view.action}")


def target(view: ApprovalView) -> str:
    """Where it goes: method and URL, or the tool of a tool server. Untrusted."""
    return f"{view.method} {view.url}" if view.method else f"tool {view.action} at {view.url or 'a tool server'}"


def short_digest(view: ApprovalView) -> str:
    """Enough of the digest to compare by eye."""
    return f"{view.digest[:8]}…{view.digest[-4:]}" if view.digest else "none"


def who(view: ApprovalView) -> str:
    """Who asks, safe."""
    if view.session_id is None:
        return f"{visible_line(view.created_by)}, from the command line"
    return f"agent {visible_line(view.agent or '') or 'default'} of {view.project}"


def time_left(view: ApprovalView, now: datetime) -> str:
    """How long it can still be decided; empty when it does not end."""
    return age(now, view.expires_at) if view.expires_at else ""


def approval_page(view: ApprovalView, now: datetime, width: int, *, unfolded: bool = False) -> Lines:
    """Everything about a call.

    Args:
        view: The call.
        now: For ages.
        width: Cells of the page.
        unfolded: Whether long parts are shown whole.
    """
    _, role, means = RISK[view.risk]
    lines: Lines = []
    if view.state is not CallState.PENDING:
        word, style = STATES[view.state]
        lines += field("state", word, width, style)
        if view.decided_by and view.decided_at:
            lines += field("decided", f"by {visible_line(view.decided_by)}, {age(view.decided_at, now)} ago", width)
        if view.note:
            lines += field("note", visible_line(view.note), width)
        if view.message:
            lines += field("result", visible_line(view.message), width)
        answer = _answer(view)
        if answer:
            lines += field("answer", answer, width)
    lines += field("sends", shorten(visible_line(target(view)), 2 * (width - LABEL - 3)), width, "accent")
    lines += field("risk", f"{view.risk.value}: {means}", width, role)
    lines += field("who", who(view), width)
    if view.session_id is not None:
        lines += field("session", f"{view.session_id}  {visible_line(view.session_title or '')}", width)
    lines += field("rule", f"{visible_line(view.rule_says)} → Ask", width)
    if view.state is CallState.PENDING:
        lines += _times(view, now, width)
    credential = visible_line(view.credential) if view.credential else "none: it is sent without one"
    lines += field("credential", credential, width)
    lines += field("digest", f"{short_digest(view)}, over everything that is sent", width)
    if view.identical:
        count = len(view.identical)
        same = f"{count} more call{'s' * (count > 1)} would send exactly this: B decides all of them"
        lines += field("the same", same, width, "state.waiting")
    lines += [[], _title("Reason", "as the agent gives it; unverified", "warning")]
    lines += block(view.reason or "No reason given.", width, unfolded=unfolded)
    lines += _sent(view, width, unfolded=unfolded)
    lines += _arguments(view.arguments, width, unfolded=unfolded)
    lines += _difference(view, width, unfolded=unfolded)
    return lines


def _title(text: str, note: str = "", role: str = "muted") -> list[Part]:
    return [Part(f" {text}", "title"), Part(f"   {note}" if note else "", role)]


def _answer(view: ApprovalView) -> str:
    """What came back, in short; empty where nothing did."""
    told = [] if view.status is None else [f"HTTP {view.status}"]
    if view.bytes is not None:
        told.append(f"{view.bytes:,} byte{'s' * (view.bytes != 1)}")
    if view.duration_ms is not None:
        took = f"{view.duration_ms / 1000:.1f} s" if view.duration_ms >= 1000 else f"{view.duration_ms:.0f} ms"
        told.append(f"after {took}")
    return ", ".join(told)


def _times(view: ApprovalView, now: datetime, width: int) -> Lines:
    told = "the agent waits for the answer now" if view.waiting else "the agent is told when you have decided"
    lines = field("asked", f"{age(view.created_at, now)} ago; {told}", width)
    if view.expires_at is not None:
        soon = (view.expires_at - now).total_seconds() < SOON_S
        left = f"in {time_left(view, now)}; then it is not sent, and the agent is told"
        lines += field("expires", left, width, "state.waiting" if soon else "text")
    return lines


def _sent(view: ApprovalView, width: int, *, unfolded: bool) -> Lines:
    """The request as it leaves, but for the credential."""
    lines: Lines = [[], _title("What is sent", "but for the credential, which is put in while sending")]
    lines += block(target(view), width, unfolded=unfolded, role="accent")
    for name, value in view.headers:
        lines += block(f"{name}: {value}", width, unfolded=unfolded)
    if view.body is None:
        return [*lines, [Part(f"{MARGIN}  no body", "muted")]]
    size, pretty = f"{view.body_bytes:,} byte{'s' * (view.body_bytes != 1)}", _pretty(view.body)
    note = size if pretty is None else f"{size}, JSON; shown indented, sent as it was made"
    return [*lines, [], _title("Body", note), *block(pretty or view.body, width, unfolded=unfolded)]


def _arguments(arguments: str, width: int, *, unfolded: bool) -> Lines:
    size = len(arguments.encode("utf-8", "surrogatepass"))
    lines: Lines = [[], _title("Arguments", f"as the agent gave them, {size:,} bytes")]
    return lines + block(_pretty(arguments) or arguments, width, unfolded=unfolded)


# Pages are made anew with every change in the home, and arguments may have megabytes.
@lru_cache(maxsize=16)
def _pretty(text: str) -> str | None:
    """A JSON object or list, indented; nothing for any other text."""
    return indented(text) if text.lstrip()[:1] in ("{", "[") and is_json(text) else None


@lru_cache(maxsize=8)
def _compared(old: str, new: str) -> tuple[list[Differing], int] | None:
    return difference(old, new) if is_json(old) and is_json(new) else None


def _difference(view: ApprovalView, width: int, *, unfolded: bool) -> Lines:
    lines: Lines = [[], _title("Compared with the last approved call of it")]
    if view.last_approved is None:
        return [*lines, [Part(f"{MARGIN}  none was approved before", "state.waiting")]]
    compared = _compared(view.last_approved, view.arguments)
    if compared is None:
        return [*lines, [Part(f"{MARGIN}  they cannot be compared", "warning")]]
    found, same = compared
    if not found:
        return [*lines, [Part(f"{MARGIN}  the same arguments", "success")]]
    listed = found if unfolded else found[:MOST_DIFFERING]
    for one in listed:
        lines += _differing(one, width, unfolded=unfolded)
    if len(listed) < len(found):
        more = f"{MARGIN}▸ {len(found) - len(listed):,} more values differ, folded here   "
        lines.append([Part(more, "state.waiting"), Part("z", "key"), Part(" shows all", "muted")])
    if same:
        lines.append([Part(f"{MARGIN}  {same} value{'s' * (same > 1)} the same", "muted")])
    return lines


def _differing(one: Differing, width: int, *, unfolded: bool) -> Lines:
    sign, role = _SIGN[one.kind]
    rows: Lines = [[Part(f"{MARGIN}{sign} ", role), Part(visible_line(one.path or "the value"), "title")]]
    if one.old is not None:
        rows += block(f"- {one.old}", width, unfolded=unfolded, role="diff.remove")
    if one.new is not None:
        rows += block(f"+ {one.new}", width, unfolded=unfolded, role="diff.add")
    return rows
