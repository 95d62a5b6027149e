"""Deciding about calls, from whatever screen it is asked for. A decision names the digest that was shown (I5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kortix_tui.base.errors import KortixError
from kortix_tui.base.json_text import is_json, leaves
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import CallState, Risk
from kortix_tui.console.forms.approval_forms import DenyForm, RememberForm
from kortix_tui.console.screens.approval_page import call_name, short_digest, target, time_left, who
from kortix_tui.console.screens.connector_acts import say_opened
from kortix_tui.console.widgets.confirm import ConfirmDialog, Tier
from kortix_tui.runtime.connector_views import CallRuleView
from kortix_tui.runtime.edits import EditResult

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp
    from kortix_tui.console.source import Source
    from kortix_tui.runtime.connector_views import ApprovalView, DecisionResult

MOST_TARGET = 120
MOST_CELLS = 58
MOST_ARGUMENTS = 4
MOST_LISTED = 6


def approve(app: KortixApp, view: ApprovalView) -> None:
    """Ask, repeating what is decided, then let it run once."""
    destructive = view.risk is Risk.DESTRUCTIVE
    dialog = ConfirmDialog(
        f"Approve {view.connector}.{view.action}?",
        act="approve",
        facts=facts_of(app, view),
        effect="It is sent once, exactly as its page shows it, and the agent gets the answer.",
        tier=Tier.DESTRUCTIVE if destructive else Tier.LASTING,
        name=view.action,
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        if yes:
            app.say(f"Approving {call_name(view)}…", "muted", keep=True)
            app.bridge.submit(
                lambda source: _approve(source, view), lambda done: say_decided(app, view, done), app.say_failed
            )

    app.push_screen(dialog, decided)


def deny(app: KortixApp, view: ApprovalView) -> None:
    """Ask for a note, then say no."""
    app.push_screen(DenyForm(app, view, facts_of(app, view), lambda done: say_decided(app, view, done)))


def remember(app: KortixApp, view: ApprovalView) -> None:
    """Ask what later calls must have in common with it, then approve it and remember that."""

    def done(answer: CallRuleView | DecisionResult | EditResult) -> None:
        if isinstance(answer, EditResult):
            say_opened(app, answer, "lets such calls run unasked")
        elif isinstance(answer, CallRuleView):
            _say_remembered(app, view, answer)
        else:
            say_decided(app, view, answer)

    app.push_screen(RememberForm(app, view, facts_of(app, view)[:2], done))


def batch(app: KortixApp, views: Sequence[ApprovalView]) -> None:
    """Ask once about calls that would send exactly the same; each is listed, and decided by its own id."""
    first = views[0]
    listed = [
        shorten(f"{one.session_id or 'command line'}  {visible_line(one.session_title or '')}", MOST_CELLS)
        for one in views[:MOST_LISTED]
    ]
    if len(views) > MOST_LISTED:
        listed.append(f"and {len(views) - MOST_LISTED} more")
    dialog = ConfirmDialog(
        f"Approve {len(views)} identical calls of {first.connector}.{first.action}?",
        act=f"approve all {len(views)}",
        facts=[*facts_of(app, first)[:1], ("arguments", _arguments(first)), ("sessions", "\n".join(listed))],
        effect=f"The same request is sent {len(views)} times, once for each.",
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        if yes:
            app.say(f"Approving {len(views)} calls…", "muted", keep=True)
            app.bridge.submit(
                lambda source: _approve_all(source, views), lambda done: _say_all(app, *done), app.say_failed
            )

    app.push_screen(dialog, decided)


def _approve(source: Source, view: ApprovalView) -> DecisionResult:
    return source.approvals.decide(view.id, digest=view.digest or "", approve=True, terminal=True, pinned=True)


def _approve_all(source: Source, views: Sequence[ApprovalView]) -> tuple[int, list[KortixError]]:
    """Decide each; one that was decided or changed meanwhile does not keep the others."""
    errors: list[KortixError] = []
    for view in views:
        try:
            _approve(source, view)
        except KortixError as error:
            errors.append(error)
    return len(views) - len(errors), errors


def _say_all(app: KortixApp, approved: int, errors: Sequence[KortixError]) -> None:
    if errors:
        app.say(f"{approved} approved, {len(errors)} not: {errors[0]}", "warning", keep=True)
    else:
        app.say(f"{approved} calls are approved; each is sent once.")


def say_decided(app: KortixApp, view: ApprovalView, done: DecisionResult) -> None:
    """Say what the decision did."""
    if done.state is CallState.DENIED:
        app.say(f"Denied {call_name(view)}; the agent is told.")
    else:
        app.say(f"Approved {call_name(view)}; it is sent once.")


def _say_remembered(app: KortixApp, view: ApprovalView, rule: CallRuleView) -> None:
    many = f"{rule.most:,} call{'s' * (rule.most != 1)} like it run{'s' * (rule.most == 1)} unasked"
    until = f"{rule.expires_at.astimezone():%Y-%m-%d %H:%M}"
    app.say(f"Approved {call_name(view)}. Remembered as {rule.id}: {many} until {until}.", keep=True)


def facts_of(app: KortixApp, view: ApprovalView) -> list[tuple[str, str]]:
    """What is decided, in short; the page has all of it. Values are made visible by the dialog."""
    asks = who(view)
    if view.session_id is not None:
        asks = f"{asks}, {view.session_id[:6]} {visible_line(view.session_title or '')}"
    pairs = [
        ("sends", shorten(visible_line(target(view)), MOST_TARGET)),
        ("who", shorten(asks, MOST_CELLS)),
        ("arguments", _arguments(view)),
        ("digest", short_digest(view)),
    ]
    left = time_left(view, app.clock.now())
    return [*pairs, ("expires", f"in {left}")] if left else pairs


def _arguments(view: ApprovalView) -> str:
    """The first arguments, and how many more there are."""
    if not is_json(view.arguments):
        return shorten(visible_line(view.arguments), MOST_CELLS)
    found = list(leaves(view.arguments).items())
    lines = [shorten(visible_line(f"{path}: {value}"), MOST_CELLS) for path, value in found[:MOST_ARGUMENTS]]
    if len(found) > MOST_ARGUMENTS:
        lines.append(f"and {len(found) - MOST_ARGUMENTS:,} more on its page")
    return "\n".join(lines)
