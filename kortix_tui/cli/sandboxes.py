"""`kortix sandboxes`: the images that sandboxes start from, and the engine that runs them."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import reading
from kortix_tui.cli.output import matches, note, say, say_fields, say_json, say_table
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.store.models import Project

COLUMNS = (
    Column("TEMPLATE"),
    Column("PROJECT", drop=1),
    Column("SIZE", right=True, drop=2),
    Column("BUILT", drop=3),
    Column("IMAGE", flexible=True),
)


def add_sandboxes(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "sandboxes ls", "sandboxes build node --project web", "sandboxes provider")
    verb = verbs.add("ls", _ls, "list templates and their images", aliases=("list",), examples=("sandboxes ls",))
    _add_project(verb)
    add_filter(verb)
    add_json(verb)
    for name, run, summary in (
        ("build", _build, "build a template's image if it is missing"),
        ("rebuild", _rebuild, "build a template's image anew"),
    ):
        verb = verbs.add(name, run, summary, examples=(f"sandboxes {name}", f"sandboxes {name} node --project web"))
        verb.add_argument("template", metavar="SLUG", nargs="?", default="default", help="default: default")
        _add_project(verb)
    verb = verbs.add(
        "rm", _rm, "remove images that no session uses", aliases=("remove",), examples=("sandboxes rm node",)
    )
    verb.add_argument("template", metavar="SLUG|TAG", help="a template's slug, or one image's tag")
    verb = verbs.add(
        "provider", _provider, "where sandboxes run, and what else could run them", examples=("sandboxes provider",)
    )
    add_json(verb)


def _add_project(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--project", metavar="SLUG", help="whose templates; default: the current folder's project")


def _project(runtime: Runtime, arguments: argparse.Namespace) -> Project | None:
    """The project that is meant; none is fine, as the default template belongs to nobody."""
    if arguments.project:
        return runtime.projects.find(arguments.project)
    try:
        return runtime.projects.resolve()
    except KortixError:
        return None


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        views = runtime.sandboxes.list(_project(runtime, arguments))
    rows = [
        (each.slug, each.project or "", f"{each.size_bytes / 1e6:.0f} MB" if each.size_bytes else "",
         f"{each.created_at.astimezone():%Y-%m-%d %H:%M}" if each.created_at else "no", each.image or "")
        for each in views
    ]  # fmt: skip
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([views[at] for at in fitting])
    else:
        say_table(COLUMNS, [rows[at] for at in fitting], empty="No template fits.")


def _build(arguments: argparse.Namespace, *, fresh: bool = False) -> None:
    def tell(line: str) -> None:
        sys.stderr.write(f"  {visible_line(line)}\n")

    with reading() as runtime:
        project = _project(runtime, arguments)
        say(runtime.sandboxes.build(arguments.template, tell, project=project, fresh=fresh))


def _rebuild(arguments: argparse.Namespace) -> None:
    _build(arguments, fresh=True)


def _rm(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        tags = runtime.sandboxes.remove(arguments.template)
    for tag in tags:
        say(visible_line(tag))
    if not tags:
        note("Nothing was removed: there is no such image, or sessions use it.")


def _provider(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        names = runtime.sandboxes.providers()
        try:
            engine, problem = runtime.sandboxes.engine(), None
        except KortixError as error:
            engine, problem = None, str(error)
    if arguments.json:
        found = engine.model_dump(mode="json") if engine else None
        say(json.dumps({"providers": names, "engine": found, "problem": problem}, indent=2))
        return
    say_fields([("providers", ", ".join(names)), ("problem", problem or "")])
    if engine is not None:
        say_fields([
            ("engine", f"{engine.version} (API {engine.api_version})"),
            ("endpoint", f"{engine.endpoint}, found by {engine.found_by}"),
            ("isolation", engine.isolation),
            *(("warning", warning) for warning in engine.warnings),
        ])  # fmt: skip
