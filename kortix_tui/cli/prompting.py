"""`kortix sessions new` and `chat`: a prompt in, and if wanted the end of its turn out."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kortix_tui.base.errors import InvalidInput, UsageError
from kortix_tui.cli.opening import acting
from kortix_tui.cli.output import note, say, say_json
from kortix_tui.cli.parsing import Verbs, add_json, add_project, duration

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.store.models import Prompt
    from kortix_tui.store.records import RecordReader

DEFAULT_TIMEOUT = "12h"
MAX_STDIN = 16 << 20


def add_verbs(verbs: Verbs) -> None:
    """Add `new` and `chat`."""
    parser = verbs.add(
        "new",
        _new,
        "start a session with a prompt",
        examples=(
            'sessions new -p "Fix the failing test in src/billing and open a change request" --wait',
            "sessions new --project billing --prompt-file task.md",
            "git diff | kortix sessions new -p - --agent reviewer --json",
        ),
    )
    _add_prompt(parser)
    add_project(parser)
    parser.add_argument("--agent", metavar="NAME", help="an agent of kortix.yaml; default: its default_agent")
    parser.add_argument("--title", metavar="TEXT", help="what lists show; default: the prompt's first line")
    parser.add_argument("--base", metavar="BRANCH", help="branch to start from; default: the project's base branch")
    parser.add_argument("--template", metavar="SLUG", help="sandbox template of kortix.yaml")
    parser.add_argument("--idle", metavar="MINUTES", type=float, help="stop after this long without work")
    _add_wait(parser)
    add_json(parser)

    parser = verbs.add(
        "chat",
        _chat,
        "send another prompt to a session",
        examples=(
            'sessions chat kab3 -p "Then run the full test suite" --queue',
            'sessions chat kab3 -p "Use the new API" --wait',
        ),
    )
    parser.add_argument("session", metavar="ID", help="session id, or at least its first 4 characters")
    _add_prompt(parser)
    parser.add_argument("--queue", action="store_true", help="while a turn runs, wait for it instead of being refused")
    _add_wait(parser)
    add_json(parser)


def _add_prompt(parser: argparse.ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("-p", "--prompt", metavar="TEXT", help="what the agent is asked; `-` reads standard input")
    group.add_argument("--prompt-file", metavar="PATH", help="read the prompt from a file")


def _add_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--wait",
        action="store_true",
        help="show progress and end with the turn: 0 finished, 1 failed, 3 waiting for a person, 124 timed out,"
        " 130 interrupted (the session goes on)",
    )
    parser.add_argument(
        "--timeout", metavar="TIME", type=duration, default=duration(DEFAULT_TIMEOUT),
        help=f"longest that --wait waits: 90, 10m, 2h (default {DEFAULT_TIMEOUT})",
    )  # fmt: skip


def _new(arguments: argparse.Namespace) -> int:
    text = read_prompt(arguments)
    with acting(host=arguments.wait) as runtime:
        project = runtime.projects.resolve(arguments.project)
        options = {} if arguments.idle is None else {"idle_minutes": arguments.idle}
        session = runtime.sessions.new(
            text, project=project, agent=arguments.agent, title=arguments.title, base_branch=arguments.base,
            template=arguments.template, **options,
        )  # fmt: skip
        records = runtime.sessions.records(session.id)
        return _finish(runtime, arguments, runtime.sessions.prompts(session.id)[0], records)


def _chat(arguments: argparse.Namespace) -> int:
    text = read_prompt(arguments)
    with acting(host=arguments.wait) as runtime:
        session = runtime.sessions.find(arguments.session)
        records = runtime.sessions.records(session.id, tail=0)
        prompt = runtime.sessions.prompt(session.id, text, queue=arguments.queue)
        return _finish(runtime, arguments, prompt, records)


def _finish(runtime: Runtime, arguments: argparse.Namespace, prompt: Prompt, records: RecordReader) -> int:
    """Say which session it is, wait where that is wanted, and print the result."""
    status = 0
    if arguments.wait:
        from kortix_tui.cli.waiting import wait_for_turn

        try:
            note(f"Session {prompt.session_id}.")
            status = wait_for_turn(runtime, prompt, records, arguments.timeout)
        except KeyboardInterrupt:
            note(f"Session {prompt.session_id} goes on. Stop it: kortix sessions stop {prompt.session_id}")
            raise
    view = runtime.sessions.find(prompt.session_id)
    if arguments.json:
        say_json(view)
        return status
    say(view.id)
    if not arguments.wait:
        note(f"Follow it: kortix sessions logs -f {view.id}")
    elif view.change is not None and view.change_status == "open":
        note(f"Change request {view.project}#{view.change} is open: kortix cr diff {view.project}#{view.change}")
    return status


def read_prompt(arguments: argparse.Namespace) -> str:
    """The prompt from where the arguments say.

    Raises:
        InvalidInput: It cannot be read, or is not UTF-8.
    """
    if arguments.prompt_file is not None:
        try:
            data = Path(arguments.prompt_file).read_bytes()
        except OSError as error:
            raise InvalidInput(
                f"The prompt file {json.dumps(arguments.prompt_file)} cannot be read: {error.strerror}."
            ) from error
    elif arguments.prompt == "-":
        if sys.stdin.isatty():
            note("Type the prompt, then ctrl-d.")
        data = sys.stdin.buffer.read(MAX_STDIN + 1)
        if len(data) > MAX_STDIN:
            raise UsageError("The prompt on standard input is too long.")
    else:
        return str(arguments.prompt)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput("The prompt is not valid UTF-8 text.", hint="Save it as UTF-8 and pass it again.") from error
