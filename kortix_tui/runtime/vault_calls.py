"""The calls about the vault and its secrets: what each is asked with, and what it gives.

Values, passphrases and recovery keys are never in these models; they travel as the call's secrets, in the order that
each docstring says.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from kortix_tui.base.words import Exposure
from kortix_tui.runtime.control_frames import MAX_SECRETS

Kind = Literal["passphrase", "keyfile", "keyring", "systemd", "recovery"]
Path = Annotated[str, Field(max_length=4096)]


class VaultCall(BaseModel):
    """The arguments of one call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    verb: ClassVar[str]
    event: ClassVar[str] = ""
    """The audit event; it is written where the vault or a row changes, and where a person is refused."""


class Done(BaseModel):
    """It was done; there is nothing to tell."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SlotWish(BaseModel):
    """A key that shall open the vault. A passphrase comes as a secret; a key file is made where there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    place: Path | None = None


class InitVault(VaultCall):
    """Make a vault. Secrets: the passphrase, if one slot is of that kind. Gives the recovery key as bytes."""

    verb: ClassVar[str] = "vault.init"
    slots: tuple[SlotWish, ...]
    recovery: bool = True


class UnlockVault(VaultCall):
    """Open it. Without a kind: whatever opens it without a question. Secrets: passphrase or recovery key."""

    verb: ClassVar[str] = "vault.unlock"
    kind: Kind | None = None
    place: Path | None = None


class LockVault(VaultCall):
    """Forget the keys."""

    verb: ClassVar[str] = "vault.lock"


class SetPassphrase(VaultCall):
    """Set or change the passphrase. Secrets: the present one where there is one (else empty), the new one."""

    verb: ClassVar[str] = "vault.passphrase"


class AddSlot(VaultCall):
    """Add a key. Secrets: the passphrase, for that kind. A recovery key is given as bytes."""

    verb: ClassVar[str] = "vault.slot.add"
    wish: SlotWish


class RemoveSlot(VaultCall):
    """Take a key away; the last one stays."""

    verb: ClassVar[str] = "vault.slot.remove"
    slot_id: str


class RotateVault(VaultCall):
    """New keys for everything. Secrets: the passphrase where there is such a slot. Gives a new recovery key."""

    verb: ClassVar[str] = "vault.rotate"
    drop_passphrase: bool = False


class VerifyVault(VaultCall):
    """Check every record."""

    verb: ClassVar[str] = "vault.verify"


class RepairVault(VaultCall):
    """Make a damaged vault whole as far as can be. Secrets: passphrase (or empty: key file, keyring), recovery key."""

    verb: ClassVar[str] = "vault.repair"
    from_previous: bool = False
    accept_generation: int | None = None


class ExportVault(VaultCall):
    """All secrets as an age file. Secrets: a passphrase, if no recipients are given. Gives the file."""

    verb: ClassVar[str] = "vault.export"
    recipients: tuple[str, ...] = ()
    project_id: str | None = None
    armored: bool = False


class ImportVault(VaultCall):
    """Take secrets from an age file. Secrets: the file, the passphrase or identity."""

    verb: ClassVar[str] = "vault.import"
    identity: bool = False
    overwrite: bool = False
    project_id: str | None = None
    """Where secrets of projects go that this home does not know; without it they are skipped."""


class SetSecret(VaultCall):
    """Store a value: a new secret, or a new version of one. Secrets: the value.

    Attributes:
        exposure: `None`: as it is; for a new one as the operator's settings and the name say.
        only_me: `None`: as it is; a new one belongs to the project.
        create: `True`: only a new one; `False`: only a new version; `None`: either.
    """

    verb: ClassVar[str] = "secret.set"
    project_id: str
    identifier: str
    name: str | None = None
    exposure: Exposure | None = None
    hosts: tuple[str, ...] | None = None
    only_me: bool | None = None
    create: bool | None = None


class SetSecrets(VaultCall):
    """Store several values at once, or none. Secrets: the values, in order."""

    verb: ClassVar[str] = "secret.set_many"
    items: Annotated[tuple[SetSecret, ...], Field(min_length=1, max_length=MAX_SECRETS)]


class UnsetSecret(VaultCall):
    """Forget a secret."""

    verb: ClassVar[str] = "secret.delete"
    secret_id: str


class ShareSecret(VaultCall):
    """Give a personal secret to the project, or make a project's one personal."""

    verb: ClassVar[str] = "secret.share"
    secret_id: str
    only_me: bool


class ExposeSecret(VaultCall):
    """Change where a value may go."""

    verb: ClassVar[str] = "secret.expose"
    secret_id: str
    exposure: Exposure
    hosts: tuple[str, ...] = ()
    gateway: bool = False


class ProvideSecret(VaultCall):
    """Answer an agent's request with a value. Secrets: the value."""

    verb: ClassVar[str] = "secret_request.provide"
    request_id: str
    exposure: Exposure | None = None
    only_me: bool = False


class DeclineRequest(VaultCall):
    """Answer an agent's request with no."""

    verb: ClassVar[str] = "secret_request.decline"
    request_id: str


class Redact(VaultCall):
    """Take values out of a text. Secrets: the text. Gives the text."""

    verb: ClassVar[str] = "vault.redact"


class AuditAnchorCall(VaultCall):
    """What the vault knows of the audit chain."""

    verb: ClassVar[str] = "vault.anchor"


class VaultAnchor(BaseModel):
    """A link of the audit chain, as the vault's authenticated body has it; `seq` 0 where there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    hash: str


class StoredSecret(BaseModel):
    """Which secret a call made or changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret_id: str
    created: bool
    warnings: tuple[str, ...] = ()


class StoredSecrets(BaseModel):
    """What a call made or changed, in the order of the call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    stored: tuple[StoredSecret, ...]
