"""What is written of a session's attempts to reach the network: a row and an audit event each, repeats counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.base.words import Outcome
from kortix_tui.broker.egress import SNI_MISMATCH
from kortix_tui.runtime.ledger import Ledger, agent_actor
from kortix_tui.runtime.preparing import Note
from kortix_tui.store.database import Transaction
from kortix_tui.store.models import Session

MINUTE_S: Final = 60
MOST_HOSTS: Final = 60
"""Destinations of refused attempts that get a row of their own in one minute; all others share one."""
OTHERS: Final = "*"
HOST_GONE: Final = "host_gone"
_DENIALS: Final = frozenset({SNI_MISMATCH, "egress_denied", "egress_ceiling"})


@dataclass
class _Repeated:
    """The same refusal, again and again within a minute."""

    row: str
    host: str
    port: int
    outcome: Outcome
    attempts: int = 1


class EgressRecord:
    """Writes the table `egress` for one session.

    Args:
        ledger: The host's writes.
        note: Writes a line into the session's record.
        told: Makes the agent's words storable: a host's name can carry the value of a secret.
    """

    def __init__(self, ledger: Ledger, note: Note, told: Callable[[str], str]) -> None:
        self._ledger = ledger
        self._note = note
        self._told = told
        self._minute = 0
        self._repeated = dict[tuple[str, int, str], _Repeated]()

    async def opened(self, session: Session, method: str, host: str, port: int, rule: str, address: str) -> str:
        """A connection is there, and nothing has gone through it yet; answers the row's id."""
        row, host = new_id("egr"), self._told(host)

        def change(tx: Transaction) -> None:
            self._insert(tx, session, row, method, host, port, Outcome.SUCCESS, rule=rule, address=address)

        await self._ledger.write(change)
        return row

    async def ended(self, session: Session, row: str, sent: int, received: int, code: str | None) -> None:
        """A connection is over."""
        outcome = Outcome.SUCCESS if code is None else Outcome.DENIED if code in _DENIALS else Outcome.FAILURE

        def change(tx: Transaction) -> tuple[str, int]:
            host, port = tx.execute("SELECT host, port FROM egress WHERE id = ?", (row,)).fetchone()
            tx.execute(
                "UPDATE egress SET outcome = ?, code = ?, bytes_out = ?, bytes_in = ?, ended_at = ? WHERE id = ?",
                (outcome, code, sent, received, tx.now_text, row),
            )
            self._audit(
                tx, "egress.close", session, host, port, outcome, egress=row, code=code, bytes_out=sent,
                bytes_in=received,
            )  # fmt: skip
            return host, port

        host, port = await self._ledger.write(change)
        if outcome is Outcome.DENIED:
            self._note(f"The connection to {host}:{port} was cut ({code}).")

    async def refused(self, session: Session, method: str, host: str, port: int, error: KortixError) -> None:
        """An attempt came to nothing. The same one within a minute is counted, and written once that is over."""
        await self.settle(session)
        host = self._told(host)
        key = (host, port, error.code)
        if key not in self._repeated and len(self._repeated) >= MOST_HOSTS:
            host, port = OTHERS, 0
            key = (host, port, error.code)
        if (known := self._repeated.get(key)) is not None:
            known.attempts += 1
            return
        outcome = Outcome.DENIED if isinstance(error, Refused) else Outcome.FAILURE
        row = new_id("egr")
        self._repeated[key] = _Repeated(row, host, port, outcome)

        def change(tx: Transaction) -> None:
            self._insert(tx, session, row, method, host, port, outcome, code=error.code)

        await self._ledger.write(change)
        what = "was refused" if outcome is Outcome.DENIED else "failed"
        self._note(f"A connection to {host}:{port} {what} ({error.code}): {self._told(error.message)}")

    async def settle(self, session: Session, *, everything: bool = False) -> None:
        """Write how often refused attempts were repeated, once their minute is over."""
        minute = int(self._ledger.store.clock.monotonic() // MINUTE_S)
        if minute == self._minute and not everything:
            return
        self._minute = minute
        repeated = [one for one in self._repeated.values() if one.attempts > 1]
        self._repeated.clear()
        if not repeated:
            return

        def change(tx: Transaction) -> None:
            for one in repeated:
                tx.execute("UPDATE egress SET ended_at = ? WHERE id = ?", (tx.now_text, one.row))
                self._audit(
                    tx, "egress.repeat", session, one.host, one.port, one.outcome, egress=one.row, attempts=one.attempts
                )

        await self._ledger.write(change)

    async def abandoned(self, session: Session) -> None:
        """Connections that a host took with it when it went: how much went through them is not known."""
        rows = self._ledger.store.all(
            "SELECT id, host, port FROM egress WHERE session_id = ? AND ended_at IS NULL AND outcome = ?",
            (session.id, Outcome.SUCCESS),
        )
        if not rows:
            return

        def change(tx: Transaction) -> None:
            for row, host, port in rows:
                tx.execute(
                    "UPDATE egress SET outcome = ?, code = ?, ended_at = ? WHERE id = ?",
                    (Outcome.FAILURE, HOST_GONE, tx.now_text, row),
                )
                self._audit(tx, "egress.close", session, host, port, Outcome.FAILURE, egress=row, code=HOST_GONE)

        await self._ledger.write(change)

    def _insert(
        self,
        tx: Transaction,
        session: Session,
        row: str,
        method: str,
        host: str,
        port: int,
        outcome: Outcome,
        *,
        code: str | None = None,
        rule: str | None = None,
        address: str | None = None,
    ) -> None:
        ended = None if outcome is Outcome.SUCCESS else tx.now_text
        tx.execute(
            "INSERT INTO egress (id, session_id, at, host, port, method, outcome, code, rule, address, bytes_out,"
            " bytes_in, ended_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?)",
            (row, session.id, tx.now_text, host, port, method, outcome, code, rule, address, ended),
        )
        self._audit(
            tx, "egress.connect", session, host, port, outcome, egress=row, method=method, rule=rule, code=code,
            address=address,
        )  # fmt: skip

    @staticmethod
    def _audit(
        tx: Transaction, event: str, session: Session, host: str, port: int, outcome: Outcome, **detail: Any
    ) -> None:
        tx.audit(
            event, scope=f"host {host}:{port}", actor=agent_actor(session), outcome=outcome,
            project_id=session.project_id, session_id=session.id, **detail,
        )  # fmt: skip
