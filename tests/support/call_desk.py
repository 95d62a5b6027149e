"""A home with calls that wait for a person, without any engine, server or agent."""

from __future__ import annotations

import json

from seeded import Seeded

from kortix_tui.base.clock import to_text
from kortix_tui.base.paths import Home
from kortix_tui.broker.connectors.model import HttpCall, Materialised, RuleSource
from kortix_tui.store.audit import SYSTEM


class Desk:
    """A home with one session and calls that wait."""

    def __init__(self, home: Home) -> None:
        self.seeded = Seeded(home)
        self.seeded.lead()
        self.project = self.seeded.project()
        self.session = self.seeded.session()

    def ask(self, number: int = 1, action: str = "create_refund", risk: str = "write") -> str:
        """A call that waits; gives its digest."""
        arguments = json.dumps({"amount": 4200, "charge": f"ch_{number}"}, separators=(",", ":"))
        request = Materialised(
            project_id=self.project, connector="billing", action=action, definition_hash="d" * 64,
            document_hash="e" * 64, credential=None, credential_place=None, arguments=arguments,
            call=HttpCall(
                method="POST", url="https://billing.example/v1/refunds",
                headers=(("content-type", "application/json"),), body=arguments.encode(),
            ),
        )  # fmt: skip
        rule = RuleSource(source="connector", index=0, match="*")
        with self.seeded.store.write() as tx:
            tx.execute(
                "INSERT INTO calls (id, project_id, session_id, key, connector, action, risk, state, verdict, rule,"
                " reason, arguments, request, digest, created_by, created_at, expires_at)"
                " VALUES (?, ?, ?, ?, 'billing', ?, ?, 'pending', 'require_approval', ?, ?, ?, ?, ?, 'agent', ?, ?)",
                (
                    f"call_{number}", self.project, self.session, f"key{number}", action, risk, rule.model_dump_json(),
                    "charged twice \u202e", arguments, request.model_dump_json(), request.digest(), tx.now_text,
                    to_text(tx.now.replace(year=tx.now.year + 1)),
                ),
            )  # fmt: skip
            tx.audit("connector.call.ask", scope="call", actor=SYSTEM)
        return request.digest()

    def state(self, number: int = 1) -> tuple[object, ...]:
        return self.seeded.one("SELECT state, note FROM calls WHERE id = ?", f"call_{number}")
