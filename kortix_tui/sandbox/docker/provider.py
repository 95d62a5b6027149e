"""Sandboxes on Docker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from kortix_tui.base.errors import Conflict, InvalidInput, NotFound, Refused
from kortix_tui.base.text import visible, visible_line
from kortix_tui.sandbox.docker import hardening
from kortix_tui.sandbox.docker.engine import Client, Engine
from kortix_tui.sandbox.docker.hardening import EngineLimits, container_name, volume_name
from kortix_tui.sandbox.docker.limits import likely_open_files, lower_open_files
from kortix_tui.sandbox.failures import ImageMissing, SandboxFailed
from kortix_tui.sandbox.provider import EngineInfo, SandboxSpec, SandboxState

_START_SECONDS = 60.0
_POLL_SECONDS = 0.05
_OUTPUT_BYTES = 64 * 1024
_EXITED = re.compile(r"Exited \((\d+)\)")
Result = TypeVar("Result")
_RUNTIMES = {"runc": "runc", "crun": "crun", "runsc": "runsc (gVisor)", "sysbox-runc": "sysbox-runc (Sysbox)"}


class DockerProvider:
    """The provider for a Docker engine; see `Provider` for what each method promises.

    Connects at the first call and keeps to the endpoint it found: an engine that goes away is waited for,
    another one would not know our sandboxes.

    Args:
        endpoint: The operator's choice of engine, or `None` to look for one.
        runtime: The operator's choice of OCI runtime, for `info`; each `SandboxSpec` names its own.
    """

    def __init__(self, endpoint: str | None = None, *, runtime: str | None = None) -> None:
        self._runtime = runtime
        self._setting = endpoint
        self._engine: Engine | None = None
        self._limits: EngineLimits | None = None
        self._connecting = asyncio.Lock()

    async def engine(self) -> Engine:
        """The connection, for image builds and the isolation probe.

        Raises:
            EngineUnavailable: No engine answers.
        """
        async with self._connecting:
            if self._engine is None:
                self._engine = await Engine.find(self._setting)
            return self._engine

    async def info(self) -> EngineInfo:
        """The engine, or `EngineUnavailable` with what to do."""
        engine = await self.engine()
        version: dict[str, Any] = await engine.call(lambda client: client.version())
        facts: dict[str, Any] = await engine.call(lambda client: client.info())
        return EngineInfo(
            endpoint=engine.endpoint.url,
            found_by=engine.endpoint.found_by,
            version=visible_line(str(version.get("Version", ""))),
            api_version=str(version.get("ApiVersion", "")),
            isolation=_isolation(facts, self._runtime),
            warnings=_warnings(facts, self._runtime),
        )

    async def start(self, spec: SandboxSpec, *, command: Sequence[str] = hardening.ENTRYPOINT) -> SandboxState:
        """Make the sandbox run; see `Provider.start`.

        Args:
            spec: What to make.
            command: Its main process; the isolation probe takes the supervisor's place.

        Raises:
            ImageMissing: The image has to be built again.
            Refused: The name or a volume belongs to something that is not this home's.
            SandboxFailed: The engine could not start it.
        """
        engine = await self.engine()
        existing = await self._inspect(spec.session_id)
        if existing is not None:
            _check_owner(existing, spec)
            if existing["State"]["Running"]:
                if existing["State"]["Paused"]:
                    identity = existing["Id"]
                    await engine.call(lambda client: client.unpause(identity))
                return _state(await self._must_inspect(spec.session_id))
            if await self._outdated(existing, spec):
                await self.remove(spec.session_id, volumes=False)
                existing = None
        limits = await self._engine_limits()
        if existing is None:
            await self._create(spec, limits, command)
        await self._run(spec, limits, command)
        return _state(await self._must_inspect(spec.session_id))

    async def inspect(self, session_id: str) -> SandboxState | None:
        """Its state; `None` only when the engine answered that there is none."""
        raw = await self._inspect(session_id)
        return None if raw is None or not _is_sandbox(raw) else _state(raw)

    async def stop(self, session_id: str, *, grace_s: float = 5.0) -> None:
        """End its processes, keep container and volumes."""
        engine = await self.engine()
        raw = await self._inspect(session_id)
        if raw is None or not _is_sandbox(raw) or not raw["State"]["Running"]:
            return
        if raw["State"]["Paused"]:  # a frozen process cannot hear the signal
            await engine.call(lambda client: client.unpause(raw["Id"]))
        grace = max(0, round(grace_s))
        try:
            await engine.call(lambda client: client.stop(raw["Id"], timeout=grace), seconds=grace + 30.0)
        except NotFound:
            return

    async def remove(self, session_id: str, *, volumes: bool) -> None:
        """Remove the container, and with `volumes` the work kept in it."""
        engine = await self.engine()
        raw = await self._inspect(session_id)
        if raw is not None and _is_sandbox(raw):
            await remove_container(engine, raw["Id"])
        if volumes:
            for role in hardening.VOLUMES:
                await _remove_volume(engine, volume_name(session_id, role))

    async def owned(self, install_id: str) -> list[SandboxState]:
        """All containers of this home.

        From the engine's list, which costs one call however many there are. It does not tell `started_at` and
        `out_of_memory`; `inspect` does.
        """
        engine = await self.engine()
        wanted = {"label": [f"{hardening.LABEL_INSTALL}={install_id}", f"{hardening.LABEL_ROLE}=sandbox"]}
        rows = await engine.call(lambda client: client.containers(all=True, filters=wanted))
        return [_listed(row) for row in rows]

    async def owned_volumes(self, install_id: str) -> set[str]:
        """Session ids that have volumes of this home."""
        engine = await self.engine()
        wanted = {"label": f"{hardening.LABEL_INSTALL}={install_id}"}
        answer = await engine.call(lambda client: client.volumes(filters=wanted))
        found = ((row.get("Labels") or {}).get(hardening.LABEL_SESSION) for row in answer.get("Volumes") or [])
        return {session_id for session_id in found if session_id}

    async def output(self, session_id: str, *, lines: int = 50) -> str:
        """The newest lines of the main process; made visible, cut to 64 KiB."""
        engine = await self.engine()
        name = container_name(session_id)
        try:
            raw = await engine.call(lambda client: client.logs(name, tail=lines, stdout=True, stderr=True))
        except NotFound:
            return ""
        return visible(raw[-_OUTPUT_BYTES:].decode("utf-8", "replace"))

    async def close(self) -> None:
        """Let go of connections and threads."""
        if self._engine is not None:
            await self._engine.close()
            self._engine = None

    async def _inspect(self, session_id: str) -> dict[str, Any] | None:
        engine = await self.engine()
        try:
            return dict(await engine.call(lambda client: client.inspect_container(container_name(session_id))))
        except NotFound:
            return None

    async def _must_inspect(self, session_id: str) -> dict[str, Any]:
        raw = await self._inspect(session_id)
        if raw is None:
            raise SandboxFailed(f"The sandbox of session {session_id} was removed while it was being started.")
        return raw

    async def _outdated(self, existing: dict[str, Any], spec: SandboxSpec) -> bool:
        """Whether the stopped container is of another image, size, door or runtime than wanted now."""
        limits = await self._engine_limits()
        wanted = hardening.container_config(spec, limits)
        kept, asked = existing["HostConfig"], wanted["HostConfig"]
        sizes = ("Memory", "NanoCpus", "PidsLimit")
        if any(kept.get(key) != asked[key] for key in sizes) or existing["Config"]["Image"] != spec.image:
            return True
        if spec.runtime is not None and kept.get("Runtime") != spec.runtime:
            return True
        doors = [
            mount.get("Source") for mount in existing.get("Mounts", []) if mount.get("Destination") == "/run/kortix"
        ]
        if doors != [str(spec.door)]:
            return True
        try:
            image = await self._image(spec.image)
        except ImageMissing:
            return False  # the container still holds its layers
        return bool(image["Id"] != existing["Image"])

    async def _image(self, reference: str) -> dict[str, Any]:
        engine = await self.engine()
        try:
            return dict(await engine.call(lambda client: client.inspect_image(reference)))
        except NotFound:
            raise ImageMissing(
                f"The image {visible_line(reference)} is not on this engine.",
                hint="It is built again when a session starts; or run: kortix sandboxes build",
            ) from None

    async def _engine_limits(self) -> EngineLimits:
        if self._limits is None:
            engine = await self.engine()
            facts: dict[str, Any] = await engine.call(lambda client: client.info())
            files = await asyncio.to_thread(likely_open_files, engine.endpoint.url)
            self._limits = EngineLimits(cpus=float(facts.get("NCPU") or 1), open_files=files)
        return self._limits

    async def _create(self, spec: SandboxSpec, limits: EngineLimits, command: Sequence[str]) -> None:
        """Make volumes and container. Names are fixed, so a repeated call finds what an earlier one made."""
        engine = await self.engine()
        image = await self._image(spec.image)
        await asyncio.gather(*(self._ensure_volume(spec, role) for role in hardening.VOLUMES))
        variables = dict(entry.partition("=")[::2] for entry in (image.get("Config") or {}).get("Env") or [])
        path = variables.get("PATH", hardening.DEFAULT_PATH)
        config = hardening.container_config(spec, limits, path=path, command=command)
        name = container_name(spec.session_id)
        try:
            await engine.call(lambda client: client.create_container_from_config(config, name), seconds=_START_SECONDS)
        except Conflict:
            # Another call of ours was quicker; the engine takes the name a moment before it shows the container.
            raw = await _soon(lambda: self._inspect(spec.session_id), f"The name {name} is taken by nothing.")
            _check_owner(raw, spec)
        except NotFound as error:
            raise ImageMissing(error.message) from error
        except SandboxFailed as error:
            if "runtime" in error.message and spec.runtime is not None:
                raise InvalidInput(
                    f"The engine has no runtime named {visible_line(spec.runtime)}.",
                    hint="Install it in the engine, or take the setting out.",
                ) from error
            raise

    async def _ensure_volume(self, spec: SandboxSpec, role: str) -> None:
        engine = await self.engine()
        name = volume_name(spec.session_id, role)
        wanted = hardening.labels(spec, role)
        volume = await engine.call(lambda client: client.create_volume(name, labels=wanted))
        owner = (volume.get("Labels") or {}).get(hardening.LABEL_INSTALL)
        if owner != spec.install_id:
            raise Refused(
                f"The volume {name} exists, but is not of this home.",
                hint="Remove or rename it; kortix does not touch what it did not make.",
            )

    async def _run(self, spec: SandboxSpec, limits: EngineLimits, command: Sequence[str]) -> None:
        """Start the container; ask for fewer open files when the engine cannot give so many."""
        engine = await self.engine()
        name = container_name(spec.session_id)
        while True:
            try:
                await engine.call(lambda client: client.start(name), seconds=_START_SECONDS)
            except SandboxFailed as error:
                if "rlimit" not in error.message or limits.open_files is None:
                    raise
                limits = EngineLimits(limits.cpus, lower_open_files(limits.open_files))
                self._limits = limits
                await self.remove(spec.session_id, volumes=False)
                await self._create(spec, limits, command)
            else:
                return


async def remove_container(engine: Engine, container_id: str) -> None:
    """Remove a container, running or not, and wait until it is gone."""

    def remove(client: Client) -> None:
        # v: anonymous volumes that the image declares go too; named ones stay.
        client.remove_container(container_id, v=True, force=True)

    try:
        await engine.call(remove, seconds=_START_SECONDS)
    except NotFound:
        return
    except Conflict:
        # Somebody else is removing it; wait for the same end.
        await _soon(lambda: _is_gone(engine, container_id), f"The container {container_id[:12]} cannot be removed.")


async def _is_gone(engine: Engine, container_id: str) -> bool | None:
    """`True` or, as long as it is there, `None`."""
    try:
        await engine.call(lambda client: client.inspect_container(container_id))
    except NotFound:
        return True
    return None


async def _soon(look: Callable[[], Awaitable[Result | None]], failure: str) -> Result:
    """Look until there is something; the engine tells nobody when it is done."""
    try:
        async with asyncio.timeout(_START_SECONDS):
            while (found := await look()) is None:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_SECONDS)
    except TimeoutError:
        raise SandboxFailed(failure, hint="Look at the engine's log.") from None
    return found


async def _remove_volume(engine: Engine, name: str) -> None:
    """Remove a volume if it is one of ours."""
    try:
        volume = await engine.call(lambda client: client.inspect_volume(name))
        if hardening.LABEL_INSTALL in (volume.get("Labels") or {}):
            await engine.call(lambda client: client.remove_volume(name))
    except NotFound:
        return


def _is_sandbox(raw: dict[str, Any]) -> bool:
    return (raw["Config"].get("Labels") or {}).get(hardening.LABEL_ROLE) == "sandbox"


def _check_owner(raw: dict[str, Any], spec: SandboxSpec) -> None:
    found = raw["Config"].get("Labels") or {}
    if found.get(hardening.LABEL_INSTALL) != spec.install_id or found.get(hardening.LABEL_SESSION) != spec.session_id:
        raise Refused(
            f"A container named {container_name(spec.session_id)} exists, but is not of this home.",
            hint="Remove or rename it; kortix does not touch what it did not make.",
        )


def _state(raw: dict[str, Any]) -> SandboxState:
    state, found = raw["State"], raw["Config"].get("Labels") or {}
    return SandboxState(
        session_id=found[hardening.LABEL_SESSION],
        project_id=found.get(hardening.LABEL_PROJECT, ""),
        container_id=raw["Id"],
        image=raw["Config"]["Image"],
        running=state["Running"] and not state.get("Dead", False),
        paused=state.get("Paused", False),
        exit_code=state["ExitCode"] if state["Status"] in ("exited", "dead") else None,
        out_of_memory=state.get("OOMKilled", False),
        created_at=_moment(raw["Created"]),
        started_at=None if state["StartedAt"].startswith("0001") else _moment(state["StartedAt"]),
    )


def _listed(row: dict[str, Any]) -> SandboxState:
    exited = _EXITED.match(row.get("Status", ""))
    return SandboxState(
        session_id=row["Labels"][hardening.LABEL_SESSION],
        project_id=row["Labels"].get(hardening.LABEL_PROJECT, ""),
        container_id=row["Id"],
        image=row["Image"],
        running=row["State"] in ("running", "paused"),
        paused=row["State"] == "paused",
        exit_code=int(exited[1]) if exited else None,
        created_at=datetime.fromtimestamp(row["Created"], UTC),
    )


def _moment(text: str) -> datetime:
    """The engine's time: RFC 3339 with nanoseconds, which `fromisoformat` of Python 3.11 cuts for us."""
    return datetime.fromisoformat(text).astimezone(UTC)


def _isolation(facts: dict[str, Any], runtime: str | None) -> str:
    runtime = runtime or str(facts.get("DefaultRuntime") or "runc")
    words = _RUNTIMES.get(runtime, "Kata Containers" if runtime.startswith("kata") else visible_line(runtime))
    options = " ".join(facts.get("SecurityOptions") or [])
    extra = [word for key, word in (("name=rootless", "rootless"), ("name=userns", "user namespace")) if key in options]
    return ", ".join([words, *extra])


def _warnings(facts: dict[str, Any], runtime: str | None) -> tuple[str, ...]:
    options = " ".join(facts.get("SecurityOptions") or [])
    lacking = (
        ("MemoryLimit", "It cannot limit memory: one sandbox can take all of the machine's."),
        ("PidsLimit", "It cannot limit the number of processes of a sandbox."),
        ("CpuCfsQuota", "It cannot limit a sandbox's processor time."),
    )
    found = [words for key, words in lacking if facts.get(key) is False]
    if "name=seccomp" not in options:
        found.insert(0, "It has no seccomp: sandboxes can use every system call of the kernel.")
    if runtime is not None and runtime not in (facts.get("Runtimes") or {}):
        found.insert(0, f"It has no runtime named {visible_line(runtime)}: no sandbox will start.")
    return tuple(found)
