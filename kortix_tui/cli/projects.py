"""`kortix projects`: the repositories that sessions work on."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kortix_tui.base.clock import age
from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import (
    BOLD,
    ask,
    at_terminal,
    counted,
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
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import ProjectDetail
    from kortix_tui.store.models import Project

COLUMNS = (
    Column("SLUG"),
    Column("KIND", drop=1),
    Column("BASE"),
    Column("FETCHED", right=True, drop=2),
    Column("SOURCE", flexible=True),
)


def add_projects(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "projects add ~/src/billing", "projects ls", "projects show billing")
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
        faults = None if arguments.json else _faults(runtime, project)
    if arguments.json:
        say_json(project)
        return
    say(f"{project.slug}: {visible_line(project.source)}, base branch {visible_line(project.base_branch)}")
    if faults:
        _warn_of_manifest(project, faults)
    else:
        note(f'Start work: kortix sessions new --project {project.slug} -p "…"')


def _faults(runtime: Runtime, project: Project) -> tuple[str, ...] | None:
    """What is wrong with the manifest; nothing is known either where git cannot read it now."""
    try:
        return runtime.projects.manifest_faults(project)
    except KortixError:
        return None


def _warn_of_manifest(project: Project, faults: tuple[str, ...]) -> None:
    """Say why no session of a project can start, and what to do where its repository is."""
    more = f" (and {counted(len(faults) - 1, 'more fault')})" if len(faults) > 1 else ""
    note(f"Its sessions cannot start yet. On {project.base_branch}, {faults[0]}{more}")
    local = project.kind == "checkout"
    folder = shlex.quote(project.source) if local else "."
    if local and (Path(project.source) / "kortix.yaml").exists():
        way = f"`kortix validate {folder}` names every fault"
    else:
        way = f"`kortix init {folder}` writes one and `kortix validate {folder}` checks it"
    where = "" if local else " In a checkout,"
    note(f"{where} {way}; then commit it on {project.base_branch}{'' if local else ' and push'}.".strip())


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
        faults = None if arguments.json or detail.problem else _faults(runtime, detail.project)
    if arguments.json:
        say_json(detail)
    else:
        _say_project(detail, faults)


def _say_project(detail: ProjectDetail, faults: tuple[str, ...] | None) -> None:
    project, now = detail.project, datetime.now(UTC)
    base = f"{project.base_branch} at {project.base_commit[:12]}" if project.base_commit else project.base_branch
    say(paint(project.slug, BOLD))
    say_fields([
        ("source", f"{project.source} ({project.kind})"),
        ("base", base),
        ("fetched", f"{age(project.fetched_at, now)} ago" if project.fetched_at else "never"),
        ("kortix.yaml", "" if detail.problem else _manifest(faults)),
        *(("", fault) for fault in (faults or ())[1:]),
        ("work", f"{counted(detail.sessions, 'session')}, {counted(detail.open_changes, 'open change request')}"),
        ("problem", detail.problem or ""),
    ])  # fmt: skip
    if detail.source_state is not None:
        say()
        say(paint("your repository", BOLD))
        say_fields(_repository(detail.source_state))


def _manifest(faults: tuple[str, ...] | None) -> str:
    if faults is None:
        return "not known: it is read again when the next session starts"
    return faults[0] if faults else "valid"


def _repository(state: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The state of the operator's repository in words; its shape is `SourceState`."""
    identity = state["identity"]
    kind = "bare repository" if state["bare"] else "checkout"
    if state["linked_worktree"]:
        kind = f"linked worktree of {state['main_worktree'] or 'another checkout'}"
    if state["shallow"]:
        kind += ", with a shallow history"
    head = f"at {state['head'][:12]}" if state["head"] else "without a commit"
    changes = "tracked files differ from the last commit" if state["dirty"] else "no tracked file is changed"
    return [
        ("kind", kind),
        ("on", f"{state['branch']} {head}" if state["branch"] else f"no branch (detached head), {head}"),
        ("branches", ", ".join(state["branches"])),
        ("changes", "" if state["bare"] else f"{changes}, {counted(state['untracked'], 'untracked file')}"),
        ("in progress", state["in_progress"] or ""),
        *((f"remote {name}", str(address)) for name, address in state["remotes"].items()),
        ("commits as", f"{identity['name']} <{identity['email']}>" if identity else "nobody: git knows no name here"),
    ]


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
