"""The ways to leave the console."""

from __future__ import annotations

from enum import StrEnum


class Leave(StrEnum):
    """How a person leaves."""

    QUIT = "quit"
    BACKGROUND = "background"
    STOP_ALL = "stop all"
