"""What the console needs of the runtime for secrets, the vault and the inbox. Values go in and never come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kortix_tui.base.words import Exposure, Verdict
    from kortix_tui.manifest.policies import Condition, DefaultMode
    from kortix_tui.runtime.edits import EditResult
    from kortix_tui.runtime.inbox import InboxItem
    from kortix_tui.runtime.secret_views import (
        ImportReport,
        SecretChange,
        SecretDetail,
        SecretRequestView,
        SecretView,
        VaultCheck,
        VaultStatus,
    )
    from kortix_tui.runtime.vault_calls import Kind, SlotWish, StoredSecret
    from kortix_tui.store.models import Project
    from kortix_tui.vault.secret import Secret


class SecretSource(Protocol):
    """Secrets."""

    def list(self, *, project: Project | None = None) -> list[SecretView]:
        """All of them or one project's, by project and identifier."""
        ...

    def show(self, project: Project, identifier: str) -> SecretDetail:
        """One of them, with who may have it and why."""
        ...

    def requests(self) -> Sequence[SecretRequestView]:
        """Values that agents ask for."""
        ...

    def set(
        self,
        project: Project,
        identifier: str,
        value: Secret,
        *,
        name: str | None = None,
        exposure: Exposure | None = None,
        hosts: tuple[str, ...] | None = None,
        only_me: bool | None = None,
        create: bool | None = None,
    ) -> SecretChange:
        """Store a value."""
        ...

    def set_many(
        self,
        project: Project,
        values: Sequence[tuple[str, Secret]],
        *,
        exposure: Exposure | None = None,
        only_me: bool | None = None,
    ) -> tuple[StoredSecret, ...]:
        """Store many values at once."""
        ...

    def rotate(self, project: Project, identifier: str, value: Secret) -> SecretChange:
        """A new value."""
        ...

    def unset(self, project: Project, identifier: str) -> SecretView:
        """Forget it."""
        ...

    def share(self, project: Project, identifier: str, *, only_me: bool) -> SecretChange:
        """Make it the project's or a person's."""
        ...

    def expose(
        self,
        project: Project,
        identifier: str,
        exposure: Exposure,
        *,
        hosts: tuple[str, ...] = (),
        gateway: bool = False,
    ) -> SecretChange:
        """Change where it may go."""
        ...

    def provide(
        self, reference: str, value: Secret, *, exposure: Exposure | None = None, only_me: bool = False
    ) -> SecretChange:
        """Answer a request with a value."""
        ...

    def decline(self, reference: str) -> SecretRequestView:
        """Answer a request with no."""
        ...


class VaultSource(Protocol):
    """What opens the vault, and its state."""

    def status(self) -> VaultStatus:
        """What is known without a key."""
        ...

    def init(
        self, slots: tuple[SlotWish, ...], *, passphrase: Secret | None = None, recovery: bool = True
    ) -> tuple[VaultStatus, str | None]:
        """Make it; gives the recovery key."""
        ...

    def unlock(
        self, kind: Kind | None = None, *, secret: Secret | None = None, place: str | None = None
    ) -> VaultStatus:
        """Open it."""
        ...

    def lock(self) -> VaultStatus:
        """Forget the keys."""
        ...

    def set_passphrase(self, present: Secret | None, new: Secret) -> VaultStatus:
        """Set or change the passphrase."""
        ...

    def add_slot(self, wish: SlotWish, *, passphrase: Secret | None = None) -> tuple[VaultStatus, str | None]:
        """Add a key."""
        ...

    def remove_slot(self, slot_id: str) -> VaultStatus:
        """Take a key away."""
        ...

    def rotate(
        self, *, passphrase: Secret | None = None, drop_passphrase: bool = False
    ) -> tuple[VaultStatus, str | None]:
        """New keys for everything."""
        ...

    def verify(self) -> VaultCheck:
        """Check every record."""
        ...

    def repair(
        self,
        *,
        passphrase: Secret | None,
        recovery: Secret,
        from_previous: bool = False,
        accept_generation: int | None = None,
    ) -> VaultStatus:
        """Make it usable again."""
        ...

    def export(
        self, *, passphrase: Secret | None = None, recipients: tuple[str, ...] = (), project_id: str | None = None
    ) -> bytes:
        """All secrets or one project's, as an age file."""
        ...

    def import_(
        self,
        data: bytes,
        key: Secret,
        *,
        identity: bool = False,
        overwrite: bool = False,
        project_id: str | None = None,
    ) -> ImportReport:
        """Take secrets from an age file."""
        ...


class InboxSource(Protocol):
    """Everything that waits for a person."""

    def list(self) -> list[InboxItem]:
        """Oldest first."""
        ...


class EditSource(Protocol):
    """Edits of a manifest, as change requests."""

    def grant(
        self, project: Project, *, agent: str, name: str, key: str = "secrets", replace_all: bool = False
    ) -> EditResult:
        """Propose that an agent may have a secret or use a connector."""
        ...

    def set_rule(
        self,
        project: Project,
        *,
        connector: str | None,
        match: str,
        verdict: Verdict,
        first: bool = False,
        conditions: Sequence[Condition] = (),
    ) -> EditResult:
        """Propose a rule on calls."""
        ...

    def set_default_mode(self, project: Project, mode: DefaultMode) -> EditResult:
        """Propose what happens where no rule matches."""
        ...
