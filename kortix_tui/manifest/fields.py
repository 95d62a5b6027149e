"""Small typed values that several parts of a manifest share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from kortix_tui.base.faults import choose
from kortix_tui.base.validation import Many, wrong
from kortix_tui.manifest.vocabulary import PERMISSIONS

SLUG_PATTERN = r"^[a-z0-9][a-z0-9_-]{0,127}$"
SECRET_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$"  # noqa: S105 - a pattern, no secret
ENV_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*$"
MODEL_PATTERN = r"^[^\s/]+/\S+$"
_DURATION = re.compile(r"([0-9]{1,7})(s|m|h|d)?\Z")
_UNIT_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def _matching(pattern: str, what: str, hint: str) -> Callable[[str], str]:
    compiled = re.compile(pattern.removesuffix("$") + r"\Z")

    def check(text: str) -> str:
        if not compiled.match(text):
            raise wrong(f"`{text}` is not {what}", hint)
        return text

    return check


check_slug = _matching(
    SLUG_PATTERN, "a valid name", "Use a-z, 0-9, `-` and `_`, at most 128, beginning with a letter or digit."
)


def is_slug(text: str) -> bool:
    """Whether a text is a valid name of an agent, connector, template, trigger."""
    return re.match(SLUG_PATTERN.removesuffix("$") + r"\Z", text) is not None


check_secret = _matching(
    SECRET_PATTERN,
    "a secret's identifier",
    "Use letters, digits, `_`, `.` and `-`, at most 128, beginning with a letter or digit.",
)
_check_env = _matching(ENV_PATTERN, "an environment name", "Use letters, digits and `_`, not beginning with a digit.")

Slug = Annotated[str, AfterValidator(check_slug), Field(json_schema_extra={"pattern": SLUG_PATTERN})]
SecretIdentifier = Annotated[str, AfterValidator(check_secret), Field(json_schema_extra={"pattern": SECRET_PATTERN})]
ModelName = Annotated[
    str,
    AfterValidator(_matching(MODEL_PATTERN, "a model", "Write `provider/model`, such as `anthropic/claude-sonnet-5`.")),
    Field(json_schema_extra={"pattern": MODEL_PATTERN}),
]
NonEmpty = Annotated[str, Field(min_length=1)]


def _upper(text: str) -> str:
    name = _check_env(text).upper()
    if name.startswith("KORTIX_"):
        raise wrong(f"`{text}` is reserved", "Names that begin with KORTIX_ are set by the runtime.")
    return name


EnvName = Annotated[str, AfterValidator(_upper), Field(json_schema_extra={"pattern": ENV_PATTERN})]


def path_problem(text: str) -> str | None:
    """Why a text is no plain path inside the repository; `None` when it is one."""
    if not text or text != text.strip():
        return "is empty or has spaces around it"
    if text.startswith(("/", "-", "~")) or re.match(r"[A-Za-z]:", text):
        return "must be relative to the repository's root"
    if "\\" in text or any(ord(char) < 32 or ord(char) == 127 for char in text):
        return "must use `/` and no control characters"
    steps = text.rstrip("/").split("/")
    if any(step in ("", ".", "..") for step in steps):
        return "must not have `.`, `..` or empty parts"
    if any(step.casefold() == ".git" for step in steps):
        return "must not lead into `.git`"
    return None


def check_path(text: str) -> str:
    """A plain path inside the repository, without a trailing slash."""
    problem = path_problem(text)
    if problem:
        raise wrong(f"the path `{text}` {problem}", "Write a path such as `agents/builder.md`.")
    return text.rstrip("/")


RepoPath = Annotated[str, AfterValidator(check_path)]


def read_duration(value: object) -> int:
    """Seconds from a whole number or a text such as `90s`, `5m`, `2h`."""
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match:
        return int(match[1]) * _UNIT_SECONDS[match[2]]
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong("must be a duration", "Write seconds, or a text such as `90s`, `5m` or `2h`.")


_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[0-9]{1,7}[smhd]?$"}]
}
Duration = Annotated[int, BeforeValidator(read_duration), Field(gt=0), WithJsonSchema(_DURATION_SCHEMA)]


class Grant(BaseModel):
    """What an agent may use of one kind. Omitted means nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    everything: bool = False
    names: tuple[str, ...] = ()

    def allows(self, name: str) -> bool:
        """Whether the name is in the grant."""
        return self.everything or name in self.names

    def __bool__(self) -> bool:
        return self.everything or bool(self.names)


class SecretGrant(Grant):
    """Secrets by identifier, which ignores case. `all` covers the environment exposure only."""

    def allows(self, name: str) -> bool:
        """Whether the identifier is in the grant."""
        return self.everything or self.names_it(name)

    def names_it(self, name: str) -> bool:
        """Whether the identifier itself stands in the grant; brokered secrets need that."""
        return name.casefold() in {own.casefold() for own in self.names}


def _grant(kind: type[Grant], check: Callable[[str], str]) -> Callable[[object], Grant]:
    def read(value: object) -> Grant:
        if isinstance(value, Grant):
            return value
        if isinstance(value, str):
            if value in ("all", "*"):
                return kind(everything=True)
            if value == "none":
                return kind()
            raise wrong(f"`{value}` is not a grant", "Write `all`, `none`, or a list of names.")
        if not isinstance(value, list):
            raise wrong("must be a list of names, `all` or `none`", "Write `[name, name]`.", code="type")
        for name in value:
            if not isinstance(name, str):
                raise wrong("must be a list of names, `all` or `none`", "Each entry must be a text.", code="type")
            if name in ("all", "*"):
                raise wrong(f"`{name}` must stand alone", f"Write `{name}` in place of the list, or name each one.")
            check(name)
        return kind(names=tuple(dict.fromkeys(value)))

    return read


def _grant_schema(item: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [{"enum": ["all", "none", "*"]}, {"type": "array", "items": item}], "default": "none"}


def _check_permission(name: str) -> str:
    if name not in PERMISSIONS:
        raise wrong(f"`{name}` is not a permission that an agent can have", choose(name, PERMISSIONS), code="choice")
    return name


NameGrant = Annotated[
    Grant,
    BeforeValidator(_grant(Grant, check_slug)),
    WithJsonSchema(_grant_schema({"type": "string", "pattern": SLUG_PATTERN})),
]
SecretsGrant = Annotated[
    SecretGrant,
    BeforeValidator(_grant(SecretGrant, check_secret)),
    WithJsonSchema(_grant_schema({"type": "string", "pattern": SECRET_PATTERN})),
]
PermissionGrant = Annotated[
    Grant, BeforeValidator(_grant(Grant, _check_permission)), WithJsonSchema(_grant_schema({"enum": list(PERMISSIONS)}))
]


def _read_command(value: object) -> object:
    """A text is run by the shell; a list is run as it stands."""
    return ["sh", "-c", value] if isinstance(value, str) and value.strip() else value


Command = Annotated[
    Many[NonEmpty],
    BeforeValidator(_read_command),
    Field(min_length=1, max_length=64),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1},
                {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 64},
            ]
        }
    ),
]
"""A program with its arguments."""

HttpMethod = Literal["GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"]
