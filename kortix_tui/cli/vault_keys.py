"""The keys that open the vault: `kortix vault passphrase`, `slots`, `recovery` and `rotate`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.errors import Ambiguous, NotFound, UsageError
from kortix_tui.cli.cells import Column
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import note, say, say_json, say_table
from kortix_tui.cli.parsing import Verbs, add_json, cut
from kortix_tui.cli.unseen import Lines, ask_unseen, long_enough, new_passphrase, require_person
from kortix_tui.cli.vault_access import add_access, ready_vault, with_vault
from kortix_tui.cli.vault_making import key_file, require_shown, say_recovery

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.runtime.secret_views import SlotView, VaultStatus

COLUMNS = (
    Column("ID"),
    Column("KEY"),
    Column("OWNER", drop=1),
    Column("AGE", right=True, drop=2),
    Column("PLACE", flexible=True),
)
KINDS = ("passphrase", "keyfile", "keyring", "systemd")


def add_verbs(verbs: Verbs) -> None:
    """Add the verbs."""
    verb = verbs.add("passphrase", _passphrase, "set the passphrase, or change it", examples=("vault passphrase",))
    add_access(verb)
    add_json(verb)

    slots = verbs.group(
        "slots", "the keys that open the vault", "vault slots ls", "vault slots add keyfile /media/stick/kortix.key"
    )
    add_json(slots.add("ls", _ls, "list the keys", aliases=("list",), examples=("vault slots ls",)))
    verb = slots.add(
        "add",
        _add,
        "add a key",
        examples=("vault slots add keyring", "vault slots add keyfile"),
    )
    verb.add_argument("kind", choices=KINDS, help=", ".join(KINDS))
    verb.add_argument("place", metavar="PATH", nargs="?", help="of a key file; it is made where there is none")
    add_access(verb)
    add_json(verb)
    verb = slots.add(
        "rm", _rm, "take a key away; the last one stays", aliases=("remove",), examples=("vault slots rm 3f2a",)
    )
    verb.add_argument("slot", metavar="ID", help="as `vault slots ls` lists it, or a unique beginning")
    add_access(verb)
    add_json(verb)

    verb = verbs.add(
        "recovery", _recovery, "make a new recovery key, shown once; an older one opens nothing any more",
        examples=("vault recovery",),
    )  # fmt: skip
    add_showing(verb)
    add_access(verb)
    add_json(verb)
    verb = verbs.add(
        "rotate", _rotate, "encrypt everything anew under new keys; values stay, the recovery key changes",
        examples=("vault rotate", "vault rotate --drop-passphrase"),
    )  # fmt: skip
    verb.add_argument("--drop-passphrase", action="store_true", help="without a passphrase from now on")
    add_showing(verb)
    add_access(verb)
    add_json(verb)


def add_showing(parser: argparse.ArgumentParser) -> None:
    """`--show-recovery`."""
    parser.add_argument(
        "--show-recovery", action="store_true", help="print the recovery key also where that is no terminal"
    )


def _ls(arguments: argparse.Namespace) -> None:
    with reading() as runtime:
        status = runtime.vault.status()
    if arguments.json:
        say_json(status.slots)
    else:
        say_slots(status.slots)


def say_slots(slots: tuple[SlotView, ...]) -> None:
    """A table of keys."""
    now = datetime.now(UTC)
    rows = [(slot.id, slot.type, slot.owner, age(slot.created, now), slot.place or "") for slot in slots]
    say_table(COLUMNS, rows, empty="There is no vault yet: kortix vault init")


def _passphrase(arguments: argparse.Namespace) -> None:
    """With a descriptor: the present passphrase, where there is one, and the new one, a line each."""
    with acting() as runtime:
        has_one = _has(runtime.vault.status(), "passphrase")
        if arguments.passphrase_fd is not None:
            lines = arguments.passphrase_fd
            present = lines.line(1, "the present passphrase") if has_one else None
            new = long_enough(lines.line(2 if has_one else 1, "the new passphrase"))
        else:
            require_person("for a passphrase")
            ready_vault(runtime, arguments)
            present = ask_unseen("Present passphrase") if has_one else None
            new = new_passphrase()
        status = with_vault(runtime, arguments, lambda: runtime.vault.set_passphrase(present, new))
    _done(status, arguments, "The passphrase is changed." if has_one else "The vault opens with the passphrase, too.")


def _add(arguments: argparse.Namespace) -> None:
    from kortix_tui.runtime.vault_calls import SlotWish

    if arguments.place is not None and arguments.kind != "keyfile":
        raise UsageError("Only a key file has a path.")
    with acting() as runtime:
        ready_vault(runtime, arguments)
        passphrase = new_passphrase(arguments.passphrase_fd) if arguments.kind == "passphrase" else None
        wish = key_file(arguments.place) if arguments.kind == "keyfile" else SlotWish(kind=arguments.kind)
        status, _ = with_vault(runtime, arguments, lambda: runtime.vault.add_slot(wish, passphrase=passphrase))
    where = f" {wish.place}" if wish.place else ""
    _done(status, arguments, f"The vault opens with the {arguments.kind}{where}, too.")


def _rm(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        found = [slot for slot in runtime.vault.status().slots if slot.id.startswith(arguments.slot)]
        if not found or not arguments.slot:
            raise NotFound(f"The vault has no key {cut(arguments.slot)}.", hint="See: kortix vault slots ls")
        if len(found) > 1:
            raise Ambiguous(f"{cut(arguments.slot)} fits several keys.", hint="Give more of its id.")
        status = with_vault(runtime, arguments, lambda: runtime.vault.remove_slot(found[0].id))
    _done(status, arguments, f"That {found[0].type} opens the vault no more.")
    if not arguments.json:
        note("Copies of the vault from before still open with it. If somebody else has it: kortix vault rotate")


def _recovery(arguments: argparse.Namespace) -> None:
    from kortix_tui.runtime.vault_calls import SlotWish

    require_shown(show=arguments.show_recovery)
    with acting() as runtime:
        status, text = with_vault(runtime, arguments, lambda: runtime.vault.add_slot(SlotWish(kind="recovery")))
    if text is not None:
        say_recovery(text, apart=arguments.json)
    _done(status, arguments, "An older recovery key opens nothing any more.")


def _rotate(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        ready_vault(runtime, arguments)
        status = runtime.vault.status()
        if _has(status, "recovery"):
            require_shown(show=arguments.show_recovery)
        passphrase = None
        if _has(status, "passphrase") and not arguments.drop_passphrase:
            passphrase = _present(arguments)
        status, text = with_vault(
            runtime,
            arguments,
            lambda: runtime.vault.rotate(passphrase=passphrase, drop_passphrase=arguments.drop_passphrase),
        )
    if text is not None:
        say_recovery(text, apart=arguments.json)
    _done(status, arguments, f"Everything is encrypted anew, as generation {status.generation}.")
    if not arguments.json:
        note("Whoever had the old keys and a copy of the vault has the values; for that, rotate those: secrets rotate")


def _present(arguments: argparse.Namespace) -> Secret:
    if arguments.passphrase_fd is not None:
        lines: Lines = arguments.passphrase_fd
        return lines.line(1, "the passphrase")
    require_person("for the passphrase")
    return ask_unseen("Passphrase of the vault")


def _has(status: VaultStatus, kind: str) -> bool:
    return any(slot.type == kind for slot in status.slots)


def _done(status: VaultStatus, arguments: argparse.Namespace, text: str) -> None:
    if arguments.json:
        say_json(status)
    else:
        say(text)
