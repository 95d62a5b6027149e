"""Connectors on the terminal: the list, one in full, what reading one found, what a test found."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.base.words import Level
from kortix_tui.cli.cells import Column
from kortix_tui.cli.output import (
    BOLD,
    GREEN,
    RED,
    YELLOW,
    counted,
    note,
    paint,
    say,
    say_fields,
    say_prose,
    say_table,
    status_style,
)

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.model import CatalogueDifference
    from kortix_tui.runtime.connector_views import ConnectionView, ConnectorView, SyncResult
    from kortix_tui.runtime.connectors import ConnectorTest, PendingCatalogue

MOST_NAMES: Final = 20
MOST_NOTES: Final = 10
_STATES: Final = {"ready": GREEN, "connected": GREEN, "expired": YELLOW, "revoked": RED, "needs you": YELLOW}


def _style(cell: str) -> str:
    return _STATES.get(cell, "")


CONNECTORS: Final = (
    Column("CONNECTOR", flexible=True),
    Column("PROVIDER", drop=3),
    Column("AUTH", drop=4),
    Column("ACTIONS", right=True, drop=2),
    Column("GATES", drop=1),
    Column("STATE", style=_style),
    Column("AGENTS", flexible=True, drop=2),
)
CONNECTIONS: Final = (
    Column("CONNECTOR", flexible=True),
    Column("ACCOUNT"),
    Column("AUTH", drop=2),
    Column("STATE", style=_style),
    Column("USER", flexible=True, drop=3),
    Column("SECRET", flexible=True, drop=4),
    Column("ENDS", right=True, drop=1),
    Column("USED", right=True, drop=3),
)
CHECKS: Final = (Column("CHECK"), Column("RESULT", style=status_style), Column("WHY", flexible=True))


def cells(connector: ConnectorView) -> tuple[str, ...]:
    """A row of the list."""
    state = ("connected" if connector.connected else "needs you") if connector.enabled else "off"
    return (
        connector.slug, connector.provider, connector.auth,
        "?" if connector.actions is None else f"{connector.actions}{' *' if connector.pending else ''}",
        "off" if connector.gates_off else connector.default_mode, state, ", ".join(connector.agents),
    )  # fmt: skip


def connection_cells(connection: ConnectionView) -> tuple[str, ...]:
    """A row of the list of accounts."""
    now = datetime.now(UTC)
    ends = ""
    if connection.expires_at is not None:
        ends = f"in {age(now, connection.expires_at)}" if connection.expires_at > now else "ended"
    return (
        connection.connector, connection.account + (" (default)" if connection.is_default else ""), connection.auth,
        connection.state.value, connection.username or "", connection.identifier or "", ends,
        f"{age(connection.used_at, now)} ago" if connection.used_at else "",
    )  # fmt: skip


def say_connector(connector: ConnectorView, waiting: PendingCatalogue | None) -> None:
    """Its page."""
    say(paint(f"{connector.project}  {visible_line(connector.slug)}", BOLD))
    say_fields([
        ("name", connector.name or ""),
        ("provider", connector.provider),
        ("place", connector.place),
        ("auth", connector.auth),
        ("actions", "not known yet" if connector.actions is None else str(connector.actions)),
        ("gates", gates(connector)),
        ("agents", ", ".join(connector.agents) or "none: kortix connectors grant " + connector.slug + " --agent NAME"),
    ])  # fmt: skip
    if connector.problem:
        say_prose(paint(visible(connector.problem), YELLOW))
    if waiting is not None:
        say()
        say_waiting(waiting)
    say()
    say(paint("accounts", BOLD))
    rows = [connection_cells(one) for one in connector.connections]
    empty = "It needs none." if connector.auth == "none" else "Nobody has connected it."
    say_table(CONNECTIONS, rows, empty=empty)
    if connector.actions:
        note(f"Its actions, and what happens to each: kortix connectors policies {connector.slug}")


def gates(connector: ConnectorView) -> str:
    """What policy does where no rule says it, in words."""
    if connector.gates_off:
        return "off: every call runs without asking. To change that: kortix connectors policy mode risk"
    if connector.sensitive:
        return "sensitive: what no rule matches asks"
    return f"default_mode {connector.default_mode}"


def say_sync(result: SyncResult) -> None:
    """What reading its document or server found."""
    name = visible_line(result.connector)
    title = f" “{visible_line(result.title)}”" if result.title else ""
    where = f" at {visible_line(result.base_url)}" if result.base_url else ""
    say_prose(f"{name}:{title} has {counted(result.actions, 'action')}{where}.")
    say_notes(result.notes)
    if result.difference is not None:
        say_difference(result.difference)


def say_waiting(waiting: PendingCatalogue) -> None:
    """A changed document or server that a person has to accept."""
    when = age(waiting.created_at, datetime.now(UTC))
    say(paint(f"changed outside, read {when} ago, not accepted yet", YELLOW))
    if waiting.auth is not None:
        old, new = (visible_line(one) for one in waiting.auth)
        say(f"  {paint('!', RED)} auth is {new} now; before: {old}. Accounts must be connected again.")
    if waiting.image is not None:
        old, new = (visible_line(one) for one in waiting.image)
        say(f"  {paint('!', RED)} its program comes from image {new} now; before: {old}")
    say_difference(waiting.difference)
    say_notes(waiting.notes)


def say_difference(difference: CatalogueDifference) -> None:
    """What a changed document changes."""
    if difference.base_url is not None:
        old, new = (visible_line(url or "none") for url in difference.base_url)
        say(f"  {paint('!', RED)} calls go to {new} now; before: {old}")
    _names("+", GREEN, "new", difference.added)
    _names("-", RED, "gone", difference.removed)
    _names("~", YELLOW, "changed", tuple(one for one in difference.changed if one not in difference.riskier))
    _names("!", RED, "riskier than before", difference.riskier)


def _names(mark: str, colour: str, what: str, names: Sequence[str]) -> None:
    for name in names[:MOST_NAMES]:
        say(f"  {paint(mark, colour)} {visible_line(name)} ({what})")
    if len(names) > MOST_NAMES:
        say(f"  {paint(mark, colour)} and {len(names) - MOST_NAMES} more ({what})")


def say_notes(notes: Sequence[str]) -> None:
    """What a person should know of a document."""
    for text in notes[:MOST_NOTES]:
        say_prose(f"{paint('!', YELLOW)} {visible_line(text)}", indent=2)
    if len(notes) > MOST_NOTES:
        more = counted(len(notes) - MOST_NOTES, "more note")
        say(f"  {paint('!', YELLOW)} and {more}; --json has them all")


def say_test(test: ConnectorTest) -> None:
    """What a test found."""
    say_table(CHECKS, [(check.name, check.level.value, check.message) for check in test.checks], empty="")
    if any(check.level is Level.FAIL for check in test.checks):
        note(f"Calls of {visible_line(test.connector)} do not work now.")
