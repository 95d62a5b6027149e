"""Secrets on the terminal: the list, one in full, and what a change did. Nothing here has a value to print."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kortix_tui.base.clock import age
from kortix_tui.base.text import visible, visible_line
from kortix_tui.cli.cells import Column
from kortix_tui.cli.output import (
    BOLD,
    counted,
    note,
    paint,
    say,
    say_fields,
    say_json,
    say_prose,
    say_table,
    status_style,
)

if TYPE_CHECKING:
    from kortix_tui.runtime.secret_views import SecretChange, SecretDetail, SecretView

COLUMNS = (
    Column("IDENTIFIER", flexible=True),
    Column("PROJECT", drop=6),
    Column("EXPOSURE"),
    Column("OWNER", drop=5),
    Column("AGENTS", flexible=True, drop=2),
    Column("HELD BY", drop=1),
    Column("USED", right=True, drop=4),
    Column("ROTATED", right=True, drop=3),
    Column("PLAIN TEXT", right=True, drop=1),
)
_HOLDERS = (Column("SESSION"), Column("STATUS", style=status_style), Column("HAS", flexible=True), Column("SINCE"))
_REACH = (Column("AGENT"), Column("MAY"), Column("WHY", flexible=True))


def cells(secret: SecretView) -> tuple[str, ...]:
    """A row of the list."""
    now = datetime.now(UTC)
    return (
        secret.identifier,
        secret.project,
        secret.exposure.value + (" (gateway)" if secret.gateway else ""),
        secret.owner,
        ", ".join(secret.agents),
        held(secret),
        age(secret.used_at, now) if secret.used_at else "",
        age(secret.rotated_at, now),
        age(secret.plain_at, now) if secret.plain_at else "",
    )


def held(secret: SecretView) -> str:
    """How many sandboxes have its value, and how many of them an old one."""
    if not secret.held_by:
        return ""
    stale = f", {secret.stale} stale" if secret.stale else ""
    return f"{counted(len(secret.held_by), 'sandbox', 'sandboxes')}{stale}"


def say_secret(detail: SecretDetail) -> None:
    """Its page."""
    secret, now = detail.secret, datetime.now(UTC)
    from kortix_tui.runtime.secret_words import exposure_says

    say(paint(f"{secret.project}  {visible_line(secret.identifier)}", BOLD))
    say_fields([
        ("variable", secret.name),
        ("exposure", exposure_says(secret)),
        ("hosts", ", ".join(secret.hosts)),
        ("owner", "the project" if secret.owner == "project" else f"{secret.owner}, only for sessions of their own"),
        ("version", f"{secret.version}, rotated {age(secret.rotated_at, now)} ago"),
        ("created", f"{age(secret.created_at, now)} ago by {secret.created_by}"),
        ("last used", f"{age(secret.used_at, now)} ago" if secret.used_at else "never"),
        ("plain text", f"this version has been readable in a sandbox since {age(secret.plain_at, now)} ago, until "
                       "you rotate it" if secret.plain_at else ""),
    ])  # fmt: skip
    say()
    say(paint("agents", BOLD))
    if detail.manifest_fault is not None:
        note(f"No agent can have it now: {detail.manifest_fault}")
    rows = [(one.agent, "may have it" if one.granted else "no", one.why) for one in detail.reach]
    say_table(_REACH, rows, empty="kortix.yaml on the base branch has no agents.")
    say()
    say(paint("held by", BOLD))
    holders = [
        (one.session_id, one.status.value, f"version {one.version}{', stale' if one.stale else ''}  {one.title}",
         f"{age(one.at, now)} ago")
        for one in secret.held_by
    ]  # fmt: skip
    say_table(_HOLDERS, holders, empty="No sandbox has its value.")


def say_changes(changes: SecretChange | Sequence[SecretChange], arguments: argparse.Namespace) -> None:
    """What was done, in lines for a person or as JSON: one, or a list as it was asked for."""
    if arguments.json:
        say_json(changes)
        return
    for change in changes if isinstance(changes, Sequence) else (changes,):
        secret = change.secret
        what = "stored, " if change.created else ""
        own = "" if secret.owner == "project" else ", only for you"
        say(paint(f"{visible_line(secret.identifier)} of {secret.project}: {what}version {secret.version}{own}.", BOLD))
        for line in change.says:
            say_prose(visible(line), indent=2)
