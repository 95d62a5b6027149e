"""What `:` and the palette offer, made from the action table and a few that take an argument."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from kortix_tui.console.actions import ACTIONS
from kortix_tui.console.widgets.command_line import Command, CommandRegistry

if TYPE_CHECKING:
    from kortix_tui.console.app import KortixApp


def build_commands(app: KortixApp) -> CommandRegistry:
    """All commands of the console."""
    registry = CommandRegistry(
        [
            Command(
                ("sessions", "s"),
                "Sessions, filtered",
                partial(_go_sessions, app),
                "FILTER",
                lambda _: ("state:running",),
            ),
            Command(("changes",), "Change requests", lambda text: app.go_view("changes", text), "FILTER"),
            Command(("inbox",), "What waits for you", lambda text: app.go_view("inbox", text), "FILTER"),
            Command(("vault", "secrets"), "Secrets", lambda text: app.go_view("vault", text), "FILTER"),
            Command(("connectors",), "Connectors", lambda text: app.go_view("connectors", text), "FILTER"),
            Command(("cr",), "Open a change request", partial(_go_change, app), "NUMBER", lambda _: _numbers(app)),
            Command(("logs",), "The log of a session", partial(_go_logs, app), "ID", lambda _: _sessions(app)),
            Command(("theme",), "Another theme", app.use_theme, "NAME", lambda _: app.theme_names),
        ]
    )
    for entry in ACTIONS:
        if entry.palette:
            registry.add(
                Command(
                    (entry.id,),
                    entry.title,
                    lambda _, name=entry.method, home=entry.home: app.run_named(name, home),  # type: ignore[misc]
                    enabled=partial(app.can_run, entry.method, entry.home),
                    hint=_hint(app.keymap.shown(entry.id), entry.command),
                )
            )
    registry.add(Command(("quit", "q"), "Quit", lambda _: app.action_app_quit(), hint=app.keymap.shown("app.quit")))
    return registry


def _hint(key: str, command: str) -> str:
    return "   ".join(part for part in (key, f"kortix {command}" if command else "") if part)


def _go_sessions(app: KortixApp, text: str) -> None:
    """`:sessions running` filters by state."""
    app.go_view("sessions", f"state:{text}" if text.isalpha() else text)


def _go_change(app: KortixApp, text: str) -> None:
    """`:cr 31` or `:cr 31 slug`."""
    number, _, slug = text.partition(" ")
    found = [entry for entry in app.facts.changes if str(entry.number) == number and slug in {"", entry.project}]
    if len(found) == 1:
        app.open_change(found[0].project, found[0].number)
    elif found:
        app.say(f"Which? {', '.join(f'cr {number} {entry.project}' for entry in found[:5])}", "warning")
    else:
        app.say(f"There is no change request {text or '…'}.", "warning")


def _go_logs(app: KortixApp, text: str) -> None:
    """`:logs k7m2`."""
    found = [entry for entry in app.facts.sessions if text and entry.id.startswith(text)]
    if len(found) == 1:
        app.show_log(found[0].id)
    else:
        app.say(f"{'No session begins' if not found else 'Several sessions begin'} with {text or '…'}.", "warning")


def _numbers(app: KortixApp) -> Iterable[str]:
    return [str(change.number) for change in app.facts.changes]


def _sessions(app: KortixApp) -> Iterable[str]:
    return [session.id for session in app.facts.sessions]
