"""Making a vault: which keys open it, and the recovery key that is shown once."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, NamedTuple

from kortix_tui.base.errors import Refused
from kortix_tui.base.text import visible
from kortix_tui.cli.output import BOLD, note, paint, say_prose, wrapped
from kortix_tui.cli.unseen import can_ask, new_passphrase

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.runtime.secret_views import VaultStatus
    from kortix_tui.runtime.vault_calls import SlotWish

NO_KEYRING: Final = "A passphrase must be typed after each start of the machine; a key file opens it by itself."


class Keys(NamedTuple):
    """What shall open a new vault."""

    wishes: tuple[SlotWish, ...]
    passphrase: Secret | None = None


def key_file(path: str | None = None) -> SlotWish:
    """A key file as a key; the usual one without a path."""
    from kortix_tui.runtime.secret_sources import key_file_path
    from kortix_tui.runtime.vault_calls import SlotWish

    return SlotWish(kind="keyfile", place=key_file_path(path))


def silent_keys() -> Keys:
    """What opens a vault without any question: the keyring where this machine has one, else a key file."""
    from kortix_tui.runtime.secret_sources import keyring_state
    from kortix_tui.runtime.vault_calls import SlotWish

    keyring = keyring_state()
    if keyring.usable:
        return Keys((SlotWish(kind="keyring"),))
    note(f"{keyring.says} A key file opens the vault.")
    return Keys((key_file(),))


def choose_keys(*, later: bool = False) -> Keys | None:
    """The keyring where this machine has one, else what the person at the terminal chooses.

    Args:
        later: Whether nothing at all is offered as a choice of its own.

    Returns:
        The keys; nothing where the person wants none now.
    """
    from kortix_tui.runtime.secret_sources import keyring_state
    from kortix_tui.runtime.vault_calls import SlotWish

    keyring = keyring_state()
    if keyring.usable:
        note(keyring.says)
        return Keys((SlotWish(kind="keyring"),))
    if not can_ask():
        note(keyring.says)
        return None
    note(f"{keyring.says} {NO_KEYRING}")
    answer = _choice("[p]assphrase, [k]ey file, or [l]ater?" if later else "[p]assphrase or [k]ey file?")
    if answer in ("p", "passphrase"):
        return Keys((SlotWish(kind="passphrase"),), new_passphrase())
    if answer in ("k", "key", "key file", "keyfile"):
        return Keys((key_file(),))
    return None


def _choice(question: str) -> str:
    sys.stderr.write(f"{question} ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower()


def can_show() -> bool:
    """Whether what is printed is seen by a person and kept nowhere."""
    return sys.stdout.isatty()


def make_vault(
    runtime: Runtime, keys: Keys, *, recovery: bool = True, show: bool = False, quiet: bool = False
) -> VaultStatus:
    """Make the vault and say what opens it.

    Args:
        runtime: The home.
        keys: What opens it.
        recovery: Whether a recovery key is wanted; one is made only where it can be shown.
        show: Show it also where that is no terminal.
        quiet: Say nothing of the vault, only the recovery key: the result is printed in another shape.
    """
    shown = recovery and (show or can_show())
    status, text = runtime.vault.init(keys.wishes, passphrase=keys.passphrase, recovery=shown)
    if not quiet:
        opened_by = " or ".join(
            f"{slot.type} {slot.place}" if slot.type == "keyfile" and slot.place else slot.type
            for slot in status.slots
            if slot.type != "recovery"
        )
        note(f"Made the vault {status.path}; it opens by {opened_by}.")
    if text is not None:
        say_recovery(text, apart=quiet)
    elif recovery:
        note("No recovery key was made, because it is shown on a terminal only. Make one: kortix vault recovery")
    return status


def require_shown(*, show: bool) -> None:
    """Check that a recovery key would be seen, before it is made.

    Raises:
        Refused: It would go into a file or a pipe, which was not asked for.
    """
    if not (show or can_show()):
        raise Refused(
            "A recovery key is shown on a terminal only.", hint="To have it on standard output: --show-recovery"
        )


def say_recovery(text: str, *, apart: bool = False) -> None:
    """Show a recovery key, the one time that it is shown.

    Args:
        text: The key.
        apart: On standard error, because standard output has JSON.
    """
    lines = (
        "",
        "Recovery key:",
        "",
        f"    {text}" if apart else f"    {paint(visible(text), BOLD)}",
        "",
        "It is shown this once and stored nowhere. Write it down on paper and keep it away from this machine: with it "
        "the vault opens when every other key is lost, for whoever has it.",
        "",
    )
    for line in lines:
        if apart:
            sys.stderr.write(f"{wrapped(visible(line), indent=0, stream=sys.stderr)}\n")
        else:
            say_prose(line)
