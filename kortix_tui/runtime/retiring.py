"""Old values that a sandbox may still print: kept in the vault for finding them in texts, and for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kortix_tui.runtime.vault_index import retired_versions

if TYPE_CHECKING:
    from kortix_tui.store.database import Store
    from kortix_tui.vault.draft import Draft

_MARK: Final = "_v"


def retire(draft: Draft, store: Store, secret_id: str) -> None:
    """Keep the present value beside what takes its place, where a sandbox got it.

    Whoever gives a secret another value, or forgets it, calls this first.
    """
    meta = draft.meta(secret_id)
    if retired_versions(store, secret_id, meta.version):
        kept = meta.model_copy(update={"id": f"{secret_id}{_MARK}{meta.version}", "retired": True})
        draft.put(kept, draft.read(secret_id))


def forget_retired(draft: Draft, store: Store) -> None:
    """Let go of old values that were in sandboxes of which nothing is left."""
    for meta in draft.metas():
        if meta.retired:
            secret_id, _, version = meta.id.rpartition(_MARK)
            if not retired_versions(store, secret_id, int(version)):
                draft.delete(meta.id)
