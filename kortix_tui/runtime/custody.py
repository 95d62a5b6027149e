"""The host's hold on the open vault. One process has it; everybody else asks through `control.sock`.

The vault's file is written first, then its index, the generation seen and the audit event in one transaction of the
store. A death in between leaves an index that is behind; it is brought in step when the vault is opened next.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kortix_tui.base.errors import KortixError, TooSoon, VaultFailed, VaultLocked, VaultMissing, VaultTampered, WrongKey
from kortix_tui.base.words import Outcome, VaultState
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.vault_index import differences, remove_secret, secret_rows, vault_row, write_secret, write_state
from kortix_tui.store.audit import SYSTEM, Actor, read_head
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import SecretRow
from kortix_tui.vault.redaction import Redactor

if TYPE_CHECKING:
    from kortix_tui.vault.draft import Draft
    from kortix_tui.vault.records import RecordMeta
    from kortix_tui.vault.secret import Secret
    from kortix_tui.vault.slots import SlotKey
    from kortix_tui.vault.vault import Vault

SETTLE_S: Final = 15.0
"""Longest time that finding a key without a person takes: a hanging keyring has a deadline of 3 s."""
BACKOFF_S: Final = (1.0, 30.0)
ANCHOR_S: Final = 600.0
LOCK_LOOK_S: Final = 30.0
log = logging.getLogger(__name__)
T = TypeVar("T")


class Custody:
    """Opens, closes and changes the vault for one term of leadership.

    Args:
        context: The host's.
        ledger: Where the index and the record are written, fenced by the term's epoch.
        changed: Called whenever the vault was opened, locked or changed: whoever waits looks again.
    """

    def __init__(self, context: Context, ledger: Ledger, changed: Callable[[], None]) -> None:
        self.context = context
        self.ledger = ledger
        self._changed = changed
        self._vault: Vault | None = None
        # Until it is known better: what a session prints must not be stored before values can be found in it.
        self._state = VaultState.LOCKED if context.home.vault.exists() else VaultState.MISSING
        self._settled = asyncio.Event()
        self._writing = asyncio.Lock()
        self._redactor = Redactor.none()
        self._behind = False
        self._wrong = 0
        self._again_at = 0.0
        self._used_at = time.monotonic()
        self._pending = set[asyncio.Task[object]]()

    # Life

    async def run(self) -> None:
        """Open the vault if that needs no person, then keep it until cancelled."""
        try:
            await self._open_quietly()
        except KortixError as error:
            log.warning("the vault was not opened: %s", error)
        except Exception:
            log.exception("the vault was not opened")
        finally:
            self._settled.set()
        anchored = time.monotonic()
        while True:
            await asyncio.sleep(LOCK_LOOK_S)
            with contextlib.suppress(KortixError):
                if self._idle_too_long():
                    await self.lock(SYSTEM, "nobody used it for a while")
                elif self.unlocked and time.monotonic() - anchored >= ANCHOR_S:
                    anchored = time.monotonic()
                    await self.anchor()

    async def close(self) -> None:
        """Finish what was begun, note the record's newest link, forget the keys. The vault counts as locked."""
        await asyncio.gather(*self._pending, return_exceptions=True)
        vault, self._vault = self._vault, None
        if vault is not None and vault.unlocked:
            head = read_head(self.context.home)
            with contextlib.suppress(KortixError, OSError):
                if head is not None and (vault.anchor is None or vault.anchor.seq < head.seq):
                    await asyncio.to_thread(_write_anchor, vault, head.seq, head.hash)
            vault.lock()
            with contextlib.suppress(KortixError):
                await self.ledger.write(lambda tx: self._note(tx, vault, VaultState.LOCKED, "its host ended"))
                # No event: the host's end is none of the vault, and the next host says what it found.
        self._redactor = Redactor.none()

    async def settled(self) -> None:
        """Wait until it is known whether the vault opens without a person."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                await self._settled.wait()

    # What others see

    @property
    def state(self) -> VaultState:
        """What can be done with the vault now."""
        return self._state

    @property
    def unlocked(self) -> bool:
        """Whether values can be read, and are found in texts: an open vault alone is not yet enough."""
        return self._state is VaultState.UNLOCKED and self._vault is not None and self._vault.unlocked

    @property
    def exists(self) -> bool:
        """Whether there is a vault, whatever its state."""
        return self._state is not VaultState.MISSING

    @property
    def redactor(self) -> Redactor:
        """Takes every value that the vault knows out of texts; nothing while it is locked."""
        return self._redactor

    def opened(self) -> Vault:
        """The open vault.

        Raises:
            VaultMissing: There is none.
            VaultLocked: It is locked, or something is wrong with its file; the hint says what to do.
        """
        if self.unlocked and self._vault is not None:
            self._used_at = time.monotonic()
            return self._vault
        if not self.exists:
            raise VaultMissing("There is no vault yet.", hint="Make one: kortix vault init")
        if self._state is VaultState.LOCKED:
            raise VaultLocked("The vault is locked.", hint="Unlock it: kortix vault unlock")
        raise VaultLocked(
            f"The vault is {self._state.value}: nothing is released from it.", hint="See: kortix vault status"
        )

    @property
    def steady(self) -> asyncio.Lock:
        """While somebody holds it, no value changes and the vault is neither opened nor locked.

        Whoever gives out a value holds it while that is written down: a change in between would not know that the
        old value has to be found in texts for longer.
        """
        return self._writing

    def metas(self) -> tuple[RecordMeta, ...]:
        """Every secret in use, as the vault's authenticated body has it.

        Raises:
            VaultLocked: It is locked, or its file was changed by somebody without its keys.
        """
        with self._watched():
            return tuple(meta for meta in self.opened().metas() if not meta.retired)

    async def value(self, record_id: str, reason: str) -> Secret:
        """One value, for one use that the caller records."""
        del reason  # for the reader of the call; what was used for what is in the caller's event
        with self._watched():
            return await asyncio.to_thread(self.opened().read, record_id)

    def known(self, project_id: str) -> tuple[SecretRow, ...]:
        """The index of a project's secrets; also while the vault is locked."""
        return secret_rows(self.context.store, project_id)

    def holding(self, session_id: str) -> str | None:
        """Why a session's output may not be stored now: it holds values that could not be found in it."""
        if self.unlocked:
            return None
        row = self.context.store.one("SELECT 1 FROM deliveries WHERE session_id = ? LIMIT 1", (session_id,))
        return f"the vault is {self._state.value}" if row else None

    def touched(self) -> None:
        """A secret may reach other sessions now than before: whoever waits looks again."""
        self._changed()

    # Opening and locking

    async def _open_quietly(self) -> None:
        from kortix_tui.vault.vault import Vault

        path = self.context.home.vault
        if not path.exists():
            before = vault_row(self.context.store)
            if before is not None and before.vault_id is not None and before.state is not VaultState.MISSING:
                await self._say(VaultState.MISSING, f"{path.name} is gone; restore it from a backup")
            return
        try:
            vault = await asyncio.to_thread(Vault.load, path)
        except VaultFailed as error:
            await self._say(VaultState.CORRUPT, error.message)
            return
        self._vault, self._state = vault, VaultState.LOCKED
        before = vault_row(self.context.store)
        if before is not None and before.state is VaultState.LOCKED and before.asked:
            return  # a person locked it: only a person opens it
        from kortix_tui.runtime.vault_keys import quiet_keys

        for key in quiet_keys(vault.slots):
            found = await asyncio.to_thread(key)
            if found is None:
                continue
            try:
                await self.unlock(found, SYSTEM, typed=False)
            except WrongKey:
                continue
            return
        if before is None or before.state is not VaultState.LOCKED:
            await self._say(VaultState.LOCKED, None)

    async def unlock(self, key: SlotKey, actor: Actor, *, typed: bool = True) -> None:
        """Open the vault with a key.

        Args:
            key: The key.
            actor: Who gives it.
            typed: Whether it may be a guess of somebody's: then a wrong one is recorded and slows the next one down.

        Raises:
            WrongKey: It opens no slot; the next try has to wait, longer each time.
            TooSoon: It was not tried.
            VaultTampered: The file is not what was written, or older than what was seen.
        """
        from kortix_tui.vault.errors import RolledBack
        from kortix_tui.vault.memory import harden
        from kortix_tui.vault.vault import Vault, check_generation

        harden()
        async with self._writing:
            vault = self._vault
            if self.unlocked:
                return
            # Here, and not before: of many tries at once each must see that the one before it was wrong.
            wait = self._again_at - time.monotonic()
            if typed and wait > 0:
                raise TooSoon(
                    f"The key was not tried: wait {wait:.0f} s before the next try.",
                    hint="The wait doubles with each wrong key.",
                )
            if vault is None or self._state is not VaultState.LOCKED:
                vault = await asyncio.to_thread(Vault.load, self.context.home.vault)
            seen = vault_row(self.context.store)
            try:
                slot = await asyncio.to_thread(vault.unlock, key)
                if seen is not None and seen.vault_id is not None:
                    check_generation(vault, seen.generation, seen.mac, seen_id=seen.vault_id)
            except WrongKey:
                if not typed:
                    raise
                self._wrong += 1
                self._again_at = time.monotonic() + min(BACKOFF_S[0] * 2 ** (self._wrong - 1), BACKOFF_S[1])
                await self._audit("vault.unlock", actor, Outcome.DENIED, kind=key.type.value)
                raise
            except RolledBack as error:
                vault.lock()
                await self._say(VaultState.ROLLED_BACK, error.message)
                raise
            except VaultTampered as error:
                vault.lock()
                await self._say(VaultState.TAMPERED, error.message)
                raise
            self._wrong = 0
            await self._take(vault, actor, "vault.unlock", slot=slot.id, kind=slot.type.value)

    async def _take(self, vault: Vault, actor: Actor, event: str, **detail: Any) -> None:
        """Work with an open vault from now on: bring the index in step, find values in texts."""
        metas = vault.metas()

        def write(tx: Transaction) -> None:
            tx.audit(event, scope=f"vault {vault.id}", actor=actor, generation=vault.generation, **detail)
            self._reconcile(tx, vault, metas)

        # Both at once: between an open vault and known values, what a sandbox says would be stored as it is.
        redactor = await asyncio.to_thread(_redactor, vault)
        await self.ledger.write(write)
        self._vault, self._state, self._behind, self._redactor = vault, VaultState.UNLOCKED, False, redactor
        self._changed()

    def _reconcile(self, tx: Transaction, vault: Vault, metas: tuple[RecordMeta, ...]) -> None:
        """Make the index say what the vault says."""
        self._note(tx, vault, VaultState.UNLOCKED, None)
        changed, gone = differences(secret_rows(self.context.store), metas)
        for meta in changed:
            write_secret(tx, meta, SYSTEM)
            tx.audit(
                "secret.reconcile", scope=f"secret {meta.identifier}", actor=SYSTEM, project_id=meta.project,
                secret=meta.id, version=meta.version,
            )  # fmt: skip
        for row in gone:
            remove_secret(tx, row.id)
            tx.audit(
                "secret.reconcile", scope=f"secret {row.identifier}", actor=SYSTEM, project_id=row.project_id,
                secret=row.id, outcome=Outcome.FAILURE, reason="the vault has no value for it",
            )  # fmt: skip

    async def adopt(self, vault: Vault, actor: Actor, event: str, **detail: Any) -> None:
        """Work with a vault that was just made or repaired."""
        async with self._writing:
            self._settled.set()
            await self._take(vault, actor, event, **detail)

    async def lock(self, actor: Actor, reason: str | None = None) -> None:
        """Forget the keys. What a person locks stays locked, also for later hosts, until a person opens it."""
        async with self._writing:
            vault = self._vault
            if vault is None or self._state not in (VaultState.LOCKED, VaultState.UNLOCKED):
                return
            if vault.unlocked:
                if (head := read_head(self.context.home)) is not None:
                    with contextlib.suppress(VaultFailed, OSError):
                        await asyncio.to_thread(_write_anchor, vault, head.seq, head.hash)
                vault.lock()
            self._state, self._redactor = VaultState.LOCKED, Redactor.none()
            asked = actor.kind == "human"

            def write(tx: Transaction) -> None:
                seen = vault_row(self.context.store)
                if seen is not None and seen.generation > vault.generation:
                    tx.execute("UPDATE vault SET asked = ? WHERE id = 1", (int(asked),))
                else:
                    self._note(tx, vault, VaultState.LOCKED, reason, asked=asked)
                tx.audit("vault.lock", scope=f"vault {vault.id}", actor=actor, reason=reason)

            await self.ledger.write(write)
        self._changed()

    # Changing

    async def change(
        self, edit: Callable[[Draft], T], record: Callable[[Transaction, T], None], *, learn: bool = True
    ) -> T:
        """Change the vault, then its index. Both happen, or the index follows when the vault is opened next.

        Args:
            edit: What to do to the draft; runs in a thread.
            record: Rows and the audit event, in the store's transaction.
            learn: Whether values changed, so that they must be found in texts from now on.

        Raises:
            VaultLocked: It is locked.
            VaultFailed: It could not be written; nothing has changed.
        """
        task = asyncio.create_task(self._change(edit, record, learn))
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return await asyncio.shield(task)  # a client that leaves must not tear file and index apart

    async def _change(self, edit: Callable[[Draft], T], record: Callable[[Transaction, T], None], learn: bool) -> T:
        async with self._writing:
            vault = self.opened()
            head = read_head(self.context.home)

            def write_file() -> T:
                from kortix_tui.vault.layout import AuditAnchor

                with vault.change() as draft:
                    done = edit(draft)
                    if head is not None:
                        draft.set_anchor(AuditAnchor(seq=head.seq, hash=head.hash, at=self.context.clock.now()))
                return done

            with self._watched():
                result = await asyncio.to_thread(write_file)

            def write_rows(tx: Transaction) -> None:
                self._note(tx, vault, VaultState.UNLOCKED, None)
                record(tx, result)

            self._behind = True
            try:
                await self.ledger.write(write_rows)
            finally:
                if learn:  # also when the index could not be written: the value is in the vault now
                    await self._learn(vault)
            self._behind = False
            return result

    async def catch_up(self) -> None:
        """Bring the index in step where the store could not be written after the vault was; for whoever reads it next.

        Raises:
            StoreFailed: The store still cannot be written.
        """
        if not self._behind:
            return
        async with self._writing:
            vault = self._vault
            if self._behind and vault is not None and vault.unlocked:
                with self._watched():
                    metas = vault.metas()
                await self.ledger.write(lambda tx: self._reconcile(tx, vault, metas))
                self._behind = False
        self._changed()

    async def replace(self, work: Callable[[Vault], T], event: str, actor: Actor, **detail: Any) -> T:
        """Change the open vault as a whole: new keys for everything. The values stay what they are."""

        async def run() -> T:
            async with self._writing:
                vault = self.opened()
                result = await asyncio.to_thread(work, vault)

                def write(tx: Transaction) -> None:
                    self._note(tx, vault, VaultState.UNLOCKED, None)
                    tx.audit(
                        event, scope=f"vault {vault.id}", actor=actor, generation=vault.generation,
                        records=len(vault.metas()), after=vault.mac[:16], **detail,
                    )  # fmt: skip

                await self.ledger.write(write)
                return result

        task = asyncio.create_task(run())
        self._pending.add(task)
        task.add_done_callback(self._pending.discard)
        return await asyncio.shield(task)

    async def anchor(self) -> None:
        """Keep the record's newest link in the vault: whoever rewrites the record needs the vault's key as well."""
        head, vault = read_head(self.context.home), self._vault
        if head is None or vault is None or not vault.unlocked or (vault.anchor and vault.anchor.seq >= head.seq):
            return

        def record(tx: Transaction, _: None) -> None:
            tx.audit("vault.anchor", scope=f"vault {vault.id}", actor=SYSTEM, seq=head.seq, generation=vault.generation)

        await self.change(lambda _: None, record, learn=False)

    # Inside

    @contextmanager
    def _watched(self) -> Iterator[None]:
        """Notice that the vault locked itself, because its file is not what it was."""
        vault = self._vault
        was_open = vault is not None and vault.unlocked
        try:
            yield
        except VaultFailed as error:
            if was_open and vault is not None and not vault.unlocked and self._vault is vault:
                bad = isinstance(error, VaultTampered)
                self._state, self._redactor = VaultState.TAMPERED if bad else VaultState.LOCKED, Redactor.none()
                task: asyncio.Task[object] = asyncio.create_task(self._say(self._state, error.message))
                self._pending.add(task)
                task.add_done_callback(self._pending.discard)
            raise

    async def _learn(self, vault: Vault) -> None:
        """Find the values as they are now, and those that sandboxes may still hold, in every text."""
        self._redactor = await asyncio.to_thread(_redactor, vault)
        self._changed()

    def _idle_too_long(self) -> bool:
        minutes = self.context.settings.secrets.lock_minutes
        if minutes is None or not self.unlocked or time.monotonic() - self._used_at < minutes * 60:
            return False
        row = self.context.store.one(
            "SELECT 1 FROM deliveries d JOIN sessions s ON s.id = d.session_id WHERE s.status = 'running' LIMIT 1"
        )
        return row is None  # what runs with values needs them to be found in its output

    @staticmethod
    def _note(tx: Transaction, vault: Vault, state: VaultState, reason: str | None, *, asked: bool = False) -> None:
        write_state(
            tx, vault_id=vault.id, generation=vault.generation, mac=vault.mac, state=state, reason=reason, asked=asked
        )

    async def _say(self, state: VaultState, reason: str | None) -> None:
        """Note a state without touching what was seen of the generations."""
        self._state = state
        before = vault_row(self.context.store)
        vault = self._vault

        def write(tx: Transaction) -> None:
            write_state(
                tx,
                vault_id=before.vault_id if before else vault.id if vault else None,
                generation=before.generation if before else 0,
                mac=before.mac if before else "",
                state=state,
                reason=reason,
            )
            bad = state not in (VaultState.LOCKED, VaultState.MISSING)
            tx.audit(
                f"vault.{state.name.lower()}", scope="vault", actor=SYSTEM, reason=reason,
                outcome=Outcome.FAILURE if bad else Outcome.SUCCESS,
            )  # fmt: skip

        await self.ledger.write(write)
        self._changed()

    async def _audit(self, event: str, actor: Actor, outcome: Outcome, **detail: Any) -> None:
        await self.ledger.write(lambda tx: tx.audit(event, scope="vault", actor=actor, outcome=outcome, **detail))


def _redactor(vault: Vault) -> Redactor:
    from kortix_tui.vault.errors import SealedForOther

    values = []
    for meta in vault.metas():
        with contextlib.suppress(SealedForOther):
            values.append((meta.identifier, vault.read(meta.id)))
    return Redactor.of(values)


def _write_anchor(vault: Vault, seq: int, digest: str) -> None:
    from datetime import UTC, datetime

    from kortix_tui.vault.layout import AuditAnchor

    with vault.change() as draft:
        draft.set_anchor(AuditAnchor(seq=seq, hash=digest, at=datetime.now(UTC)))
