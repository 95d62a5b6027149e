"""Secrets, the vault and the inbox as rows and lines: the words, glyphs and colours that say where a value may be."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible_line
from kortix_tui.base.words import Exposure, Risk, VaultState
from kortix_tui.console.widgets.bar import Part
from kortix_tui.console.widgets.table import Cell, Column, Row
from kortix_tui.runtime.connector_views import ApprovalView
from kortix_tui.runtime.inbox import InboxItem, ItemKind
from kortix_tui.runtime.secret_views import SecretView, VaultStatus

SECRET_COLUMNS = (
    Column("identifier", "IDENTIFIER", 18, grow=True),
    Column("exposure", "EXPOSURE", 17),
    Column("plain", "IN PLAIN", 8),
    Column("held", "HELD BY", 10),
    Column("agents", "AGENTS", 24, priority=4),
    Column("owner", "OWNER", 8, priority=5),
    Column("project", "PROJECT", 12, priority=3),
    Column("used", "USED", 5, priority=2, right=True),
    Column("rotated", "ROTATED", 7, priority=1, right=True),
)
INBOX_COLUMNS = (
    Column("kind", "KIND", 16),
    Column("title", "WHAT", 40, grow=True),
    Column("project", "PROJECT", 14, priority=2),
    Column("agent", "AGENT", 12, priority=3),
    Column("session", "SESSION", 12, priority=4),
    Column("age", "WAITS", 5, right=True),
    Column("ends", "ENDS", 4, priority=1, right=True),
)
_EXPOSURE = {
    Exposure.ENVIRONMENT: ("● environment", "risk.medium"),
    Exposure.EGRESS: ("◐ egress-enforced", "risk.low"),
    Exposure.CONNECTOR: ("◆ connector", "risk.low"),
    Exposure.NONE: ("■ none", "muted"),
}
_VAULT = {
    VaultState.UNLOCKED: ("● unlocked", "success"),
    VaultState.LOCKED: ("■ locked", "state.waiting"),
    VaultState.MISSING: ("○ no vault yet", "muted"),
    VaultState.TAMPERED: ("! tampered with", "error"),
    VaultState.CORRUPT: ("! damaged", "error"),
    VaultState.ROLLED_BACK: ("! older than it was", "error"),
}
_KIND = {
    ItemKind.APPROVAL: ("? call", "state.waiting"),
    ItemKind.CHANGE: ("± change request", "text"),
    ItemKind.SECRET: ("? secret request", "state.waiting"),
    ItemKind.VAULT: ("■ locked vault", "state.waiting"),
}
_CALL = {
    Risk.READ: ("· read call", "risk.low"),
    Risk.WRITE: ("! write call", "risk.medium"),
    Risk.DESTRUCTIVE: ("‼ destructive", "risk.high"),
}


def exposure_words(exposure: Exposure, *, gateway: bool = False) -> tuple[str, str]:
    """An exposure with its glyph, and its role."""
    if exposure is Exposure.NONE and gateway:
        return "◇ model gateway", "risk.low"
    return _EXPOSURE[exposure]


def owner_words(secret: SecretView) -> str:
    """Whose a secret is. Only one's own personal ones are ever seen."""
    return "project" if secret.owner == "project" else "only me"


def secret_row(secret: SecretView, now: datetime) -> Row:
    """A secret in the list."""
    exposure, role = exposure_words(secret.exposure, gateway=secret.gateway)
    held = str(len(secret.held_by)) if secret.held_by else ""
    if secret.stale:
        held += f", {secret.stale} stale"
    agents = ", ".join(visible_line(agent) for agent in secret.agents)
    owner = owner_words(secret)
    fields = {
        "identifier": visible_line(secret.identifier),
        "name": visible_line(secret.name),
        "exposure": exposure,
        "project": secret.project,
        "owner": owner,
        "agents": agents,
        "state": " ".join(word for word, is_so in (("stale", secret.stale), ("plain", secret.plain)) if is_so),
        "held": " ".join(one.session_id for one in secret.held_by),
    }
    used = secret.used_at
    return Row(
        secret.id,
        {
            "identifier": Cell(fields["identifier"]),
            "exposure": Cell(exposure, role),
            "plain": Cell("! plain" if secret.plain else "", "warning"),
            "held": Cell(held, "warning" if secret.stale else "text", order=len(secret.held_by)),
            "agents": Cell(agents or "none", "text" if agents else "muted"),
            "owner": Cell(owner, "muted"),
            "project": Cell(secret.project, "muted"),
            "used": Cell(age(used, now) if used else "never", "muted", order=-used.timestamp() if used else 0.0),
            "rotated": Cell(age(secret.rotated_at, now), "muted", order=-secret.rotated_at.timestamp()),
        },
        text=" ".join(fields.values()),
        fields=fields,
    )


def inbox_row(item: InboxItem, now: datetime, call: ApprovalView | None = None) -> Row:
    """What waits for a person, in a list; of a call its risk comes first."""
    kind, role = _KIND[item.kind] if item.risk is None else _CALL[item.risk]
    title, agent = visible_line(item.title), visible_line(item.agent or "")
    fields = {
        "kind": item.kind.value,
        "title": title,
        "project": item.project or "",
        "agent": agent,
        "session": item.session_id or "",
        "risk": item.risk.value if item.risk else "",
    }
    ends = call.expires_at if call else None
    return Row(
        item.reference,
        {
            "kind": Cell(kind, role),
            "title": Cell(title),
            "project": Cell(item.project or "", "muted"),
            "agent": Cell(agent, "muted"),
            "session": Cell(item.session_id or "", "muted"),
            "age": Cell(age(item.since, now), "muted", order=-item.since.timestamp()),
            "ends": Cell(age(now, ends) if ends else "", "muted", order=ends.timestamp() if ends else float("inf")),
        },
        text=" ".join([item.reference, *fields.values()]),
        fields=fields,
    )


def vault_words(state: VaultState) -> tuple[str, str]:
    """The vault's state with its glyph, and its role."""
    return _VAULT[state]


def vault_line(status: VaultStatus | None) -> Sequence[Part]:
    """The vault in one line: its state first, then what to do about it or what it has."""
    if status is None:
        return (Part(" reading…", "muted"),)
    word, role = _VAULT[status.state]
    parts = [Part(f" {word}", role)]
    if status.reason:
        parts.append(Part(f"  {visible_line(status.reason)}", "warning"))
    match status.state:
        case VaultState.MISSING if status.reason is None:
            parts.append(Part("  :vault.init makes it; a new secret makes it too", "muted"))
        case VaultState.MISSING:
            parts.append(Part("  bring the file back from a backup, or :vault.init", "muted"))
        case VaultState.LOCKED:
            parts.append(Part("  U unlocks", "key"))
            if status.waiting:
                waits = f"  {len(status.waiting)} session{'s wait' if len(status.waiting) > 1 else ' waits'} for it"
                parts.append(Part(waits, "state.waiting"))
        case VaultState.TAMPERED | VaultState.CORRUPT | VaultState.ROLLED_BACK:
            parts.append(Part("  nothing is released; :vault.status, :vault.repair", "muted"))
        case VaultState.UNLOCKED:
            pass
    if status.generation is not None:
        keys = ", ".join(dict.fromkeys(slot.type for slot in status.slots))
        parts.append(Part(f"   generation {status.generation}", "muted"))
        if keys:
            parts.append(Part(f"   opens with {keys}", "muted"))
    return parts
