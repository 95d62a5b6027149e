"""Answers the calls that come in through `control.sock`: one verb, one model, one act."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from kortix_tui.base.errors import InvalidInput, KortixError, VaultFailed
from kortix_tui.base.words import Outcome
from kortix_tui.runtime.connecting import Connecting
from kortix_tui.runtime.connection_calls import (
    AwaitAuthorization,
    BeginAuthorization,
    ConnectAccount,
    DefaultConnection,
    RemoveConnection,
)
from kortix_tui.runtime.control_frames import MAX_SECRETS
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.secret_acts import SecretActs
from kortix_tui.runtime.secret_views import VaultStatus
from kortix_tui.runtime.vault import VaultKeys
from kortix_tui.runtime.vault_acts import VaultActs
from kortix_tui.runtime.vault_calls import (
    AddSlot,
    AuditAnchorCall,
    DeclineRequest,
    Done,
    ExportVault,
    ExposeSecret,
    ImportVault,
    InitVault,
    LockVault,
    ProvideSecret,
    Redact,
    RemoveSlot,
    RepairVault,
    RotateVault,
    SetPassphrase,
    SetSecret,
    SetSecrets,
    ShareSecret,
    StoredSecrets,
    UnlockVault,
    UnsetSecret,
    VaultAnchor,
    VaultCall,
    VerifyVault,
)
from kortix_tui.store.audit import Actor

C = TypeVar("C", bound=VaultCall)
Secrets = tuple[bytes, ...]
Given = tuple[BaseModel, bytes]
Answer = Callable[[Any, Secrets, Actor], Awaitable[Given]]
QUIET: Final = (Redact, AuditAnchorCall, VerifyVault, AwaitAuthorization)
"""Reads: a refusal of them is nothing that the record must tell."""
SECRETS: Final = (SetSecret, SetSecrets, UnsetSecret, ShareSecret, ExposeSecret, ProvideSecret, ImportVault)
"""What looks at the index before it changes the vault: one at a time, or the second acts on what is past."""


class VaultService:
    """The host's answers about the vault, its secrets, and the connections that use them."""

    def __init__(self, custody: Custody, connecting: Connecting) -> None:
        self._custody = custody
        self._one_by_one = asyncio.Lock()
        self._keys = VaultKeys(custody.context)
        vault, secrets = VaultActs(custody), SecretActs(custody)
        self._verbs: dict[str, tuple[type[VaultCall], int, Answer]] = {}
        self._add(InitVault, lambda call, values, actor: self._state(vault.init(call, values, actor)), most=1)
        self._add(UnlockVault, lambda call, values, actor: self._state(vault.unlock(call, values, actor)), most=1)
        self._add(LockVault, lambda _, __, actor: self._lock(actor))
        self._add(SetPassphrase, lambda _, values, actor: self._state(vault.set_passphrase(values, actor)), exactly=2)
        self._add(AddSlot, lambda call, values, actor: self._state(vault.add_slot(call, values, actor)), most=1)
        self._add(RemoveSlot, lambda call, _, actor: self._state(vault.remove_slot(call, actor)))
        self._add(RotateVault, lambda call, values, actor: self._state(vault.rotate(call, values, actor)), most=1)
        self._add(VerifyVault, lambda _, __, ___: _only(vault.verify()))
        self._add(RepairVault, lambda call, values, actor: self._state(vault.repair(call, values, actor)), exactly=2)
        self._add(ExportVault, lambda call, values, actor: self._state(vault.export(call, values, actor)), most=1)
        self._add(ImportVault, lambda call, values, actor: _only(vault.import_(call, values, actor)), exactly=2)
        self._add(SetSecret, lambda call, values, actor: _only(secrets.set(call, values[0], actor)), exactly=1)
        self._add(
            SetSecrets, lambda call, values, actor: self._set_many(secrets, call, values, actor), most=MAX_SECRETS
        )
        self._add(UnsetSecret, lambda call, _, actor: _done(secrets.unset(call, actor)))
        self._add(ShareSecret, lambda call, _, actor: _only(secrets.share(call, actor)))
        self._add(ExposeSecret, lambda call, _, actor: _only(secrets.expose(call, actor)))
        self._add(ProvideSecret, lambda call, values, actor: _only(secrets.provide(call, values[0], actor)), exactly=1)
        self._add(DeclineRequest, lambda call, _, actor: _done(secrets.decline(call, actor)))
        self._add(Redact, lambda _, values, __: self._redact(values[0]), exactly=1)
        self._add(AuditAnchorCall, lambda _, __, ___: self._anchor())
        self._add(
            ConnectAccount, lambda call, values, actor: _only(connecting.connect(call, _first(values), actor)), most=1
        )
        self._add(
            BeginAuthorization,
            lambda call, values, actor: _only(connecting.authorize(call, _first(values), actor)),
            most=1,
        )
        self._add(
            AwaitAuthorization, lambda call, values, _: _only(connecting.authorization(call, _first(values))), most=1
        )
        self._add(RemoveConnection, lambda call, _, actor: _only(connecting.remove(call, actor)))
        self._add(DefaultConnection, lambda call, _, actor: _only(connecting.make_default(call, actor)))

    def _add(
        self, call: type[C], answer: Callable[[C, Secrets, Actor], Awaitable[Given]], *, exactly: int = 0, most: int = 0
    ) -> None:
        """Register a verb, with how many secrets it takes: so many, or at most so many."""
        self._verbs[call.verb] = (call, exactly if exactly else -most, answer)

    async def answer(self, verb: str, arguments: str, secrets: Secrets, actor: Actor) -> Given:
        """Do what was called for; see `Calls`."""
        if verb not in self._verbs:
            raise InvalidInput("This host does not know that call.", hint="Update it: end it and try again.")
        kind, count, act = self._verbs[verb]
        if len(secrets) != count if count > 0 else len(secrets) > -count:
            raise InvalidInput("The call has another number of secrets than it needs.")
        try:
            call = kind.model_validate_json(arguments)
        except ValidationError as error:
            # The input is not part of the message: it may hold what does not belong there.
            fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
            raise InvalidInput(f"{'.'.join(str(step) for step in fault['loc'])}: {fault['msg']}.") from None
        await self._custody.settled()
        try:
            if kind not in SECRETS:
                return await act(call, secrets, actor)
            async with self._one_by_one:
                await self._custody.catch_up()
                return await act(call, secrets, actor)
        except VaultFailed as error:
            # A wrong key is in the record already; what else the vault refuses belongs there too.
            if kind not in (*QUIET, UnlockVault):
                await self._refused(verb, actor, error)
            raise

    @staticmethod
    async def _set_many(acts: SecretActs, call: SetSecrets, values: Secrets, actor: Actor) -> Given:
        if len(values) != len(call.items):
            raise InvalidInput("The call has another number of secrets than it needs.")
        return StoredSecrets(stored=await acts.set_many(call.items, values, actor)), b""

    async def _refused(self, verb: str, actor: Actor, error: KortixError) -> None:
        await self._custody.ledger.write(
            lambda tx: tx.audit(verb, scope="vault", actor=actor, outcome=Outcome.DENIED, reason=error.message)
        )

    async def _state(self, act: Awaitable[bytes]) -> tuple[VaultStatus, bytes]:
        given = await act
        return await asyncio.to_thread(self._keys.status), given

    async def _lock(self, actor: Actor) -> tuple[VaultStatus, bytes]:
        await self._custody.lock(actor, "locked by a person")
        return await asyncio.to_thread(self._keys.status), b""

    async def _redact(self, text: bytes) -> Given:
        redactor = self._custody.redactor
        return Done(), await asyncio.to_thread(redactor.data, text) if redactor else text

    async def _anchor(self) -> Given:
        if not self._custody.unlocked:
            return VaultAnchor(seq=0, hash=""), b""
        anchor = self._custody.opened().anchor
        return VaultAnchor(seq=anchor.seq, hash=anchor.hash) if anchor else VaultAnchor(seq=0, hash=""), b""


def _first(values: Secrets) -> bytes | None:
    return values[0] if values else None


async def _only(act: Awaitable[BaseModel]) -> Given:
    return await act, b""


async def _done(act: Awaitable[None]) -> Given:
    await act
    return Done(), b""
