"""Finding the engine: settings, environment, contexts, known sockets.

The SDK knows `DOCKER_HOST` and the default socket only; people also choose engines through contexts
(`docker context use`). Nothing here imports the SDK: a look costs a few milliseconds.
"""

from __future__ import annotations

import errno
import hashlib
import http.client
import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kortix_tui.base.errors import EngineUnavailable
from kortix_tui.base.text import visible_line

DEFAULT_SOCKET = Path("/var/run/docker.sock")
_PING_SECONDS = 10.0  # a socket-activated engine starts on the first request
_SEES_OUR_FILES = "A sandbox reaches the host only through a folder of this machine that is mounted into it."


@dataclass(frozen=True)
class Endpoint:
    """Where an engine may listen.

    Attributes:
        url: `unix:///…` or `tcp://…`, as the SDK takes it.
        found_by: Who named it, in the words of `EngineInfo.found_by`.
        chosen: A person chose it just now (settings or environment): no other engine stands in for it.
    """

    url: str
    found_by: str
    chosen: bool = False


class Answer(StrEnum):
    """What happened when an endpoint was asked."""

    ANSWERED = "answered"
    ABSENT = "absent"
    STALE = "stale"
    DENIED = "denied"
    SILENT = "silent"
    UNSUITABLE = "unsuitable"


@dataclass(frozen=True)
class Attempt:
    """One endpoint that was asked, and what came of it."""

    endpoint: Endpoint
    answer: Answer
    detail: str = ""


@dataclass(frozen=True)
class Discovery:
    """Every endpoint asked, in order; the last one answered when `endpoint` is not `None`."""

    endpoint: Endpoint | None
    attempts: tuple[Attempt, ...]

    @property
    def denied(self) -> Attempt | None:
        """The first engine that runs, but not for this user."""
        return next((attempt for attempt in self.attempts if attempt.answer is Answer.DENIED), None)

    def failure(self) -> EngineUnavailable:
        """The error to raise when nothing answered: the most telling attempt decides the words."""
        order = (Answer.UNSUITABLE, Answer.SILENT, Answer.DENIED, Answer.STALE, Answer.ABSENT)
        telling = [attempt for attempt in self.attempts if attempt.endpoint.chosen or attempt.answer != Answer.ABSENT]
        if telling:
            return _explain(min(telling, key=lambda attempt: order.index(attempt.answer)))
        return EngineUnavailable("No Docker engine was found on this machine.", hint="Run: kortix setup")


class _DockerEndpoint(BaseModel):
    model_config = ConfigDict(extra="ignore")

    host: str = Field(alias="Host", default="")


class _ContextFile(BaseModel):
    """The part of a context's `meta.json` that we read; the file belongs to the docker client."""

    model_config = ConfigDict(extra="ignore")

    name: str = Field(alias="Name")
    endpoints: dict[str, _DockerEndpoint] = Field(alias="Endpoints", default_factory=dict)


class _ClientConfig(BaseModel):
    """The part of the docker client's `config.json` that we read."""

    model_config = ConfigDict(extra="ignore")

    current_context: str = Field(alias="currentContext", default="")


def discover(setting: str | None = None, environment: Mapping[str, str] | None = None) -> Discovery:
    """Ask the endpoints in order until one answers. Blocks for milliseconds, at most some seconds.

    An endpoint of the settings or the environment is decisive: while it does not answer, no other engine is
    taken, since that one would know none of our sandboxes. Contexts and known sockets fall through when
    they are absent or stale (the socket file of a killed engine stays behind and refuses).

    Args:
        setting: The operator's `docker.endpoint`, or `None`.
        environment: Replaces `os.environ`.
    """
    attempts: list[Attempt] = []
    for endpoint in candidates(setting, os.environ if environment is None else environment):
        attempt = ask(endpoint)
        attempts.append(attempt)
        if attempt.answer is Answer.ANSWERED:
            return Discovery(endpoint, tuple(attempts))
        if endpoint.chosen or attempt.answer is Answer.SILENT:
            break
    return Discovery(None, tuple(attempts))


def candidates(setting: str | None, environment: Mapping[str, str]) -> Iterator[Endpoint]:
    """Every place where an engine may be, best first, each once."""
    seen: set[str] = set()
    for endpoint in _candidates(setting, environment):
        if endpoint.url not in seen:
            seen.add(endpoint.url)
            yield endpoint


def _candidates(setting: str | None, environment: Mapping[str, str]) -> Iterator[Endpoint]:
    if setting:
        yield Endpoint(_as_url(setting), "settings", chosen=True)
        return
    if host := environment.get("DOCKER_HOST"):
        yield Endpoint(_as_url(host), "DOCKER_HOST", chosen=True)
        return
    home = Path(environment.get("HOME") or Path.home())
    folder = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    named = environment.get("DOCKER_CONTEXT", "")
    context = named or _current_context(folder)
    if context and context != "default":
        host = _context_host(folder, context)
        if host:
            yield Endpoint(_as_url(host), f"context {visible_line(context)}", chosen=bool(named))
        elif named:
            raise EngineUnavailable(
                f"DOCKER_CONTEXT names the context {visible_line(named)}, which does not exist.",
                hint="See: docker context ls",
            )
    yield Endpoint(f"unix://{DEFAULT_SOCKET}", "default socket")
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.geteuid()}"
    yield Endpoint(f"unix://{runtime}/docker.sock", "rootless socket")
    yield Endpoint(f"unix://{home}/.docker/run/docker.sock", "Docker Desktop socket")
    yield Endpoint(f"unix://{home}/.docker/desktop/docker.sock", "Docker Desktop socket")


def ask(endpoint: Endpoint) -> Attempt:
    """Send one `GET /_ping`."""
    reason = _unsuitable(endpoint)
    if reason:
        return Attempt(endpoint, Answer.UNSUITABLE, reason)
    connection = _Connection(endpoint.url)
    try:
        connection.request("GET", "/_ping", headers={"Host": "docker"})
        status = connection.getresponse().status
    except (FileNotFoundError, NotADirectoryError):
        return Attempt(endpoint, Answer.ABSENT)
    except PermissionError:
        return Attempt(endpoint, Answer.DENIED)
    except TimeoutError:
        return Attempt(endpoint, Answer.SILENT)
    except (OSError, http.client.HTTPException) as error:
        refused = isinstance(error, OSError) and error.errno in (errno.ECONNREFUSED, errno.ENOTSOCK)
        return Attempt(endpoint, Answer.STALE, "" if refused else visible_line(str(error)))
    finally:
        connection.close()
    if status != http.client.OK:
        return Attempt(endpoint, Answer.STALE, f"it answered with status {status}")
    return Attempt(endpoint, Answer.ANSWERED)


class _Connection(http.client.HTTPConnection):
    """HTTP over the endpoint's own transport."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        super().__init__(parts.hostname or "localhost", parts.port or 2375, timeout=_PING_SECONDS)
        self._socket_path = parts.path if parts.scheme == "unix" else None

    def connect(self) -> None:
        if self._socket_path is None:
            super().connect()
            return
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PING_SECONDS)
        self.sock.connect(self._socket_path)


def _as_url(text: str) -> str:
    return f"unix://{text}" if text.startswith("/") else text


def _unsuitable(endpoint: Endpoint) -> str:
    """Why sandboxes cannot work over this endpoint; empty when they can.

    A loopback TCP address is let through, as it is this machine's engine more often than not; if it is a
    tunnel, the engine says that the door's folder does not exist when the first sandbox is made.
    """
    parts = urlsplit(endpoint.url)
    if parts.scheme == "unix":
        return "" if parts.path else "It names no socket."
    if parts.scheme in ("tcp", "http"):
        if parts.hostname in ("127.0.0.1", "::1", "localhost"):
            return ""
        return f"The engine runs on another machine. {_SEES_OUR_FILES}"
    if parts.scheme == "ssh":
        return f"The engine is reached over SSH, so it runs on another machine. {_SEES_OUR_FILES}"
    return "Only unix:// and loopback tcp:// endpoints can carry sandboxes."


def _explain(attempt: Attempt) -> EngineUnavailable:
    where = f"{visible_line(attempt.endpoint.url)} (found by: {attempt.endpoint.found_by})"
    match attempt.answer:
        case Answer.UNSUITABLE:
            return EngineUnavailable(
                f"The Docker engine at {where} cannot be used. {attempt.detail}",
                hint="Run kortix on the machine where the engine runs, or choose a local engine.",
            )
        case Answer.DENIED:
            return EngineUnavailable(
                f"The Docker engine at {where} may not be used by this user.",
                hint="Run: kortix setup (it offers to add you to the group docker, which is root on this machine).",
            )
        case Answer.SILENT:
            return EngineUnavailable(
                f"The Docker engine at {where} does not answer within {_PING_SECONDS:.0f} s.",
                hint="Look at its log, or restart it.",
            )
        case _:
            detail = f": {attempt.detail}" if attempt.detail else ""
            return EngineUnavailable(
                f"No Docker engine runs at {where}{detail}.", hint="Start it, or run: kortix setup"
            )


def _current_context(folder: Path) -> str:
    try:
        return _ClientConfig.model_validate_json((folder / "config.json").read_bytes()).current_context
    except (OSError, ValidationError):
        return ""  # no configuration, or one that the docker client itself would refuse


def _context_host(folder: Path, context: str) -> str:
    """The host of a context; the docker client keeps each under the SHA-256 of its name."""
    name = hashlib.sha256(context.encode()).hexdigest()
    try:
        meta = _ContextFile.model_validate(json.loads((folder / "contexts/meta" / name / "meta.json").read_bytes()))
    except (OSError, ValueError):
        return ""
    endpoint = meta.endpoints.get("docker")
    return endpoint.host if endpoint is not None and meta.name == context else ""
