"""How every command gets at the vault: the person who is there makes or unlocks it, or it is refused."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kortix_tui.base.errors import TooSoon, VaultLocked, VaultMissing, WrongKey
from kortix_tui.base.words import VaultState
from kortix_tui.cli.output import counted, note
from kortix_tui.cli.unseen import Lines, ask_unseen, can_ask

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.secret_views import VaultStatus

T = TypeVar("T")
TRIES: Final = 3
FIRST_WAIT_S: Final = 1.0
QUIET: Final = ("keyring", "keyfile", "systemd")
"""Kinds of keys that a host finds without a person."""


def add_access(parser: argparse.ArgumentParser) -> None:
    """`--passphrase-fd`: what opens a locked vault where nobody can be asked."""
    parser.add_argument(
        "--passphrase-fd", metavar="N", type=Lines.at,
        help="unlock with the passphrase on this descriptor: kortix … --passphrase-fd 3 3<file",
    )  # fmt: skip


def with_vault(runtime: Runtime, arguments: argparse.Namespace, act: Callable[[], T]) -> T:
    """Do what needs the open vault; whoever is at the terminal makes or unlocks it first.

    Args:
        runtime: The home.
        arguments: Of a command with `add_access`.
        act: May be called again after unlocking, when the host turns out to have it locked.

    Raises:
        VaultMissing: There is no vault, and nobody can be asked.
        VaultLocked: Likewise, it is locked.
        WrongKey: No try was right.
    """
    ready_vault(runtime, arguments)
    try:
        return act()
    except VaultLocked:
        if runtime.vault.status().state is not VaultState.LOCKED:
            raise  # it is open, and what is wanted is sealed for somebody else; or it is broken
        unlock_by_person(runtime, arguments)
        return act()


def ready_vault(runtime: Runtime, arguments: argparse.Namespace) -> None:
    """Make or unlock the vault where that is known to be needed: before a person is asked for anything else."""
    status = runtime.vault.status()
    if status.state is VaultState.MISSING:
        if status.reason:
            raise VaultMissing(
                status.reason,
                hint="Bring the file back from a backup; or begin anew, without the old values: kortix vault init",
            )
        _offer(runtime)
    elif status.state is VaultState.LOCKED and _needs_person(runtime, status):
        unlock_by_person(runtime, arguments)


def _needs_person(runtime: Runtime, status: VaultStatus) -> bool:
    """Whether the host will not open it by itself: it runs and has not, or no key is of a kind that it finds."""
    if runtime.host().host is not None:
        return True
    return not any(slot.type in QUIET for slot in status.slots)


def _offer(runtime: Runtime) -> None:
    hint = "Make one: kortix vault init — or with a key file: kortix vault init --keyfile"
    if not can_ask():
        raise VaultMissing("There is no vault yet.", hint=hint)
    from kortix_tui.cli.vault_making import choose_keys, make_vault

    note("There is no vault yet, which keeps secrets encrypted.")
    chosen = choose_keys()
    if chosen is None:
        raise VaultMissing("There is no vault yet.", hint=hint)
    make_vault(runtime, chosen)


def unlock_by_person(runtime: Runtime, arguments: argparse.Namespace) -> VaultStatus:
    """Unlock with a passphrase: from the descriptor that was named, else typed, with three tries.

    Raises:
        VaultLocked: There is no passphrase, or nobody can be asked.
        WrongKey: No try was right.
    """
    if arguments.passphrase_fd is not None:
        return runtime.vault.unlock("passphrase", secret=arguments.passphrase_fd.line(1, "the passphrase"))
    status = runtime.vault.status()
    if not any(slot.type == "passphrase" for slot in status.slots):
        places = ", ".join(f"{slot.type} {slot.place or ''}".strip() for slot in status.slots)
        raise VaultLocked(
            f"The vault is locked and has no passphrase; these keys open it: {places}.",
            hint="Bring one of them and run: kortix vault unlock (with the recovery key: --recovery)",
        )
    if not can_ask():
        raise VaultLocked(
            "The vault is locked, and nobody can be asked for its passphrase here.",
            hint="At a terminal: kortix vault unlock. In a script: --passphrase-fd N",
        )
    opened = three_tries(lambda: runtime.vault.unlock("passphrase", secret=ask_unseen("Passphrase of the vault")))
    if runtime.host().here:
        note("It is open for this command only. To keep it open: kortix vault unlock")
    return opened


def three_tries(unlock: Callable[[], T]) -> T:
    """Let a person try three times, with growing pauses in between.

    Raises:
        WrongKey: The last try was wrong, too.
    """
    wait_s = FIRST_WAIT_S
    for left in range(TRIES - 1, 0, -1):
        try:
            return unlock()
        except TooSoon:
            raise  # guessed elsewhere too: pausing here as well would only add up
        except WrongKey as error:
            note(f"{error.message} {counted(left, 'more try', 'more tries')}, after {wait_s:.0f} s.")
            time.sleep(wait_s)
            wait_s *= 2
    return unlock()
