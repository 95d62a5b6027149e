"""What tests against the real engine share: a provider, its images, and objects that go away."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kortix_tui.base.ids import new_session_id
from kortix_tui.sandbox.docker.hardening import LABEL_INSTALL, container_name
from kortix_tui.sandbox.docker.provider import DockerProvider
from kortix_tui.sandbox.images import Images, Template
from kortix_tui.sandbox.provider import SandboxSpec

PYTHON = "/opt/kortix/bin/python3"
_WAIT = "import signal; s = [signal.SIGTERM]; signal.pthread_sigmask(signal.SIG_BLOCK, s); signal.sigwait(s)"
WAIT = (PYTHON, "-I", "-S", "-c", _WAIT)
"""A main process that does nothing until it is told to end."""


class Bench:
    """One test's home on the engine."""

    def __init__(self, provider: DockerProvider, image: str, door: Path) -> None:
        self.provider = provider
        self.image = image
        self.door = door
        self.install_id = f"test-{secrets.token_hex(6)}"

    def spec(self, session_id: str | None = None, **changes: Any) -> SandboxSpec:
        values = {
            "session_id": session_id or new_session_id(),
            "install_id": self.install_id,
            "project_id": "prj_test",
            "image": self.image,
            "door": self.door,
            "cpus": 1.0,
            "memory_bytes": 256 << 20,
        }
        return SandboxSpec.model_validate(values | changes)

    async def printed(self, spec: SandboxSpec) -> str:
        """What the sandbox's main process printed until it ended."""
        name = container_name(spec.session_id)
        engine = await self.provider.engine()
        await engine.call(lambda client: client.wait(name, timeout=60), seconds=60)
        return await self.provider.output(spec.session_id, lines=200)

    async def run(self, code: str, **changes: Any) -> str:
        """Run Python as the main process (container root) of a new sandbox."""
        spec = self.spec(**changes)
        await self.provider.start(spec, command=[PYTHON, "-I", "-S", "-c", code])
        return await self.printed(spec)


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    """A bench whose containers and volumes are gone afterwards."""
    provider = DockerProvider()
    try:
        image = await Images(provider.engine).ensure(Template(), print)
        made = Bench(provider, image, folder)
        try:
            yield made
        finally:
            await asyncio.to_thread(sweep, made.install_id)
    finally:
        await provider.close()


def sweep(install_id: str) -> None:
    """Remove everything with the label."""
    label = f"label={LABEL_INSTALL}={install_id}"
    for kind, removal in ((("ps", "-aq"), ("rm", "-f", "-v")), (("volume", "ls", "-q"), ("volume", "rm", "-f"))):
        found = docker(*kind, "--filter", label).split()
        if found:
            docker(*removal, *found)


def docker(*arguments: str) -> str:
    """Run the engine's own client, which knows nothing of our code."""
    return subprocess.run(["docker", *arguments], check=True, capture_output=True, text=True, timeout=120).stdout


def inspect(name: str) -> dict[str, Any]:
    """What the engine says of an object."""
    found: dict[str, Any] = json.loads(docker("inspect", name))[0]
    return found
