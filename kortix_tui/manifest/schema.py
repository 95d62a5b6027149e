"""The JSON schema (draft 2020-12) of `kortix.yaml`, made from the same models that check it."""

from __future__ import annotations

from typing import Any

from kortix_tui.manifest.agents import AGENT_ALIASES
from kortix_tui.manifest.behaviour import Behaviour
from kortix_tui.manifest.model import IMPORTABLE, Manifest
from kortix_tui.manifest.triggers import TRIGGER_ALIASES

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TRIGGERS = ("CronTrigger", "WebhookTrigger", "EventTrigger", "MonitorTrigger")


def schema() -> dict[str, Any]:
    """What an editor needs to complete and check a manifest.

    Rules that join several places (names must resolve) are only in `check`. Unknown keys at the root are let through,
    as `check` only warns about them.
    """
    made = Manifest.model_json_schema()
    made["additionalProperties"] = True
    _allow_import_instead_of_agents(made)
    _add_aliases(made["$defs"]["Agent"], AGENT_ALIASES)
    for name in _TRIGGERS:
        _add_aliases(made["$defs"][name], TRIGGER_ALIASES)
    agents = made["properties"]["agents"]
    # `builder:` with nothing below it is an agent that may touch nothing.
    agents["additionalProperties"] = {"anyOf": [agents["additionalProperties"], {"type": "null"}]}
    title = "Kortix project manifest, version 2"
    return {"$schema": _DIALECT, "title": title, **{key: value for key, value in made.items() if key != "title"}}


def front_matter_schema() -> dict[str, Any]:
    """The same for the head of `agents/<name>.md`."""
    return {"$schema": _DIALECT, **Behaviour.model_json_schema(), "title": "Kortix agent front matter"}


def _allow_import_instead_of_agents(made: dict[str, Any]) -> None:
    made["required"] = [name for name in made["required"] if name not in IMPORTABLE]
    made["anyOf"] = [{"required": ["agents"]}, {"required": ["imports"]}]


def _add_aliases(part: dict[str, Any], aliases: dict[str, str]) -> None:
    """Old spellings are valid, and editors strike them through."""
    properties = part["properties"]
    for old, new in aliases.items():
        if new in properties:
            properties[old] = {**properties[new], "deprecated": True, "description": f"Called `{new}` now."}
    required = part.get("required", [])
    for new in [name for name in required if name in aliases.values()]:
        required.remove(new)
        spellings = [new, *(old for old, name in aliases.items() if name == new)]
        part.setdefault("allOf", []).append({"anyOf": [{"required": [name]} for name in spellings]})
