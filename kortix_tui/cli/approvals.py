"""One call that waits for a person on the command line: all that would be sent, and the decision about it.

`kortix review` mounts this. A decision at a terminal repeats what is decided and asks; without a terminal it takes the
exact digest and the operator's leave (invariant I1).
"""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kortix_tui.base.clock import age
from kortix_tui.base.errors import Conflict, UsageError
from kortix_tui.base.json_text import difference, indented, is_json
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import CallState, Risk
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import (
    BOLD,
    DIM,
    GREEN,
    RED,
    YELLOW,
    ask,
    at_terminal,
    counted,
    note,
    paint,
    say,
    say_fields,
    say_json,
)
from kortix_tui.cli.parsing import count, duration

if TYPE_CHECKING:
    from kortix_tui.runtime.call_memory import Remember
    from kortix_tui.runtime.connector_views import ApprovalView
    from kortix_tui.runtime.facade import Runtime

SHORTEST_DIGEST: Final = 12
ALL: Final = "all"
TIMES: Final = 10
SPAN: Final = "8h"
_RISK: Final = {Risk.READ: GREEN, Risk.WRITE: YELLOW, Risk.DESTRUCTIVE: RED}
_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}


def add_decision(parser: argparse.ArgumentParser) -> None:
    """What a decision about a call takes."""
    parser.add_argument("--note", metavar="TEXT", help="of a call: what the agent is told beside the decision")
    parser.add_argument("--digest", metavar="D", help="of a call: only if it sends exactly this; see `review show`")
    parser.add_argument(
        "--remember", metavar="PATHS",
        help="of a call: approve later ones, too, whose named arguments have the same values: `all`, or names with"
        " commas between them",
    )  # fmt: skip
    parser.add_argument("--times", metavar="N", type=count, default=TIMES, help=f"with --remember: how many ({TIMES})")
    parser.add_argument(
        "--for", dest="span", metavar="TIME", type=duration, default=duration(SPAN),
        help=f"with --remember: how long ({SPAN})",
    )  # fmt: skip
    parser.add_argument(
        "--every-session", action="store_true", help="with --remember: not only for calls of the same session"
    )


def show(arguments: argparse.Namespace) -> None:
    """Print one call in full."""
    with reading() as runtime:
        view = runtime.approvals.show(arguments.call)
    if arguments.json:
        say_json(view)
        return
    say_call(view)
    if view.state is CallState.PENDING:
        say()
        note(f"Let it be sent once: kortix review act {view.id} approve")
        note(f'Or say no: kortix review act {view.id} deny --note "why"')


def approve(arguments: argparse.Namespace) -> int:
    """Have a person approve exactly one call."""
    return _decide(arguments, approved=True)


def deny(arguments: argparse.Namespace) -> int:
    """Have a person deny it."""
    if arguments.remember:
        raise UsageError("Only an approval can be remembered.", hint="To block calls, change the connector's policy.")
    return _decide(arguments, approved=False)


def _decide(arguments: argparse.Namespace, *, approved: bool) -> int:
    with acting() as runtime:
        view = runtime.approvals.show(arguments.call)
        _check_digest(view, arguments.digest)
        remember = _remember(arguments, view)
        if _is_asked(view) and not _confirmed(view, approved=approved, remember=remember):
            note("Nothing was decided.")
            return 1
        result = runtime.approvals.decide(
            view.id, digest=view.digest or "", approve=approved, note=arguments.note, remember=remember,
            terminal=at_terminal(), pinned=arguments.digest is not None,
        )  # fmt: skip
        if arguments.json:
            say_json(result)
        else:
            _say_result(runtime, view, approved=approved)
    return 0


def _check_digest(view: ApprovalView, given: str | None) -> None:
    if given is None:
        return
    if len(given) < SHORTEST_DIGEST:
        raise UsageError(f"A digest has at least {SHORTEST_DIGEST} characters here; all of it is best.")
    if view.digest is None or not view.digest.startswith(given.lower()):
        raise Conflict(
            f"Call {view.id} would not send what that digest says.", hint=f"Look again: kortix review show {view.id}"
        )


def _remember(arguments: argparse.Namespace, view: ApprovalView) -> Remember | None:
    if not arguments.remember:
        return None
    import json

    from pydantic import ValidationError

    from kortix_tui.runtime.call_memory import Remember, paths

    named = [name.strip() for name in arguments.remember.split(",") if name.strip()]
    bound = tuple(paths(json.loads(view.arguments))) if arguments.remember == ALL else tuple(named)
    try:
        return Remember(
            arguments=bound, most=arguments.times, hours=arguments.span / 3600, this_session=not arguments.every_session
        )
    except ValidationError as error:
        raise UsageError("At most 10,000 calls within 30 days are remembered.") from error


def _is_asked(view: ApprovalView) -> bool:
    """Whether a person at the terminal is asked. An agent's shell is not: its attempt is refused, and recorded."""
    from kortix_tui.runtime.decisions import agent_environment

    return at_terminal() and view.state is CallState.PENDING and agent_environment(os.environ) is None


def _confirmed(view: ApprovalView, *, approved: bool, remember: Remember | None) -> bool:
    say_call(view)
    say()
    if remember is not None:
        who = "this session" if remember.this_session else "every session of the project"
        bound = ", ".join(visible_line(path) for path in remember.arguments) or "no arguments"
        say(f"Up to {counted(remember.most, 'call')} of {who} will run unasked for {remember.hours:g} h; same: {bound}")
    if not approved:
        return ask("Deny it? [y/N]", wanted="y")
    word = view.action.lower() if view.risk is Risk.DESTRUCTIVE else "approve"
    return ask(f"Type «{word}» to have it sent once:", wanted=word)


def _say_result(runtime: Runtime, view: ApprovalView, *, approved: bool) -> None:
    name = visible_line(f"{view.connector}.{view.action}")
    if not approved:
        say(f"Denied {name}; the agent is told.")
        return
    say(f"Approved {name}; it is sent once.")
    if runtime.host().host is None:
        note("No host runs now: it is sent as soon as one does.")


# The page.


def say_call(view: ApprovalView) -> None:
    """Everything about a call, nothing folded."""
    now = datetime.now(UTC)
    say(f"{paint(visible_line(f'{view.connector}.{view.action}'), BOLD)}  {paint(view.risk.value, _RISK[view.risk])}")
    ends = f"in {age(now, view.expires_at)}" if view.expires_at and view.state is CallState.PENDING else ""
    decided = f"{view.decided_by}, {age(view.decided_at, now)} ago" if view.decided_at else ""
    say_fields([
        ("call", view.id),
        ("state", view.state.value),
        ("project", view.project),
        ("asked by", _asker(view)),
        ("rule", f"{view.rule_says}: Ask"),
        ("asked", f"{age(view.created_at, now)} ago"),
        ("expires", ends),
        ("decided by", decided),
        ("note", view.note or ""),
        ("result", view.message or ""),
        ("credential", view.credential or "none: it is sent without one"),
        ("digest", view.digest or ""),
        ("the same", ", ".join(view.identical)),
    ])  # fmt: skip
    _say_part("reason, in the agent's words; unverified", view.reason or "no reason given")
    where = f"{view.method} {view.url}" if view.method else f"tool {view.action} at {view.url}"
    _say_part("what is sent, but for the credential", "\n".join([where, *(f"{n}: {v}" for n, v in view.headers)]))
    if view.body is not None:
        _say_part(f"body, {view.body_bytes:,} bytes", _pretty(view.body))
    _say_part("arguments", _pretty(view.arguments))
    _say_part("compared with the last approved call of it", _compared(view))


def _asker(view: ApprovalView) -> str:
    if view.session_id is None:
        return view.created_by
    return f"agent {view.agent or 'default'} in session {view.session_id}  {view.session_title or ''}"


def _say_part(title: str, text: str) -> None:
    say()
    say(paint(title, DIM))
    for line in text.split("\n"):
        say(f"  {visible(line)}")


def _pretty(text: str) -> str:
    return indented(text) if text.lstrip()[:1] in ("{", "[") and is_json(text) else text


def _compared(view: ApprovalView) -> str:
    if view.last_approved is None:
        return "none was approved before"
    if not (is_json(view.last_approved) and is_json(view.arguments)):
        return "they cannot be compared"
    found, same = difference(view.last_approved, view.arguments)
    if not found:
        return "the same arguments"
    lines = []
    for one in found:
        values = " → ".join(value for value in (one.old, one.new) if value is not None)
        lines.append(f"{_SIGNS[one.kind]} {one.path or 'the value'}: {values}")
    return "\n".join([*lines, f"{counted(same, 'value')} the same"] if same else lines)
