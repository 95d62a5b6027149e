"""Merging, closing and reopening a change request, from whatever screen it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kortix_tui.console.screens.rows import SHORT_COMMIT, diff_size
from kortix_tui.console.widgets.confirm import ConfirmDialog
from kortix_tui.runtime.views import ChangeDetail, ChangeView, MergeResult

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp


def ask_merge(app: KortixApp, detail: ChangeDetail) -> None:
    """Ask, naming the very commit that was shown, then merge exactly that one (invariant I4)."""
    change, head = detail.change, detail.head_commit
    preview = detail.preview
    effect = f"{change.base_branch} of {change.project} gets this work and is pushed to the project's repository."
    if preview is not None and preview.fast_forward:
        effect += f" Nothing else has happened on {change.base_branch} since."
    dialog = ConfirmDialog(
        f"Merge change request {change.number}?",
        act="merge",
        facts=[*_facts(change), ("commit", head[:SHORT_COMMIT]), ("into", change.base_branch), ("size", _size(detail))],
        effect=effect,
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        if not yes:
            return
        project = app.facts.project(change.project)
        if project is None:
            app.say(f"There is no project {change.project} any more.", "error")
            return
        app.say(f"Merging change request {change.number} at {head[:SHORT_COMMIT]}…", "muted", keep=True)
        app.bridge.submit(
            lambda source: source.changes.merge(project, change.number, at=head),
            lambda done: _merged(app, done),
            app.say_failed,
        )

    app.push_screen(dialog, decided)


def _merged(app: KortixApp, done: MergeResult) -> None:
    app.say(f"Change request {done.number} is merged into {done.base_branch} as {done.merge_commit[:SHORT_COMMIT]}.")


def ask_close(app: KortixApp, change: ChangeView) -> None:
    """Ask, then close without merging."""
    dialog = ConfirmDialog(
        f"Close change request {change.number} without merging?",
        act="close",
        facts=[*_facts(change), ("commit", change.head_commit[:SHORT_COMMIT])],
        effect="Nothing is merged and nothing is lost: the branch stays, and it can be reopened with r.",
        clock=app.clock.monotonic,
    )

    def decided(yes: bool | None) -> None:
        project = app.facts.project(change.project)
        if yes and project is not None:
            app.bridge.submit(
                lambda source: source.changes.close(project, change.number),
                lambda _: app.say(f"Change request {change.number} is closed."),
                app.say_failed,
            )

    app.push_screen(dialog, decided)


def reopen(app: KortixApp, change: ChangeView) -> None:
    """Open a closed one again; harmless, so it is done at once."""
    project = app.facts.project(change.project)
    if project is not None:
        app.bridge.submit(
            lambda source: source.changes.reopen(project, change.number),
            lambda _: app.say(f"Change request {change.number} is open again."),
            app.say_failed,
        )


def _facts(change: ChangeView) -> list[tuple[str, str]]:
    return [("title", change.title), ("project", change.project), ("session", change.session_id)]


def _size(detail: ChangeDetail) -> str:
    summary = detail.summary
    files = len(summary.files)
    more = " or more" if summary.truncated else ""
    return f"{files} file{'s' * (files != 1)}{more}  {diff_size(summary.additions, summary.deletions)}"
