"""New keys for a whole vault: the first ones, and those that replace them."""

from __future__ import annotations

from collections.abc import Sequence

from kortix_tui.base.clock import Clock
from kortix_tui.base.errors import VaultFailed
from kortix_tui.vault.keys import RootKeys
from kortix_tui.vault.layout import Body, Header
from kortix_tui.vault.records import SHARED, person_of, seal_record
from kortix_tui.vault.slots import MAX_SLOTS, NewSlot, make_slot


def new_header(vault_id: str, generation: int, root: RootKeys, keys: Sequence[NewSlot], clock: Clock) -> Header:
    """A header with one slot for each key, and a data key for what is shared.

    Args:
        vault_id: The vault's id.
        generation: Which generation this is.
        root: Fresh keys for all owners among `keys`.
        keys: What will open the vault.
        clock: For the slots' age.

    Raises:
        VaultFailed: There is no key, or there are too many.
    """
    if not 1 <= len(keys) <= MAX_SLOTS:
        raise VaultFailed(f"A vault has 1 to {MAX_SLOTS} slots.", hint="Give at least one key.")
    now = clock.now()
    return Header(
        id=vault_id,
        gen=generation,
        root_id=root.root_id,
        slots=tuple(make_slot(vault_id, new, now, root.root, root.personal[new.owner]) for new in keys),
        deks={SHARED: root.new_dek(vault_id, SHARED)},
    )


def reencrypt(body: Body, old: RootKeys, new: RootKeys, header: Header) -> Body:
    """Everything of `body` under the new keys.

    Raises:
        SealedForOther: The old keys of a person with personal secrets are not here.
        VaultFailed: The new ones are not, so that these secrets would be lost.
    """
    vault_id = body.header.id
    deks = dict(header.deks)
    opened = dict[str, bytes]()
    recs = {}
    for record_id, record in body.recs.items():
        scope = record.scope
        value = old.open_value(vault_id, body.header.deks, record)
        if scope not in opened:
            if not new.opens(scope):
                raise VaultFailed(
                    f"{person_of(scope)} has personal secrets and would get no slot.",
                    hint="Give a key of this person too, or remove these secrets first.",
                )
            deks[scope] = deks.get(scope) or new.new_dek(vault_id, scope)
            opened[scope] = new.open_dek(vault_id, scope, deks[scope])
        recs[record_id] = seal_record(opened[scope], vault_id, record.meta, value)
    return Body(header.model_copy(update={"deks": deks, "anchor": body.header.anchor}), recs)
