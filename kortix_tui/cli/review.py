"""`kortix review`: everything that waits for a person. Today that is open change requests."""

from __future__ import annotations

import argparse

from kortix_tui.base.words import ChangeStatus
from kortix_tui.cli.changes import close, merge, say_changes, show
from kortix_tui.cli.opening import reading
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_project

VERDICTS = {"merge": merge, "close": close}


def add_review(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(parser, "review ls", "review show billing#3", "review act billing#3 merge")
    verb = verbs.add("ls", _ls, "list what waits for you, oldest first", aliases=("list",), examples=("review ls",))
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    add_filter(verb)
    add_json(verb)
    verb = verbs.add("show", show, "one thing that waits, in full", examples=("review show billing#3",))
    verb.add_argument("change", metavar="N", help="a change request's number in the project, or SLUG#N")
    add_project(verb)
    add_json(verb)
    verb = verbs.add(
        "act", _act, "decide about one thing that waits; as `cr merge` and `cr close`",
        examples=("review act billing#3 merge", "review act billing#3 close --at 3f2a91c0d4e7"),
    )  # fmt: skip
    verb.add_argument("change", metavar="N", help="a change request's number in the project, or SLUG#N")
    verb.add_argument("verdict", choices=list(VERDICTS), help="what is decided")
    verb.add_argument("--at", metavar="SHA", help="the reviewed commit; default: the one shown to you last")
    verb.add_argument("--message", metavar="TEXT", help="first line of the merge commit")
    add_project(verb)
    add_json(verb)


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        changes = runtime.changes.list(project=project, status=ChangeStatus.OPEN)
    say_changes(changes, arguments, empty="Nothing waits for you.")


def _act(arguments: argparse.Namespace) -> int:
    return VERDICTS[arguments.verdict](arguments)
