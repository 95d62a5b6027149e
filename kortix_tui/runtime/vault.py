"""The vault as the operator handles it: keys, lock, check, backup. The host has it open; this asks the host."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.base.words import VaultState
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_client import call
from kortix_tui.runtime.secret_views import ImportReport, SlotView, VaultCheck, VaultStatus
from kortix_tui.runtime.vault_calls import (
    AddSlot,
    ExportVault,
    ImportVault,
    InitVault,
    Kind,
    LockVault,
    RemoveSlot,
    RepairVault,
    RotateVault,
    SetPassphrase,
    SlotWish,
    UnlockVault,
    VaultCall,
    VerifyVault,
)
from kortix_tui.store.models import VaultRow
from kortix_tui.vault.secret import Secret

CALL_S: Final = 120.0
_NOTHING: Final = Secret(b"")
_QUIET: Final = ("systemd", "keyring", "keyfile")
"""Kinds of keys that a host finds without a person."""


class VaultKeys:
    """The vault verbs. Each returns the vault's status after it; some also a recovery key, to be shown once."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def status(self) -> VaultStatus:
        """What is known without a key; asks nobody, and is right also while no host runs."""
        from kortix_tui.base.errors import VaultFailed
        from kortix_tui.vault.vault import Vault, previous

        context = self._context
        row = context.store.one(f"SELECT {VaultRow.columns()} FROM vault WHERE id = 1")
        known = VaultRow.of(row) if row else None
        stored = context.store.one("SELECT count(*) FROM secrets WHERE removed_at IS NULL")
        waiting = context.store.all("SELECT id FROM sessions WHERE reason = 'vault_locked' AND removed_at IS NULL")
        path = context.home.vault
        slots: tuple[SlotView, ...] = ()
        state, reason = (known.state, known.reason) if known else (VaultState.MISSING, None)
        identity, generation = (known.vault_id, known.generation) if known else (None, None)
        try:
            vault = Vault.load(path)
        except VaultFailed as error:
            if path.exists():
                state, reason = VaultState.CORRUPT, str(error)
            elif known and known.vault_id:
                state, reason = VaultState.MISSING, f"{path} is gone; generation {known.generation} was there."
        else:
            identity, generation = vault.id, vault.generation
            slots = tuple(
                SlotView(id=slot.id, type=slot.type.value, owner=slot.owner, place=slot.place, created=slot.created)
                for slot in vault.slots
            )
            if state is VaultState.MISSING or not self._host_lives():
                state = VaultState.LOCKED if state in (VaultState.MISSING, VaultState.UNLOCKED) else state
        before = previous(path)
        return VaultStatus(
            state=state, reason=reason, since=known.since if known else None, path=path, vault_id=identity,
            generation=generation, secrets=stored[0] if stored else 0, slots=slots,
            previous=f"generation {before.generation}, of {to_text(before.written)}" if before else None,
            waiting=tuple(one[0] for one in waiting),
        )  # fmt: skip

    def held_open(self) -> bool:
        """Whether the host has it open with a key that only a person can give again."""
        row = self._context.store.one("SELECT state FROM vault WHERE id = 1")
        if row is None or row[0] != VaultState.UNLOCKED:
            return False
        status = self.status()
        return status.state is VaultState.UNLOCKED and not any(slot.type in _QUIET for slot in status.slots)

    def _host_lives(self) -> bool:
        from kortix_tui.store import lock

        return lock.is_locked(self._context.store)

    def init(
        self, slots: tuple[SlotWish, ...], *, passphrase: Secret | None = None, recovery: bool = True
    ) -> tuple[VaultStatus, str | None]:
        """Make a vault.

        Args:
            slots: What shall open it; at least one.
            passphrase: For the slot of that kind.
            recovery: Whether to make a recovery key.

        Returns:
            The status, and the recovery key.
        """
        return self._keyed(InitVault(slots=slots, recovery=recovery), _values(passphrase))

    def unlock(
        self, kind: Kind | None = None, *, secret: Secret | None = None, place: str | None = None
    ) -> VaultStatus:
        """Open it at the host.

        Args:
            kind: Which kind of key; whatever needs no question when absent.
            secret: Passphrase or recovery key.
            place: The key file's path, where it is not the noted one.

        Raises:
            WrongKey: It opens no slot.
            VaultLocked: Nothing opens it without a question; the hint says what would.
        """
        return self._ask(UnlockVault(kind=kind, place=place), _values(secret))[0]

    def lock(self) -> VaultStatus:
        """Forget the keys at the host. What needs a secret waits from now on."""
        return self._ask(LockVault())[0]

    def set_passphrase(self, present: Secret | None, new: Secret) -> VaultStatus:
        """Set the passphrase, or change it by giving the present one."""
        return self._ask(SetPassphrase(), (present or _NOTHING, new))[0]

    def add_slot(self, wish: SlotWish, *, passphrase: Secret | None = None) -> tuple[VaultStatus, str | None]:
        """Add a key; a recovery key replaces the one before and is given back, to be shown once."""
        return self._keyed(AddSlot(wish=wish), _values(passphrase))

    def remove_slot(self, slot_id: str) -> VaultStatus:
        """Take a key away. The last one stays."""
        return self._ask(RemoveSlot(slot_id=slot_id))[0]

    def rotate(
        self, *, passphrase: Secret | None = None, drop_passphrase: bool = False
    ) -> tuple[VaultStatus, str | None]:
        """Encrypt everything anew under new keys. The values stay; the recovery key changes."""
        return self._keyed(RotateVault(drop_passphrase=drop_passphrase), _values(passphrase))

    def verify(self) -> VaultCheck:
        """Check every record."""
        return call(self._context, VerifyVault.verb, VerifyVault(), VaultCheck, deadline_s=CALL_S)[0]

    def repair(
        self,
        *,
        passphrase: Secret | None,
        recovery: Secret,
        from_previous: bool = False,
        accept_generation: int | None = None,
    ) -> VaultStatus:
        """Make a damaged or rolled-back vault usable again; needs a key and the recovery key."""
        arguments = RepairVault(from_previous=from_previous, accept_generation=accept_generation)
        return self._ask(arguments, (passphrase or _NOTHING, recovery))[0]

    def export(
        self,
        *,
        passphrase: Secret | None = None,
        recipients: tuple[str, ...] = (),
        project_id: str | None = None,
        armored: bool = False,
    ) -> bytes:
        """All secrets, or one project's, as an age file, which the `age` program opens too."""
        arguments = ExportVault(recipients=recipients, project_id=project_id, armored=armored)
        return self._ask(arguments, _values(passphrase))[1]

    def import_(
        self,
        data: bytes,
        key: Secret,
        *,
        identity: bool = False,
        overwrite: bool = False,
        project_id: str | None = None,
    ) -> ImportReport:
        """Take secrets from an age file that `export` made; `key` is a passphrase, or what an identity file holds."""
        arguments = ImportVault(identity=identity, overwrite=overwrite, project_id=project_id)
        secrets = (data, key.use("sent to the host"))
        return call(self._context, ImportVault.verb, arguments, ImportReport, secrets=secrets, deadline_s=CALL_S)[0]

    def _ask(self, arguments: VaultCall, secrets: tuple[Secret, ...] = ()) -> tuple[VaultStatus, bytes]:
        values = tuple(secret.use("sent to the host") for secret in secrets)
        return call(self._context, arguments.verb, arguments, VaultStatus, secrets=values, deadline_s=CALL_S)

    def _keyed(self, arguments: VaultCall, secrets: tuple[Secret, ...]) -> tuple[VaultStatus, str | None]:
        status, given = self._ask(arguments, secrets)
        return status, given.decode("ascii") or None


def _values(*secrets: Secret | None) -> tuple[Secret, ...]:
    return tuple(secret for secret in secrets if secret is not None)
