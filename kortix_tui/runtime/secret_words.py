"""What a person is told of a secret: its exposure, who can read the value now, and how to make that tighter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kortix_tui.base.words import Exposure
from kortix_tui.runtime.secret_views import SecretView

if TYPE_CHECKING:
    from kortix_tui.runtime.reach import Grants

MEANING: Final[dict[Exposure, str]] = {
    Exposure.ENVIRONMENT: "the value enters sandboxes as an environment variable; the agent can read it",
    Exposure.EGRESS: "experimental: the value will be put in outside the sandbox, at named hosts only",
    Exposure.CONNECTOR: "the value stays on the host; connectors use it for calls",
    Exposure.NONE: "the value stays on the host and is given to nobody",
}


def exposure_says(secret: SecretView) -> str:
    """The exposure in one sentence."""
    if secret.exposure is Exposure.NONE and secret.gateway:
        return "none: the value stays on the host; only the model gateway uses it"
    return f"{secret.exposure.value}: {MEANING[secret.exposure]}"


def change_says(secret: SecretView, grants: Grants) -> tuple[str, ...]:
    """Lines after a change: exposure, readers now, and the way to something tighter."""
    lines = [f"Exposure {exposure_says(secret)}."]
    match secret.exposure:
        case Exposure.ENVIRONMENT:
            lines.append(_readers(secret, grants))
            lines.append(
                "Tighter, kept on the host:"
                f" kortix secrets expose {secret.identifier} connector --project {secret.project}"
            )
        case Exposure.EGRESS:
            lines.append("Its proxy is not part of this version yet: this value is delivered to no sandbox.")
        case Exposure.CONNECTOR | Exposure.NONE:
            lines.append("It enters no sandbox.")
    if secret.held_by and secret.exposure is not Exposure.ENVIRONMENT:
        lines.append(
            f"{_sandboxes(len(secret.held_by))} had it before and can still read it. Have its issuer revoke the value,"
            f" then store a new one: kortix secrets rotate {secret.identifier} --project {secret.project}"
        )
    elif secret.stale:
        lines.append(f"An older value stays in {_sandboxes(secret.stale, running=True)} until the next prompt there.")
    return tuple(lines)


def _sandboxes(number: int, *, running: bool = False) -> str:
    return f"{number} {'running ' if running else ''}sandbox{'' if number == 1 else 'es'}"


def _readers(secret: SecretView, grants: Grants) -> str:
    who = "sessions that you started at a terminal" if secret.owner != "project" else "any session"
    if grants.fault is not None:
        return f"No agent can read it now: {grants.fault}"
    if not secret.agents:
        return (
            "No agent can read it yet: no grant on the base branch names it"
            f" (kortix secrets grant {secret.identifier} --agent NAME --project {secret.project})."
        )
    return f"Can read it now, in {who}: {', '.join(secret.agents)}."
