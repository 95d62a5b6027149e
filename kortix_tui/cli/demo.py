"""`kortix demo`: the whole way of a prompt to a merged change, on a sample project in a folder of its own.

The second sample shows the other half: an agent that acts outside, and stops until a person has decided.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from kortix_tui.base.errors import Refused, UsageError
from kortix_tui.base.text import visible_line
from kortix_tui.cli.output import BOLD, at_terminal, coloured, note, paint, say
from kortix_tui.cli.parsing import Parser, add_yes, show_examples
from kortix_tui.cli.program import program

if TYPE_CHECKING:
    from kortix_tui.runtime.demo import Demo
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import SessionView

TURN_S = 900.0
STOP_S = 120.0


def add_demo(parser: Parser) -> None:
    """Add the options."""
    parser.set_defaults(run=_demo)
    parser.epilog = show_examples((
        "demo", "demo northwind-support", "demo --no-console", "demo --no-console --merge", "demo --clean",
    ))  # fmt: skip
    parser.add_argument(
        "sample", nargs="?", default=None, metavar="SAMPLE",
        help="acme-api: an agent changes code (the default); northwind-support: an agent answers tickets, asking first",
    )  # fmt: skip
    parser.add_argument("--no-console", action="store_true", help="print the steps and end with the diff")
    parser.add_argument("--merge", action="store_true", help="with --no-console: merge the change request too")
    parser.add_argument(
        "--home", metavar="DIR", type=Path, help="the demo's folder; default: a new one, which is printed"
    )
    parser.add_argument(
        "--clean", action="store_true", help="remove all demos, or that of --home, with their sandboxes"
    )
    add_yes(parser, "set up what is missing (Docker, the image) without asking")


def _demo(arguments: argparse.Namespace) -> int:
    from kortix_tui.cli.setup import ensure_ready
    from kortix_tui.runtime.demo import REFACTORING, check_sample, make_demo

    if arguments.clean:
        if arguments.sample:
            raise UsageError("--clean takes no sample.", hint="It removes all demos, or that of --home DIR.")
        return _clean(arguments.home)
    sample = arguments.sample or REFACTORING
    check_sample(sample)
    if arguments.merge and not arguments.no_console:
        raise UsageError("--merge goes with --no-console: in the console you merge yourself.", hint="See --help.")
    console = not arguments.no_console
    if console and not at_terminal():
        raise UsageError("The console needs a terminal.", hint=f"Without one: kortix demo {sample} --no-console")
    steps = Steps()
    ready = ensure_ready(yes=arguments.yes)
    steps.done(
        f"Docker is ready ({ready.engine.isolation if ready.engine else 'unknown'}), the image is {ready.image}."
    )
    demo = make_demo(arguments.home, sample)
    steps.done(f"Made a home and a repository in {demo.folder}")
    # Everything from here on, the console and a background host included, is about the demo's home.
    os.environ["KORTIX_HOME"] = str(demo.home.path)
    return _open_console(demo) if console else _walk(demo, steps, merge=arguments.merge)


class Steps:
    """Tells each step with the seconds it took."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def done(self, what: str) -> None:
        """A step has ended."""
        now = time.monotonic()
        say(f"{now - self._began:6.1f} s  {visible_line(what)}")
        sys.stdout.flush()
        self._began = now


def _walk(demo: Demo, steps: Steps, *, merge: bool) -> int:
    """All steps, one after the other; the sandbox is stopped at the end, whatever happens."""
    from kortix_tui.cli.opening import logging_to_home
    from kortix_tui.runtime.demo import start_demo

    with demo.open() as runtime, logging_to_home(runtime), runtime.hosting():
        session = start_demo(runtime, demo)
        steps.done(f"Session {session.id} is stored: {session.title}")
        try:
            merge_it = _watch(runtime, demo, session, steps, merge=merge)
        finally:
            _stop(runtime, session.id)
        steps.done("The sandbox is stopped; its disk is kept.")
    note(f"Look around: {_command(demo, 'sessions show', session.id)}")
    note(f"Remove everything that this demo made: {_cleaning(demo)}")
    if merge_it:
        say(f"Merge it:  {paint(merge_it, BOLD)}")
    return 0


def _watch(runtime: Runtime, demo: Demo, session: SessionView, steps: Steps, *, merge: bool) -> str | None:
    """Follow the turn to its end, then look at what it proposes."""
    from kortix_tui.cli.demo_deciding import decide_on_the_way
    from kortix_tui.cli.waiting import wait_for_turn

    records, prompt = runtime.sessions.records(session.id), runtime.sessions.prompts(session.id)[0]
    if demo.asks:
        decide_on_the_way(runtime, session, records, lambda words: _command(demo, words))
    if wait_for_turn(runtime, prompt, records, TURN_S) != 0:
        raise Refused("The demo's turn failed.", hint=f"Its record: {_command(demo, 'sessions logs', session.id)}")
    steps.done("The agent worked in its sandbox and opened a change request.")
    return _decide(runtime, demo, session, steps, merge=merge)


def _stop(runtime: Runtime, session_id: str) -> None:
    from kortix_tui.cli.waiting import wait_until

    def is_stopped(view: SessionView) -> bool:
        return view.status in ("stopped", "failed")

    runtime.sessions.stop(session_id)
    wait_until(runtime, session_id, is_stopped, timeout_s=STOP_S, what="stopped")


def _decide(runtime: Runtime, demo: Demo, session: SessionView, steps: Steps, *, merge: bool) -> str | None:
    """Show the change request's diff, and merge it when the person asked for that; else say by which command.

    `--merge` is the decision: it was typed for a repository that this very command has made, and nothing else can be
    reached through this home. So it holds also where `kortix cr merge` asks or refuses, and it names the head that was
    just shown.
    """
    from kortix_tui.cli.change_page import colour_patch, say_change

    view = runtime.sessions.find(session.id)
    if view.change is None:
        raise Refused("The agent opened no change request.", hint=_command(demo, "sessions logs", session.id))
    project = runtime.projects.find(view.project)
    detail = runtime.changes.show(project, view.change)
    patch = runtime.changes.patch(project, view.change, head=detail.head_commit)
    say()
    sys.stdout.write(colour_patch(patch, colour=coloured(sys.stdout)))
    say()
    say_change(detail)
    say()
    if merge:
        result = runtime.changes.merge(project, view.change, at=detail.head_commit)
        steps.done(f"Merged as {result.merge_commit[:12]} into {result.base_branch} of {result.delivered_to}")
        return None
    return _command(demo, "cr merge", f"{project.slug}#{view.change}")


def _command(demo: Demo, verb: str = "", what: str = "") -> str:
    """A command about the demo's home that works as it is printed, in the shell and folder that started this one."""
    return f"KORTIX_HOME={shlex.quote(str(demo.home.path))} {program()} {verb} {what}".rstrip()


def _cleaning(demo: Demo) -> str:
    """The command that removes a demo, whatever the home is where it is run."""
    return f"{program()} demo --clean --home {shlex.quote(str(demo.folder))}"


def _open_console(demo: Demo) -> int:
    from kortix_tui.console.start import run as run_console
    from kortix_tui.runtime.demo import start_demo

    with demo.open() as runtime:
        start_demo(runtime, demo)
    try:
        return run_console(demo.home.path, first="inbox" if demo.asks else "sessions")
    finally:
        # Afterwards, as the console covers what was said before it.
        note(f"Open it again: {_command(demo)}")
        note(f"Remove everything that this demo made: {_cleaning(demo)}")


def _clean(folder: Path | None) -> int:
    from kortix_tui.runtime.demo import demos_folder, found_demos, remove_demo

    demos = found_demos(folder)
    for demo in demos:
        remove_demo(demo)
        say(f"Removed {visible_line(str(demo.folder))}")
    if not demos:
        note(f"There is no demo in {demos_folder()}. One that is elsewhere: {program()} demo --clean --home DIR")
    return 0
