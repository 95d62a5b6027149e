"""`kortix init`, `validate` and `schema`: a project's `kortix.yaml` before any session runs under it."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path

from kortix_tui.base.errors import NotFound
from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.output import RED, YELLOW, counted, note, paint, say
from kortix_tui.cli.parsing import Parser, add_json, show_examples

MANIFEST = "kortix.yaml"


def add_init(parser: Parser) -> None:
    """Add the options of `kortix init`."""
    parser.set_defaults(run=_init)
    parser.epilog = show_examples(("init ~/src/shop", 'init . --name "Shop"'))
    parser.add_argument("folder", metavar="DIR", help="made if it is not there")
    parser.add_argument("--name", metavar="TEXT", help="the project's name; default: the folder's")
    parser.add_argument("--force", action="store_true", help="write over files of the starter that are there")


def add_validate(parser: Parser) -> None:
    """Add the options of `kortix validate`."""
    parser.set_defaults(run=_validate)
    parser.epilog = show_examples(("validate", "validate ~/src/shop --json"))
    parser.add_argument(
        "path", metavar="PATH", nargs="?", default=".", help="a project's folder, or its kortix.yaml (default: here)"
    )
    add_json(parser)


def add_schema(parser: Parser) -> None:
    """Add the options of `kortix schema`."""
    parser.set_defaults(run=_schema)
    parser.epilog = show_examples(("schema > kortix.schema.json", "schema --agent"))
    parser.add_argument("--agent", action="store_true", help="for the head of agents/NAME.md instead")


def _init(arguments: argparse.Namespace) -> None:
    from kortix_tui.runtime.scaffold import init

    made = init(Path(arguments.folder), arguments.name, force=arguments.force)
    for file in made.written:
        say(visible_line(str(made.folder / file)))
    for file in made.kept:
        note(f"{file} was there already and is as it was.")
    folder = shlex.quote(str(made.folder))
    known = _project_at(made.folder)
    after = f'kortix sessions new --project {known} -p "…"' if known else f"kortix projects add {folder}"
    if made.commit is None:
        note(f"Commit these files, then: {after}")
    else:
        note(f"Committed on main as {made.commit[:12]}. Next: {after}")


def _project_at(folder: Path) -> str | None:
    """The slug of the project whose repository is there; `None` also where no home is yet, which is not made here."""
    from kortix_tui.base.paths import Home

    if not Home.locate().database.exists():
        return None
    from kortix_tui.cli.opening import reading

    place = str(folder.resolve())
    with reading() as runtime:
        return next((each.slug for each in runtime.projects.list() if each.source == place), None)


def _validate(arguments: argparse.Namespace) -> int:
    from kortix_tui.manifest.check import check
    from kortix_tui.manifest.source import FolderSource

    path = Path(arguments.path).expanduser()
    folder = path.parent if path.name == MANIFEST and not path.is_dir() else path
    if not folder.is_dir():
        raise NotFound(f"{visible_line(str(path))} is no folder.", hint="Give a project's folder, or its kortix.yaml.")
    report = check(FolderSource(folder))
    if arguments.json:
        faults = [asdict(fault) for fault in report.faults]
        say(json.dumps({"valid": report.valid, "faults": faults}, indent=2))
        return 0 if report.valid else 1
    for fault in report.faults:
        level = paint(fault.level.value, RED if fault.is_error else YELLOW)
        where = f" {fault.path}:" if fault.path else ""
        say(f"{fault.location}: {level}:{where} {visible(fault.message)}")
        if fault.hint:
            say(f"  {visible(fault.hint)}")
    errors, warnings = len(report.errors), len(report.warnings)
    if report.valid:
        say("Valid." if not warnings else f"Valid, with {counted(warnings, 'warning')}.")
        return 0
    note(f"Not valid: {counted(errors, 'error')}, {counted(warnings, 'warning')}.")
    return 1


def _schema(arguments: argparse.Namespace) -> None:
    from kortix_tui.manifest.schema import front_matter_schema, schema

    made = front_matter_schema() if arguments.agent else schema()
    sys.stdout.write(json.dumps(made, indent=2) + "\n")
