"""What the console and the command line show of the vault and of secrets. No field here ever holds a value."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pydantic import Field

from kortix_tui.base.words import Exposure, SessionStatus, VaultState
from kortix_tui.runtime.views import View
from kortix_tui.store.models import SecretRequest, SecretRow


class HeldBy(View):
    """A sandbox that got a secret's value."""

    session_id: str
    title: str
    status: SessionStatus
    version: int
    at: datetime
    stale: bool = Field(description="It runs with an older version than the vault has.")


class AgentReach(View):
    """Whether an agent may have a secret, by its grant on the base branch."""

    agent: str
    granted: bool
    why: str = Field(description="In words: `named`, `covered by all`, `not named`, …")


class SecretView(SecretRow):
    """A secret in a list: who may have it, and who has it now."""

    project: str = Field(description="The project's slug.")
    agents: tuple[str, ...] = Field(description="Agents whose grant on the base branch admits it.")
    held_by: tuple[HeldBy, ...] = Field(description="Sandboxes that run, and disks that are kept, with its value.")
    plain: bool = Field(description="Its present version was in a sandbox as plain text.")
    stale: int = Field(description="How many running sandboxes hold an older version.")


class SecretDetail(View):
    """A secret with everything that is known of it but the value."""

    secret: SecretView
    reach: tuple[AgentReach, ...]
    manifest_fault: str | None = Field(default=None, description="Why the base branch's grants cannot be read.")


class SecretChange(View):
    """What setting, rotating or sharing a secret did."""

    secret: SecretView
    created: bool
    says: tuple[str, ...] = Field(description="Lines for a person: the exposure, who can read it now, how to tighten.")


class SecretRequestView(SecretRequest):
    """An agent's request in the inbox."""

    project: str
    session_title: str
    agent: str
    granted: bool = Field(description="Whether the agent's grant admits this identifier already.")
    stored: Exposure | None = Field(
        default=None, description="Exposure of a secret of this identifier that is there already; a value leaves it so."
    )


class SlotView(View):
    """One key that opens the vault."""

    id: str
    type: str = Field(description="`passphrase`, `keyfile`, `keyring`, `systemd` or `recovery`.")
    owner: str
    place: str | None
    created: datetime


class VaultStatus(View):
    """The vault as the host last said, and what can be read of it without a key."""

    state: VaultState
    reason: str | None = None
    since: datetime | None = None
    path: Path
    vault_id: str | None = None
    generation: int | None = None
    secrets: int = 0
    slots: tuple[SlotView, ...] = ()
    previous: str | None = Field(
        default=None, description="Generation and time of the file before this one, as it says itself."
    )
    waiting: tuple[str, ...] = Field(default=(), description="Sessions that wait for it to be unlocked.")


class VaultCheck(View):
    """What `vault verify` found."""

    ok: bool
    generation: int
    records: int
    faults: tuple[str, ...] = ()


class ImportReport(View):
    """What an import did."""

    created: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    skipped: tuple[str, ...] = Field(default=(), description="With the reason after a colon.")
