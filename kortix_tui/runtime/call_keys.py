"""Keys by which callers ask for their calls again: each names one call for ever, also one that it only joined."""

from __future__ import annotations

from kortix_tui.store.database import Store, Transaction
from kortix_tui.store.models import Call


def join(tx: Transaction, session_id: str | None, key: str, call: Call) -> None:
    """Have a key name a call that another request made."""
    tx.execute("INSERT INTO call_keys (session_id, key, call_id) VALUES (?, ?, ?)", (session_id, key, call.id))


def find(store: Store, session_id: str | None, key: str) -> Call | None:
    """The call of a key; `None` for a new one."""
    columns = Call.columns()
    row = store.one(f"SELECT {columns} FROM calls WHERE session_id IS ? AND key = ?", (session_id, key))
    if row is None:
        joined = "SELECT call_id FROM call_keys WHERE session_id = ? AND key = ?"
        row = store.one(f"SELECT {columns} FROM calls WHERE id = ({joined})", (session_id, key))
    return Call.of(row) if row else None
