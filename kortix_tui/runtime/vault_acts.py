"""What the host does to the vault as a whole: make, keys, check, repair, backup. Runs behind `control.sock`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kortix_tui.base.errors import InvalidInput, VaultFailed, WrongKey
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import Exposure
from kortix_tui.runtime import vault_keys
from kortix_tui.runtime.custody import Custody
from kortix_tui.runtime.retiring import forget_retired, retire
from kortix_tui.runtime.secret_views import ImportReport, VaultCheck
from kortix_tui.runtime.vault_calls import (
    AddSlot,
    ExportVault,
    ImportVault,
    InitVault,
    RemoveSlot,
    RepairVault,
    RotateVault,
    SlotWish,
    UnlockVault,
)
from kortix_tui.runtime.vault_index import secret_rows, vault_row, write_secret
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Transaction
from kortix_tui.vault import backup, recovery, rules
from kortix_tui.vault.draft import Draft
from kortix_tui.vault.records import SHARED, RecordMeta, personal
from kortix_tui.vault.repair import Known, repair
from kortix_tui.vault.secret import Secret
from kortix_tui.vault.slots import SlotKey, SlotType
from kortix_tui.vault.vault import Vault

FAULTS: Final = 20


class VaultActs:
    """The vault verbs on the host. Each returns what is given back as bytes: a recovery key, a backup, or nothing."""

    def __init__(self, custody: Custody) -> None:
        self._custody = custody
        self._path = custody.context.home.vault

    async def init(self, wanted: InitVault, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """Make a vault; the recovery key, if one was wished for."""
        if not wanted.slots:
            raise InvalidInput("A vault needs a key that opens it.", hint="Choose a passphrase, keyring or key file.")
        if self._path.exists():
            raise VaultFailed("There is a vault already.", hint="See: kortix vault status")
        owner = self._custody.context.actor.name

        def make() -> tuple[Vault, str | None]:
            text: str | None = None
            slots = [
                vault_keys.make(wish, owner, secrets if wish.kind == "passphrase" else ())[0] for wish in wanted.slots
            ]
            if wanted.recovery:
                new, text = vault_keys.make(SlotWish(kind="recovery"), owner, ())
                slots.append(new)
            return Vault.create(self._path, slots), text

        vault, text = await asyncio.to_thread(make)
        kinds = ", ".join(slot.type.value for slot in vault.slots)
        await self._custody.adopt(vault, actor, "vault.create", keys=kinds)
        return (text or "").encode()

    async def unlock(self, wanted: UnlockVault, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """Open it with what a person gave, or with what needs no person."""
        if self._custody.unlocked:
            return b""
        if wanted.kind is not None or secrets:
            await self._custody.unlock(
                await asyncio.to_thread(vault_keys.given, wanted.kind, wanted.place, secrets), actor
            )
            return b""
        vault = await asyncio.to_thread(Vault.load, self._path)
        faults = list[VaultFailed]()
        for key in vault_keys.quiet_keys(vault.slots, faults):
            if (found := await asyncio.to_thread(key)) is not None:
                try:
                    await self._custody.unlock(found, actor, typed=False)
                except WrongKey as error:
                    faults.append(error)
                else:
                    return b""
        if faults and not any(slot.type is SlotType.PASSPHRASE for slot in vault.slots):
            raise faults[0]  # nobody can type a way around it
        self._custody.opened()
        return b""

    async def set_passphrase(self, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """Set the passphrase; changing one needs the present one."""
        present, new = secrets
        vault = self._custody.opened()
        olds = [slot for slot in vault.slots if slot.type is SlotType.PASSPHRASE]
        if olds:
            if not present:
                raise WrongKey("The present passphrase is needed to change it.", hint="Give it, then the new one.")
            key = SlotKey.passphrase(present.decode("utf-8", "surrogateescape"))
            await asyncio.to_thread(vault_keys.check, vault, key)
        slot, _ = vault_keys.make(SlotWish(kind="passphrase"), self._custody.context.actor.name, (new,))

        def edit(draft: Draft) -> None:
            draft.add_slot(slot)
            for old in olds:
                draft.remove_slot(old.id)

        await self._custody.change(edit, lambda tx, _: _event(tx, "vault.passphrase", actor), learn=False)
        return b""

    async def add_slot(self, wanted: AddSlot, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """Add a key; a new recovery key takes the place of the one before."""
        vault = self._custody.opened()
        owner = self._custody.context.actor.name
        if wanted.wish.kind == "passphrase" and any(slot.type is SlotType.PASSPHRASE for slot in vault.slots):
            raise InvalidInput("The vault has a passphrase already.", hint="Change it: kortix vault passphrase")
        slot, text = await asyncio.to_thread(vault_keys.make, wanted.wish, owner, secrets)
        olds = [old.id for old in vault.slots if old.type is SlotType.RECOVERY] if text else []

        def edit(draft: Draft) -> str:
            made = draft.add_slot(slot)
            for old in olds:
                draft.remove_slot(old)
            return made.id

        await self._custody.change(
            edit, lambda tx, made: _event(tx, "vault.slot.add", actor, kind=wanted.wish.kind, slot=made), learn=False
        )
        return (text or "").encode()

    async def remove_slot(self, wanted: RemoveSlot, actor: Actor) -> bytes:
        """Take a key away."""
        vault = self._custody.opened()
        found = [slot for slot in vault.slots if slot.id == wanted.slot_id]
        if not found:
            raise InvalidInput("The vault has no such key.", hint="See: kortix vault status")
        await self._custody.change(
            lambda draft: draft.remove_slot(wanted.slot_id),
            lambda tx, _: _event(tx, "vault.slot.remove", actor, kind=found[0].type.value, slot=wanted.slot_id),
            learn=False,
        )
        return b""

    async def rotate(self, wanted: RotateVault, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """New root keys and data keys, everything encrypted anew; the new recovery key."""
        passphrase = secrets[0] if secrets else b""
        owner = self._custody.context.actor.name

        def rekey(vault: Vault) -> str:
            slots, text = vault_keys.renewed(vault, owner, passphrase, drop_passphrase=wanted.drop_passphrase)
            vault.rekey(slots)
            return text or ""

        before = self._custody.opened().mac
        text = await self._custody.replace(rekey, "vault.rotate", actor, before=before[:16])
        return text.encode()

    async def verify(self) -> VaultCheck:
        """Check every record and slot."""
        vault = self._custody.opened()
        faults = await asyncio.to_thread(vault.verify)
        words = tuple(str(fault) for fault in faults[:FAULTS])
        return VaultCheck(ok=not faults, generation=vault.generation, records=len(vault.metas()), faults=words)

    async def repair(self, wanted: RepairVault, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """Make a damaged or rolled-back vault usable; needs a key and the recovery key."""
        typed, paper = secrets
        seen = vault_row(self._custody.context.store)
        known = Known(seen.generation, seen.mac, seen.vault_id) if seen else Known()

        def mend() -> Vault:
            key = self._any_key(typed)
            rescue = SlotKey(SlotType.RECOVERY, recovery.parse(paper.decode("utf-8", "replace")))
            repair(
                self._path, key, rescue, from_previous=wanted.from_previous, known=known,
                accept=wanted.accept_generation,
            )  # fmt: skip
            vault = Vault.load(self._path)
            vault.unlock(key)
            return vault

        vault = await asyncio.to_thread(mend)
        await self._custody.adopt(vault, actor, "vault.repair", previous=int(wanted.from_previous))
        return b""

    def _any_key(self, typed: bytes) -> SlotKey:
        if typed:
            return vault_keys.given("passphrase", None, (typed,))
        try:
            slots = Vault.load(self._path).slots
        except VaultFailed:
            slots = ()
        for key in vault_keys.quiet_keys(slots):
            if (found := key()) is not None:
                return found
        return vault_keys.given("keyfile", None, ())

    async def export(self, wanted: ExportVault, secrets: tuple[bytes, ...], actor: Actor) -> bytes:
        """All secrets in use as an age file."""
        vault, context = self._custody.opened(), self._custody.context
        metas = [
            meta for meta in vault.metas() if not meta.retired and wanted.project_id in (None, meta.project)
        ]  # fmt: skip
        if not secrets and not wanted.recipients:
            raise InvalidInput("An export needs a passphrase or recipients.", hint="See: kortix vault export --help")

        slugs = dict(context.store.all("SELECT id, slug FROM projects"))

        def write() -> bytes:
            entries = [backup.BackupEntry(meta, vault.read(meta.id), slugs.get(meta.project)) for meta in metas]
            return backup.export(
                entries,
                at=context.clock.now(),
                passphrase=Secret(secrets[0]) if secrets else None,
                recipients=wanted.recipients,
                armored=wanted.armored,
            )

        data = await asyncio.to_thread(write)
        way = "passphrase" if secrets else f"{len(wanted.recipients)} recipients"
        await self._custody.ledger.write(
            lambda tx: _event(tx, "vault.export", actor, secrets=len(metas), key=way, bytes=len(data))
        )
        return data

    async def import_(self, wanted: ImportVault, secrets: tuple[bytes, ...], actor: Actor) -> ImportReport:
        """Take secrets from a backup; all in one change of the vault."""
        data, key = secrets
        self._custody.opened()
        store = self._custody.context.store
        slugs = dict(store.all("SELECT slug, id FROM projects WHERE removed_at IS NULL"))
        projects = set(slugs.values())
        if wanted.project_id is not None and wanted.project_id not in projects:
            raise InvalidInput("There is no such project.", hint="See `kortix projects ls`.")
        given = Secret(key)
        entries = await asyncio.to_thread(
            lambda: backup.read(data, identity=given) if wanted.identity else backup.read(data, passphrase=given)
        )
        known = {(row.project_id, row.owner, row.identifier.lower()): row for row in secret_rows(store)}
        mine = self._custody.context.actor.name
        created, changed, skipped = list[str](), list[str](), list[str]()
        todo = dict[tuple[str, str, str], tuple[RecordMeta, Secret]]()
        now = self._custody.context.clock.now()
        for entry in entries:
            meta = entry.meta
            here = meta.project if meta.project in projects else slugs.get(entry.project or "")
            project = here or wanted.project_id
            if project is None:
                skipped.append(f"{meta.identifier}: its project is not known here; give --project")
                continue
            owner = meta.owner if meta.scope == SHARED else mine
            scope = SHARED if meta.scope == SHARED else personal(mine)
            place = (project, owner, meta.identifier.lower())
            row = known.get(place)
            if row is not None and not wanted.overwrite:
                skipped.append(f"{meta.identifier}: it is here already; give --overwrite")
                continue
            if place in todo:
                skipped.append(f"{meta.identifier}: the file has another one for the same place, which was taken")
                continue
            try:
                rules.check_name(meta.name)
                rules.check_value(entry.value.use("check its shape"), meta.exposure)
            except InvalidInput as error:
                skipped.append(f"{meta.identifier}: {error.message}")
                continue
            (changed if row else created).append(meta.identifier)
            fresh = meta.model_copy(
                update={
                    "id": row.id if row else new_id("sec"), "project": project, "owner": owner, "scope": scope,
                    "version": row.version + 1 if row else 1, "created": now, "retired": False,
                }
            )  # fmt: skip
            todo[place] = fresh, entry.value

        def put_all(draft: Draft) -> None:
            for meta, value in todo.values():
                if meta.version > 1:
                    retire(draft, store, meta.id)
                draft.put(meta, value)
            forget_retired(draft, store)

        if todo:
            await self._custody.change(
                put_all,
                lambda tx, _: self._imported(tx, [meta for meta, _ in todo.values()], actor),
            )
        return ImportReport(created=tuple(created), changed=tuple(changed), skipped=tuple(skipped))

    @staticmethod
    def _imported(tx: Transaction, metas: list[RecordMeta], actor: Actor) -> None:
        _event(tx, "vault.import", actor, secrets=len(metas))
        for meta in metas:
            new = write_secret(tx, meta, actor)
            tx.audit(
                "secret.create" if new else "secret.rotate", scope=f"secret {meta.identifier}", actor=actor,
                project_id=meta.project, secret=meta.id, version=meta.version, exposure=Exposure(meta.exposure).value,
            )  # fmt: skip


def _event(tx: Transaction, event: str, actor: Actor, **detail: Any) -> None:
    tx.audit(event, scope="vault", actor=actor, **detail)
