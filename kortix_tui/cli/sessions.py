"""`kortix sessions`: start, follow and end work in sandboxes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age, from_text, to_text
from kortix_tui.base.errors import Refused
from kortix_tui.base.paths import Home
from kortix_tui.base.words import Activity, SessionStatus
from kortix_tui.cli import prompting
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import ask, at_terminal, matches, note, say, say_json, say_table, status_style
from kortix_tui.cli.parsing import Parser, Run, Verbs, add_filter, add_json, add_yes, count, duration
from kortix_tui.runtime.listing import SessionLine, session_lines

if TYPE_CHECKING:
    from collections.abc import Callable

    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.views import SessionView

COLUMNS = (
    Column("ID"),
    Column("STATUS", style=status_style),
    Column("PROJECT", drop=2),
    Column("DIFF", drop=3),
    Column("CR", drop=1),
    Column("QUEUE", right=True, drop=5),
    Column("AGENT", drop=4),
    Column("AGE", right=True),
    Column("TITLE", flexible=True),
)


STATUSES = [*SessionStatus, *Activity, "removed"]
"""What `--status` takes: a running session has its activity, too."""


def add_sessions(parser: Parser) -> None:
    """Add the verbs."""
    verbs = Verbs(
        parser,
        'sessions new -p "Fix the failing test in src/billing and open a change request" --wait',
        "sessions ls --status working",
        "sessions logs -f kab3",
        'sessions chat kab3 -p "Then run the full test suite" --queue',
    )
    prompting.add_verbs(verbs)

    verb = verbs.add(
        "ls", _ls, "list sessions, newest first", aliases=("list",),
        examples=("sessions ls --all", "sessions ls --status failed --project billing", "sessions ls --filter billing"),
    )  # fmt: skip
    verb.add_argument("--status", choices=STATUSES, help=f"only these: {', '.join(STATUSES)}", metavar="WORD")
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    verb.add_argument("-a", "--all", action="store_true", help="removed ones too")
    add_filter(verb)
    add_json(verb)

    summary = "a session with its prompts, change requests and rescued work"
    add_json(_about_one(verbs, "show", _show, summary, aliases=("info",), examples=("sessions show kab3",)))

    summary = "what a session printed"
    verb = _about_one(verbs, "logs", _logs, summary, aliases=("log",), examples=("sessions logs -f kab3",))
    verb.add_argument("-f", "--follow", action="store_true", help="go on until the session stops")
    verb.add_argument("--tail", metavar="N", type=count, help="only about the last N records")
    verb.add_argument("-t", "--timestamps", action="store_true", help="begin each line with the local time")
    verb.add_argument("-v", "--verbose", action="store_true", help="also what building the image printed")

    summary = "save a session's work and end its processes; its disk is kept"
    _add_waiting(_about_one(verbs, "stop", _stop, summary, examples=("sessions stop kab3 --wait",)))
    summary = "run a stopped session again on the same disk"
    _add_waiting(_about_one(verbs, "resume", _resume, summary, aliases=("start",), examples=("sessions resume kab3",)))
    summary = "save a session's work, then remove its sandbox and disk"
    verb = _about_one(verbs, "rm", _rm, summary, aliases=("remove",), examples=("sessions rm kab3 --yes --wait",))
    _add_waiting(verb)
    add_yes(verb, "do not ask")

    summary = "open a shell in a running session's sandbox; ctrl-] and then q leaves it"
    _about_one(verbs, "shell", _shell, summary, examples=("sessions shell kab3",))

    queue = verbs.group(
        "queue", "prompts that wait for their turn", "sessions queue ls kab3", "sessions queue rm kab3 2"
    )
    add_json(
        _about_one(queue, "ls", _queue_ls, "list a session's prompts that wait", examples=("sessions queue ls kab3",))
    )
    summary = "take a prompt out of the queue"
    verb = _about_one(queue, "rm", _queue_rm, summary, examples=("sessions queue rm kab3 2",))
    verb.add_argument("prompt", metavar="N", help="the prompt's number, or its id")

    rescue = verbs.group(
        "rescue", "work that was saved because nobody committed it", "sessions rescue ls kab3",
        "sessions rescue join kab3 1",
    )  # fmt: skip
    summary = "list what was saved of a session"
    add_json(_about_one(rescue, "ls", _rescue_ls, summary, examples=("sessions rescue ls kab3",)))
    summary = "bring saved work onto the session's branch"
    verb = _about_one(rescue, "join", _rescue_join, summary, examples=("sessions rescue join kab3 1",))
    verb.add_argument("number", metavar="N", type=count, help="which, as `sessions show` numbers them")
    add_json(verb)


def _about_one(
    verbs: Verbs, name: str, run: Run, summary: str, *, aliases: Sequence[str] = (), examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    parser = verbs.add(name, run, summary, aliases=aliases, examples=examples)
    parser.add_argument("session", metavar="ID", help="session id, or at least its first 4 characters")
    return parser


def _add_waiting(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--wait", action="store_true", help="until it is done")
    parser.add_argument("--timeout", metavar="TIME", type=duration, default=600.0, help="longest wait (default 10m)")
    add_json(parser)


# Lists


def _ls(arguments: argparse.Namespace) -> None:
    removed = arguments.all or arguments.status == "removed"
    plain = not (arguments.json or arguments.project or removed)
    lines = session_lines(Home.locate()) if plain else None
    if lines is None:
        with reading() as runtime:
            project = runtime.projects.find(arguments.project) if arguments.project else None
            views = runtime.sessions.list(project=project, removed=removed)
        if arguments.json:
            say_json([view for view in views if _fits(arguments, _line(view))])
            return
        lines = [_line(view) for view in views]
    chosen = arguments.status is not None or arguments.filter or arguments.project
    rows = [_cells(line) for line in lines if _fits(arguments, line)]
    say_table(COLUMNS, rows, empty="There are no sessions" + (" that fit." if chosen else " yet."))


def _fits(arguments: argparse.Namespace, line: SessionLine) -> bool:
    if arguments.status is not None:
        words = (
            {"removed"} if line.removed_at else {line.status, *([line.activity] if line.status == "running" else [])}
        )
        if arguments.status not in words:
            return False
    return not arguments.filter or matches(arguments.filter, _cells(line))


def _line(view: SessionView) -> SessionLine:
    return SessionLine(
        id=view.id, project=view.project, status=view.status, activity=view.activity, title=view.title,
        agent=view.agent, queued=view.queued, files=view.files, additions=view.additions, deletions=view.deletions,
        change=view.change, change_status=view.change_status, rescued=view.rescued,
        created_at=to_text(view.created_at), removed_at=to_text(view.removed_at) if view.removed_at else None,
    )  # fmt: skip


def _cells(line: SessionLine) -> tuple[str, ...]:
    status = "removed" if line.removed_at else line.status
    if status == "running":
        status = line.activity
    return (
        line.id,
        status,
        line.project,
        f"+{line.additions} -{line.deletions}" if line.files else "",
        f"#{line.change} {line.change_status}" if line.change is not None else "",
        str(line.queued) if line.queued else "",
        line.agent,
        age(from_text(line.created_at), datetime.now(UTC)),
        line.title,
    )


def _queue_ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        session = runtime.sessions.find(arguments.session)
        prompts = [prompt for prompt in runtime.sessions.prompts(session.id) if prompt.state == "queued"]
    if arguments.json:
        say_json(prompts)
        return
    now = datetime.now(UTC)
    rows = [(str(prompt.n), age(prompt.created_at, now), prompt.text.strip()) for prompt in prompts]
    columns = (Column("N", right=True), Column("AGE", right=True), Column("PROMPT", flexible=True))
    say_table(columns, rows, empty=f"No prompt of session {session.id} waits.")


def _queue_rm(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        session = runtime.sessions.find(arguments.session)
        wanted = arguments.prompt.removeprefix("#")
        found = [each for each in runtime.sessions.prompts(session.id) if wanted in (str(each.n), each.id)]
        runtime.sessions.remove_prompt(found[0].id if found else wanted)
        note(f"Prompt {wanted} of session {session.id} was taken out of the queue.")


def _rescue_ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        detail = runtime.sessions.show(arguments.session)
    if arguments.json:
        say_json(detail.rescues)
        return
    now = datetime.now(UTC)
    rows = [
        (str(each.n), each.commit_id[:12], str(each.files), age(each.at, now), each.reason, each.ref)
        for each in detail.rescues
    ]
    columns = (
        Column("N", right=True), Column("COMMIT"), Column("FILES", right=True), Column("AGE", right=True),
        Column("WHY", drop=1), Column("REF", flexible=True),
    )  # fmt: skip
    say_table(columns, rows, empty=f"Nothing of session {detail.session.id} had to be saved.")


def _rescue_join(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        joined = runtime.sessions.join_rescue(arguments.session, arguments.number)
    if arguments.json:
        say_json(joined)
    else:
        say(f"Joined rescue {joined.n} onto branch {joined.session_id}, now at {joined.head_commit[:12]}.")


# One session


def _show(arguments: argparse.Namespace) -> None:
    from kortix_tui.cli.session_page import say_session

    with reading() as runtime:
        detail = runtime.sessions.show(arguments.session)
        mirror = runtime.context.home.mirror(detail.session.project_id)
    if arguments.json:
        say_json(detail)
    else:
        say_session(detail, mirror)


def _logs(arguments: argparse.Namespace) -> None:
    from kortix_tui.cli.logs import follow, say_records

    shown = {"tail": arguments.tail, "timestamps": arguments.timestamps, "verbose": arguments.verbose}
    if arguments.follow:
        with acting(host=True) as runtime:
            follow(runtime, arguments.session, **shown)
        return
    with reading() as runtime:
        say_records(runtime, arguments.session, **shown)


def _stop(arguments: argparse.Namespace) -> int:
    def done(view: SessionView) -> bool:
        return view.status in ("stopped", "failed") or view.removed_at is not None

    with acting(host=arguments.wait) as runtime:
        return _report(runtime, runtime.sessions.stop(arguments.session), arguments, done, "stopped")


def _resume(arguments: argparse.Namespace) -> int:
    def done(view: SessionView) -> bool:
        return view.status == "running" or (view.status == "failed" and view.wanted != "running")

    with acting(host=arguments.wait) as runtime:
        return _report(runtime, runtime.sessions.resume(arguments.session), arguments, done, "running")


def _rm(arguments: argparse.Namespace) -> int:
    def done(view: SessionView) -> bool:
        return view.removed_at is not None or (view.status == "failed" and view.wanted != "removed")

    with acting(host=arguments.wait) as runtime:
        preview = runtime.sessions.removal_preview(arguments.session)
        session = preview.session
        if not arguments.yes:
            if not at_terminal():
                raise Refused(
                    f"Nobody can be asked whether session {session.id} is to be removed.",
                    hint="Add --yes to remove it without a question.",
                )
            say(f"Session {session.id}{' (running)' if preview.running else ''}:")
            say_table((Column("TITLE", flexible=True),), [(session.title,)], empty="")
            say(preview.note)
            if not ask("Remove it? [y/N]", wanted="y"):
                note("Nothing was changed.")
                return 1
        return _report(runtime, runtime.sessions.remove(session.id), arguments, done, "removed")


def _report(
    runtime: Runtime,
    view: SessionView,
    arguments: argparse.Namespace,
    done: Callable[[SessionView], bool],
    what: str,
) -> int:
    """Wait where that is wanted, then say what the session is now."""
    from kortix_tui.cli.waiting import wait_until

    if arguments.wait:
        view = wait_until(runtime, view.id, done, timeout_s=arguments.timeout, what=what)
    if arguments.json:
        say_json(view)
    reached = view.status == what or (what == "removed" and view.removed_at is not None)
    if reached:
        note(f"Session {view.id} is {what}.")
    elif arguments.wait:
        note(view.reason_text or f"Session {view.id} is {view.status}.")
        return 1
    else:
        note(f"Session {view.id} will be {what}.")
    return 0


def _shell(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        session = runtime.sessions.find(arguments.session)
        if at_terminal():
            note(f"Shell in session {session.id}. Leave with exit, or ctrl-] and then q.")
            sys.stdout.flush()
        end = runtime.shells.attach(session.id)
    if end.detached:
        note("Left the shell.")
        return 0
    if end.exit_code is None:
        note("The shell was cut off: the sandbox went away.")
        return 1
    return end.exit_code
