"""`kortix secrets import`, and `kortix env`, as Kortix calls the same: many values at once, from where they are now."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kortix_tui.base.errors import InvalidInput, UsageError
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Exposure
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import counted, note, say, say_json, say_prose
from kortix_tui.cli.parsing import Parser, Verbs, add_json, add_project
from kortix_tui.cli.secret_input import add_exposure
from kortix_tui.cli.vault_access import add_access, with_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.runtime.secret_views import ImportReport

KEYRING = "keyring:"


def add_import(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add(
        "import", _import, "store what a .env file or the keyring has",
        examples=(
            "secrets import --from .env --dry-run", "secrets import --from .env --overwrite",
            "secrets import --from keyring:stripe/ada --as STRIPE_KEY",
        ),
    )  # fmt: skip
    _add_options(verb)
    verb.add_argument("--as", metavar="NAME", dest="name", help="the name of what comes from the keyring")


def add_env(parser: Parser) -> None:
    """Add the verbs of `env`."""
    parser.keeps_words = True
    verbs = Verbs(parser, "env push --from .env", "env pull --out names.env")
    verb = verbs.add(
        "push", _import, "store what a .env file has; as `kortix secrets import`",
        examples=("env push", "env push --from prod.env --overwrite"),
    )  # fmt: skip
    _add_options(verb, source=".env")
    verb.set_defaults(name=None)
    verb = verbs.add(
        "pull", _pull, "write the names of a project's secrets, without values", examples=("env pull --out names.env",)
    )
    verb.add_argument("--out", metavar="FILE", default="-", help="default: standard output")
    verb.add_argument("--force", action="store_true", help="replace the file")
    add_project(verb)


def _add_options(verb: argparse.ArgumentParser, source: str | None = None) -> None:
    verb.add_argument(
        "--from", metavar="FILE", dest="source", required=source is None, default=source,
        help="a .env file, or keyring:SERVICE/USER" if source is None else f"default: {source}",
    )  # fmt: skip
    verb.add_argument("--overwrite", action="store_true", help="give secrets that are there a new version")
    verb.add_argument("--dry-run", action="store_true", help="only say what would be stored")
    verb.add_argument("--only-me", action="store_true", default=None, help="only for sessions that you start yourself")
    add_exposure(verb)
    add_access(verb)
    add_project(verb)
    add_json(verb)


def _import(arguments: argparse.Namespace) -> int:
    from kortix_tui.runtime.secret_sources import import_file

    entries = _entries(arguments)
    with acting() as runtime:
        project = runtime.projects.resolve(arguments.project)

        def act() -> ImportReport:
            return import_file(
                runtime.secrets, project, entries, default=Exposure(runtime.context.settings.secrets.default_exposure),
                exposure=arguments.exposure, only_me=arguments.only_me, overwrite=arguments.overwrite,
                dry_run=arguments.dry_run,
            )  # fmt: skip

        # What would be done is known without a vault.
        report = act() if arguments.dry_run else with_vault(runtime, arguments, act)
    if arguments.json:
        say_json(report)
    else:
        say_import(report, dry_run=arguments.dry_run)
        if report.created or report.changed:
            _say_more(arguments, project.slug)
    return 1 if report.skipped and not (report.created or report.changed) else 0


def _entries(arguments: argparse.Namespace) -> list[tuple[str, Secret]]:
    from kortix_tui.runtime.secret_sources import read_env_file, read_keyring

    if not arguments.source.startswith(KEYRING):
        if arguments.name is not None:
            raise UsageError("--as names what comes from the keyring; a file has its own names.")
        file = read_env_file(Path(arguments.source))
        for each in file.notes:
            note(f"{arguments.source}, line {each.line}: {each.message}")
        return [(entry.name, entry.value) for entry in file.entries]
    service, slash, user = arguments.source.removeprefix(KEYRING).partition("/")
    if not (service and slash and user):
        raise UsageError("The keyring's entry is written keyring:SERVICE/USER.")
    if arguments.name is None:
        raise UsageError("What comes from the keyring needs a name.", hint="Add --as NAME.")
    return [(arguments.name, read_keyring(service, user))]


def say_import(report: ImportReport, *, dry_run: bool = False) -> None:
    """What an import did, or would do."""
    would = "would be " if dry_run else ""
    for what, names in (("new", report.created), ("a new version", report.changed)):
        for name in names:
            say(f"{visible_line(name)}: {would}{what}")
    # One reason is often that of many, and long.
    for reason, skipped in _by_reason(report.skipped).items():
        say_prose(f"skipped {visible_line(', '.join(skipped))}: {visible(reason)}")
    done = counted(len(report.created) + len(report.changed), "secret")
    note(f"{done} {'would be stored' if dry_run else 'stored'}, {len(report.skipped)} skipped.")


def _by_reason(skipped: Sequence[str]) -> dict[str, list[str]]:
    """The names of what was skipped, with those of the same reason together."""
    names = dict[str, list[str]]()
    for line in skipped:
        name, _, reason = line.partition(": ")
        names.setdefault(reason, []).append(name)
    return names


def _say_more(arguments: argparse.Namespace, slug: str) -> None:
    if arguments.dry_run:
        return
    note(f"Who can read them now: kortix secrets ls --project {slug}")
    if not arguments.source.startswith(KEYRING):
        note(f"The values are still in {arguments.source}; delete it when nothing else needs it.")


def _pull(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        project = runtime.projects.resolve(arguments.project)
        names = sorted({view.name for view in runtime.secrets.list(project=project)})
    text = "".join(f"{name}=\n" for name in names)
    if arguments.out == "-":
        sys.stdout.write(text)
        return
    write_private(Path(arguments.out), text.encode(), replace=arguments.force)
    note(f"Wrote {counted(len(names), 'name')} to {arguments.out}; values never leave the vault this way.")


def write_private(path: Path, data: bytes, *, replace: bool = False) -> None:
    """Write a new file that only its owner can read.

    Raises:
        InvalidInput: It is there already, or cannot be written.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if replace else os.O_EXCL)
    shown = visible_line(str(path))
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise InvalidInput(f"{shown} is there already and is not replaced.", hint="Name another file.") from None
    except OSError as error:
        raise InvalidInput(f"{shown} cannot be written: {error.strerror}.") from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError as error:
        if not replace:
            path.unlink(missing_ok=True)  # half a file would look like a whole one
        raise InvalidInput(f"{shown} cannot be written: {error.strerror}.") from error
