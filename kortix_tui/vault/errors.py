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
