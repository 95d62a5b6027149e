"""`agents/<name>.md`: how an agent behaves. YAML front matter, then its instructions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from kortix_tui.base.faults import Fault, Place
from kortix_tui.base.validation import Part, validate, wrong
from kortix_tui.base.yaml import Document, YamlRefused, load, split_front_matter
from kortix_tui.manifest.advice import advise_on_behaviour
from kortix_tui.manifest.fields import Command, ModelName
from kortix_tui.manifest.vocabulary import PRESETS

Harness = Literal["acp", "command", "claude", "codex", "opencode", "gemini", "goose", "qwen"]
Decision = Literal["ask", "allow", "deny"]

_BY_PATTERN = ("read", "edit", "glob", "grep", "list", "bash", "task", "external_directory", "lsp", "skill")
_BARE = ("todowrite", "question", "webfetch", "websearch", "doom_loop")
_DECISIONS = ("ask", "allow", "deny")
_COLOR = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})\Z|[a-z][a-z0-9-]{0,31}\Z")


def _check_color(color: str) -> str:
    if not _COLOR.match(color):
        raise wrong(f"`{color}` is not a colour", 'Write `"#4488ff"` (in quotes) or the name of a theme colour.')
    return color


def _check_permission(value: object) -> object:
    if value in _DECISIONS:
        return value
    if not isinstance(value, dict):
        raise wrong("must be ask, allow, deny, or a mapping by tool", "Write `permission: { bash: ask }`.", code="type")
    for tool, rule in value.items():
        if tool in _BARE or (tool in _BY_PATTERN and not isinstance(rule, dict)):
            if rule not in _DECISIONS:
                raise wrong(f"`{rule}` is not ask, allow or deny", at=tool, code="choice")
        elif tool in _BY_PATTERN:
            for pattern, decision in rule.items():
                if decision not in _DECISIONS:
                    raise wrong(f"`{pattern}: {decision}` is not ask, allow or deny", at=tool, code="choice")
        else:
            raise wrong(
                f"`{tool}` is not a tool",
                f"There is: {', '.join((*_BY_PATTERN, *_BARE))}.",
                at=tool,
                code="unknown_key",
            )
    return value


_DECISION_SCHEMA = {"enum": list(_DECISIONS)}
_PERMISSION_SCHEMA: dict[str, Any] = {
    "anyOf": [
        _DECISION_SCHEMA,
        {
            "type": "object",
            "properties": {
                **dict.fromkeys(_BARE, _DECISION_SCHEMA),
                **{
                    tool: {"anyOf": [_DECISION_SCHEMA, {"type": "object", "additionalProperties": _DECISION_SCHEMA}]}
                    for tool in _BY_PATTERN
                },
            },
            "additionalProperties": False,
        },
    ]
}
Permission = Annotated[
    Decision | dict[str, Decision | dict[str, Decision]],
    BeforeValidator(_check_permission),
    WithJsonSchema(_PERMISSION_SCHEMA),
]


class Behaviour(Part):
    """The front matter."""

    description: str | None = None
    harness: Harness | None = None
    command: Command | None = None
    model: ModelName | None = None
    mode: Literal["primary", "subagent", "all"] | None = None
    variant: str | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    steps: Annotated[int, Field(gt=0)] | None = None
    color: Annotated[str, AfterValidator(_check_color)] | None = None
    hidden: bool = False
    disable: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    permission: Permission | None = None

    @model_validator(mode="after")
    def _driven(self) -> Self:
        if self.harness in ("command", "acp") and self.command is None:
            raise wrong(
                f"`command` is missing for `harness: {self.harness}`",
                "Write `command: [python3, tools/agent.py]`.",
                at="command",
            )
        if self.command is not None and self.harness is None:
            raise wrong(
                "`harness` is missing beside `command`", "Write `harness: command` or `harness: acp`.", at="command"
            )
        if self.command is not None and self.harness in PRESETS:
            raise wrong(
                f"`harness: {self.harness}` brings its own program",
                "Remove `command`, or write `harness: acp`.",
                at="command",
            )
        return self


class AgentFile(BaseModel):
    """One read file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: str
    behaviour: Behaviour
    instructions: str


def read_agent_file(file: str, raw: bytes) -> tuple[AgentFile | None, list[Fault]]:
    """Read one `agents/<name>.md`.

    Returns:
        The file and no fault, or `None` and at least one.
    """
    try:
        parts = split_front_matter(raw, file=file)
        document = (
            Document(file, {}) if parts.head is None else load(parts.head, file=file, first_line=parts.first_line)
        )
    except YamlRefused as error:
        return None, list(error.faults)
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        place = Place(file, parts.first_line, 1)
        return None, [
            Fault.at(place, (), "the front matter must be a mapping", code="type", hint="Write `key: value` lines.")
        ]
    behaviour, faults = validate(Behaviour, data, document, advise=advise_on_behaviour)
    if behaviour is None:
        return None, faults
    return AgentFile(file=file, behaviour=behaviour, instructions=parts.body), []
