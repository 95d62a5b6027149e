"""The store's index of the vault: rows without values, brought in step with what the vault has. The vault is right."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from kortix_tui.base.clock import to_text
from kortix_tui.base.words import VaultState
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import SecretRow, VaultRow
from kortix_tui.vault.records import RecordMeta

_COLUMNS: Final = "id, project_id, identifier, name, owner, exposure, gateway, hosts, version, created_by, created_at"


def vault_row(store: Store) -> VaultRow | None:
    """What the host said last of the vault; `None` before there was one."""
    row = store.one(f"SELECT {VaultRow.columns()} FROM vault WHERE id = 1")
    return VaultRow.of(row) if row else None


def secret_rows(store: Store, project_id: str | None = None) -> tuple[SecretRow, ...]:
    """Secrets in use, of one project or of all."""
    clause, values = ("AND project_id = ?", (project_id,)) if project_id else ("", ())
    query = f"SELECT {SecretRow.columns()} FROM secrets WHERE removed_at IS NULL {clause} ORDER BY identifier, owner"
    return tuple(SecretRow.of(row) for row in store.all(query, values))


def write_state(
    tx: Transaction,
    *,
    vault_id: str | None,
    generation: int,
    mac: str,
    state: VaultState,
    reason: str | None = None,
    asked: bool = False,
) -> None:
    """Note the vault's state, and the newest generation that was ever seen."""
    before = tx.execute("SELECT state, since FROM vault WHERE id = 1").fetchone()
    since = before[1] if before and before[0] == state else tx.now_text
    tx.execute(
        "INSERT OR REPLACE INTO vault (id, vault_id, generation, mac, state, reason, asked, since)"
        " VALUES (1, ?, ?, ?, ?, ?, ?, ?)",
        (vault_id, generation, mac, state, reason, int(asked), since),
    )


def write_secret(tx: Transaction, meta: RecordMeta, actor: Actor) -> bool:
    """Bring the row of a secret in step with its record; whether it is new.

    A new version has been nowhere, unless a turn got it between the vault's write and this one; any other change keeps
    what is known of where the value was.
    """
    before = tx.execute("SELECT version FROM secrets WHERE id = ?", (meta.id,)).fetchone()
    fields = (meta.identifier, meta.name, meta.owner, meta.exposure, int(meta.gateway), json.dumps(list(meta.hosts)))
    if before is None:
        tx.execute(
            f"INSERT INTO secrets ({_COLUMNS}, rotated_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
            (meta.id, meta.project, *fields, meta.version, actor.label, to_text(meta.created), to_text(meta.created)),
        )
        return True
    tx.execute(
        "UPDATE secrets SET identifier = ?, name = ?, owner = ?, exposure = ?, gateway = ?, hosts = ?,"
        " removed_at = NULL WHERE id = ?",
        (*fields, meta.id),
    )
    if before[0] != meta.version:
        tx.execute(
            "UPDATE secrets SET version = ?1, rotated_at = ?2, plain_at ="
            " (SELECT min(at) FROM deliveries WHERE secret_id = ?3 AND version = ?1) WHERE id = ?3",
            (meta.version, to_text(meta.created), meta.id),
        )
    return False


def remove_secret(tx: Transaction, secret_id: str) -> None:
    """The vault has it no more; where its value was stays known."""
    tx.execute("UPDATE secrets SET removed_at = ? WHERE id = ?", (tx.now_text, secret_id))


def differences(rows: Iterable[SecretRow], metas: Iterable[RecordMeta]) -> tuple[list[RecordMeta], list[SecretRow]]:
    """What a death between vault and store left: records whose row is missing or old, and rows without a record."""
    known = {row.id: row for row in rows}
    current = {meta.id: meta for meta in metas if not meta.retired}
    changed = [meta for meta in current.values() if meta.id not in known or _differs(known[meta.id], meta)]
    return changed, [row for row in known.values() if row.id not in current]


def _differs(row: SecretRow, meta: RecordMeta) -> bool:
    mine = (row.project_id, row.identifier, row.name, row.owner, row.exposure, row.gateway, row.hosts, row.version)
    return mine != (
        meta.project, meta.identifier, meta.name, meta.owner, meta.exposure, meta.gateway, meta.hosts, meta.version,
    )  # fmt: skip


def retired_versions(store: Store, secret_id: str, version: int) -> bool:
    """Whether a version of a secret went into a sandbox whose disk is still there: its value must still be found."""
    query = (
        "SELECT 1 FROM deliveries d JOIN sessions s ON s.id = d.session_id"
        " WHERE d.secret_id = ? AND d.version = ? AND s.removed_at IS NULL LIMIT 1"
    )
    return store.one(query, (secret_id, version)) is not None
