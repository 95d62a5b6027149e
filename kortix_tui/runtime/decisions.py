"""Who may decide from where (invariant I1): a person at a terminal, or a rule that the operator switched on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

from kortix_tui.base.errors import Refused
from kortix_tui.base.settings import Settings
from kortix_tui.store.audit import Actor

AGENT_VARIABLES: Final = (
    "CLAUDECODE",
    "CLAUDE_CODE",
    "GEMINI_CLI",
    "OPENCODE",
    "AIDER",
    "CURSOR_AGENT",
    "GOOSE_TERMINAL",
)
AGENT_PREFIXES: Final = ("CODEX_", "KORTIX_SESSION_")


def agent_environment(environment: Mapping[str, str]) -> str | None:
    """The variable that shows that a known agent program started us, or `None`."""
    for name in sorted(environment):
        if name in AGENT_VARIABLES or name.startswith(AGENT_PREFIXES):
            return name
    return None


def is_attended(actor: Actor, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a person acts, as far as a process can tell: at a terminal, and not by way of an agent program.

    Args:
        actor: Who acts. The console has a terminal by itself.
        environment: Defaults to the process's own.
    """
    if agent_environment(os.environ if environment is None else environment) is not None:
        return False
    return actor.kind == "human" and (actor.tty is not None or actor.via == "console")


def check_decision(
    what: str,
    *,
    settings: Settings,
    terminal: bool,
    pinned: bool,
    pin: tuple[str, str] = ("commit", "--at SHA"),
    environment: Mapping[str, str] | None = None,
) -> None:
    """Refuse a decision that no person takes.

    Args:
        what: The act, for the message: `merge`, `close`.
        settings: The operator's settings.
        terminal: Whether a person can be asked (standard input and output are a terminal).
        pinned: Whether the exact thing that is decided about was named.
        pin: What would name it, and the option for it.
        environment: Defaults to the process's own.

    Raises:
        Refused: An agent program is in charge, or nobody can be asked and the operator has not allowed that.
    """
    found = agent_environment(os.environ if environment is None else environment)
    if found is not None:
        raise Refused(
            f"{what} is for people: this shell was started by an agent program ({found} is set).",
            hint="Decide in the console, or in a terminal of your own.",
        )
    if terminal:
        return
    if not pinned:
        raise Refused(
            f"{what} needs a terminal, or the exact {pin[0]} with {pin[1].partition(' ')[0]}.",
            hint=f"Run it in a terminal, or set decisions.unattended: allow in config.yaml and give {pin[1]}.",
        )
    if settings.decisions.unattended != "allow":
        raise Refused(
            f"{what} without a terminal is off.",
            hint=f"Set decisions.unattended: allow in config.yaml to allow it for commands that give {pin[1]}.",
        )
