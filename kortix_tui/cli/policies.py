"""`kortix policy`, and the policy verbs of `kortix connectors`: what happens to calls, and changing it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.clock import age
from kortix_tui.base.errors import InvalidInput, UsageError
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Verdict
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import BOLD, GREEN, RED, YELLOW, counted, matches, note, paint, say, say_json, say_table
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_project, count, cut

if TYPE_CHECKING:
    from kortix_tui.manifest.policies import Condition
    from kortix_tui.runtime.connector_views import PolicyView, ReplayResult
    from kortix_tui.runtime.edits import EditResult
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.store.models import Project

VERDICTS: Final = {"allow": Verdict.RUN, "ask": Verdict.ASK, "block": Verdict.BLOCK}
WORDS: Final = {verdict: word.capitalize() for word, verdict in VERDICTS.items()}
"""As screens say it; files say `always_run`, `require_approval` and `block`."""

_STYLES: Final = {"Allow": GREEN, "Ask": YELLOW, "Block": RED}
_CONDITION: Final = re.compile(r"([^=!]+)(!=|=)(.*)\Z", re.DOTALL)
_LARGEST: Final = 256 * 1024


def _style(cell: str) -> str:
    return _STYLES.get(cell.split(" ", 1)[0], "")


RULES = (
    Column("#", right=True),
    Column("OF"),
    Column("MATCH", flexible=True),
    Column("VERDICT", style=_style),
    Column("CONDITIONS", flexible=True, drop=2),
    Column("ACTIONS", right=True, drop=1),
    Column("NOTE", flexible=True),
)
ACTIONS = (
    Column("ACTION", flexible=True),
    Column("RISK", drop=1),
    Column("VERDICT", style=_style),
    Column("BY", flexible=True),
)
CHANGED = (
    Column("ACTION", flexible=True),
    Column("WAS", style=_style),
    Column("NOW", style=_style),
    Column("AGE", right=True, drop=2),
    Column("CALL", drop=3),
    Column("BY", flexible=True, drop=1),
)
REMEMBERED = (
    Column("ID"),
    Column("ACTION", flexible=True),
    Column("WHERE", flexible=True),
    Column("SCOPE", drop=3),
    Column("USED", right=True),
    Column("ENDS", drop=1),
    Column("STATE"),
    Column("BY", drop=2),
)


def add_policy(parser: Parser) -> None:
    """Add the verbs of `policy`."""
    verbs = Verbs(parser, "policy replay --cr 3", "policy set '*.delete_*' block", "policy rules ls")
    verb = verbs.add(
        "replay", _replay, "what a changed policy would make of the calls on record",
        examples=("policy replay kortix.yaml", "policy replay --cr 3", "policy replay --cr billing#3 --json"),
    )  # fmt: skip
    verb.add_argument("file", metavar="FILE", nargs="?", help="a changed kortix.yaml, or - for standard input")
    verb.add_argument("--cr", metavar="N", dest="change", help="the kortix.yaml of a change request, or SLUG#N")
    add_project(verb)
    add_filter(verb)
    add_json(verb)
    _add_edits(verbs, "policy", connector=False)
    group = verbs.group("rules", "approvals that are remembered", "policy rules ls", "policy rules revoke rul_7k2m")
    verb = group.add(
        "ls", _rules_ls, "list remembered approvals, those in force first", aliases=("list",),
        examples=("policy rules ls", "policy rules ls --project billing --json"),
    )  # fmt: skip
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    add_filter(verb)
    add_json(verb)
    verb = group.add(
        "revoke", _rules_revoke, "take a remembered approval back: its calls ask again",
        examples=("policy rules revoke rul_7k2m",),
    )  # fmt: skip
    verb.add_argument("rule", metavar="ID", help="the remembered approval's id, or a unique beginning of it")
    add_json(verb)


def add_policies_verb(verbs: Verbs) -> None:
    """Add `policies CONNECTOR`, for `kortix connectors`."""
    verb = verbs.add(
        "policies", _show, "what would happen to every action, and which rule says so",
        examples=("connectors policies billing", "connectors policies billing --filter invoice --json"),
    )  # fmt: skip
    verb.add_argument("connector", metavar="SLUG", help="the connector")
    add_project(verb)
    add_filter(verb)
    add_json(verb)


def add_policy_group(verbs: Verbs) -> None:
    """Add `policy set|rm|mode`, for `kortix connectors`."""
    group = verbs.group(
        "policy", "change what happens to calls, as a change request",
        "connectors policy set billing 'get_*' allow", "connectors policy mode risk",
    )  # fmt: skip
    _add_edits(group, "connectors policy", connector=True)


def _add_edits(verbs: Verbs, prefix: str, *, connector: bool) -> None:
    whose, name = ("billing ", "send_*") if connector else ("", "billing.send_*")
    of = "a connector's rule" if connector else "a rule of the project, which comes before all rules of connectors"
    verb = verbs.add(
        "set", _set, f"write {of}, as a change request",
        examples=(
            f"{prefix} set {whose}'{name}' ask", f"{prefix} set {whose}'{name}' allow --condition 'to=*@example.com'",
            f"{prefix} set {whose}'{name}' allow --max-calls 10 --per hour --first",
        ),
    )  # fmt: skip
    _add_rule(verb, connector=connector)
    verb.add_argument("verdict", metavar="VERDICT", choices=list(VERDICTS), help="allow, ask or block")
    verb.add_argument("--first", action="store_true", help="before all other rules; default: last that is reached")
    verb = verbs.add(
        "rm", _rm, f"remove {of.split(',')[0]}, as a change request", aliases=("remove",),
        examples=(f"{prefix} rm {whose}'{name}'",),
    )  # fmt: skip
    _add_rule(verb, connector=connector)
    verb = verbs.add(
        "mode", _mode, "what happens to calls that no rule matches, as a change request",
        examples=(f"{prefix} mode risk", f"{prefix} mode allow_all"),
    )  # fmt: skip
    verb.add_argument(
        "mode", metavar="MODE", choices=["risk", "allow_all"],
        help="risk: reads run, writes and destructive calls ask; allow_all: all run",
    )  # fmt: skip
    add_project(verb)
    add_json(verb)


def _add_rule(verb: argparse.ArgumentParser, *, connector: bool) -> None:
    if connector:
        verb.add_argument("connector", metavar="SLUG", help="the connector")
    else:
        verb.set_defaults(connector=None)
    verb.add_argument("match", metavar="MATCH", help="a glob such as 'get_*', or /a regular expression/, of names")
    verb.add_argument(
        "--condition", metavar="ARG=TEXT", action="append", default=[], dest="conditions",
        help="an argument's value must match (=) or must not (!=); may be repeated",
    )  # fmt: skip
    verb.add_argument("--max-calls", metavar="N", type=count, help="a limit on the number of calls")
    verb.add_argument("--max-sum", metavar="ARG=N", help="a limit on the sum of an argument's values")
    verb.add_argument("--per", choices=["minute", "hour", "day"], help="the time that a limit is for")
    add_project(verb)
    add_json(verb)


# Reading


def _show(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.resolve(arguments.project)
        view = runtime.policies.view(project, arguments.connector)
    if arguments.json:
        say_json(view)
        return
    say(paint(f"{view.project}  {visible_line(view.connector)}", BOLD))
    say(_standing(view))
    rules = [
        (str(rule.index + 1), rule.source, rule.match, WORDS[rule.verdict], "; ".join(rule.conditions),
         str(rule.matches), rule.note or "")
        for rule in view.rules
    ]  # fmt: skip
    if rules:
        say()
        say_table(RULES, rules, empty="")
    say()
    actions = [
        (action.name, action.risk.value, WORDS[action.verdict] + (" (depends)" if action.conditional else ""),
         action.unavailable or action.rule)
        for action in view.actions
    ]  # fmt: skip
    fitting = [row for row in actions if matches(arguments.filter, row)]
    connector = visible_line(view.connector)
    empty = "No action fits." if actions else f"Its actions are not known yet: kortix connectors sync {connector}"
    say_table(ACTIONS, fitting, empty=empty)


def _standing(view: PolicyView) -> str:
    restricted = view.sensitive or any(rule.verdict is not Verdict.RUN for rule in view.rules)
    if view.default_mode == "allow_all" and not restricted:
        words = "Gates are off: every call runs without asking. To change that: kortix connectors policy mode risk"
        return paint(words, YELLOW)
    if view.sensitive:
        return "It is sensitive: what no rule matches asks, also reads."
    if view.default_mode == "risk":
        return "What no rule matches: reads run, writes and destructive calls ask."
    return "What no rule matches runs without asking."


def _replay(arguments: argparse.Namespace) -> None:
    if (arguments.file is None) == (arguments.change is None):
        raise UsageError("Name a file or a change request.", hint="See `kortix policy replay --help`.")
    with reading() as runtime:
        changed: bytes | int
        if arguments.change is not None:
            from kortix_tui.cli.changes import locate

            project, changed = locate(runtime, arguments)
        else:
            project, changed = runtime.projects.resolve(arguments.project), _manifest(arguments.file)
        result = runtime.policies.replay(project, changed)
    if arguments.json:
        say_json(result)
    else:
        _say_replay(result, arguments.filter)


def _manifest(name: str) -> bytes:
    if name == "-":
        data = sys.stdin.buffer.read(_LARGEST + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                data = file.read(_LARGEST + 1)
        except OSError as error:
            raise InvalidInput(f"{cut(name)} cannot be read: {error.strerror}.", hint="Name a kortix.yaml.") from error
    if len(data) > _LARGEST:
        raise InvalidInput(f"{cut(name)} is larger than 256 KiB.", hint="Name a kortix.yaml.")
    return data


def _say_replay(result: ReplayResult, wanted: str) -> None:
    skipped = f" {counted(result.skipped, 'call')} of what it does not have." if result.skipped else ""
    say(
        f"{counted(result.calls, 'recorded call')}: {result.would_run} would run, {result.would_ask} would ask,"
        f" {result.would_block} would be blocked.{skipped}"
    )
    now = datetime.now(UTC)
    rows = [
        (line.action, WORDS[line.was], WORDS[line.now], age(line.created_at, now), line.call_id, line.rule)
        for line in result.changed
    ]
    say_table(
        CHANGED, [row for row in rows if matches(wanted, row)],
        empty="No recorded call fits." if rows else "None of them would be decided otherwise than it was.",
    )  # fmt: skip


# Changing


def conditions_of(arguments: argparse.Namespace) -> tuple[Condition, ...]:
    """The conditions that options describe.

    Raises:
        UsageError: One cannot be read.
    """
    limits = [arguments.max_calls, arguments.max_sum]
    if (arguments.per is None) != (limits == [None, None]):
        raise UsageError("A limit needs a number and a time.", hint="Write `--max-calls 10 --per hour`.")
    found = [_argument(text) for text in arguments.conditions]
    if arguments.max_calls is not None:
        found.append(_condition(f"--max-calls {arguments.max_calls}", max_calls=arguments.max_calls, per=arguments.per))
    if arguments.max_sum is not None:
        arg, _, number = arguments.max_sum.rpartition("=")
        try:
            most = float(number)
        except ValueError as error:
            raise UsageError(f"«{cut(arguments.max_sum)}» is no limit.", hint="Write `amount=500`.") from error
        found.append(_condition(f"--max-sum {arguments.max_sum}", arg=arg, max_sum=most, per=arguments.per))
    return tuple(found)


def _argument(text: str) -> Condition:
    parts = _CONDITION.match(text)
    if parts is None:
        raise UsageError(f"«{cut(text)}» is no condition.", hint="Write `argument=text` or `argument!=text`.")
    return _condition(text, arg=parts[1], match=parts[3], negate=parts[2] == "!=")


def _condition(text: str, **fields: object) -> Condition:
    from pydantic import ValidationError

    from kortix_tui.manifest.policies import Condition

    try:
        return Condition.model_validate(fields)
    except ValidationError as error:
        fault = error.errors()[0]
        context = fault.get("ctx", {})
        message = visible_line(str(context.get("message") or fault["msg"]))
        raise UsageError(f"«{cut(text)}» is no condition: {message}.", hint=context.get("hint")) from error


def _set(arguments: argparse.Namespace) -> None:
    conditions, verdict = conditions_of(arguments), VERDICTS[arguments.verdict]
    said = f"{WORDS[verdict]} for {_rule(arguments)}"
    _edit(
        arguments,
        said,
        lambda runtime, project: runtime.edits.set_rule(
            project, connector=arguments.connector, match=arguments.match, verdict=verdict, first=arguments.first,
            conditions=conditions,
        ),
    )  # fmt: skip


def _rm(arguments: argparse.Namespace) -> None:
    conditions: Sequence[Condition] | None = conditions_of(arguments) or None
    _edit(
        arguments,
        f"no rule {_rule(arguments)}",
        lambda runtime, project: runtime.edits.remove_rule(
            project, connector=arguments.connector, match=arguments.match, conditions=conditions
        ),
    )


def _rule(arguments: argparse.Namespace) -> str:
    whose = arguments.connector or "every connector"
    return f"{visible_line(arguments.match)} of {visible_line(whose)}"


def _mode(arguments: argparse.Namespace) -> None:
    _edit(
        arguments,
        f"default_mode: {arguments.mode}",
        lambda runtime, project: runtime.edits.set_default_mode(project, arguments.mode),
    )


def _edit(arguments: argparse.Namespace, what: str, act: Callable[[Runtime, Project], EditResult]) -> None:
    from kortix_tui.cli.change_page import opened

    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        result = act(runtime, project)
    if arguments.json:
        say_json(result)
        return
    if result.number is None:
        say(f"The base branch of {project.slug} says so already: {what}.")
        return
    say(f"Change request {project.slug}#{result.number} {opened(result, project.base_branch)}: {what}.")
    note(f"What it would make of the calls on record: kortix policy replay --cr {project.slug}#{result.number}")
    note(f"Read it, then merge it: kortix cr diff {project.slug}#{result.number}")
    note("Until then nothing changes.")


# Remembered approvals


def _rules_ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        rules = runtime.approvals.rules(project=project)
    rows = [
        (rule.id, f"{rule.connector}.{rule.action}", rule.arguments,
         rule.session_id or f"project {rule.project}", f"{rule.used}/{rule.most}",
         f"{rule.expires_at.astimezone():%Y-%m-%d %H:%M}",
         "in force" if rule.active else "revoked" if rule.revoked_at else "over", rule.created_by)
        for rule in rules
    ]  # fmt: skip
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([rules[at] for at in fitting])
    else:
        say_table(REMEMBERED, [rows[at] for at in fitting], empty="No approval is remembered.")


def _rules_revoke(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        rule = runtime.approvals.revoke_rule(arguments.rule)
    if arguments.json:
        say_json(rule)
    else:
        say(f"Revoked {rule.id}: calls of {visible_line(rule.connector)}.{visible_line(rule.action)} ask again.")
