"""`kortix projects`: the repositories that sessions work on."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.errors import Refused
from kortix_tui.base.text import visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import (
    BOLD,
    ask,
    at_terminal,
    matches,
    note,
    paint,
    say,
    say_fields,
    say_json,
    say_table,
)
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_yes

if TYPE_CHECKING:
    from kortix_tui.runtime.views import ProjectDetail

COLUMNS = (
    Column("SLUG"),
    Column("KIND", drop=1),
    Column("BASE"),
    Column("FETCHED", right=True, drop=2),
    Column("SOURCE", flexible=True),
)


def add_projects(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser)
    verb = verbs.add(
        "add", _add, "make a repository known; it stays yours and where it is",
        examples=("projects add ~/src/billing", "projects add https://git.example.com/team/billing.git --slug billing"),
    )  # fmt: skip
    verb.add_argument("source", metavar="PATH|URL", help="a checkout, a bare repository, or a URL that git can fetch")
    verb.add_argument("--slug", help="its short name; default: the folder's name")
    verb.add_argument("--base", metavar="BRANCH", help="the branch that sessions start from and merge into")
    add_json(verb)

    verb = verbs.add("ls", _ls, "list projects", aliases=("list",), examples=("projects ls --json",))
    add_filter(verb)
    add_json(verb)

    verb = verbs.add(
        "show", _show, "a project and the state of its repository", aliases=("info",),
        examples=("projects show billing",),
    )  # fmt: skip
    verb.add_argument("project", metavar="SLUG", nargs="?", help="default: the project of the current folder")
    add_json(verb)

    verb = verbs.add(
        "rm", _rm, "forget a project that has no sessions; your repository stays", aliases=("remove",),
        examples=("projects rm billing --yes",),
    )  # fmt: skip
    verb.add_argument("project", metavar="SLUG")
    add_yes(verb, "do not ask")

    verb = verbs.add(
        "move", _move, "say where a project's repository is now", examples=("projects move billing ~/work/billing",)
    )
    verb.add_argument("project", metavar="SLUG")
    verb.add_argument("source", metavar="PATH|URL")
    add_json(verb)


def _add(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        project = runtime.projects.add(arguments.source, slug=arguments.slug, base_branch=arguments.base)
    if arguments.json:
        say_json(project)
        return
    say(f"{project.slug}: {visible_line(project.source)}, base branch {visible_line(project.base_branch)}")
    note(f'Start work: kortix sessions new --project {project.slug} -p "…"')


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        projects = runtime.projects.list()
    now = datetime.now(UTC)
    rows = [
        (each.slug, each.kind, each.base_branch, age(each.fetched_at, now) if each.fetched_at else "", each.source)
        for each in projects
    ]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([projects[at] for at in fitting])
        return
    hint = "No project fits." if arguments.filter else "There are no projects yet: kortix projects add PATH"
    say_table(COLUMNS, [rows[at] for at in fitting], empty=hint)


def _show(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        slug = arguments.project or runtime.projects.resolve().slug
        detail = runtime.projects.show(slug)
    if arguments.json:
        say_json(detail)
    else:
        _say_project(detail)


def _say_project(detail: ProjectDetail) -> None:
    project, now = detail.project, datetime.now(UTC)
    base = f"{project.base_branch} at {project.base_commit[:12]}" if project.base_commit else project.base_branch
    say(paint(project.slug, BOLD))
    say_fields([
        ("source", f"{project.source} ({project.kind})"),
        ("base", base),
        ("fetched", f"{age(project.fetched_at, now)} ago" if project.fetched_at else "never"),
        ("sessions", str(detail.sessions)),
        ("open changes", str(detail.open_changes)),
        ("problem", detail.problem or ""),
        *((name.replace("_", " "), _plain(value)) for name, value in (detail.source_state or {}).items()),
    ])  # fmt: skip


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _rm(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        project = runtime.projects.find(arguments.project)
        if not arguments.yes:
            if not at_terminal():
                raise Refused("Nobody can be asked.", hint="Add --yes to remove it without a question.")
            say(f"{project.slug}: {visible_line(project.source)}")
            if not ask("Forget this project? Its mirror and records stay. [y/N]", wanted="y"):
                note("Nothing was changed.")
                return 1
        runtime.projects.remove(project.slug)
    note(f"Project {project.slug} is forgotten.")
    return 0


def _move(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        project = runtime.projects.move(arguments.project, arguments.source)
    if arguments.json:
        say_json(project)
    else:
        say(f"{project.slug}: {visible_line(project.source)}")
