"""Tool servers on Docker: each program in a container of its own, hardened like a sandbox and with less in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from kortix_tui import __version__
from kortix_tui.base.errors import NotFound
from kortix_tui.base.text import visible_line
from kortix_tui.sandbox.commands import Progress
from kortix_tui.sandbox.docker import build, hardening
from kortix_tui.sandbox.docker.attaching import ERROR, Attachment, attach
from kortix_tui.sandbox.docker.engine import Engine
from kortix_tui.sandbox.docker.provider import remove_container
from kortix_tui.sandbox.images import BUILD_SECONDS, Images, Template
from kortix_tui.sandbox.tool_server import LONGEST_LINE, ProgramBroken, ToolServerSpec

ENTRYPOINT: Final = ("/opt/kortix/bin/python3", "-I", "-S", "/opt/kortix/tool_server.py")
ROLE: Final = "tool-server"
TEMPLATE: Final = "tool-server"
LABEL_SERVER: Final = "kortix.tool-server"
LABEL_CONNECTOR: Final = "kortix.connector"
_ID: Final = "sha256:"
_USER: Final = "1000:1000"
_HOME_BYTES: Final = 64 * hardening.MEBIBYTE
_COMPLAINTS: Final = 16 << 10
_START_S: Final = 60.0


def container_config(spec: ToolServerSpec) -> dict[str, Any]:
    """The body of the engine's create call.

    Written out, as it is a security boundary. Beside a sandbox's it has no capability, no root, no volume and no log;
    the credential is not in it.
    """
    # Every engine can promise one processor; its own limit on open files is enough for one program.
    limits = hardening.EngineLimits(cpus=1.0, open_files=None)
    scratch = hardening.scratch_bytes(spec.memory_bytes)
    return {
        "Image": spec.image,
        "Hostname": ROLE,
        "User": _USER,
        "Entrypoint": list(ENTRYPOINT),
        "Cmd": list(spec.command),
        "Labels": {
            hardening.LABEL_INSTALL: spec.install_id,
            hardening.LABEL_PROJECT: spec.project_id,
            hardening.LABEL_ROLE: ROLE,
            hardening.LABEL_VERSION: __version__,
            LABEL_SERVER: spec.server_id,
            LABEL_CONNECTOR: spec.connector,
        },
        "Healthcheck": {"Test": ["NONE"]},
        "Tty": False,
        "OpenStdin": True,
        # A host that dies closes it: a program that follows the protocol ends then by itself.
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "HostConfig": {
            **hardening.confinement(
                limits, cpus=spec.cpus, memory_bytes=spec.memory_bytes, pids=spec.pids, runtime=spec.runtime,
                capabilities=(),
            ),
            "AutoRemove": True,
            "Tmpfs": {
                "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={scratch}",  # noqa: S108  # inside the container
                "/home/agent": f"rw,exec,nosuid,nodev,mode=0700,uid=1000,gid=1000,size={_HOME_BYTES}",
            },
            "Mounts": [] if spec.door is None else [hardening.door_mount(spec.door)],
            "LogConfig": {"Type": "none"},
        },
    }  # fmt: skip


class DockerToolServers:
    """The provider for a Docker engine; see `ToolServerProvider` for what each method promises.

    Args:
        engine: Gives the connection.
        images: Puts our layer on an image.
    """

    def __init__(self, engine: Callable[[], Awaitable[Engine]], images: Images) -> None:
        self._engine = engine
        self._images = images

    async def pin(self, image: str, progress: Progress) -> str:
        """The id of an image; fetched when it is not here."""
        engine = await self._engine()
        if (found := await build.image_id(engine, image)) is not None:
            return found
        if image.startswith(_ID):
            raise _gone(image)
        await build.pull(engine, image, progress, seconds=BUILD_SECONDS)
        if (found := await build.image_id(engine, image)) is None:
            raise NotFound(f"The image {visible_line(image)} is not on the engine after it was fetched.")
        return found

    async def prepare(self, image_id: str, progress: Progress) -> str:
        """A reference of that image with our entry in it; built when it is not here."""
        template = Template(slug=TEMPLATE, image=image_id)
        if (found := await self._images.find(template)) is not None:
            return found
        if await build.image_id(await self._engine(), image_id) is None:
            raise _gone(image_id)  # no registry knows an image by its id
        return await self._images.ensure(template, progress)

    async def start(self, spec: ToolServerSpec, greeting: bytes) -> _Process:
        """Start a program."""
        engine = await self._engine()
        name = f"kortix-{spec.server_id}"
        config = container_config(spec)
        made = await engine.call(lambda client: client.create_container_from_config(config, name))
        identity = str(made["Id"])
        process: _Process | None = None
        try:
            process = _Process(engine, identity, await attach(engine.endpoint, identity))
            await engine.call(lambda client: client.start(identity), seconds=_START_S)
            await process.send(greeting)
        except BaseException:
            if process is not None:
                await process.close()
            else:
                await remove_container(engine, identity)
            raise
        return process

    async def reap(self, install_id: str, kept: Collection[str]) -> list[str]:
        """Remove this home's tool servers, but those that are named."""
        engine = await self._engine()
        wanted = {"label": [f"{hardening.LABEL_INSTALL}={install_id}", f"{hardening.LABEL_ROLE}={ROLE}"]}
        rows = await engine.call(lambda client: client.containers(all=True, filters=wanted))
        removed = []
        for row in rows:
            server_id = str(row["Labels"].get(LABEL_SERVER, ""))
            if server_id not in kept:
                await remove_container(engine, str(row["Id"]))
                removed.append(server_id)
        return removed


def _gone(image_id: str) -> NotFound:
    return NotFound(
        f"The image {visible_line(image_id)} is not on this engine any more.",
        hint="Fetch it, then have the connector read again: kortix connectors sync",
    )


class _Process:
    """A program behind an attachment."""

    def __init__(self, engine: Engine, container_id: str, attachment: Attachment) -> None:
        self._engine = engine
        self._container_id = container_id
        self._attachment = attachment
        self._output = bytearray()
        self._searched = 0
        self._complaints = bytearray()

    async def send(self, line: bytes) -> None:
        """Write a line to its standard input."""
        await self._attachment.send(line + b"\n")

    async def receive(self) -> bytes | None:
        """The next line of its standard output; `None` when it has ended."""
        while (end := self._output.find(b"\n", self._searched)) < 0:
            self._searched = len(self._output)
            if self._searched > LONGEST_LINE:
                raise ProgramBroken(f"It sent a message of more than {LONGEST_LINE >> 20} MiB.")
            piece = await self._attachment.receive()
            if piece is None:
                return None
            stream, data = piece
            if stream == ERROR:
                self._complaints += data
                del self._complaints[:-_COMPLAINTS]
            else:
                self._output += data
        line = bytes(self._output[:end])
        del self._output[: end + 1]
        self._searched = 0
        return line

    def complaints(self) -> bytes:
        """The newest that it wrote to its standard error."""
        return bytes(self._complaints)

    async def close(self) -> None:
        """End it, and remove its container."""
        self._attachment.close()
        await remove_container(self._engine, self._container_id)
