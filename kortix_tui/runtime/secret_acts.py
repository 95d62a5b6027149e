"""What the host does to single secrets: store, forget, share, expose, answer agents. Runs behind `control.sock`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kortix_tui.base.errors import Conflict, InvalidInput, NotFound, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import Exposure, Outcome, SecretRequestState
from kortix_tui.runtime.connection_rows import users_of
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.retiring import forget_retired, retire
from kortix_tui.runtime.vault_calls import (
    DeclineRequest,
    ExposeSecret,
    ProvideSecret,
    SetSecret,
    ShareSecret,
    StoredSecret,
    UnsetSecret,
)
from kortix_tui.runtime.vault_index import remove_secret, secret_rows, write_secret
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import SecretRequest, SecretRow
from kortix_tui.vault import rules
from kortix_tui.vault.draft import Draft
from kortix_tui.vault.records import PROJECT, SHARED, RecordMeta, personal
from kortix_tui.vault.secret import Secret


@dataclass(frozen=True)
class _Plan:
    """A value about to be stored."""

    meta: RecordMeta
    created: bool
    value: Secret
    warnings: tuple[str, ...]


class SecretActs:
    """The secret verbs on the host."""

    def __init__(self, custody: Custody) -> None:
        self._custody = custody

    async def set(
        self,
        wanted: SetSecret,
        value: bytes,
        actor: Actor,
        also: Callable[[Transaction], None] = lambda tx: None,
    ) -> StoredSecret:
        """Store a value: a new secret or a new version.

        Args:
            wanted: Which, and where it may go.
            value: The bytes.
            actor: Who gives it.
            also: More for the same transaction.
        """
        (stored,) = await self.set_many([wanted], (value,), actor, also)
        return stored

    async def set_many(
        self,
        wanted: Sequence[SetSecret],
        values: Sequence[bytes],
        actor: Actor,
        also: Callable[[Transaction], None] = lambda tx: None,
    ) -> tuple[StoredSecret, ...]:
        """Store several values in one write of the vault, or none of them. As `set`."""
        self._custody.opened()
        store = self._custody.context.store
        plans = [self._plan(one, value, actor) for one, value in zip(wanted, values, strict=True)]

        def edit(draft: Draft) -> None:
            for plan in plans:
                if not plan.created:
                    retire(draft, store, plan.meta.id)
                draft.put(plan.meta, plan.value)
            forget_retired(draft, store)

        def record(tx: Transaction, _: None) -> None:
            for plan in plans:
                write_secret(tx, plan.meta, actor)
                _event(tx, "secret.create" if plan.created else "secret.rotate", plan.meta, actor)
            also(tx)

        await self._custody.change(edit, record)
        return tuple(
            StoredSecret(secret_id=plan.meta.id, created=plan.created, warnings=plan.warnings) for plan in plans
        )

    def _plan(self, wanted: SetSecret, value: bytes, actor: Actor) -> _Plan:
        """What storing a value comes to.

        Raises:
            InvalidInput: Name, identifier or value cannot be taken.
            Conflict: It is there already and must not be.
            NotFound: It is not there and must be, or the project is not.
        """
        self._check_project(wanted.project_id)
        row = self._row(wanted, actor)
        if wanted.create is True and row is not None:
            raise Conflict(f"There is a secret {row.identifier} already.", hint="Give it a new value: secrets rotate.")
        if wanted.create is False and row is None:
            raise NotFound(f"There is no secret {wanted.identifier}.", hint="See `kortix secrets ls`.")
        if row is not None and wanted.exposure not in (None, Exposure.CONNECTOR):
            self._check_unused(row)
        meta = self._revised(wanted, row) if row is not None else self._fresh(wanted, actor)
        return _Plan(meta, row is None, Secret(value), rules.check_value(value, meta.exposure))

    async def unset(self, wanted: UnsetSecret, actor: Actor) -> None:
        """Forget a secret; a value that a sandbox still holds is kept for finding it in texts, and for nothing else."""
        row, store = self._mine(wanted.secret_id, actor), self._custody.context.store
        self._check_unused(row)

        def edit(draft: Draft) -> RecordMeta:
            meta = draft.meta(row.id)
            retire(draft, store, row.id)
            draft.delete(row.id)
            forget_retired(draft, store)
            return meta

        def record(tx: Transaction, meta: RecordMeta) -> None:
            remove_secret(tx, row.id)
            _event(tx, "secret.delete", meta, actor)

        await self._custody.change(edit, record)

    async def share(self, wanted: ShareSecret, actor: Actor) -> StoredSecret:
        """Change the owner: the project, or the person who asks."""
        row = self._mine(wanted.secret_id, actor)
        owner = actor.name if wanted.only_me else PROJECT
        if owner == row.owner:
            return StoredSecret(secret_id=row.id, created=False)
        self._check_unused(row)
        taken = [other for other in secret_rows(self._custody.context.store, row.project_id) if other.owner == owner]
        if any(other.identifier.lower() == row.identifier.lower() for other in taken):
            whose = "you have" if wanted.only_me else "the project has"
            raise Conflict(f"A secret {row.identifier} that {whose} is there already.", hint="Unset one of the two.")
        scope = personal(owner) if wanted.only_me else SHARED
        return await self._restate(row, {"owner": owner, "scope": scope}, "secret.share", actor)

    async def expose(self, wanted: ExposeSecret, actor: Actor) -> StoredSecret:
        """Change where the value may go."""
        row = self._mine(wanted.secret_id, actor)
        if wanted.exposure is not Exposure.CONNECTOR:
            self._check_unused(row)
        if wanted.exposure is Exposure.ENVIRONMENT:
            rules.check_value(await self._custody.value(row.id, "check its shape"), wanted.exposure)
        update = {
            "exposure": wanted.exposure,
            "hosts": self._hosts(wanted.exposure, wanted.hosts),
            "gateway": wanted.gateway and wanted.exposure is Exposure.NONE,
        }
        return await self._restate(row, update, "secret.expose", actor)

    async def provide(self, wanted: ProvideSecret, value: bytes, actor: Actor) -> StoredSecret:
        """Answer an agent's request with a value.

        Where it may go is the person's word. What the agent wished for counts for a new secret only, and not for a
        model provider's key: otherwise a new value for a secret that stays on the host would be handed to sandboxes.
        """
        request = self._request(wanted.request_id)
        fresh = SetSecret(
            project_id=request.project_id,
            identifier=request.identifier,
            exposure=wanted.exposure,
            only_me=wanted.only_me or None,
        )
        is_new = self._row(fresh, actor) is None
        if wanted.exposure is None and is_new and request.identifier.upper() not in rules.PROVIDER_KEYS:
            fresh = fresh.model_copy(update={"exposure": request.exposure})
        return await self.set(
            fresh, value, actor, lambda tx: self._decide(tx, request, SecretRequestState.PROVIDED, actor)
        )

    async def decline(self, wanted: DeclineRequest, actor: Actor) -> None:
        """Answer an agent's request with no."""
        request = self._request(wanted.request_id)
        await self._custody.ledger.write(lambda tx: self._decide(tx, request, SecretRequestState.DECLINED, actor))

    # Inside

    async def _restate(self, row: SecretRow, update: dict[str, object], event: str, actor: Actor) -> StoredSecret:
        def edit(draft: Draft) -> RecordMeta:
            meta = RecordMeta.model_validate(draft.meta(row.id).model_dump() | update)
            draft.restate(meta)
            return meta

        def record(tx: Transaction, meta: RecordMeta) -> None:
            write_secret(tx, meta, actor)
            _event(tx, event, meta, actor)

        await self._custody.change(edit, record, learn=False)
        self._custody.touched()
        return StoredSecret(secret_id=row.id, created=False)

    def _fresh(self, wanted: SetSecret, actor: Actor) -> RecordMeta:
        """A new secret, exposed as the person, the name or the operator's settings say."""
        identifier = rules.check_identifier(wanted.identifier)
        name = rules.check_name(wanted.name or re.sub(r"[.-]", "_", identifier).upper())
        default = Exposure(self._custody.context.settings.secrets.default_exposure)
        exposure, gateway = rules.exposure_of_new(name, wanted.exposure, default)
        owner = actor.name if wanted.only_me else PROJECT
        return RecordMeta(
            id=new_id("sec"), project=wanted.project_id, identifier=identifier, name=name,
            scope=personal(owner) if wanted.only_me else SHARED, owner=owner, exposure=exposure, gateway=gateway,
            hosts=self._hosts(exposure, wanted.hosts), version=1, created=self._custody.context.clock.now(),
        )  # fmt: skip

    def _revised(self, wanted: SetSecret, row: SecretRow) -> RecordMeta:
        """The next version; what nobody says stays as it is."""
        meta = next(meta for meta in self._custody.metas() if meta.id == row.id)
        exposure = wanted.exposure or meta.exposure
        hosts = (
            meta.hosts if wanted.hosts is None and exposure is meta.exposure else self._hosts(exposure, wanted.hosts)
        )
        return meta.model_copy(
            update={
                "name": rules.check_name(wanted.name) if wanted.name else meta.name,
                "exposure": exposure,
                "gateway": meta.gateway and exposure is Exposure.NONE,
                "hosts": hosts,
                "version": meta.version + 1,
                "created": self._custody.context.clock.now(),
            }
        )

    @staticmethod
    def _hosts(exposure: Exposure, hosts: tuple[str, ...] | None) -> tuple[str, ...]:
        if hosts and exposure is not Exposure.EGRESS:
            raise InvalidInput(
                "Only egress-enforced secrets name hosts.", hint="Add --scope egress, or leave them out."
            )
        if exposure is Exposure.EGRESS and not hosts:
            raise InvalidInput(
                "An egress-enforced secret needs the hosts that its value may be sent to.",
                hint="Add --allow-host HOST.",
            )
        return tuple(rules.check_host(host) for host in hosts or ())

    def _row(self, wanted: SetSecret, actor: Actor) -> SecretRow | None:
        """The secret that is meant: of the owner that is said, else one's own, else the project's."""
        owners = (actor.name, PROJECT) if wanted.only_me is None else ((actor.name,) if wanted.only_me else (PROJECT,))
        rows = {
            row.owner: row
            for row in secret_rows(self._custody.context.store, wanted.project_id)
            if row.identifier.lower() == wanted.identifier.lower()
        }
        return next((rows[owner] for owner in owners if owner in rows), None)

    def _mine(self, secret_id: str, actor: Actor) -> SecretRow:
        self._custody.opened()
        row = next((row for row in secret_rows(self._custody.context.store) if row.id == secret_id), None)
        if row is None:
            raise NotFound("That secret is gone.", hint="See `kortix secrets ls`.")
        if row.owner not in (PROJECT, actor.name):
            raise Refused("That secret is somebody else's own.")
        return row

    def _check_unused(self, row: SecretRow) -> None:
        """Whether no connection needs the value.

        Raises:
            Refused: One does; it would end in the middle of an agent's work.
        """
        users = users_of(self._custody.context.store, row.project_id, row.identifier) if row.owner == PROJECT else ()
        if users:
            raise Refused(
                f"The connection {', '.join(users)} uses {row.identifier}.",
                hint="Remove the connection first: kortix connections rm",
            )

    def _check_project(self, project_id: str) -> None:
        row = self._custody.context.store.one("SELECT removed_at FROM projects WHERE id = ?", (project_id,))
        if row is None or row[0] is not None:
            raise NotFound("There is no such project.", hint="See `kortix projects ls`.")

    def _request(self, request_id: str) -> SecretRequest:
        row = self._custody.context.store.one(
            f"SELECT {SecretRequest.columns()} FROM secret_requests WHERE id = ?", (request_id,)
        )
        if row is None:
            raise NotFound("There is no such request.", hint="See `kortix review ls`.")
        request = SecretRequest.of(row)
        if request.state is not SecretRequestState.OPEN:
            raise Conflict(f"That request was {request.state.value} already.", hint="See `kortix review ls`.")
        return request

    @staticmethod
    def _decide(tx: Transaction, request: SecretRequest, state: SecretRequestState, actor: Actor) -> None:
        done = tx.execute(
            "UPDATE secret_requests SET state = ?, decided_by = ?, decided_at = ? WHERE id = ? AND state = 'open'",
            (state, actor.label, tx.now_text, request.id),
        )
        if not done.rowcount:
            raise Conflict("That request was decided already.", hint="See `kortix review ls`.")
        tx.audit(
            "secret_request.provide" if state is SecretRequestState.PROVIDED else "secret_request.decline",
            scope=f"secret {request.identifier}", actor=actor, project_id=request.project_id,
            session_id=request.session_id, request=request.id,
            outcome=Outcome.SUCCESS if state is SecretRequestState.PROVIDED else Outcome.DENIED,
        )  # fmt: skip


def _event(tx: Transaction, event: str, meta: RecordMeta, actor: Actor) -> None:
    tx.audit(
        event, scope=f"secret {meta.identifier}", actor=actor, project_id=meta.project, secret=meta.id,
        version=meta.version, exposure=meta.exposure.value, owner=meta.owner,
    )  # fmt: skip
