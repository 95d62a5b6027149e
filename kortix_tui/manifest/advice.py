"""Words for keys that people write in the wrong place, know from elsewhere, or must not write at all."""

from __future__ import annotations

from typing import Final

from kortix_tui.base.faults import Path
from kortix_tui.base.validation import Advice
from kortix_tui.manifest.vocabulary import AGENT_BEHAVIOUR_KEYS

NO_CREDENTIAL: Final = (
    "Store it with `kortix connectors connect`: credentials stay on the host and never stand in the manifest."
)
_CREDENTIAL_KEYS = frozenset(
    {"secret", "token", "password", "value", "key", "client_secret", "access_token", "username"}
)
_IMAGE_KEYS = frozenset({"image", "dockerfile", "entrypoint", "cpu", "memory", "disk", "container_runtime"})


def advise_on_manifest(path: Path) -> Advice | None:
    """Better words for an unknown key of `kortix.yaml`."""
    match path:
        case ("agents", _, str(key)):
            return _agent_key(key)
        case ("sandbox", str(key)) if key in _IMAGE_KEYS:
            return Advice(
                f"`{key}` does not belong on `sandbox` itself",
                f"Move it into an entry of `sandbox.templates`, such as `- {{ slug: main, {key}: … }}`.",
            )
        case ("connectors", _, "auth", str(key)) if key in _CREDENTIAL_KEYS:
            return Advice(f"`{key}` is a credential", NO_CREDENTIAL, "credential")
        case _:
            return None


def _agent_key(key: str) -> Advice | None:
    if key in AGENT_BEHAVIOUR_KEYS:
        return Advice(
            f"`{key}` says how an agent behaves and does not belong here",
            "Move it into the front matter of `agents/<name>.md`; kortix.yaml says what the agent may touch.",
            "behaviour_key",
        )
    match key:
        case "env" | "agent_scope":
            return Advice(
                f"`{key}` is not a key of an agent", "Grant values with `secrets: [IDENTIFIER]`; the vault holds them."
            )
        case "workspace":
            return Advice(
                "`workspace` was replaced",
                "Write `repository_access: true`, or `false` for a sandbox without a clone.",
            )
        case _:
            return None


def advise_on_behaviour(path: Path) -> Advice | None:
    """Better words for an unknown key of an agent's front matter."""
    match path:
        case ("tools",):
            return Advice(
                "`tools` is not read here", "Use `permission:` here, or `tools:` of the agent in kortix.yaml."
            )
        case ("maxSteps",):
            return Advice("`maxSteps` is called `steps`", "Write `steps: 40`, for example.")
        case ("name",):
            return Advice("`name` is not read here", "An agent's name is its key under `agents:` in kortix.yaml.")
        case _:
            return None
