"""Cron expressions with six fields: second, minute, hour, day, month, weekday."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("second", 0, 59, {}),
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("weekday", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_ITEM = re.compile(r"(?P<first>\*|[a-z0-9]+)(?:-(?P<last>[a-z0-9]+))?(?:/(?P<step>[0-9]{1,4}))?\Z")


def cron_problem(text: str) -> str | None:
    """What is wrong with a cron expression; `None` when nothing is."""
    fields = text.casefold().split()
    if len(fields) == 5:
        return "has five fields; the first of six is the second (write `0 " + text.strip() + "`)"
    if len(fields) != 6:
        return f"has {len(fields)} fields, not six (second minute hour day month weekday)"
    for field, (name, lowest, highest, names) in zip(fields, _FIELDS, strict=True):
        for item in field.split(","):
            if not _item_fits(item, lowest, highest, names):
                return f"has `{item}` as {name}, which is not within {lowest} to {highest}"
    return None


def _item_fits(item: str, lowest: int, highest: int, names: dict[str, int]) -> bool:
    if item == "?":
        return True
    match = _ITEM.match(item)
    if match is None or (match["step"] is not None and int(match["step"]) == 0):
        return False
    if match["first"] == "*":
        return match["last"] is None
    bounds = [_number(match["first"], names), _number(match["last"] or match["first"], names)]
    return all(bound is not None and lowest <= bound <= highest for bound in bounds) and (bounds[0] or 0) <= (
        bounds[1] or 0
    )


def _number(text: str, names: dict[str, int]) -> int | None:
    return int(text) if text.isdigit() and len(text) <= 4 else names.get(text)


def moment_problem(text: str) -> str | None:
    """What is wrong with a one-off moment; `None` when nothing is."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return "is not a date and time such as 2026-12-01T07:00:00+01:00"
    return None


def timezone_problem(name: str) -> str | None:
    """What is wrong with an IANA time zone; `None` when nothing is, or when this machine has no zones to compare."""
    import zoneinfo

    try:
        zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        if name == "UTC" or (
            re.fullmatch(r"[A-Za-z_]+(?:/[A-Za-z0-9_+-]+)*", name) and not zoneinfo.available_timezones()
        ):
            return None
        return "is not a time zone such as Europe/Berlin"
    return None
