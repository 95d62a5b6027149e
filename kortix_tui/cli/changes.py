"""`kortix cr`: read, merge and close change requests."""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.errors import Conflict, UsageError
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import ChangeStatus
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import ask, at_terminal, coloured, matches, note, say, say_json, say_table, status_style
from kortix_tui.cli.parsing import Parser, Run, Verbs, add_filter, add_json, add_project

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import ChangeView
    from kortix_tui.store.models import Project

REFERENCE = re.compile(r"(?:(?P<slug>[a-z0-9][a-z0-9-]*)#|#)?(?P<number>[0-9]{1,9})\Z")
COLUMNS = (
    Column("CR"),
    Column("STATUS", style=status_style),
    Column("DIFF", drop=2),
    Column("SESSION", drop=1),
    Column("AGE", right=True),
    Column("TITLE", flexible=True),
)


def add_cr(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "cr ls --status open", "cr diff billing#3", "cr merge billing#3")
    verb = verbs.add(
        "ls", _ls, "list change requests, oldest first", aliases=("list",),
        examples=("cr ls --status open", "cr ls --project billing --json"),
    )  # fmt: skip
    verb.add_argument("--status", choices=[status.value for status in ChangeStatus], help="only these")
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    add_filter(verb)
    add_json(verb)

    verb = _about_one(verbs, "show", show, "a change request, its files and what a merge would do", ("cr show 1",))
    add_json(verb)
    verb = _about_one(
        verbs, "diff", _diff, "read the diff; what you were shown is what `merge` merges",
        ("cr diff 1", "cr diff billing#3 --path src/charge.py", "cr diff 1 --stat"),
    )  # fmt: skip
    verb.add_argument("--stat", action="store_true", help="only the list of files")
    verb.add_argument("--path", metavar="PATH", help="only this file")
    verb.add_argument("--no-color", action="store_true", help="plain text")
    add_json(verb)

    verb = _about_one(
        verbs, "preview", _preview, "what a merge would do now; nothing is changed", ("cr preview 1",),
        aliases=("merge-preview",),
    )  # fmt: skip
    add_json(verb)

    verb = _about_one(
        verbs, "merge", merge, "merge the commit that you reviewed", ("cr merge 1", "cr merge 1 --at 3f2a91c0d4e7")
    )
    verb.add_argument("--at", metavar="SHA", help="the reviewed commit; default: the one shown to you last")
    verb.add_argument("--message", metavar="TEXT", help="first line of the merge commit")
    add_json(verb)
    verb = _about_one(verbs, "close", close, "close without merging; it can be reopened", ("cr close 1",))
    verb.add_argument("--at", metavar="SHA", help="only if it is at this commit; needed without a terminal")
    add_json(verb)
    add_json(_about_one(verbs, "reopen", _reopen, "open a closed change request again", ("cr reopen 1",)))


def _about_one(
    verbs: Verbs, name: str, run: Run, summary: str, examples: Sequence[str], *, aliases: Sequence[str] = ()
) -> argparse.ArgumentParser:
    parser = verbs.add(name, run, summary, aliases=aliases, examples=examples)
    parser.add_argument("change", metavar="N", help="its number in the project, or SLUG#N")
    add_project(parser)
    return parser


def locate(runtime: Runtime, arguments: argparse.Namespace) -> tuple[Project, int]:
    """The project and number that the arguments mean.

    Raises:
        UsageError: It is no number.
        NotFound: There is no such project.
    """
    found = REFERENCE.match(arguments.change.strip())
    if found is None:
        raise UsageError(
            f"«{visible_line(arguments.change[:40])}» is no change request.", hint="Give its number: 3, or billing#3."
        )
    return runtime.projects.resolve(found["slug"] or arguments.project), int(found["number"])


# Reading


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        status = ChangeStatus(arguments.status) if arguments.status else None
        changes = runtime.changes.list(project=project, status=status)
    say_changes(changes, arguments, empty="There are no change requests" + (" that fit." if status else " yet."))


def say_changes(changes: Sequence[ChangeView], arguments: argparse.Namespace, *, empty: str) -> None:
    """A table of change requests, or their JSON."""
    now = datetime.now(UTC)
    rows = [
        (f"{each.project}#{each.number}", each.status.value, f"+{each.additions} -{each.deletions}", each.session_id,
         age(each.created_at, now), each.title)
        for each in changes
    ]  # fmt: skip
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([changes[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty=empty)


def show(arguments: argparse.Namespace) -> None:
    """Print one change request in full; it counts as shown to this operator."""
    from kortix_tui.cli.change_page import say_change

    with reading() as runtime:
        detail = runtime.changes.show(*locate(runtime, arguments))
    if arguments.json:
        say_json(detail)
    else:
        say_change(detail)


def _diff(arguments: argparse.Namespace) -> None:
    from kortix_tui.cli.change_page import colour_patch, say_files

    # To find values in the diff, this process may have to be the host for a moment.
    with acting() as runtime:
        project, number = locate(runtime, arguments)
        detail = runtime.changes.show(project, number, preview=False)
        if arguments.json:
            say_json(detail.summary)
            return
        if arguments.stat:
            say_files(detail.summary)
            return
        patch = runtime.changes.patch(project, number, path=arguments.path, head=detail.head_commit, warn=note)
    plain = arguments.no_color or not coloured(sys.stdout)
    sys.stdout.write(colour_patch(patch, colour=not plain))
    if detail.change.status is ChangeStatus.OPEN:
        note(f"Shown at {detail.head_commit[:12]}. Merge it: kortix cr merge {project.slug}#{number}")


def _preview(arguments: argparse.Namespace) -> int:
    from kortix_tui.cli.change_page import say_preview

    with reading() as runtime:
        preview = runtime.changes.preview(*locate(runtime, arguments))
    if arguments.json:
        say_json(preview)
    else:
        say_preview(preview)
    return 0 if preview.can_merge else 1


# Deciding


def merge(arguments: argparse.Namespace) -> int:
    """Merge the change request that the arguments name, after a question at a terminal."""
    with acting() as runtime:
        project, number = locate(runtime, arguments)
        change = runtime.changes.find(project, number)
        _require_person(runtime, change, "Merging", "change_request.merge", arguments.at)
        reviewed = arguments.at or change.shown_head
        if at_terminal() and change.status is ChangeStatus.OPEN and _is_at(change, reviewed):
            from kortix_tui.cli.change_page import say_decision

            say_decision(change)
            if not ask(f"Type «merge» to merge it into {visible_line(change.base_branch)}:", wanted="merge"):
                note("Nothing was changed.")
                return 1
            # What was confirmed is this commit, whatever is pushed while the question stands.
            reviewed = change.head_commit
        result = runtime.changes.merge(project, number, at=reviewed, message=arguments.message)
    if arguments.json:
        say_json(result)
    else:
        say(
            f"Merged {result.project}#{result.number} as {result.merge_commit[:12]} into"
            f" {visible_line(result.base_branch)}; delivered to {visible_line(result.delivered_to)}."
        )
    return 0


def close(arguments: argparse.Namespace) -> int:
    """Close it, likewise."""
    with acting() as runtime:
        project, number = locate(runtime, arguments)
        change = runtime.changes.find(project, number)
        _require_person(runtime, change, "Closing", "change_request.close", arguments.at)
        if arguments.at and not _is_at(change, arguments.at):
            raise Conflict(
                f"Change request {number} is at {change.head_commit[:12]} now: it moved.",
                hint=f"Look again: kortix cr diff {project.slug}#{number}",
            )
        if at_terminal() and change.status is ChangeStatus.OPEN:
            from kortix_tui.cli.change_page import say_decision

            say_decision(change)
            if not ask("Close it without merging? [y/N]", wanted="y"):
                note("Nothing was changed.")
                return 1
        return _moved(runtime.changes.close(project, number), arguments)


def _reopen(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        return _moved(runtime.changes.reopen(*locate(runtime, arguments)), arguments)


def _moved(change: ChangeView, arguments: argparse.Namespace) -> int:
    if arguments.json:
        say_json(change)
    else:
        say(f"Change request {change.project}#{change.number} is {change.status}.")
    return 0


def _is_at(change: ChangeView, commit: str | None) -> bool:
    return commit is not None and len(commit) >= 7 and change.head_commit.startswith(commit)


def _require_person(runtime: Runtime, change: ChangeView, what: str, event: str, at: str | None) -> None:
    from kortix_tui.runtime.consent import require_person

    require_person(runtime.context, what, event, change, terminal=at_terminal(), pinned=at is not None)
