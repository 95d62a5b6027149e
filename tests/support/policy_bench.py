"""A home with one project whose connector has a policy, calls on its record, and a host that has no engine."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from desk import AGENT, git

from kortix_tui.base.clock import to_text
from kortix_tui.base.ids import new_id
from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.broker.connectors.model import RuleSource
from kortix_tui.runtime.context import operator_actor
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.audit import SYSTEM

MANIFEST = """\
kortix_version: 2
default_agent: script
policy:
  default_mode: risk  # asks before writes

connectors:
  # Our help desk.
  - slug: mail
    provider: http
    base_url: https://mail.example
    routes:
      - {name: get_tickets, path: /tickets}
      - {name: send_reply, method: POST, path: /replies}
      - {name: delete_ticket, method: DELETE, path: /tickets}
    policies:
      - match: get_*  # reads
        action: always_run
      # everything else
      - match: "*"
        action: require_approval
      - match: delete_*
        action: block

agents:
  script:
    connectors: [mail]
"""


class PolicyBench:
    """The project is `acme`; its repository is the operator's checkout."""

    def __init__(self, home: Home, repository: Path, manifest: str = MANIFEST) -> None:
        self.home = home
        self.repository = repository
        (repository / "kortix.yaml").write_text(manifest)
        (repository / "agents").mkdir(exist_ok=True)
        (repository / "agents" / "script.md").write_text(AGENT)
        git(repository, "add", "-A")
        git(repository, "commit", "-qm", "A help desk")
        settings = Settings.model_validate({"docker": {"endpoint": f"unix://{home.path}/no.sock"}})
        self.runtime = Runtime(home, settings, operator_actor("cli"))
        self.project = self.runtime.projects.add(str(repository), slug="acme")

    def manifest(self, commit: str = "main") -> str:
        return git(self.repository, "show", f"{commit}:kortix.yaml") + "\n"

    def merge(self, number: int) -> None:
        self.runtime.changes.show(self.project, number)
        self.runtime.changes.merge(self.project, number)

    def diff(self, number: int) -> list[str]:
        """What a change request adds and takes away."""
        patch = self.runtime.changes.patch(self.project, number).splitlines()
        return [line for line in patch if line[:1] in "+-" and line[:3] not in ("+++", "---")]

    def call(
        self,
        action: str,
        arguments: Any = None,
        *,
        verdict: str = "require_approval",
        state: str = "done",
        minutes: float = 0,
        rule: RuleSource | None = None,
        **values: Any,
    ) -> str:
        """A call on record, so many minutes ago."""
        store = self.runtime.context.store
        at: datetime = store.clock.now() - timedelta(minutes=minutes)
        row: dict[str, Any] = {
            "id": new_id("cal"), "project_id": self.project.id, "key": new_id("key"), "connector": "mail",
            "action": action, "risk": "write", "state": state, "verdict": verdict, "reason": "",
            "rule": (rule or RuleSource(source="connector", index=1, match="*")).model_dump_json(),
            "arguments": json.dumps(arguments or {}), "created_by": "agent", "created_at": to_text(at),
            "started_at": to_text(at),
        } | values  # fmt: skip
        with store.write() as tx:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            tx.execute(f"INSERT INTO calls ({names}) VALUES ({marks})", tuple(row.values()))
            tx.audit("connector.call", scope=f"mail.{action}", actor=SYSTEM, project_id=self.project.id)
        return str(row["id"])
