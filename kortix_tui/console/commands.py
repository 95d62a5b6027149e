"""What `:` and the palette offer, made from the action table and a few that take an argument."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kortix_tui.console.keymap import ACTIONS
from kortix_tui.console.widgets.command_line import Command, CommandRegistry

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp


def build_commands(app: KortixApp) -> CommandRegistry:
    """All commands of the console."""
    registry = CommandRegistry(
        [
            Command(("sessions", "s"), "Sessions, filtered", app.go_sessions, "FILTER", lambda _: ("state:running",)),
            Command(("changes",), "Change requests", lambda text: app.go_view("changes", text), "FILTER"),
            Command(("inbox",), "What waits for you", lambda text: app.go_view("inbox", text), "FILTER"),
            Command(("cr",), "Open a change request", app.go_change, "NUMBER", lambda _: _numbers(app)),
            Command(("logs",), "The log of a session", app.go_logs, "ID", lambda _: _sessions(app)),
            Command(("theme",), "Another theme", app.use_theme, "NAME", lambda _: app.theme_names),
        ]
    )
    for entry in ACTIONS:
        if entry.palette:
            registry.add(
                Command(
                    (entry.id,),
                    entry.title,
                    lambda _, name=entry.method: app.run_named(name),  # type: ignore[misc]
                    enabled=lambda name=entry.method: app.can_run(name),  # type: ignore[misc]
                    hint=_hint(app.keymap.shown(entry.id), entry.command),
                )
            )
    registry.add(Command(("quit", "q"), "Quit", lambda _: app.action_app_quit(), hint=app.keymap.shown("app.quit")))
    return registry


def _hint(key: str, command: str) -> str:
    return "   ".join(part for part in (key, f"kortix {command}" if command else "") if part)


def _numbers(app: KortixApp) -> Iterable[str]:
    return [str(change.number) for change in app.facts.changes]


def _sessions(app: KortixApp) -> Iterable[str]:
    return [session.id for session in app.facts.sessions]
