"""The `command` harness: each prompt starts the agent's program anew in the clone; its exit status ends the turn.

The program gets the prompt on standard input, in the file `KORTIX_PROMPT_FILE`, and in `KORTIX_PROMPT` when it is under
64 KiB (an environment string has a limit of 128 KiB on Linux).
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.base.errors import Refused

WORKSPACE: Final = "/workspace"


class TurnStart(BaseModel):
    """What the supervisor is told to run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turn_id: str
    command: tuple[str, ...]
    environment: dict[str, str]
    cwd: str
    prompt: str


def command_turn(
    *, harness: str, command: tuple[str, ...] | None, agent: str, project: str, prompt_id: str, prompt: str
) -> TurnStart:
    """The turn that answers one prompt.

    Raises:
        Refused: The agent is driven by a harness that this version does not have.
    """
    if harness != "command" or not command:
        raise Refused(
            f"Agent {agent} asks for the harness «{harness}», which this version cannot drive.",
            hint="Set `harness: command` and `command: [program, …]` in the agent's file.",
        )
    environment = {"KORTIX_AGENT_NAME": agent, "KORTIX_PROJECT_ID": project}
    return TurnStart(turn_id=prompt_id, command=command, environment=environment, cwd=WORKSPACE, prompt=prompt)
