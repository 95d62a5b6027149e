"""`kortix vault`: what keeps secrets encrypted. This module makes, opens, locks and mends it."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.clock import age
from kortix_tui.base.errors import Refused, VaultLocked, VaultMissing, WrongKey
from kortix_tui.base.text import visible
from kortix_tui.base.words import VaultState
from kortix_tui.cli import vault_backup, vault_keys
from kortix_tui.cli.opening import acting, reading
from kortix_tui.cli.output import ask, counted, note, say, say_fields, say_json
from kortix_tui.cli.parsing import Parser, Verbs, add_json, count
from kortix_tui.cli.unseen import Lines, ask_unseen, can_ask, new_passphrase, require_person
from kortix_tui.cli.vault_access import QUIET, add_access, ready_vault, unlock_by_person, with_vault
from kortix_tui.cli.vault_making import Keys, choose_keys, key_file, make_vault

if TYPE_CHECKING:
    from kortix_tui.runtime.facade import Runtime
    from kortix_tui.runtime.secret_sources import Secret
    from kortix_tui.runtime.secret_views import VaultStatus

PATIENCE_S: Final = 120.0
"""How long a background host waits for the key to be typed."""


def add_vault(parser: Parser) -> None:
    """Add the verbs."""
    parser.keeps_words = True
    verbs = Verbs(parser, "vault init", "vault status", "vault unlock", "vault export --out secrets.age")
    verb = verbs.add(
        "init", _init, "make the vault: with the keyring where there is one, else it asks",
        examples=("vault init", "vault init --passphrase --keyfile", "vault init --keyfile /media/stick/kortix.key"),
    )  # fmt: skip
    verb.add_argument("--passphrase", action="store_true", help="it opens with a passphrase, typed unseen")
    verb.add_argument("--keyring", action="store_true", help="it opens with a key in this login's keyring")
    verb.add_argument(
        "--keyfile", metavar="PATH", nargs="?", const="", help="it opens with a key file, made where there is none"
    )
    verb.add_argument("--systemd", action="store_true", help="it opens with the credential that systemd gives")
    verb.add_argument("--no-recovery", action="store_true", help="make no recovery key")
    vault_keys.add_showing(verb)
    add_access(verb)
    add_json(verb)

    verb = verbs.add(
        "status",
        status,
        "the vault's state and the keys that open it",
        examples=("vault status",),
    )
    add_json(verb)
    verb = verbs.add(
        "lock", _lock, "forget the keys; what needs a secret waits until it is unlocked", examples=("vault lock",)
    )
    add_json(verb)
    verb = verbs.add(
        "unlock", unlock, "open the vault, and keep it open in a background host",
        examples=(
            "vault unlock", "vault unlock --keyfile /media/stick/kortix.key", "vault unlock --recovery",
            "vault unlock --passphrase-fd 3 3< passphrase.txt",
        ),
    )  # fmt: skip
    way = verb.add_mutually_exclusive_group()
    way.add_argument("--keyfile", metavar="PATH", help="with this key file")
    way.add_argument("--recovery", action="store_true", help="with the recovery key, typed unseen")
    add_access(verb)
    add_json(verb)

    vault_keys.add_verbs(verbs)
    verb = verbs.add("verify", _verify, "check every record of the vault", examples=("vault verify",))
    add_access(verb)
    add_json(verb)
    verb = verbs.add(
        "repair", _repair, "make a damaged vault usable again; needs a key and the recovery key",
        examples=("vault repair", "vault repair --from-previous", "vault repair --accept-generation 41"),
    )  # fmt: skip
    verb.add_argument("--from-previous", action="store_true", help="start from the file before the last change")
    verb.add_argument(
        "--accept-generation", metavar="N", type=count, help="accept an older file, of exactly this generation"
    )
    add_access(verb)
    add_json(verb)
    vault_backup.add_verbs(verbs)


# Making


def _init(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        status = runtime.vault.status()
        if status.vault_id is not None and status.state is not VaultState.MISSING:
            raise Refused(f"There is a vault already: {status.path}.", hint="See: kortix vault status")
        keys = _chosen(arguments)
        status = make_vault(
            runtime, keys, recovery=not arguments.no_recovery, show=arguments.show_recovery, quiet=arguments.json
        )
        stays = any(slot.type in QUIET for slot in status.slots) or not runtime.host().here
    if arguments.json:
        say_json(status)
        return
    note("Store a value: kortix secrets set NAME")
    if not stays:
        note("It is locked again now, as nothing on this machine opens it: kortix vault unlock")


def _chosen(arguments: argparse.Namespace) -> Keys:
    from kortix_tui.runtime.vault_calls import SlotWish

    wishes: list[SlotWish] = []
    if arguments.keyring:
        wishes.append(SlotWish(kind="keyring"))
    if arguments.keyfile is not None:
        wishes.append(key_file(arguments.keyfile or None))
    if arguments.systemd:
        wishes.append(SlotWish(kind="systemd"))
    if arguments.passphrase or arguments.passphrase_fd is not None:
        wishes.append(SlotWish(kind="passphrase"))
        return Keys(tuple(wishes), new_passphrase(arguments.passphrase_fd))
    if wishes:
        return Keys(tuple(wishes))
    chosen = choose_keys()
    if chosen is None:
        raise VaultMissing(
            "Nothing was chosen that opens the vault; none was made.",
            hint="Say it: kortix vault init --keyfile, or --passphrase, or --keyring",
        )
    return chosen


# State


def status(arguments: argparse.Namespace) -> None:
    """Say what the vault is."""
    with reading() as runtime:
        found = runtime.vault.status()
    if arguments.json:
        say_json(found)
        return
    from kortix_tui.runtime.secret_sources import keyring_state

    keyring, now = keyring_state(), datetime.now(UTC)
    since = f", for {age(found.since, now)}" if found.since and found.state is not VaultState.MISSING else ""
    say_fields([
        ("state", f"{found.state.value}{since}"),
        ("reason", found.reason or ""),
        ("file", str(found.path)),
        ("vault", f"{found.vault_id}, generation {found.generation}" if found.vault_id else ""),
        ("before it", found.previous or ""),
        ("secrets", str(found.secrets)),
        ("keyring", f"{keyring.says} {keyring.hint}".strip()),
        ("wait for it", ", ".join(found.waiting)),
    ])  # fmt: skip
    if found.slots:
        say()
        vault_keys.say_slots(found.slots)
    if found.state is VaultState.MISSING and not found.reason:
        note("There is no vault yet. Make one: kortix vault init")
    elif found.state is VaultState.LOCKED:
        note("Open it: kortix vault unlock")


def _lock(arguments: argparse.Namespace) -> None:
    with acting() as runtime:
        status = runtime.vault.lock()
    if arguments.json:
        say_json(status)
    elif status.state is VaultState.LOCKED:
        say("The vault is locked.")
        if any(slot.type in QUIET for slot in status.slots):
            note("It stays so, whatever key is on this machine, until: kortix vault unlock")
    else:
        note(f"The vault is {status.state.value}.")


def unlock(arguments: argparse.Namespace) -> None:
    """Open the vault at a host that stays."""
    with acting() as runtime:
        before = runtime.vault.status()
        if before.state is VaultState.MISSING:
            ready_vault(runtime, arguments)
            status = runtime.vault.status()
        else:
            status = _open(runtime, arguments)
        keeps = _keeper(runtime, status)
    if arguments.json:
        say_json(status)
        return
    say(f"The vault is unlocked; it has {counted(status.secrets, 'secret')}.")
    note(keeps)
    if before.waiting:
        waits = counted(len(before.waiting), "session that waited goes", "sessions that waited go")
        note(f"{waits} on: {', '.join(before.waiting)}")


def _open(runtime: Runtime, arguments: argparse.Namespace) -> VaultStatus:
    """Unlock it at a host that stays.

    Of a vault that is open no key is tried; whoever gave one to see whether it is right has to be told.
    """
    from kortix_tui.runtime.background import start_background
    from kortix_tui.runtime.secret_sources import key_file_path

    start_background(runtime.context, linger_s=PATIENCE_S)
    if arguments.recovery or arguments.keyfile is not None or arguments.passphrase_fd is not None:
        found = runtime.vault.status()
        if found.state is VaultState.UNLOCKED:
            note("It was open already, so your key was not tried. To try it: kortix vault lock")
            return found
    if arguments.recovery:
        return runtime.vault.unlock("recovery", secret=_recovery_key(arguments))
    if arguments.keyfile is not None:
        return runtime.vault.unlock("keyfile", place=key_file_path(arguments.keyfile))
    if arguments.passphrase_fd is None:
        try:
            return runtime.vault.unlock()
        except (VaultLocked, WrongKey):
            pass  # nothing on this machine opens it
    return unlock_by_person(runtime, arguments)


def _keeper(runtime: Runtime, status: VaultStatus) -> str:
    """Which process has it open, and until when."""
    host = runtime.host().host
    # A key file may be on a stick that is not here now.
    here = [slot for slot in status.slots if slot.type != "keyfile" or slot.place is None or Path(slot.place).exists()]
    if any(slot.type in QUIET for slot in here):
        return "Each host opens it by itself, with the key that it finds on this machine."
    if host is None or runtime.host().here:
        return "It is open for this command only."
    minutes = runtime.context.settings.secrets.lock_minutes
    idle = f", or {minutes:g} minutes without use" if minutes is not None else ""
    if host.kind != "serve":
        return f"Process {host.pid} ({host.kind}) has it open; it is locked again when that ends{idle}."
    return f"Process {host.pid} ({host.kind}) has it open, until: kortix vault lock{idle}"


# Checking


def _verify(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        check = with_vault(runtime, arguments, runtime.vault.verify)
    if arguments.json:
        say_json(check)
    elif check.ok:
        say(f"The vault is whole: {counted(check.records, 'record')}, generation {check.generation}.")
    else:
        for fault in check.faults:
            say(visible(fault))
        note(f"{counted(len(check.faults), 'fault')} in generation {check.generation}; see: kortix vault repair --help")
    return 0 if check.ok else 1


def _repair(arguments: argparse.Namespace) -> int:
    with acting() as runtime:
        status = runtime.vault.status()
        if not arguments.json:
            say_fields([("file", str(status.path)), ("state", status.state.value), ("reason", status.reason or ""),
                        ("before it", status.previous or "")])  # fmt: skip
        passphrase, recovery = _repair_keys(arguments)
        if can_ask() and not ask("Write the vault anew from what can be read of it? [y/N]", wanted="y"):
            note("Nothing was changed.")
            return 1
        status = runtime.vault.repair(
            passphrase=passphrase, recovery=recovery, from_previous=arguments.from_previous,
            accept_generation=arguments.accept_generation,
        )  # fmt: skip
    if arguments.json:
        say_json(status)
    else:
        say(f"The vault is {status.state.value}, at generation {status.generation}.")
        note("Check what it has: kortix vault verify")
    return 0


def _repair_keys(arguments: argparse.Namespace) -> tuple[Secret | None, Secret]:
    """Passphrase and recovery key: two lines on the descriptor, or typed; no passphrase: a key of this machine."""
    if arguments.passphrase_fd is not None:
        lines = arguments.passphrase_fd
        passphrase, recovery = lines.line(1, "the passphrase", needed=False), lines.line(2, "the recovery key")
    else:
        require_person("for the keys")
        passphrase = ask_unseen("Passphrase (empty: the key that is on this machine)", needed=False)
        recovery = ask_unseen("Recovery key")
    return passphrase if len(passphrase) else None, recovery


def _recovery_key(arguments: argparse.Namespace) -> Secret:
    if arguments.passphrase_fd is not None:
        lines: Lines = arguments.passphrase_fd
        return lines.line(1, "the recovery key")
    require_person("for the recovery key")
    return ask_unseen("Recovery key")
