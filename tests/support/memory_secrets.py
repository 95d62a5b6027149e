"""Secrets, vault and inbox in memory for console tests; `test_source_contract.py` holds them to the real ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kortix_tui.base.errors import Conflict, NotFound, VaultFailed, VaultLocked, VaultMissing, WrongKey
from kortix_tui.base.words import ChangeStatus, Exposure, SecretRequestState, SessionStatus, VaultState, Verdict
from kortix_tui.manifest.policies import Condition, DefaultMode
from kortix_tui.runtime.edits import EditResult
from kortix_tui.runtime.inbox import InboxItem, ItemKind
from kortix_tui.runtime.secret_views import (
    AgentReach,
    HeldBy,
    ImportReport,
    SecretChange,
    SecretDetail,
    SecretRequestView,
    SecretView,
    SlotView,
    VaultCheck,
    VaultStatus,
)
from kortix_tui.runtime.secret_words import exposure_says
from kortix_tui.runtime.vault_calls import Kind, SlotWish, StoredSecret
from kortix_tui.store.models import Project
from kortix_tui.vault.secret import Secret

if TYPE_CHECKING:
    from console_source import MemorySource

NOW = datetime(2026, 3, 14, 12, 4, 30, tzinfo=UTC)
RECOVERY = "ABCD2-EFGH3-IJKL4-MNOP5-QRST6-UVWX7-YZAB2-CDEF3"
AGENTS = ("builder", "refactor", "reviewer")


def a_secret(identifier: str, project: str = "acme-api", **changes: Any) -> SecretView:
    values: dict[str, Any] = {
        "id": f"sec_{project}_{identifier}".lower(), "project_id": f"prj_{project}", "identifier": identifier,
        "name": identifier.upper().replace("-", "_"), "owner": "project", "exposure": Exposure.ENVIRONMENT,
        "gateway": False, "hosts": (), "version": 1, "created_by": "dana", "created_at": NOW - timedelta(days=9),
        "rotated_at": NOW - timedelta(days=2), "used_at": None, "plain_at": None, "project": project, "agents": (),
        "held_by": (), "plain": False, "stale": 0,
    }  # fmt: skip
    return SecretView(**(values | changes))


def a_holder(session: Any, version: int = 1, **changes: Any) -> HeldBy:
    values: dict[str, Any] = {
        "session_id": session.id, "title": session.title, "status": session.status, "version": version,
        "at": NOW - timedelta(minutes=12), "stale": False,
    }  # fmt: skip
    return HeldBy(**(values | changes))


def a_request(number: int, session: Any, identifier: str, **changes: Any) -> SecretRequestView:
    values: dict[str, Any] = {
        "id": f"srq_{number}", "project_id": session.project_id, "session_id": session.id, "identifier": identifier,
        "exposure": Exposure.CONNECTOR, "reason": "", "state": SecretRequestState.OPEN,
        "created_at": NOW - timedelta(minutes=3), "decided_by": None, "decided_at": None, "project": session.project,
        "session_title": session.title, "agent": session.agent, "granted": False,
    }  # fmt: skip
    return SecretRequestView(**(values | changes))


def a_slot(number: int, kind: str, place: str | None = None) -> SlotView:
    return SlotView(id=f"slot{number}", type=kind, owner="dana", place=place, created=NOW - timedelta(days=9))


class MemorySecrets:
    """Keeps what it was given in `values`, for tests to look at."""

    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.rows: list[SecretView] = []
        self.request_rows: list[SecretRequestView] = []
        self.values: dict[str, bytes] = {}
        self.agents: tuple[str, ...] = AGENTS
        self.fault: str | None = None

    def list(self, *, project: Project | None = None) -> list[SecretView]:
        rows = [row for row in self.rows if project is None or row.project == project.slug]
        return sorted(rows, key=lambda row: (row.project, row.identifier.lower(), row.owner))

    def find(self, project: Project, identifier: str) -> SecretView:
        for row in self.list(project=project):
            if row.identifier.lower() == identifier.lower():
                return row
        raise NotFound(f"Project {project.slug} has no secret {identifier}.")

    def show(self, project: Project, identifier: str) -> SecretDetail:
        row = self.find(project, identifier)
        reach = tuple(
            AgentReach(agent=one, granted=one in row.agents, why="named" if one in row.agents else "not named")
            for one in self.agents
        )
        return SecretDetail(secret=row, reach=() if self.fault else reach, manifest_fault=self.fault)

    def requests(self) -> Sequence[SecretRequestView]:
        return [*self.request_rows]

    def set(
        self, project: Project, identifier: str, value: Secret, *, name: str | None = None,
        exposure: Exposure | None = None, hosts: tuple[str, ...] | None = None, only_me: bool | None = None,
        create: bool | None = None,
    ) -> SecretChange:  # fmt: skip
        self._source.vault.opened()
        there = [row for row in self.list(project=project) if row.identifier.lower() == identifier.lower()]
        if there and create is True:
            raise Conflict(f"There is a secret {identifier} already.")
        if not there and create is False:
            raise NotFound(f"There is no secret {identifier}.")
        self.values[identifier] = value.use("the test looks at it")
        self._source.calls.append(("set", project.slug, identifier, exposure, only_me))
        if there:
            before = there[0]
            held = tuple(
                one.model_copy(update={"stale": one.status is SessionStatus.RUNNING}) for one in before.held_by
            )
            update = {
                "version": before.version + 1, "rotated_at": NOW, "plain_at": None, "plain": False, "held_by": held,
                "stale": sum(one.stale for one in held),
            }  # fmt: skip
            return self._changed(before.model_copy(update=update))
        owner = "dana" if only_me else "project"
        row = a_secret(
            identifier, project.slug, exposure=exposure or Exposure.ENVIRONMENT, hosts=hosts or (), owner=owner,
            rotated_at=NOW, created_at=NOW, name=name or identifier.upper().replace("-", "_"),
        )  # fmt: skip
        self.rows.append(row)
        return self._changed(row, created=True)

    def set_many(
        self, project: Project, values: Sequence[tuple[str, Secret]], *, exposure: Exposure | None = None,
        only_me: bool | None = None,
    ) -> tuple[StoredSecret, ...]:  # fmt: skip
        changes = [self.set(project, name, value, exposure=exposure, only_me=only_me) for name, value in values]
        return tuple(StoredSecret(secret_id=one.secret.id, created=one.created) for one in changes)

    def rotate(self, project: Project, identifier: str, value: Secret) -> SecretChange:
        return self.set(project, identifier, value, create=False)

    def unset(self, project: Project, identifier: str) -> SecretView:
        self._source.vault.opened()
        row = self.find(project, identifier)
        self.rows.remove(row)
        self._source.version += 1
        self._source.calls.append(("unset", project.slug, row.identifier))
        return row

    def share(self, project: Project, identifier: str, *, only_me: bool) -> SecretChange:
        self._source.calls.append(("share", identifier, only_me))
        return self._restate(project, identifier, owner="dana" if only_me else "project")

    def expose(
        self, project: Project, identifier: str, exposure: Exposure, *, hosts: tuple[str, ...] = (),
        gateway: bool = False,
    ) -> SecretChange:  # fmt: skip
        self._source.calls.append(("expose", identifier, exposure, hosts, gateway))
        return self._restate(project, identifier, exposure=exposure, hosts=hosts, gateway=gateway)

    def provide(
        self, reference: str, value: Secret, *, exposure: Exposure | None = None, only_me: bool = False
    ) -> SecretChange:
        self._source.vault.opened()
        request = self._request(reference)
        project = next(one for one in self._source.project_rows if one.slug == request.project)
        change = self.set(
            project, request.identifier, value, exposure=exposure or request.exposure, only_me=only_me or None
        )
        self.request_rows.remove(request)
        self._source.calls.append(("provide", request.id))
        return change

    def decline(self, reference: str) -> SecretRequestView:
        request = self._request(reference)
        self.request_rows.remove(request)
        self._source.version += 1
        self._source.calls.append(("decline", request.id))
        return request

    def _request(self, reference: str) -> SecretRequestView:
        for row in self.request_rows:
            if reference and row.id.startswith(reference):
                return row
        raise NotFound(f"No open request {reference}.")

    def _restate(self, project: Project, identifier: str, **update: Any) -> SecretChange:
        self._source.vault.opened()
        return self._changed(self.find(project, identifier).model_copy(update=update))

    def _changed(self, row: SecretView, *, created: bool = False) -> SecretChange:
        self.rows = [row if one.id == row.id else one for one in self.rows]
        self._source.version += 1
        return SecretChange(secret=row, created=created, says=(f"Exposure {exposure_says(row)}.",))


class MemoryVault:
    def __init__(self, source: MemorySource) -> None:
        self._source = source
        self.state = VaultState.MISSING
        self.reason: str | None = None
        self.slots: list[SlotView] = []
        self.generation = 0
        self.passphrase = b""
        self.waiting: tuple[str, ...] = ()
        self.previous: str | None = None
        self.faults: tuple[str, ...] = ()

    def opened(self) -> None:
        if self.state is VaultState.MISSING:
            raise VaultMissing("There is no vault yet.")
        if self.state is not VaultState.UNLOCKED:
            raise VaultLocked("The vault is locked.")

    def status(self) -> VaultStatus:
        there = self.state is not VaultState.MISSING
        return VaultStatus(
            state=self.state, reason=self.reason, since=NOW - timedelta(hours=3) if there else None,
            path=Path("/home/dana/.local/state/kortix/vault.kxv"), vault_id="5f0c2a9d" if there else None,
            generation=self.generation if there else None, secrets=len(self._source.secrets.rows),
            slots=tuple(self.slots), previous=self.previous, waiting=self.waiting,
        )  # fmt: skip

    def init(
        self, slots: tuple[SlotWish, ...], *, passphrase: Secret | None = None, recovery: bool = True
    ) -> tuple[VaultStatus, str | None]:
        if self.state is not VaultState.MISSING:
            raise VaultFailed("There is a vault already.")
        self.slots = [a_slot(at, wish.kind, wish.place) for at, wish in enumerate(slots)]
        if recovery:
            self.slots.append(a_slot(len(slots), "recovery"))
        self.passphrase = passphrase.use("the test looks at it") if passphrase else b""
        self._source.calls.append(("init", *(wish.kind for wish in slots)))
        return self._now(VaultState.UNLOCKED), RECOVERY if recovery else None

    def unlock(
        self, kind: Kind | None = None, *, secret: Secret | None = None, place: str | None = None
    ) -> VaultStatus:
        if kind is None and not any(slot.type in ("keyring", "keyfile", "systemd") for slot in self.slots):
            raise VaultLocked("The vault is locked.", hint="Unlock it: kortix vault unlock")
        if kind in ("passphrase", "recovery"):
            given = secret.use("the test looks at it") if secret else b""
            if given != (self.passphrase if kind == "passphrase" else RECOVERY.encode()):
                raise WrongKey("That opens nothing.")
        self._source.calls.append(("unlock", kind))
        self.waiting = ()
        return self._now(VaultState.UNLOCKED, grow=0)

    def lock(self) -> VaultStatus:
        self._source.calls.append(("lock",))
        return self._now(VaultState.LOCKED, grow=0)

    def set_passphrase(self, present: Secret | None, new: Secret) -> VaultStatus:
        if any(slot.type == "passphrase" for slot in self.slots):
            if present is None or present.use("the test looks at it") != self.passphrase:
                raise WrongKey("The present passphrase is another one.")
        else:
            self.slots.append(a_slot(len(self.slots), "passphrase"))
        self.passphrase = new.use("the test looks at it")
        self._source.calls.append(("passphrase",))
        return self._now(self.state)

    def add_slot(self, wish: SlotWish, *, passphrase: Secret | None = None) -> tuple[VaultStatus, str | None]:
        self.opened()
        self.slots.append(a_slot(len(self.slots), wish.kind, wish.place))
        self._source.calls.append(("add_slot", wish.kind))
        return self._now(self.state), RECOVERY if wish.kind == "recovery" else None

    def remove_slot(self, slot_id: str) -> VaultStatus:
        self.opened()
        self.slots = [slot for slot in self.slots if slot.id != slot_id]
        self._source.calls.append(("remove_slot", slot_id))
        return self._now(self.state)

    def rotate(
        self, *, passphrase: Secret | None = None, drop_passphrase: bool = False
    ) -> tuple[VaultStatus, str | None]:
        self.opened()
        if self.passphrase and (passphrase is None or passphrase.use("the test looks at it") != self.passphrase):
            raise WrongKey("That is not the passphrase.")
        self._source.calls.append(("rotate",))
        return self._now(self.state), RECOVERY

    def verify(self) -> VaultCheck:
        self.opened()
        return VaultCheck(
            ok=not self.faults, generation=self.generation, records=len(self._source.secrets.rows), faults=self.faults
        )

    def repair(
        self, *, passphrase: Secret | None, recovery: Secret, from_previous: bool = False,
        accept_generation: int | None = None,
    ) -> VaultStatus:  # fmt: skip
        if recovery.use("the test looks at it") != RECOVERY.encode():
            raise WrongKey("That is not the recovery key.")
        self._source.calls.append(("repair", from_previous, accept_generation))
        return self._now(VaultState.UNLOCKED)

    def export(
        self, *, passphrase: Secret | None = None, recipients: tuple[str, ...] = (), project_id: str | None = None
    ) -> bytes:
        self.opened()
        self._source.calls.append(("export", passphrase is not None, recipients, project_id))
        return b"age-encryption.org/v1\n"

    def import_(
        self, data: bytes, key: Secret, *, identity: bool = False, overwrite: bool = False,
        project_id: str | None = None,
    ) -> ImportReport:  # fmt: skip
        self.opened()
        self._source.calls.append(("import", len(data), identity, overwrite, project_id))
        return ImportReport(created=("STRIPE_KEY",), skipped=("OLD_KEY: it is here already",))

    def _now(self, state: VaultState, grow: int = 1) -> VaultStatus:
        self.state, self.reason = state, None
        self.generation += grow
        self._source.version += 1
        return self.status()


class MemoryInbox:
    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def list(self) -> list[InboxItem]:
        source = self._source
        items = [
            InboxItem(
                kind=ItemKind.CHANGE, reference=f"{row.project}#{row.number}", project=row.project, title=row.title,
                session_id=row.session_id, agent="refactor", since=row.created_at, says="Read it.",
            )
            for row in source.change_rows
            if row.status is ChangeStatus.OPEN
        ]  # fmt: skip
        items += [
            InboxItem(
                kind=ItemKind.SECRET, reference=row.id, project=row.project, session_id=row.session_id,
                title=f"{row.identifier}: {row.reason or 'no reason given'}", agent=row.agent, since=row.created_at,
                says="Type the value unseen.",
            )
            for row in source.secrets.request_rows
        ]  # fmt: skip
        vault = source.vault
        if vault.state is VaultState.LOCKED and vault.waiting:
            items.append(
                InboxItem(
                    kind=ItemKind.VAULT, reference="vault", project=None, title="The vault is locked", session_id=None,
                    agent=None, since=NOW - timedelta(minutes=1), says="Unlock it.",
                )
            )  # fmt: skip
        calls = [
            InboxItem(
                kind=ItemKind.APPROVAL, reference=row.id, project=row.project, session_id=row.session_id,
                title=f"{row.connector}.{row.action}", agent=row.agent, since=row.created_at, risk=row.risk,
                says="Decide.",
            )
            for row in source.approvals.pending()
        ]  # fmt: skip
        return calls + sorted(items, key=lambda item: (item.since, item.reference))


class MemoryEdits:
    def __init__(self, source: MemorySource) -> None:
        self._source = source

    def grant(
        self, project: Project, *, agent: str, name: str, key: str = "secrets", replace_all: bool = False
    ) -> EditResult:
        kind = ("grant",) if key == "secrets" else ("grant", key)
        return self._opened(project, *kind, project.slug, agent, name, replace_all)

    def set_rule(
        self, project: Project, *, connector: str | None, match: str, verdict: Verdict, first: bool = False,
        conditions: Sequence[Condition] = (),
    ) -> EditResult:  # fmt: skip
        told = [(one.arg, one.match, one.negate) for one in conditions]
        return self._opened(project, "rule", connector, match, verdict, first, told)

    def set_default_mode(self, project: Project, mode: DefaultMode) -> EditResult:
        return self._opened(project, "mode", project.slug, mode)

    def _opened(self, project: Project, *call: Any) -> EditResult:
        self._source.calls.append(call)
        return EditResult(project=project.slug, number=7, session_id="kedit", head_commit="e" * 40, already=False)


def fill(source: MemorySource) -> None:
    """A vault as it looks on a working day."""
    first, _, third, *_ = source.session_rows
    vault, secrets = source.vault, source.secrets
    vault.state, vault.generation, vault.passphrase = VaultState.UNLOCKED, 12, b"correct horse battery"
    vault.slots = [a_slot(1, "passphrase"), a_slot(2, "recovery")]
    secrets.rows = [
        a_secret(
            "DATABASE_URL", agents=("builder", "refactor"), version=3, plain=True, plain_at=NOW - timedelta(hours=5),
            used_at=NOW - timedelta(minutes=12), stale=1, rotated_at=NOW - timedelta(hours=5),
            held_by=(a_holder(first, 3), a_holder(third, 2, stale=True, at=NOW - timedelta(hours=7))),
        ),
        a_secret("OPENAI_API_KEY", exposure=Exposure.NONE, gateway=True, used_at=NOW - timedelta(minutes=1)),
        a_secret("stripe-live", exposure=Exposure.CONNECTOR, agents=("builder",), rotated_at=NOW - timedelta(days=40)),
        a_secret("NPM_TOKEN", owner="dana", agents=("refactor",), rotated_at=NOW - timedelta(days=1)),
        a_secret("SENTRY_DSN", "web", exposure=Exposure.EGRESS, hosts=("sentry.io",)),
        a_secret("OLD_KEY", "web", exposure=Exposure.NONE, rotated_at=NOW - timedelta(days=300)),
    ]  # fmt: skip
    secrets.request_rows = [
        a_request(
            1, third, "LEDGER_TOKEN",
            reason="the migration calls the ledger's API and gets 401 without it [b]urgent[/b]\x1b[31m",
        )
    ]  # fmt: skip
