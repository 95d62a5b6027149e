"""`kortix sessions show`: one session with everything that belongs to it."""

from __future__ import annotations

import shlex
from datetime import UTC, datetime
from pathlib import Path

from kortix_tui.base.clock import age
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.cli.output import BOLD, counted, paint, say, say_fields, status_style
from kortix_tui.runtime.views import SessionDetail, SessionView
from kortix_tui.store.models import Change, Prompt, Rescue

LINE = 100


def say_session(detail: SessionDetail, mirror: Path) -> None:
    """Print the page.

    Args:
        detail: What is shown.
        mirror: The project's bare mirror, from which rescued work is fetched.
    """
    session, now = detail.session, datetime.now(UTC)
    status = "removed" if session.removed_at else session.status.value
    if status == "running":
        status = f"running, {session.activity}"
    say(f"{paint(session.id, BOLD)}  {paint(status, status_style(status.replace(',', '')))}")
    say(visible_line(session.title))
    base = f"{session.base_branch} at {session.base_commit[:12]}" if session.base_commit else session.base_branch
    head = f"{session.id} at {session.head_commit[:12]}" if session.head_commit else session.id
    diff = f"{counted(session.files, 'file')}, +{session.additions} -{session.deletions}"
    say_fields([
        ("why", _why(session)),
        ("project", session.project),
        ("agent", session.agent),
        ("branch", head),
        ("base", base),
        ("diff", diff if session.files else ""),
        ("image", session.image or ""),
        ("isolation", detail.isolation or ""),
        ("idle stop", f"after {session.idle_minutes:g} min without work"),
        ("started by", f"{session.owner} ({session.origin}), {age(session.created_at, now)} ago"),
    ])  # fmt: skip
    _say_all("prompts", [_prompt(prompt, now) for prompt in detail.prompts])
    _say_all("change requests", [_change(change, session.project) for change in detail.changes])
    removed = session.removed_at is not None
    rescues = [
        _rescue(each, mirror, now, joined=each.n in detail.joined_rescues, removed=removed) for each in detail.rescues
    ]
    _say_all("rescued work", [line for lines in rescues for line in lines])


def _why(session: SessionView) -> str:
    """Why it is in its status, where that is more than what the status says."""
    if session.reason_text is None and session.status == "stopped" and session.reason == "stopped":
        return "Stopped by the operator."
    return session.reason_text or ""


def _say_all(title: str, lines: list[str]) -> None:
    if lines:
        say()
        say(paint(title, BOLD))
        for line in lines:
            say(f"  {line}")


def _prompt(prompt: Prompt, now: datetime) -> str:
    first = next((line.strip() for line in prompt.text.splitlines() if line.strip()), "")
    state = paint(prompt.state.value, status_style(prompt.state))
    why = f"  ({visible_line(prompt.message)})" if prompt.message else ""
    when = age(prompt.created_at, now)
    return f"{prompt.n}  {state}  {when}  {shorten(visible_line(first), LINE)}{why}"


def _change(change: Change, project: str) -> str:
    state = paint(change.status.value, status_style(change.status))
    return f"{project}#{change.number}  {state}  {shorten(visible_line(change.title), LINE)}"


def _rescue(rescue: Rescue, mirror: Path, now: datetime, *, joined: bool, removed: bool) -> list[str]:
    saved = f"saved {age(rescue.at, now)} ago ({visible_line(rescue.reason)})"
    first = f"{rescue.n}  {rescue.commit_id[:12]}  {counted(rescue.files, 'file')}, {saved}"
    if joined:
        return [f"{first}, joined"]
    join = f"  onto the session's branch: kortix sessions rescue join {rescue.session_id} {rescue.n}"
    return [
        first,
        *([] if removed else [join]),
        f"  into your checkout: git fetch {shlex.quote(str(mirror))} {rescue.ref}"
        f" && git switch -c rescued-{rescue.session_id}-{rescue.n} FETCH_HEAD",
    ]
