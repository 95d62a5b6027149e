"""One change request on the terminal: its page, its diff, and what is repeated before a decision."""

from __future__ import annotations

from datetime import UTC, datetime

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.output import BOLD, GREEN, RED, YELLOW, counted, paint, say, say_fields, say_table, status_style
from kortix_tui.repository.difference import DiffSummary, FileChange
from kortix_tui.runtime.edits import EditResult
from kortix_tui.runtime.views import ChangeDetail, ChangeView, MergePreview

_FILE_COLUMNS = (
    Column("STATUS"),
    Column("+", right=True),
    Column("-", right=True),
    Column("FILE", flexible=True),
)
_PATCH_COLOURS = (("+++", BOLD), ("---", BOLD), ("+", "32"), ("-", "31"), ("@@", "36"), ("diff ", BOLD))


def opened(result: EditResult, base_branch: str) -> str:
    """What became of the change request of an edit, as the end of `Change request N … `."""
    if result.moved:
        return f"is open already; it now starts from the newest {visible_line(base_branch)}: read it again"
    return "is open already" if result.already else "is open"


def say_change(detail: ChangeDetail) -> None:
    """Its page."""
    change, now = detail.change, datetime.now(UTC)
    status = paint(change.status.value, status_style(change.status))
    say(f"{paint(f'{change.project}#{change.number}', BOLD)}  {status}")
    say(visible_line(change.title))
    merged = f"{change.merge_commit[:12]} into {change.base_branch}" if change.merge_commit else ""
    decided = f"{change.decided_by}, {age(change.decided_at, now)} ago" if change.decided_at else ""
    say_fields([
        ("session", f"{change.session_id}  {change.session_title}"),
        ("head", detail.head_commit[:12]),
        ("base", f"{change.base_branch} at {change.base_commit[:12]}"),
        ("opened by", f"{change.opened_by}, {age(change.created_at, now)} ago"),
        ("decided by", decided),
        ("merged as", merged),
    ])  # fmt: skip
    if change.description.strip():
        say()
        say(visible(change.description.strip()))
    say()
    say_files(detail.summary)
    if detail.preview is not None:
        say()
        say_preview(detail.preview)


def say_files(summary: DiffSummary) -> None:
    """The list of changed files and their sum."""
    rows = [
        (_status(each), _count(each, each.additions), _count(each, each.deletions), _name(each))
        for each in summary.files
    ]
    say_table(_FILE_COLUMNS, rows, empty="No file is changed.")
    if rows:
        more = " (and more that are not listed)" if summary.truncated else ""
        say(f"{counted(len(rows), 'file')}{more}, +{summary.additions} -{summary.deletions}")


def _status(change: FileChange) -> str:
    if not change.mode_changed:
        return change.status.value
    return f"{change.status.value}, {change.old_kind} to {change.kind}"


def _count(change: FileChange, lines: int | None) -> str:
    if change.binary:
        return "bin"
    return "big" if change.too_large else str(lines or 0)


def _name(change: FileChange) -> str:
    return f"{change.old_path} → {change.path}" if change.old_path else change.path


def say_preview(preview: MergePreview) -> None:
    """What a merge would do."""
    if preview.up_to_date:
        say("The base branch contains all of it already.")
    if preview.can_merge:
        way = "; the base branch has nothing new" if preview.fast_forward else ""
        say(paint(f"It merges cleanly, by a merge commit{way}.", GREEN))
        return
    for path in preview.conflicts:
        say(paint(f"conflict: {visible_line(path)}", RED))
    for fault in preview.manifest_faults:
        say(paint(f"kortix.yaml would not be valid: {visible(fault)}", RED))
    if preview.refusal:
        say(paint(visible(preview.refusal), YELLOW))


def say_decision(change: ChangeView) -> None:
    """Repeat what is being decided."""
    say(paint(f"{change.project}#{change.number}  {visible_line(change.title)}", BOLD))
    say_fields([
        ("session", f"{change.session_id}  {change.session_title}"),
        ("changes", f"{counted(change.files, 'file')}, +{change.additions} -{change.deletions}"),
        ("head", change.head_commit[:12]),
        ("base", change.base_branch),
    ])  # fmt: skip


def colour_patch(patch: str, *, colour: bool) -> str:
    """A patch made safe, with colours where they are wanted, ending with a line end."""
    safe = visible(patch)
    if safe and not safe.endswith("\n"):
        safe += "\n"
    if not colour:
        return safe
    return "".join(_coloured(line) for line in safe.splitlines(keepends=True))


def _coloured(line: str) -> str:
    for start, code in _PATCH_COLOURS:
        if line.startswith(start):
            return f"\x1b[{code}m{line.removesuffix(chr(10))}\x1b[0m\n"
    return line
