"""The `kortix` command: finds the noun and imports only what that noun needs, because starting is what is measured."""

from __future__ import annotations

import os
import sys

from kortix_tui import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from kortix_tui.base.errors import KortixError

NOUNS = {
    "demo": ("demo", "see a prompt become a merged change on a sample project"),
    "setup": ("setup", "find or install Docker, build the default image, make the vault"),
    "doctor": ("setup", "check the engine, git, the home and a real sandbox"),
    "init": ("scaffold", "write a starter project with a kortix.yaml"),
    "validate": ("scaffold", "find every fault in a kortix.yaml"),
    "schema": ("scaffold", "print the JSON schema of kortix.yaml"),
    "projects": ("projects", "the repositories that sessions work on"),
    "sessions": ("sessions", "start, follow and end work in sandboxes"),
    "cr": ("changes", "read, merge and close change requests"),
    "review": ("review", "everything that waits for you"),
    "secrets": ("secrets", "values that agents need and must not leak"),
    "vault": ("vault", "what keeps secrets encrypted, its keys and backups"),
    "env": ("secret_import", "many secrets at once, from a .env file"),
    "connectors": ("connectors", "outside systems that agents may call, and their credentials"),
    "connections": ("connections", "the accounts of connectors"),
    "policy": ("policies", "what happens to calls, and what a change of it would make of the recorded ones"),
    "egress": ("egress", "which hosts sandboxes reached, and which they were refused"),
    "sandboxes": ("sandboxes", "the images that sandboxes start from"),
    "audit": ("audit", "the record of everything that happened"),
    "host": ("serve", "which process acts for this home"),
    "serve": ("serve", "be the host until nothing is left to do"),
    "locate": ("locate", "where the home and the settings are"),
}
ALIASES = {
    "project": "projects",
    "session": "sessions",
    "crs": "cr",
    "changes": "cr",
    "connector": "connectors",
    "connection": "connections",
    "policies": "policy",
    "secret": "secrets",
    "sandbox": "sandboxes",
    "inbox": "review",
}
_HELP = ("help", "--help", "-h")
_VERSION = ("version", "--version", "-V")


def main() -> NoReturn:
    """The entry point of the installed command."""
    arguments = sys.argv[1:]
    _fill_streams()
    try:
        if not (len(arguments) == 1 and arguments[0] in _VERSION):
            _prepare()
        status = run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader left (`kortix … | head`). What is buffered must not fail again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        status = 141
    sys.exit(status)


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit status; failures are told on standard error."""
    if len(arguments) == 1 and arguments[0] in _VERSION:
        sys.stdout.write(f"kortix {__version__}\n")
        return 0
    if arguments and arguments[0] in _HELP and len(arguments) == 1:
        sys.stdout.write(overview())
        return 0
    from kortix_tui.base.errors import KortixError

    try:
        return _console() if not arguments else _command(arguments)
    except KortixError as error:
        _tell(error)
        return error.exit_status
    except KeyboardInterrupt:
        sys.stderr.write("\nkortix: interrupted\n")
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        from kortix_tui.cli.faults import report

        return report(error)


def overview() -> str:
    """What `kortix --help` says."""
    nouns = "\n".join(f"  {name:<12}{summary}" for name, (_, summary) in NOUNS.items())
    return (
        "usage: kortix [COMMAND] [--help]\n\n"
        "Without a command, opens the console.\n\n"
        f"commands:\n{nouns}\n\n"
        "more about a command: kortix COMMAND --help\n\n"
        "examples:\n"
        "  kortix demo\n"
        "  kortix projects add ~/src/billing\n"
        '  kortix sessions new -p "Fix the failing test in src/billing and open a change request" --wait\n'
        "  kortix cr diff 1\n"
        "  kortix cr merge 1\n"
    )


def _fill_streams() -> None:
    """Put `/dev/null` where a caller closed a standard stream (`<&-`).

    The next file that is opened would get its number; what is printed, also by programs that we start, would be written
    into it: the store, for example.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It gets the lowest free number, which is the closed one's.
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115, PTH123 - for the whole life; fast
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _prepare() -> None:
    import signal

    from kortix_tui.base.privacy import keep_private

    keep_private()
    # Plugins of other packages would be loaded into, and could read, every model; finding them costs 40 ms.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _ended)


def _ended(number: int, frame: object) -> None:
    """Leave through every `finally`: terminals are put back, the host's lock is handed over."""
    sys.exit(128 + number)


def _console() -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        from kortix_tui.base.errors import UsageError

        raise UsageError("The console needs a terminal.", hint="Commands work without one: see `kortix --help`.")
    from kortix_tui.cli.setup import use_new_group
    from kortix_tui.console.start import run as run_console

    use_new_group()

    return run_console()


def _command(arguments: Sequence[str]) -> int:
    import importlib

    first, rest = arguments[0], list(arguments[1:])
    if first in _HELP:
        first, rest = rest[0], ["--help"]
    name = ALIASES.get(first, first)
    if name not in NOUNS:
        _refuse_unknown(first)
    from kortix_tui.cli.parsing import parse

    module = importlib.import_module(f"kortix_tui.cli.{NOUNS[name][0]}")
    parsed = parse(name, NOUNS[name][1], getattr(module, f"add_{name}"), rest)
    status: int | None = parsed.run(parsed)
    return status or 0


def _refuse_unknown(word: str) -> NoReturn:
    from kortix_tui.base.errors import UsageError
    from kortix_tui.cli.parsing import cut, nearest

    raise UsageError(f"There is no command «{cut(word)}».", hint=nearest(word, [*NOUNS, *ALIASES], "kortix"))


def _tell(error: KortixError) -> None:
    from kortix_tui.base.text import visible
    from kortix_tui.cli.output import note, wrapped

    note(error.message)
    if error.hint:
        sys.stderr.write(f"  {wrapped(visible(error.hint), indent=2, stream=sys.stderr)}\n")


if __name__ == "__main__":
    main()
