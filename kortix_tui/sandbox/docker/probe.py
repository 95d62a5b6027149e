"""The isolation probe: a real sandbox with the production arguments that reports what it cannot do."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from kortix_tui.base.errors import EngineUnavailable, NotFound
from kortix_tui.base.ids import new_session_id
from kortix_tui.base.text import visible, visible_line
from kortix_tui.sandbox.docker import hardening
from kortix_tui.sandbox.docker.engine import Client
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.failures import SandboxFailed
from kortix_tui.sandbox.provider import SandboxSpec

PROBE_INSTALL = "kortix-probe"
"""Stands where a home's id stands: no home takes the probe's container for one of its sandboxes."""
_SECONDS = 60.0
_LEFTOVER_SECONDS = 600
_MEMORY = 256 * hardening.MEBIBYTE


class Finding(BaseModel):
    """One property of the sandbox.

    Attributes:
        name: The probe, as in `inside.py`.
        held: Whether the property holds.
        seen: What the probe saw, made visible.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    held: bool
    seen: str


_REPORT = TypeAdapter(dict[str, tuple[bool, str]])


async def probe_isolation(
    provider: DockerProvider, image: str, *, runtime: str | None = None, folder: Path | None = None
) -> list[Finding]:
    """Start a throwaway sandbox that tests itself. Takes about a second.

    Args:
        provider: The engine to test.
        image: A template image.
        runtime: The OCI runtime of sandboxes, when it is not the engine's default.
        folder: Where the probe's door lies meanwhile: in the home, as some engines see only parts of the disk.

    Raises:
        EngineUnavailable: No engine, or one that does not see this machine's files.
        SandboxFailed: The sandbox could not be started, or reported nothing.
    """
    await _remove_leftovers(provider)
    session_id = new_session_id()
    async with _door(folder) as door:
        spec = SandboxSpec(
            session_id=session_id,
            install_id=PROBE_INSTALL,
            project_id="probe",
            image=image,
            door=door,
            cpus=1.0,
            memory_bytes=_MEMORY,
            runtime=runtime,
        )
        script = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
        try:
            await provider.start(spec, command=[hardening.ENTRYPOINT[0], "-I", "-S", "-c", script])
            printed = await _printed(provider, session_id)
        finally:
            with suppress(EngineUnavailable):
                await provider.remove(session_id, volumes=True)
    try:
        report = _REPORT.validate_python(json.loads(printed.strip().rpartition("\n")[2]))
    except (ValueError, ValidationError):
        raise SandboxFailed(f"The isolation probe reported nothing usable:\n{visible(printed[-2000:])}") from None
    return [Finding(name=name, held=held, seen=visible_line(seen)) for name, (held, seen) in report.items()]


async def _printed(provider: DockerProvider, session_id: str) -> str:
    engine = await provider.engine()
    name = hardening.container_name(session_id)

    def wait(client: Client) -> None:
        client.wait(name, timeout=_SECONDS)

    await engine.call(wait, seconds=_SECONDS)
    return await provider.output(session_id, lines=100)


async def _remove_leftovers(provider: DockerProvider) -> None:
    """Remove what a killed probe left behind; one that may still run is left alone."""
    engine = await provider.engine()
    wanted = {"label": f"{hardening.LABEL_INSTALL}={PROBE_INSTALL}"}
    oldest = time.time() - _LEFTOVER_SECONDS
    rows = await engine.call(lambda client: client.containers(all=True, filters=wanted))
    running = {row["Labels"][hardening.LABEL_SESSION] for row in rows if row["Created"] >= oldest}
    old = {row["Labels"][hardening.LABEL_SESSION] for row in rows} - running
    for session_id in old:
        with suppress(NotFound):
            await provider.remove(session_id, volumes=True)


@asynccontextmanager
async def _door(parent: Path | None) -> AsyncIterator[Path]:
    """A door folder as a session has it, with a host behind it that says hello."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"kortix door")
        await writer.drain()
        writer.close()

    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="probe-", dir=parent))
    try:
        listener = await asyncio.to_thread(_bind, folder)
        server = await asyncio.start_unix_server(greet, sock=listener)
        try:
            yield folder
        finally:
            server.close()
            await server.wait_closed()
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _bind(folder: Path) -> socket.socket:
    folder.chmod(0o711)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A socket's path has 107 bytes at most; through the folder's descriptor any home fits.
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        listener.bind(f"/proc/self/fd/{descriptor}/door.sock")
    finally:
        os.close(descriptor)
    (folder / "door.sock").chmod(0o666)
    listener.setblocking(False)
    return listener
