"""The operator's `config.yaml`: what this machine's owner decides, above any project.

A missing file means the defaults. A wrong one stops the program with every fault by line: a ceiling that is silently
not applied would be worse than no start.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.faults import Fault, FaultLevel, choose
from kortix_tui.base.paths import config_folder
from kortix_tui.base.validation import Many, Part, validate, wrong

_HOSTED_PROVIDERS = ("daytona", "platinum", "e2b")
_ENGINE_SCHEMES = ("unix://", "tcp://", "ssh://", "http://", "https://", "npipe://")
_LATER: Final = frozenset({"providers", "prices", "models", "budgets", "checks", "forges", "retention"})
"""Sections of other editions of this file: they are let through, so that one file serves several versions."""

_GIB = 1024**3


def _check_provider(name: str) -> str:
    if name.casefold() in _HOSTED_PROVIDERS:
        raise wrong(
            f"the provider `{name}` is not part of this edition, which runs on the operator's own Docker",
            "Write `provider: docker`. Another provider plugs in as a Python package with an entry point in the group "
            "`kortix_tui.sandbox_providers`; kortix_tui/sandbox/provider.py says what it must do.",
        )
    return name


def _check_endpoint(endpoint: str) -> str:
    if not endpoint.startswith(_ENGINE_SCHEMES):
        raise wrong(f"`{endpoint}` is not an engine's address", "Write `unix:///var/run/docker.sock`, for example.")
    return endpoint


def _check_file(path: str) -> str:
    expanded = os.path.expanduser(path)  # noqa: PTH111 - `Path.expanduser` raises where there is no such user
    if not expanded.startswith("/"):
        raise wrong(f"`{path}` is not an absolute path", "Write the whole path, or one that begins with `~/`.")
    return expanded


AbsoluteFile = Annotated[str, AfterValidator(_check_file)]


class DockerSettings(Part):
    """Which engine, and which runtime in it."""

    endpoint: Annotated[str, AfterValidator(_check_endpoint)] | None = None
    runtime: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)] | None = None


class SandboxSettings(Part):
    """Sandboxes that nobody says more about."""

    provider: Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_provider)] = "docker"
    idle_minutes: Annotated[float, Field(gt=0, le=7 * 24 * 60)] = 15
    prompt_timeout_minutes: Annotated[float, Field(gt=0)] | None = None
    default_cpu: Annotated[int, Field(ge=1, le=32)] = 2
    default_memory_gib: Annotated[int, Field(ge=1, le=128)] = 4
    default_disk_gib: Annotated[int, Field(ge=1, le=500)] = 20


class ImageSettings(Part):
    """Inputs of image builds."""

    mirror: Annotated[str, Field(pattern=r"^https?://\S+$")] | None = None
    ca_certificates: Many[AbsoluteFile] = ()


class Ceilings(Part):
    """What no project can exceed."""

    cpu: Annotated[int, Field(ge=1)] | None = None
    memory_gib: Annotated[int, Field(ge=1)] | None = None
    disk_gib: Annotated[int, Field(ge=1)] | None = None
    running_sessions: Annotated[int, Field(ge=1)] | None = None

    def running_limit(self) -> int:
        """How many sessions may run at once: as set, else one for each GiB of memory, between 2 and 50."""
        if self.running_sessions is not None:
            return self.running_sessions
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return max(2, min(50, memory // _GIB))


class Decisions(Part):
    """Whether a command without a terminal may decide, given the exact digest or head."""

    unattended: Literal["refuse", "allow"] = "refuse"


class SecretSettings(Part):
    """What a new secret's exposure is when nobody says, and how long an unused vault stays open."""

    default_exposure: Literal["environment", "egress-enforced", "connector", "none"] = "environment"
    lock_minutes: Annotated[float, Field(gt=0)] | None = None


class Notify(Part):
    """How the console says that something waits for a person.

    The webhook gets a JSON object without arguments or values: kind, reference, project, session, title.
    """

    bell: bool = True
    title: bool = True
    desktop: bool = False
    webhook: Annotated[str, Field(pattern=r"^https?://\S+$", max_length=2048)] | None = None


def _check_network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise wrong(f"`{text}` is not a network", "Write it as `10.1.2.0/24` or `192.168.1.5/32`.") from error


Network = Annotated[str, AfterValidator(_check_network)]


class ConnectorSettings(Part):
    """What connectors may reach beside public addresses, and which certificates they trust beside the system's."""

    allow_private: Many[Network] = ()
    ca_certificates: Many[AbsoluteFile] = ()


class EgressSettings(Part):
    """The ceiling over every agent's `network_egress`: hosts, `*.suffix` or `*`; and private networks it may name."""

    allow: Many[Annotated[str, Field(min_length=1, max_length=253)]] = ("*",)
    deny: Many[Annotated[str, Field(min_length=1, max_length=253)]] = ()
    allow_private: Many[Network] = ()


class ApprovalSettings(Part):
    """How long an approval can be given, and how long an agent's tool call waits for it before it is told later."""

    expire_hours: Annotated[float, Field(gt=0, le=30 * 24)] = 24
    wait_seconds: Annotated[float, Field(ge=0, le=3600)] = 45


class Settings(Part):
    """Everything in `config.yaml`."""

    docker: DockerSettings = DockerSettings()
    sandbox: SandboxSettings = SandboxSettings()
    images: ImageSettings = ImageSettings()
    ceilings: Ceilings = Ceilings()
    decisions: Decisions = Decisions()
    secrets: SecretSettings = SecretSettings()
    connectors: ConnectorSettings = ConnectorSettings()
    egress: EgressSettings = EgressSettings()
    approvals: ApprovalSettings = ApprovalSettings()
    notify: Notify = Notify()
    keymap: dict[str, str] = Field(default_factory=dict)
    theme: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    mouse: Literal["auto", "on", "off"] = "auto"


class SettingsInvalid(InvalidInput):
    """`config.yaml` is wrong.

    Attributes:
        faults: Everything that was found.
    """

    def __init__(self, path: Path, faults: tuple[Fault, ...]) -> None:
        listed = "\n".join(f"  {fault}" for fault in faults)
        super().__init__(f"The settings in {path} are not valid:\n{listed}", hint=None)
        self.faults = faults


def _section_of(key: object) -> str | None:
    """Where a key belongs that was written outside its section."""
    sections = [
        name
        for name, field in Settings.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Part)
        and key in field.annotation.model_fields
    ]  # fmt: skip
    return f"Write it under {' or '.join(f'`{name}:`' for name in sections)}." if sections else None


def settings_file() -> Path:
    """Where the operator's settings are."""
    return config_folder() / "config.yaml"


def load(path: Path | None = None) -> Settings:
    """The operator's settings; the defaults where there is no file.

    Raises:
        SettingsInvalid: The file is there but wrong.
        InvalidInput: The file cannot be read.
    """
    return inspect(path)[0]


def inspect(path: Path | None = None) -> tuple[Settings, tuple[Fault, ...]]:
    """The settings, and warnings about keys without effect. Raises as `load` does."""
    path = path or settings_file()
    try:
        raw = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Settings(), ()
    except OSError as error:
        raise InvalidInput(f"The settings in {path} cannot be read: {error.strerror}.") from error
    # Imported here: most commands find no settings file, and PyYAML costs as much as the rest of this module.
    from kortix_tui.base.yaml import YamlRefused
    from kortix_tui.base.yaml import load as load_yaml

    try:
        document = load_yaml(raw, file=path.name)
    except YamlRefused as error:
        raise SettingsInvalid(path, error.faults) from error
    data: Any = {} if document.data is None else document.data
    warnings: list[Fault] = []
    if isinstance(data, dict):
        for key in [key for key in data if key not in Settings.model_fields]:
            del data[key]
            message = f"`{key}` is not used by this version" if key in _LATER else f"unknown key `{key}` is ignored"
            hint = None if key in _LATER else _section_of(key) or choose(key, Settings.model_fields)
            place = document.key_place((key,))
            warnings.append(Fault.at(place, (key,), message, code="unknown_key", hint=hint, level=FaultLevel.WARNING))
    settings, faults = validate(Settings, data, document)
    if settings is None:
        raise SettingsInvalid(path, tuple(faults))
    return settings, tuple(warnings)
