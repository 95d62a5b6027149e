"""What the first two lines of every screen say, made from the facts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kortix_tui.base.words import Activity, SessionStatus, VaultState
from kortix_tui.console.facts import Facts
from kortix_tui.console.widgets.status_bar import Status, Tab

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp


def tabs_of(app: KortixApp, facts: Facts) -> list[Tab]:
    """The views that exist, with their counts."""
    waiting, shown = len(facts.inbox), app.keymap.shown
    connectors = facts.connectors or ()
    broken = facts.vault_state not in (None, VaultState.UNLOCKED, VaultState.LOCKED, VaultState.MISSING)
    return [
        Tab(shown("view.sessions"), "Sessions", len(facts.sessions)),
        Tab(shown("view.changes"), "Changes", len(facts.changes)),
        Tab(shown("view.inbox"), "Inbox", waiting, urgent=waiting > 0),
        Tab(shown("view.vault"), "Vault", len(facts.secrets), urgent=broken),
        Tab(shown("view.connectors"), "Connectors", len(connectors), urgent=any(one.gates_off for one in connectors)),
    ]


def status_of(app: KortixApp, facts: Facts) -> Status:
    """The status line."""
    sessions = facts.sessions
    live = [entry for entry in sessions if entry.status in {SessionStatus.RUNNING, SessionStatus.PROVISIONING}]
    waiting = sum(entry.activity is Activity.WAITING for entry in live)
    host, good = _host_words(facts)
    return Status(
        host=host,
        host_ok=good,
        running=len(live) - waiting,
        waiting=waiting,
        stopped=sum(entry.status is SessionStatus.STOPPED for entry in sessions),
        failed=sum(entry.status is SessionStatus.FAILED for entry in sessions),
        inbox=len(facts.inbox),
        place="ssh" if app.terminal.remote else "local",
        clock=f"{app.clock.now().astimezone():%H:%M}",
    )


def _host_words(facts: Facts) -> tuple[str, bool]:
    view = facts.host
    if not facts.loaded:
        return "reading…", True
    if view.here:
        return "host: this console", True
    if view.host is None:
        return "no host", False
    if view.silent:
        return f"host {view.host.pid} is silent", False
    return f"host: {view.host.kind} {view.host.pid}", True
