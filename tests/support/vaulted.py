"""An operator with a vault: a real home, repository and host in this process; no engine is needed."""

from __future__ import annotations

import os
from pathlib import Path

from desk import Desk, make_repository

from kortix_tui.base.paths import Home
from kortix_tui.base.words import VaultState
from kortix_tui.runtime.vault_calls import SlotWish
from kortix_tui.vault.secret import Secret

PASSPHRASE = b"correct horse battery"
VALUE = b"sk_live_51HqLyjWDarjtT1zdp7dc"
NEWER = b"sk_live_51HqLyjWDnewerVALUE77"


class Vaulted(Desk):
    """A desk with a vault that a key file opens without a person; or only a passphrase, where `quiet` is off."""

    def __init__(self, home: Home, repository: Path, *, quiet: bool = True, **settings: object) -> None:
        super().__init__(home, make_repository(repository), **settings)
        self.key_file = Path(os.environ["KORTIX_CONFIG_HOME"]) / "vault.key"
        wish = SlotWish(kind="keyfile", place=str(self.key_file)) if quiet else SlotWish(kind="passphrase")
        status, self.recovery = self.runtime.vault.init((wish,), passphrase=None if quiet else Secret(PASSPHRASE))
        assert status.state is VaultState.UNLOCKED

    def store(self, identifier: str = "STRIPE_API_KEY", value: bytes = VALUE, **options: object) -> str:
        """Set a secret; its id."""
        return self.runtime.secrets.set(self.project, identifier, Secret(value), **options).secret.id  # type: ignore[arg-type]

    def redacts(self, value: bytes) -> bool:
        """Whether the host finds a value in texts."""
        return value.decode() not in self.runtime.secrets.redact(f"before {value.decode()} after")

    def events(self, prefix: str) -> list[str]:
        """Events of the record, oldest first, with the outcome where it is not success."""
        found = reversed(self.runtime.audit.list(event=prefix, limit=1000))
        return [one.event if one.outcome == "success" else f"{one.event} {one.outcome}" for one in found]
