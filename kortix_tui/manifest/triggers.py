"""`triggers:` what starts a session without a person."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from kortix_tui.base.validation import Part, wrong
from kortix_tui.manifest.fields import Duration, EnvName, ModelName, NonEmpty, Slug
from kortix_tui.manifest.schedule import cron_problem, moment_problem, timezone_problem

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


def _read_switch(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, str | int) and str(value).casefold() in _SWITCH:
        return _SWITCH[str(value).casefold()]
    raise wrong("must be true or false", code="type")


Switch = Annotated[
    bool,
    BeforeValidator(_read_switch),
    WithJsonSchema(
        {"anyOf": [{"type": "boolean"}, {"enum": ["true", "false", "1", "0", "yes", "no", "on", "off", 1, 0]}]}
    ),
]


def _read_filter(value: object) -> object:
    if not isinstance(value, dict):
        return value
    return {
        path: str(want).lower() if isinstance(want, bool) else str(want) if isinstance(want, int) else want
        for path, want in value.items()
    }


Filter = Annotated[
    dict[str, str],
    BeforeValidator(_read_filter),
    Field(max_length=32),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "integer", "boolean"]}}),
]


def _check_timezone(name: str) -> str:
    problem = timezone_problem(name)
    if problem:
        raise wrong(f"`{name}` {problem}")
    return name


class _Trigger(Part):
    slug: Slug
    name: str | None = None
    prompt: NonEmpty
    agent: str | None = None
    model: ModelName | None = None
    enabled: Switch = True
    session_mode: Literal["fresh", "reuse", "pinned", "keyed"] | None = None
    session_id: NonEmpty | None = None
    session_key: NonEmpty | None = None
    filter: Filter = Field(default_factory=dict)
    subproject: NonEmpty | None = None

    @model_validator(mode="after")
    def _session_strategy(self) -> Self:
        if self.session_mode == "pinned" and self.session_id is None:
            raise wrong("`session_id` is missing for `session_mode: pinned`", at="session_id")
        if self.session_mode == "keyed" and self.session_key is None:
            raise wrong("`session_key` is missing for `session_mode: keyed`", at="session_key")
        return self


class CronTrigger(_Trigger):
    """Fires by the clock: again and again, or once."""

    type: Literal["cron"]
    cron: str | None = None
    run_at: str | None = None
    timezone: Annotated[str, AfterValidator(_check_timezone)] = "UTC"

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.cron is None) == (self.run_at is None):
            raise wrong(
                "needs exactly one of `cron` and `run_at`",
                'Write `cron: "0 0 7 * * 1"` or `run_at: 2026-12-01T07:00:00Z`.',
            )
        problem = cron_problem(self.cron) if self.cron is not None else moment_problem(self.run_at or "")
        if problem:
            at = "cron" if self.cron is not None else "run_at"
            raise wrong(f"`{self.cron or self.run_at}` {problem}", at=at)
        return self


class WebhookTrigger(_Trigger):
    """Fires on a signed request."""

    type: Literal["webhook"]
    secret_env: EnvName


class EventTrigger(_Trigger):
    """Fires on an app's event, through a hosted catalogue; parses, but is not served in this edition."""

    type: Literal["event"]
    connector: Slug
    event: NonEmpty
    config: dict[str, object] = Field(default_factory=dict)


class MonitorTrigger(_Trigger):
    """Fires on the lines that a command of the repository prints."""

    type: Literal["monitor"]
    run: Annotated[NonEmpty, Field(max_length=1024)]
    mode: Literal["poll", "stream"]
    interval: Duration | None = None
    expect_event_within: Duration | None = None

    @model_validator(mode="after")
    def _paced(self) -> Self:
        if self.mode == "poll" and self.interval is None:
            raise wrong("`interval` is missing for `mode: poll`", "Write a duration such as `60s`.", at="interval")
        if self.interval is not None and self.interval < 30:
            raise wrong("`interval` must be at least 30 seconds", at="interval")
        if self.expect_event_within is not None and self.expect_event_within < 300:
            raise wrong("`expect_event_within` must be at least 5 minutes", at="expect_event_within")
        return self


Trigger = Annotated[CronTrigger | WebhookTrigger | EventTrigger | MonitorTrigger, Field(discriminator="type")]
TRIGGER_ALIASES = {
    "prompt_template": "prompt",
    "agent_name": "agent",
    "schedule": "cron",
    "runAt": "run_at",
    "secretEnv": "secret_env",
    "sessionMode": "session_mode",
    "sessionId": "session_id",
    "sessionKey": "session_key",
    "tz": "timezone",
}
"""Older spellings that are still taken, and what they are called now."""
