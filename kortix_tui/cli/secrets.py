"""`kortix secrets`: values that agents need and must not leak. They go in here and are never printed again."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.text import visible_line
from kortix_tui.cli import secret_import, secret_requests
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import ask, counted, matches, note, say, say_json, say_prose, say_table
from kortix_tui.cli.parsing import Parser, Run, Verbs, add_filter, add_json, add_project, add_yes, cut
from kortix_tui.cli.secret_input import add_exposure, add_hosts, exposure, read_words, take_values
from kortix_tui.cli.secret_page import COLUMNS, cells, say_changes, say_secret
from kortix_tui.cli.unseen import can_ask, value_of
from kortix_tui.cli.vault_access import add_access, ready_vault, with_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.runtime.secret_views import SecretChange
    from kortix_tui.store.models import Project


def add_secrets(parser: Parser) -> None:
    """Add the verbs."""
    parser.keeps_words = True
    verbs = Verbs(
        parser,
        "secrets set STRIPE_KEY",
        "secrets set DATABASE_URL=- < url.txt",
        "secrets ls",
        "secrets grant STRIPE_KEY --agent builder",
    )
    verb = verbs.add(
        "set", _set, "store values: new secrets, or new versions of those that are there",
        examples=(
            "secrets set STRIPE_KEY", "pass show stripe | kortix secrets set STRIPE_KEY=-",
            "secrets set DEPLOY_TOKEN --only-me --scope connector",
            "secrets set API_KEY --identifier stripe-live --scope egress --allow-host api.stripe.com",
        ),
    )  # fmt: skip
    verb.add_argument(
        "words", metavar="NAME[=VALUE]", nargs="+", type=str,
        help="an environment variable: NAME asks for the value unseen, NAME=- reads it from standard input without "
        "its last line end, NAME=VALUE stays in the shell's history",
    )  # fmt: skip
    verb.add_argument("--identifier", metavar="ID", help="what grants call it; default: NAME")
    verb.add_argument("--only-me", action="store_true", default=None, help="only for sessions that you start yourself")
    add_exposure(verb)
    add_hosts(verb)
    _add_common(verb)

    verb = verbs.add(
        "ls", _ls, "list secrets, who may have them and who has them now", aliases=("list",),
        examples=("secrets ls", "secrets ls --project billing --json"),
    )  # fmt: skip
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    add_filter(verb)
    add_json(verb)

    verb = _about_one(verbs, "show", _show, "all that is known of a secret but its value", ("secrets show STRIPE_KEY",),
                      aliases=("info",))  # fmt: skip
    add_project(verb)
    add_json(verb)

    verb = _about_one(
        verbs, "unset", _unset, "forget a secret; sandboxes that hold it keep it until they end",
        ("secrets unset STRIPE_KEY", "secrets unset STRIPE_KEY --yes"), aliases=("rm", "remove"),
    )  # fmt: skip
    add_yes(verb, "do not ask")
    _add_common(verb)

    summary = "give a secret a new value, typed unseen or from standard input"
    _add_common(
        _about_one(
            verbs,
            "rotate",
            _rotate,
            summary,
            ("secrets rotate STRIPE_KEY", "pass show s | kortix secrets rotate KEY"),
        )
    )

    verb = _about_one(
        verbs, "share", _share, "give your own secret to the project, or make a project's one your own",
        ("secrets share DEPLOY_TOKEN --everyone", "secrets share DEPLOY_TOKEN --only-me"),
    )  # fmt: skip
    to = verb.add_mutually_exclusive_group(required=True)
    to.add_argument("--everyone", action="store_false", dest="only_me", help="any session of the project may have it")
    to.add_argument("--only-me", action="store_true", dest="only_me", help="only sessions that you start yourself")
    _add_common(verb)

    verb = _about_one(
        verbs, "expose", _expose, "say where a value may go", ("secrets expose STRIPE_KEY connector",
        "secrets expose STRIPE_KEY egress --allow-host api.stripe.com", "secrets delivery STRIPE_KEY broker"),
        aliases=("delivery",),
    )  # fmt: skip
    verb.add_argument(
        "exposure", metavar="EXPOSURE", type=exposure,
        help="environment (or runtime), egress-enforced (egress), connector (broker), none (denied)",
    )  # fmt: skip
    add_hosts(verb)
    verb.add_argument("--gateway", action="store_true", help="with none: the model gateway may use it")
    _add_common(verb)

    verb = _about_one(
        verbs, "grant", _grant, "propose that an agent may have it: a change request on kortix.yaml",
        ("secrets grant STRIPE_KEY --agent builder",),
    )  # fmt: skip
    verb.add_argument("--agent", metavar="NAME", required=True, help="an agent of kortix.yaml")
    verb.add_argument(
        "--replace-all", action="store_true", help="where its grant is `all`: have it name only this one instead"
    )
    add_project(verb)
    add_json(verb)

    secret_import.add_import(verbs)
    secret_requests.add_requests(verbs)


def _about_one(
    verbs: Verbs, name: str, run: Run, summary: str, examples: Sequence[str], *, aliases: Sequence[str] = ()
) -> argparse.ArgumentParser:
    parser = verbs.add(name, run, summary, aliases=aliases, examples=examples)
    parser.add_argument("identifier", metavar="ID", help="the secret's identifier; case does not matter")
    return parser


def _add_common(parser: argparse.ArgumentParser) -> None:
    add_access(parser)
    add_project(parser)
    add_json(parser)


# Reading


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        secrets = runtime.secrets.list(project=project)
    rows = [cells(secret) for secret in secrets]
    fitting = [at for at, row in enumerate(rows) if matches(arguments.filter, row)]
    if arguments.json:
        say_json([secrets[at] for at in fitting])
        return
    hint = "No secret fits." if arguments.filter or arguments.project else "There are no secrets yet."
    say_table(COLUMNS, [rows[at] for at in fitting], empty=f"{hint} Store one: kortix secrets set NAME")


def _show(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        detail = runtime.secrets.show(runtime.projects.resolve(arguments.project), arguments.identifier)
    if arguments.json:
        say_json(detail)
    else:
        say_secret(detail)


# Changing


def _set(arguments: argparse.Namespace) -> None:
    wanted = read_words(arguments.words)
    if arguments.identifier and len(wanted) > 1:
        raise Refused("One identifier cannot name several secrets.", hint="Set them one by one.")
    # Values on our command line must not go on to another program's.
    with acting(again=all(one.given in (None, "-") for one in wanted)) as runtime:
        project = runtime.projects.resolve(arguments.project)
        ready_vault(runtime, arguments)
        values = take_values(wanted)
        done: list[SecretChange] = []
        try:
            for name, value in values:
                done.append(with_vault(runtime, arguments, partial(_store, runtime, project, arguments, name, value)))
        except InvalidInput as error:
            # The rules speak of "the value"; of several, the person has to know which.
            raise InvalidInput(f"{name}: {error.message}", hint=error.hint) from error
        finally:
            if done and len(done) < len(values):
                note(f"Stored before it failed: {', '.join(change.secret.identifier for change in done)}.")
    say_changes(done, arguments)


def _store(runtime: Runtime, project: Project, arguments: argparse.Namespace, name: str, value: Secret) -> SecretChange:
    return runtime.secrets.set(
        project, arguments.identifier or name, value, name=name if arguments.identifier else None,
        exposure=arguments.exposure, hosts=tuple(arguments.hosts) if arguments.hosts else None,
        only_me=arguments.only_me,
    )  # fmt: skip


def _rotate(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        found = runtime.secrets.find(project, arguments.identifier)
        ready_vault(runtime, arguments)
        value = value_of(f"New value of {found.identifier}")
        change = with_vault(runtime, arguments, lambda: runtime.secrets.rotate(project, found.identifier, value))
    say_changes(change, arguments)


def _unset(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        found = runtime.secrets.find(project, arguments.identifier)
        if not arguments.yes:
            if not can_ask():
                raise Refused("Nobody can be asked.", hint="Add --yes to forget it without a question.")
            if found.held_by:
                many = counted(len(found.held_by), "sandbox has", "sandboxes have")
                say_prose(f"{many} its value and keep it until they end.")
            if not ask(f"Forget {found.identifier} of {found.project} and its value? [y/N]", wanted="y"):
                note("Nothing was changed.")
                return 1
        gone = with_vault(runtime, arguments, lambda: runtime.secrets.unset(project, found.identifier))
    if arguments.json:
        say_json(gone)
    else:
        say_prose(f"{gone.identifier} is forgotten. If anybody may have seen the value, have its issuer revoke it.")
    return 0


def _share(arguments: argparse.Namespace) -> None:
    _change(
        arguments,
        lambda runtime, project: runtime.secrets.share(project, arguments.identifier, only_me=arguments.only_me),
    )


def _expose(arguments: argparse.Namespace) -> None:
    _change(
        arguments,
        lambda runtime, project: runtime.secrets.expose(
            project, arguments.identifier, arguments.exposure, hosts=tuple(arguments.hosts or ()),
            gateway=arguments.gateway,
        ),
    )  # fmt: skip


def _change(arguments: argparse.Namespace, act: Callable[[Runtime, Project], SecretChange]) -> None:
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        runtime.secrets.find(project, arguments.identifier)
        change = with_vault(runtime, arguments, lambda: act(runtime, project))
    say_changes(change, arguments)


def _grant(arguments: argparse.Namespace) -> None:
    from kortix_tui.cli.change_page import opened

    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)
        identifier = _known(runtime, project, arguments.identifier)
        result = runtime.edits.grant(project, agent=arguments.agent, name=identifier, replace_all=arguments.replace_all)
    if arguments.json:
        say_json(result)
        return
    who = f"agent {visible_line(arguments.agent)} to have {visible_line(identifier)}"
    if result.number is None:
        say(f"The base branch of {project.slug} allows {who} already.")
        return
    say(f"Change request {project.slug}#{result.number} {opened(result, project.base_branch)}: it allows {who}.")
    note(f"Read it, then merge it: kortix cr diff {project.slug}#{result.number}")
    note("Until then nothing changes; afterwards it counts for sessions that start anew.")


def _known(runtime: Runtime, project: Project, identifier: str) -> str:
    """The identifier as it is stored; as it was typed where there is no such secret yet, which is said."""
    try:
        return runtime.secrets.find(project, identifier).identifier
    except NotFound:
        note(f"There is no secret {cut(identifier)} in {project.slug} yet; the grant will wait for it.")
        return identifier
