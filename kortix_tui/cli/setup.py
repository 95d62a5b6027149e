"""`kortix setup` and `kortix doctor`: make the machine ready, and check that it is."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from kortix_tui.base.errors import Refused
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Level
from kortix_tui.cli.output import ask, at_terminal, note, paint, say, say_json, say_prose, status_style, wrapped
from kortix_tui.cli.parsing import Parser, add_json, add_yes, show_examples

if TYPE_CHECKING:
    from kortix_tui.base.faults import Fault
    from kortix_tui.runtime.doctor import Check
    from kortix_tui.runtime.setup import Ready

T = TypeVar("T")


def add_setup(parser: Parser) -> None:
    """Add the options of `kortix setup`."""
    parser.set_defaults(run=_setup)
    parser.epilog = show_examples(("setup", "setup --yes"))
    add_yes(parser, "install and start what is missing without asking")


def add_doctor(parser: Parser) -> None:
    """Add the options of `kortix doctor`."""
    parser.set_defaults(run=_doctor)
    parser.epilog = show_examples(("doctor", "doctor --json"))
    add_json(parser)


def _setup(arguments: argparse.Namespace) -> None:
    ready = ensure_ready(yes=arguments.yes)
    made = ensure_vault(yes=arguments.yes)
    did = ", ".join([*ready.did, *(["made the vault"] if made else [])]) or "nothing was missing"
    say(f"Ready: {visible_line(did)}.")
    if ready.engine is not None:
        for warning in ready.engine.warnings:
            note(warning)
        say(f"Engine {ready.engine.version} at {ready.engine.endpoint}, isolation {ready.engine.isolation}.")


def ensure_ready(*, yes: bool) -> Ready:
    """Bring up the engine and the default image; does only what is missing.

    When the person was just added to the engine's group, this process is replaced by the same command as a member.

    Raises:
        KortixError: Something needs a person, or failed; says what to do.
    """
    from kortix_tui.base.settings import load
    from kortix_tui.runtime.setup import set_up

    async def agree(question: str) -> bool:
        # Blocks this loop, which has nothing else to do while the person thinks.
        if yes:
            note(f"{question} Yes (--yes).")
            return True
        if not at_terminal():
            raise Refused(f"{question} Nobody can be asked here.", hint="Run it in a terminal, or add --yes.")
        return ask(f"{visible(question)} [y/N]", wanted="y")

    def tell(line: str) -> None:
        sys.stderr.write(f"  {visible_line(line)}\n")
        sys.stderr.flush()

    ready = run_to_end(set_up(load(), agree, tell))
    if ready.engine is None:
        use_new_group()
        raise Refused(
            "You are in the engine's group now, but this login is not yet.", hint="Log in again, then repeat it."
        )
    return ready


def ensure_vault(*, yes: bool) -> bool:
    """Make a vault where there is none: without a question where this machine has a keyring, else as the person says.

    Args:
        yes: Ask nobody; without a keyring, a key file opens it.

    Returns:
        Whether one was made.
    """
    from kortix_tui.cli.opening import acting
    from kortix_tui.cli.unseen import can_ask
    from kortix_tui.cli.vault_making import choose_keys, make_vault, silent_keys

    with acting() as runtime:
        if runtime.vault.status().vault_id is not None:
            return False
        keys = silent_keys() if yes or not can_ask() else choose_keys(later=True)
        if keys is None:
            note("There is no vault for secrets yet. Later: kortix vault init")
            return False
        make_vault(runtime, keys)
    return True


def use_new_group() -> None:
    """Go on as a member of the engine's group where the user is in it, but was added after this login began."""
    from kortix_tui.runtime.membership import with_group

    again = with_group([sys.executable, "-P", "-m", "kortix_tui.cli.main", *sys.argv[1:]])
    if again is not None:
        sys.stdout.flush()
        os.execvp(again[0], again)  # noqa: S606 - the same command, in a group that the person agreed to


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run one piece of asynchronous work; ctrl-c interrupts also a question, and everything is put in order first."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(work)
    try:
        return loop.run_until_complete(task)
    except BaseException:
        if not task.done():
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                loop.run_until_complete(task)
        raise
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def _ignored(fault: Fault) -> Check:
    """A key of the settings that has no effect."""
    from kortix_tui.base.settings import settings_file
    from kortix_tui.runtime.doctor import Check

    where = f"{settings_file()}, line {fault.line}"
    return Check(
        id="settings", title="Settings", level=Level.WARN if fault.hint else Level.OK,
        message=f"{fault.message} ({where})", fix=fault.hint,
    )  # fmt: skip


def _doctor(arguments: argparse.Namespace) -> int:
    from kortix_tui.base.paths import Home
    from kortix_tui.base.settings import inspect
    from kortix_tui.runtime.doctor import examine, exit_status

    settings, faults = inspect()
    checks = [*run_to_end(examine(Home.locate(), settings)), *map(_ignored, faults)]
    if arguments.json:
        say_json(checks)
    else:
        for check in checks:
            level = paint(check.level.value.ljust(4), status_style(check.level))
            end = "" if check.message.endswith(".") else "."
            text = f"{visible_line(check.title)}: {visible(check.message)}{end}"
            say(f"{level}  " + wrapped(text, indent=6))
            if check.fix and check.level != "ok":
                say_prose(visible(check.fix), indent=6)
    return exit_status(checks)
