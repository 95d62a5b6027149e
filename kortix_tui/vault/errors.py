"""What can go wrong with the vault, finer than `base.errors`; every failure here is a `VaultFailed` with a hint."""

from __future__ import annotations

from kortix_tui.base.errors import VaultFailed, VaultLocked, VaultTampered


class Corrupt(VaultFailed):
    """The file is torn, truncated or not a vault; the writer of this package never leaves one like that."""

    code = "vault_corrupt"


class RolledBack(VaultTampered):
    """The file is older than what was seen before, or another history of the same age."""

    code = "vault_rolled_back"


class VaultExists(VaultFailed):
    """A vault, or what is left of one, is there already; nothing is overwritten."""

    code = "vault_exists"


class SealedForOther(VaultLocked):
    """The vault is open, but this part is sealed for a person whose own slot was not used."""

    code = "vault_sealed"


class VaultBusy(VaultFailed):
    """Another process holds the write lock for too long."""

    code = "vault_busy"


class NoSuchRecord(VaultFailed):
    """No secret has this id."""

    code = "no_such_secret"


class UnsafePlace(VaultFailed):
    """The file or its folder can be read or replaced by others, or lies where locks and `fsync` are not kept."""

    code = "vault_unsafe"


def locked() -> VaultLocked:
    """The vault must be unlocked first."""
    return VaultLocked("The vault is locked.", hint="Run `kortix vault unlock`.")


def tampered(what: str) -> VaultTampered:
    """Somebody who has no key wrote to the vault; says what was found."""
    return VaultTampered(
        f"The vault is not what was written: {what}.",
        hint="Nothing is released. Find out who wrote to it, then run `kortix vault repair` or restore a backup.",
    )


def corrupt(reason: str) -> Corrupt:
    """The file has no readable shape; says why."""
    return Corrupt(
        f"The vault file is damaged: {reason}.",
        hint="Restore it from a backup, or see what `kortix vault repair` can save; nothing was changed.",
    )


def no_such_record() -> NoSuchRecord:
    """No secret has the id that was asked for."""
    return NoSuchRecord("There is no such secret in the vault.", hint="See `kortix secrets ls`.")
