"""Closed lists of names that a manifest may use."""

from __future__ import annotations

from typing import Final, Literal, get_args

Permission = Literal[
    "project.read", "project.write", "project.delete",
    "project.session.read", "project.session.start", "project.session.stop", "project.session.bindings.write",
    "project.members.read", "project.members.manage",
    "project.trigger.read", "project.trigger.create", "project.trigger.update", "project.trigger.delete",
    "project.trigger.fire",
    "project.gateway.logs.read", "project.gateway.spend.read", "project.gateway.budget.set",
    "project.gateway.keys.manage",
    "project.usage.read", "project.agent.read", "project.agent.write",
    "project.skill.read", "project.skill.write", "project.command.read", "project.command.write",
    "project.file.read", "project.file.write", "project.settings.write", "project.sandbox.write",
    "project.model.read", "project.model.write",
    "project.gitops.read", "project.gitops.push", "project.gitops.merge", "project.gitops.ref.any",
    "project.gitops.ref.delete",
    "project.secret.read", "project.secret.write",
    "project.connector.read", "project.connector.write", "project.connector.connections.manage",
    "project.app.read", "project.app.write", "project.app.deploy",
    "project.review.read", "project.review.submit", "project.review.act",
    "project.credentials.issue",
    "project.cr.open", "project.cr.merge", "project.customize.read", "project.customize.write",
]  # fmt: skip
"""What `kortix_permissions` may name. Account-wide permissions can never be granted to an agent."""

PERMISSIONS: Final[tuple[str, ...]] = get_args(Permission)

MERGE_PERMISSIONS: Final = frozenset({"project.gitops.merge", "project.cr.merge"})
"""Kortix lets these merge. Here only a person merges (invariant I1)."""

PERSON_ONLY: Final[dict[str, str]] = {
    "project.review.act": "decide in the inbox",
    "project.credentials.issue": "issue credentials",
    "project.members.manage": "manage members",
    "project.delete": "delete the project",
    "project.gitops.ref.any": "push to a branch that is not its session's own",
    "project.gitops.ref.delete": "delete a branch",
    "project.secret.write": "set or share a secret",
    "project.settings.write": "change the project's settings",
}
"""More that a grant cannot confer here, with what only a person may do."""

RESERVED_CONNECTORS: Final = frozenset({"kortix_slack", "kortix_teams", "kortix_email", "computer"})

UNSERVED_PROVIDERS: Final[dict[str, str]] = {
    "pipedream": "Pipedream is a hosted catalogue",
    "composio": "Composio is a hosted catalogue",
    "channel": "chat channels need a hosted service",
}
"""Connector providers of Kortix that parse but do nothing in this edition."""

PRESETS: Final = ("claude", "codex", "opencode", "gemini", "goose", "qwen")
"""Harness presets: agents that bring a program of their own."""

AGENT_BEHAVIOUR_KEYS: Final = frozenset(
    {
        "description", "model", "mode", "variant", "temperature", "top_p", "options", "color", "steps", "hidden",
        "prompt", "permission", "disable", "opencode", "harness", "command",
    }
)  # fmt: skip
"""Keys that belong into `agents/<name>.md`: the manifest governs, the Markdown file says how to behave."""
