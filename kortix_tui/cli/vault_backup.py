"""Backups in the age format: `kortix vault export` and `import`. `age` and `rage` open them without this program."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.errors import InvalidInput, Refused, UsageError
from kortix_tui.base.text import visible_line
from kortix_tui.cli.opening import acting
from kortix_tui.cli.output import counted, note, say_json
from kortix_tui.cli.parsing import Verbs, add_json
from kortix_tui.cli.secret_import import say_import, write_private
from kortix_tui.cli.unseen import Lines, ask_unseen, new_passphrase, require_person
from kortix_tui.cli.vault_access import add_access, ready_vault, with_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_sources import Secret

MAX_FILE: Final = 64 << 20
MAX_IDENTITY: Final = 64 << 10
STDOUT: Final = "-"


def add_verbs(verbs: Verbs) -> None:
    """Add the verbs."""
    verb = verbs.add(
        "export", _export, "write all secrets into an age file, which opens without this program",
        examples=(
            "vault export --out secrets.age", "vault export --project billing --armor --out -",
            "vault export --recipient age1… --out secrets.age",
        ),
    )  # fmt: skip
    verb.add_argument(
        "--out", metavar="FILE", default=STDOUT, help="a new file, never replaced; `-`, the default: standard output"
    )
    verb.add_argument(
        "--recipient", metavar="KEY", action="append", dest="recipients",
        help="a public key that opens it: age1…, ssh-ed25519 …; may be repeated; default: a passphrase",
    )  # fmt: skip
    verb.add_argument("--armor", action="store_true", help="as text")
    verb.add_argument("--project", metavar="SLUG", help="only this project's")
    _add_file_key(verb)
    add_access(verb)

    verb = verbs.add(
        "import", _import, "take secrets from a file that `export` wrote",
        examples=("vault import secrets.age", "vault import secrets.age --identity key.txt --overwrite"),
    )  # fmt: skip
    verb.add_argument("file", metavar="FILE", help="the age file; `-` for standard input")
    verb.add_argument("--identity", metavar="FILE", help="the private key that opens it, as age-keygen writes it")
    verb.add_argument("--overwrite", action="store_true", help="give secrets that are there a new version")
    verb.add_argument("--project", metavar="SLUG", help="where secrets go whose project is not known here")
    _add_file_key(verb)
    add_access(verb)
    add_json(verb)


def _add_file_key(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--file-passphrase-fd", metavar="N", type=Lines.at,
        help="the passphrase of the age file, on this descriptor; --passphrase-fd is the vault's",
    )  # fmt: skip


def _export(arguments: argparse.Namespace) -> None:
    to_stdout = arguments.out == STDOUT
    if to_stdout and sys.stdout.isatty() and not arguments.armor:
        raise Refused("A terminal cannot show the file.", hint="Name one: --out FILE, or write it as text: --armor")
    if not to_stdout and Path(arguments.out).exists():
        # Looked at again when it is written; here so that nobody types a passphrase for nothing.
        raise InvalidInput(f"{visible_line(arguments.out)} is there already and is not replaced.")
    with acting() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        ready_vault(runtime, arguments)
        passphrase = None if arguments.recipients else new_passphrase(arguments.file_passphrase_fd, "of the export")
        data = with_vault(
            runtime,
            arguments,
            lambda: runtime.vault.export(
                passphrase=passphrase, recipients=tuple(arguments.recipients or ()),
                project_id=project.id if project else None, armored=arguments.armor,
            ),
        )  # fmt: skip
    if to_stdout:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    write_private(Path(arguments.out), data)
    note(f"Wrote {arguments.out}, encrypted. Without this program it opens with: age --decrypt {arguments.out}")


def _import(arguments: argparse.Namespace) -> int:
    data = _read(arguments.file, MAX_FILE)
    identity = _read(arguments.identity, MAX_IDENTITY) if arguments.identity is not None else None
    with acting() as runtime:
        project = runtime.projects.find(arguments.project) if arguments.project else None
        ready_vault(runtime, arguments)
        key = _key(arguments, identity)
        report = with_vault(
            runtime,
            arguments,
            lambda: runtime.vault.import_(
                data, key, identity=identity is not None, overwrite=arguments.overwrite,
                project_id=project.id if project else None,
            ),
        )  # fmt: skip
    if arguments.json:
        say_json(report)
    else:
        say_import(report)
    return 1 if report.skipped and not (report.created or report.changed) else 0


def _key(arguments: argparse.Namespace, identity: bytes | None) -> Secret:
    from kortix_tui.runtime.secret_sources import Secret

    if identity is not None:
        return Secret(identity)
    if arguments.file_passphrase_fd is not None:
        return arguments.file_passphrase_fd.line(1, "the passphrase of the file")  # type: ignore[no-any-return]
    require_person("for the passphrase of the file")
    return ask_unseen(f"Passphrase of {arguments.file}")


def _read(name: str, limit: int) -> bytes:
    shown = visible_line(name)
    if name == STDOUT:
        if sys.stdin.isatty():
            raise UsageError("A terminal cannot give the file.", hint="Name it, or pipe it in.")
        data = sys.stdin.buffer.read(limit + 1)
    else:
        try:
            with Path(name).open("rb") as file:
                data = file.read(limit + 1)
        except OSError as error:
            raise InvalidInput(f"{shown} cannot be read: {error.strerror}.") from error
    if len(data) > limit:
        raise InvalidInput(f"{shown} is too large: {counted(limit >> 10, 'KiB', 'KiB')} are the most.")
    return data
