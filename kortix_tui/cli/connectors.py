"""`kortix connectors`: the outside systems that agents may call, and what a person does about them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import InvalidInput, UsageError
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import CallState, Level
from kortix_tui.cli.calls import add_calls_verb
from kortix_tui.cli.connecting import add_account, add_connect, connect, offer_acceptance
from kortix_tui.cli.connector_page import CONNECTORS, cells, say_connector, say_sync, say_test
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import at_terminal, matches, note, say, say_json, say_table
from kortix_tui.cli.parsing import Parser, Verbs, add_filter, add_json, add_project, cut
from kortix_tui.cli.policies import add_policies_verb, add_policy_group

if TYPE_CHECKING:
    from kortix_tui.broker.services import CallReport
    from kortix_tui.runtime.connectors import ConnectorTest

MOST_ARGUMENTS: Final = 4 << 20
UNAUTHORIZED: Final = 401


def add_connectors(parser: Parser) -> None:
    """Add the verbs."""
    parser.keeps_words = True
    verbs = Verbs(
        parser, "connectors ls", "connectors connect billing", "connectors policies billing",
        "connectors grant billing --agent builder", "connectors call billing.get_invoice '{\"id\": 7}'",
    )  # fmt: skip
    _add_reading(verbs)
    _add_changing(verbs)
    _add_calling(verbs)
    add_calls_verb(verbs)
    add_policies_verb(verbs)
    add_policy_group(verbs)


def _add_reading(verbs: Verbs) -> None:
    verb = verbs.add(
        "ls", _ls, "list connectors, what they need and who may use them", aliases=("list",),
        examples=("connectors ls", "connectors ls --project billing --json"),
    )  # fmt: skip
    add_project(verb)
    add_filter(verb)
    add_json(verb)
    verb = _about_one(verbs, "show", _show, "all that is known of a connector", "connectors show billing")
    add_project(verb)
    add_json(verb)


def _add_changing(verbs: Verbs) -> None:
    verb = verbs.add(
        "connect", _connect, "store a credential for a connector, or renew it",
        examples=(
            "connectors connect billing", "pass show billing | kortix connectors connect billing --token -",
            "connectors connect billing --secret BILLING_KEY", "connectors connect calendar --device",
        ),
    )  # fmt: skip
    add_account(verb)
    add_connect(verb)
    verb = _about_one(verbs, "sync", _sync, "read its document or ask its server anew", "connectors sync billing")
    add_project(verb)
    add_json(verb)
    verb = _about_one(
        verbs, "accept", _accept, "look at what changed outside, and have it count from now on",
        "connectors accept billing", "connectors accept billing --at cat_7k2m",
    )  # fmt: skip
    verb.add_argument("--at", metavar="ID", help="exactly this reading of it, without a question")
    add_project(verb)
    add_json(verb)
    for name, run, summary in (
        ("grant", _grant, "propose that an agent may use it: a change request on kortix.yaml"),
        ("revoke", _revoke, "propose that an agent may not use it any more: a change request"),
    ):
        verb = _about_one(verbs, name, run, summary, f"connectors {name} billing --agent builder")
        verb.add_argument("--agent", metavar="NAME", required=True, help="an agent of kortix.yaml")
        add_project(verb)
        add_json(verb)


def _add_calling(verbs: Verbs) -> None:
    verb = _about_one(
        verbs, "test", _test, "see whether calls work, with one harmless read", "connectors test billing",
        "connectors test billing --account sandbox",
    )  # fmt: skip
    verb.add_argument("--account", metavar="NAME", help="which of several accounts; default: the default one")
    add_project(verb)
    add_json(verb)
    verb = verbs.add(
        "call", _call,
        "call an action yourself; at a terminal you are the person: what policy asks about runs, what it blocks not",
        examples=(
            "connectors call billing.get_invoice '{\"id\": 7}'", "connectors call billing.create_invoice @invoice.json",
            "connectors call billing.list_invoices --out invoices.json",
        ),
    )  # fmt: skip
    verb.add_argument("action", metavar="CONNECTOR.ACTION", help="what is called")
    verb.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}",
        help="an object; @FILE reads a file, - standard input; default: no arguments",
    )  # fmt: skip
    verb.add_argument("--account", metavar="NAME", help="which of several accounts; default: the default one")
    verb.add_argument("--reason", metavar="TEXT", default="", help="what for; it goes into the record")
    verb.add_argument("--out", metavar="FILE", help="write the answer into a file instead")
    add_project(verb)
    add_json(verb)


def _about_one(verbs: Verbs, name: str, run: object, summary: str, *examples: str) -> argparse.ArgumentParser:
    parser = verbs.add(name, run, summary, examples=examples)  # type: ignore[arg-type]
    parser.add_argument("connector", metavar="SLUG", help="the connector, as kortix.yaml names it")
    return parser


# Reading


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.resolve(arguments.project)
        runtime.connectors.refresh(project)
        connectors = runtime.connectors.list(project)
    rows = [cells(one) for one in connectors]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([connectors[at] for at in fitting])
        return
    hint = "No connector fits." if rows else f"kortix.yaml of {project.slug} declares no connectors."
    say_table(CONNECTORS, [rows[at] for at in fitting], empty=hint)
    for one in connectors:
        if one.enabled and one.problem:
            note(f"{one.slug}: {one.problem}")
        if one.pending:
            note(f"{one.slug} changed outside: kortix connectors accept {one.slug}")
    if any(one.gates_off and one.enabled for one in connectors):
        note("Gates are off: every call runs without asking. To change that: kortix connectors policy mode risk")


def _show(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.resolve(arguments.project)
        runtime.connectors.refresh(project)
        connector = runtime.connectors.show(project, arguments.connector)
        waiting = runtime.connectors.pending(project, arguments.connector) if connector.pending else None
    if arguments.json:
        say_json(connector)
    else:
        say_connector(connector, waiting)


# Changing


def _connect(arguments: argparse.Namespace) -> int:
    with acting(again=arguments.token is None and arguments.client_secret is None) as runtime:
        return connect(runtime, arguments)


def _sync(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        note(f"Reading what {cut(arguments.connector)} can do …")
        result = runtime.connectors.sync(project, arguments.connector)
        if arguments.json:
            say_json(result)
            return 0
        if result.state == "pending":
            say(f"{visible_line(result.connector)} has changed outside; what was accepted before stays in force.")
            return offer_acceptance(runtime, project, arguments.connector)
    say_sync(result)
    if not result.changed:
        note("Nothing has changed.")
    return 0


def _accept(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        if arguments.at is None and not arguments.json:
            return offer_acceptance(runtime, project, arguments.connector)
        connector = runtime.connectors.accept(
            project, arguments.connector, arguments.at or "", terminal=at_terminal(), pinned=arguments.at is not None
        )
    if arguments.json:
        say_json(connector)
    else:
        say(f"Accepted: {visible_line(connector.slug)} has {connector.actions} actions.")
    return 0


def _grant(arguments: argparse.Namespace) -> None:
    _propose(arguments, "use", revoke=False)


def _revoke(arguments: argparse.Namespace) -> None:
    _propose(arguments, "no longer use", revoke=True)


def _propose(arguments: argparse.Namespace, may: str, *, revoke: bool) -> None:
    from kortix_tui.cli.change_page import opened

    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        if not revoke:
            runtime.connectors.refresh(project)
            runtime.connectors.show(project, arguments.connector)
        edit = runtime.edits.revoke if revoke else runtime.edits.grant
        result = edit(project, agent=arguments.agent, name=arguments.connector, key="connectors")
    if arguments.json:
        say_json(result)
        return
    who = f"agent {visible_line(arguments.agent)} may {may} {visible_line(arguments.connector)}"
    if result.number is None:
        say(f"The base branch of {project.slug} says already that {who}.")
        return
    say(f"Change request {project.slug}#{result.number} {opened(result, project.base_branch)}: {who}.")
    note(f"Read it, then merge it: kortix cr diff {project.slug}#{result.number}")
    since = "it counts for every session from its next call on" if revoke else "it counts for sessions that start anew"
    note(f"Until then nothing changes; afterwards {since}.")


# Calling


def _test(arguments: argparse.Namespace) -> int:
    from kortix_tui.runtime.connectors import ConnectorCheck

    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        runtime.connectors.refresh(project)
        test, probe = runtime.connectors.check(project, arguments.connector, arguments.account)
        if probe is not None:
            note(f"Calling {arguments.connector}.{probe.name} …")
            report = runtime.calls.call(
                project, arguments.connector, probe.name, account=arguments.account, reason="kortix connectors test"
            )
            good = report.state is CallState.DONE
            said = f"status {report.status}" if report.status is not None else ""
            why = said if good else " ".join(filter(None, (said, report.message))) or report.state.value
            why += _refused(report, arguments.account)
            check = ConnectorCheck(name=f"call {probe.name}", level=Level.OK if good else Level.FAIL, message=why)
            test = test.model_copy(update={"checks": (*test.checks, check)})
    return _say_test(test, arguments)


def _say_test(test: ConnectorTest, arguments: argparse.Namespace) -> int:
    if arguments.json:
        say_json(test)
    else:
        say_test(test)
        if test.passed and not any(check.name.startswith("call") for check in test.checks):
            note("It has no read that needs no argument: nothing was called.")
    return 0 if test.passed else 1


def _call(arguments: argparse.Namespace) -> int:
    connector, dot, action = arguments.action.partition(".")
    if not dot or not action:
        raise UsageError(f"«{cut(arguments.action)}» names no action.", hint="Write CONNECTOR.ACTION.")
    text = _arguments(arguments.arguments)
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        report = runtime.calls.call(
            project, connector, action, text, account=arguments.account, reason=arguments.reason
        )  # fmt: skip
    if arguments.json:
        say_json(report)
    else:
        _say_answer(report, arguments.out, arguments.account)
    return 0 if report.state is CallState.DONE else 1


def _arguments(given: str) -> str:
    """The JSON text; what is wrong with it the host says, which reads it strictly."""
    if given == "-":
        data = sys.stdin.buffer.read(MOST_ARGUMENTS + 1)
    elif given.startswith("@"):
        try:
            with Path(given[1:]).open("rb") as file:
                data = file.read(MOST_ARGUMENTS + 1)
        except OSError as error:
            raise InvalidInput(f"{cut(given[1:])} cannot be read: {error.strerror}.") from error
    else:
        return given
    if len(data) > MOST_ARGUMENTS:
        raise InvalidInput("The arguments are longer than 4 MiB.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidInput("The arguments are not UTF-8 text.") from None


def _say_answer(report: CallReport, out: str | None, account: str | None) -> None:
    if report.body is not None:
        data = _bytes(report)
        if out is not None:
            Path(out).write_bytes(data)
            note(f"{len(data)} bytes written to {out}.")
        elif sys.stdout.isatty():
            say(visible(data.decode("utf-8", "replace")))
        else:
            sys.stdout.buffer.write(data)
            sys.stdout.flush()
    words = [report.state.value]
    words += [f"status {report.status}"] if report.status is not None else []
    words += [report.message] if report.message else []
    note(f"{report.connector}.{report.action}: {', '.join(words)}{_refused(report, account)}")
    if report.truncated:
        note("The answer is longer than what is shown.")


def _refused(report: CallReport, account: str | None) -> str:
    """What to do about a credential that the server does not take; nothing where it did."""
    if report.state is CallState.DONE or report.status != UNAUTHORIZED:
        return ""
    which = f" --account {visible_line(account)}" if account else ""
    command = f"kortix connectors connect {visible_line(report.connector)}{which}"
    return f". The server refused the credential. Give a new one: {command}"


def _bytes(report: CallReport) -> bytes:
    import base64

    body = report.body or ""
    return base64.b64decode(body) if report.binary else body.encode("utf-8", "surrogatepass")
