"""Sessions and change requests as rows: the words, glyphs and colours that every list shares."""

from __future__ import annotations

from datetime import datetime

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Activity, ChangeStatus, SessionStatus, Wanted
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.table import Cell, Column, Row
from kortix_tui.runtime.views import ChangeView, SessionView

SHORT_COMMIT = 12

SESSION_COLUMNS = (
    Column("status", "STATUS", 14),
    Column("activity", "ACTIVITY", 8, priority=2),
    Column("title", "TITLE", 24, grow=True),
    Column("project", "PROJECT", 14, priority=4),
    Column("agent", "AGENT", 12, priority=5),
    Column("change", "CR", 9, priority=3),
    Column("diff", "DIFF", 12, priority=1, right=True),
    Column("age", "AGE", 4, right=True),
    Column("id", "ID", 12, priority=6),
)
CHANGE_COLUMNS = (
    Column("number", "#", 4, right=True),
    Column("status", "STATUS", 8),
    Column("title", "TITLE", 24, grow=True),
    Column("project", "PROJECT", 14, priority=2),
    Column("files", "FILES", 5, priority=4, right=True),
    Column("diff", "DIFF", 12, priority=1, right=True),
    Column("head", "HEAD", 12, priority=5),
    Column("session", "SESSION", 12, priority=6),
    Column("age", "AGE", 4, right=True),
)

_STATUS = {
    SessionStatus.PROVISIONING: ("◌ provisioning", "state.provisioning"),
    SessionStatus.RUNNING: ("● running", "state.running"),
    SessionStatus.STOPPED: ("■ stopped", "state.stopped"),
    SessionStatus.FAILED: ("! failed", "state.failed"),
}
_ACTIVITY = {
    Activity.WORKING: ("working", "state.running"),
    Activity.WAITING: ("waiting?", "state.waiting"),
    Activity.IDLE: ("idle", "state.idle"),
}
_CHANGE = {
    ChangeStatus.OPEN: ("? open", "state.waiting"),
    ChangeStatus.MERGED: ("✔ merged", "success"),
    ChangeStatus.CLOSED: ("■ closed", "state.stopped"),
}


def diff_size(additions: int, deletions: int) -> str:
    """`+48 -19`, or nothing for no change."""
    return f"+{additions} -{deletions}" if additions or deletions else ""


def session_row(session: SessionView, now: datetime) -> Row:
    """A session in the list."""
    status, role = _STATUS[session.status]
    activity, activity_role = activity_of(session)
    change = "" if session.change is None else f"#{session.change} {session.change_status or ''}"
    change_role = "state.waiting" if session.change_status == ChangeStatus.OPEN else "muted"
    title = visible_line(session.title)
    fields = {
        "status": session.status.value,
        "activity": activity,
        "state": f"{session.status.value} {activity}",
        "project": session.project,
        "agent": visible_line(session.agent),
        "title": title,
        "id": session.id,
    }
    return Row(
        session.id,
        {
            "status": Cell(status, role),
            "activity": Cell(activity, activity_role),
            "title": Cell(title),
            "project": Cell(session.project, "muted"),
            "agent": Cell(visible_line(session.agent) or "default", "muted"),
            "change": Cell(change, change_role, order=session.change or 0),
            "diff": Cell(diff_size(session.additions, session.deletions), order=session.additions + session.deletions),
            "age": Cell(age(session.created_at, now), "muted", order=-session.created_at.timestamp()),
            "id": Cell(session.id, "muted"),
        },
        text=" ".join(fields.values()),
        fields=fields,
    )


def activity_of(session: SessionView) -> tuple[str, str]:
    """What a session does, in a word and its role; what is wanted of it where that is on the way."""
    if session.wanted is Wanted.REMOVED:
        return "removing", "warning"
    live = session.status in {SessionStatus.RUNNING, SessionStatus.PROVISIONING}
    if session.wanted is Wanted.STOPPED and live:
        return "stopping", "warning"
    if session.status is not SessionStatus.RUNNING:
        return "", "muted"
    return _ACTIVITY[session.activity]


def session_detail(session: SessionView) -> list[Part]:
    """One line about a session: why it is as it is first, then where it works."""
    parts = [Part(" ")]
    if session.reason_text and session.status in {SessionStatus.FAILED, SessionStatus.STOPPED}:
        role = "error" if session.status is SessionStatus.FAILED else "muted"
        parts.append(Part(f"{visible_line(session.reason_text)}   ", role))
    base = visible_line(session.base_branch)
    if session.base_commit:
        base += f" at {session.base_commit[:SHORT_COMMIT]}"
    parts.append(Part(f"{session.id}", "title"))
    parts.append(Part(f"  {session.project} · {base}", "muted"))
    if session.queued:
        parts.append(Part(f"  {session.queued} prompt{'s' * (session.queued > 1)} queued", "state.waiting"))
    if session.change is not None:
        waits = session.change_status == ChangeStatus.OPEN
        parts.append(Part(f"  change #{session.change} {session.change_status}", "state.waiting" if waits else "muted"))
    if session.rescued:
        parts.append(Part(f"  {session.rescued} rescued", "warning"))
    return parts


def change_row(change: ChangeView, now: datetime) -> Row:
    """A change request in a list."""
    status, role = _CHANGE[change.status]
    title = visible_line(change.title)
    fields = {
        "status": change.status.value,
        "state": change.status.value,
        "project": change.project,
        "title": title,
        "session": change.session_id,
        "number": str(change.number),
    }
    return Row(
        change.id,
        {
            "number": Cell(str(change.number), "accent", order=change.number),
            "status": Cell(status, role),
            "title": Cell(title),
            "project": Cell(change.project, "muted"),
            "files": Cell(str(change.files), "muted", order=change.files),
            "diff": Cell(diff_size(change.additions, change.deletions), order=change.additions + change.deletions),
            "head": Cell(change.head_commit[:SHORT_COMMIT], "muted"),
            "session": Cell(change.session_id, "muted"),
            "age": Cell(age(change.created_at, now), "muted", order=-change.created_at.timestamp()),
        },
        text=" ".join(fields.values()),
        fields=fields,
    )


def change_page(change: ChangeView, now: datetime) -> list[list[Part]]:
    """A change request as a page: facts, then what the agent wrote about it."""
    label = 10
    status, role = _CHANGE[change.status]
    lines = [
        [Part(f" {visible_line(change.title)}", "title")],
        [],
        [Part(f" {'status':<{label}}", "muted"), Part(status, role)],
        [Part(f" {'commit':<{label}}", "muted"), Part(change.head_commit[:SHORT_COMMIT])],
        [Part(f" {'into':<{label}}", "muted"), Part(f"{visible_line(change.base_branch)} of {change.project}")],
        [
            Part(f" {'size':<{label}}", "muted"),
            Part(f"{change.files} file{'s' * (change.files != 1)}  "),
            Part(f"+{change.additions} ", "diff.add"),
            Part(f"-{change.deletions}", "diff.remove"),
        ],
        [
            Part(f" {'session':<{label}}", "muted"),
            Part(f"{change.session_id}  "),
            Part(visible_line(change.session_title), "muted"),
        ],
        [
            Part(f" {'opened':<{label}}", "muted"),
            Part(f"{age(change.created_at, now)} ago by {visible_line(change.opened_by)}"),
        ],
    ]
    if change.decided_by and change.decided_at:
        decided = f"{age(change.decided_at, now)} ago by {visible_line(change.decided_by)}"
        lines.append([Part(f" {'decided':<{label}}", "muted"), Part(decided)])
    if change.merge_commit:
        lines.append([Part(f" {'merged as':<{label}}", "muted"), Part(change.merge_commit[:SHORT_COMMIT])])
    if change.shown_head != change.head_commit and change.status is ChangeStatus.OPEN:
        news = "not read yet" if change.shown_head is None else "has moved since you read it"
        lines.append([Part(f" {'review':<{label}}", "muted"), Part(news, "state.waiting")])
    lines.append([])
    text = visible(change.description).expandtabs(4)
    lines.extend([Part(f" {line}")] for line in text.split("\n"))
    return lines
