"""Tool servers as programs: each in a container of its own, with its own credential and its own hosts only."""

from __future__ import annotations

import json
import logging
import secrets
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.mcp_session import Session, program_session
from kortix_tui.broker.connectors.model import McpProgram
from kortix_tui.broker.egress import EgressProxy
from kortix_tui.broker.listener import DoorListener
from kortix_tui.broker.services import EgressService
from kortix_tui.sandbox.tool_server import ToolProcess, ToolServerProvider, ToolServerSpec
from kortix_tui.vault.redaction import Redactor

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.credentials import Attached

LONGEST_COMPLAINT: Final = 300
_log = logging.getLogger(__name__)


class Programs:
    """Starts tool servers' programs, and ends them.

    Args:
        provider: Makes their containers.
        install_id: The home's.
        folder: Where their doors are.
        egress: The way to the network of a project's connector that declares hosts.
        runtime: The OCI runtime of the operator's choice.
    """

    def __init__(
        self,
        provider: ToolServerProvider,
        install_id: str,
        folder: Path,
        egress: Callable[[str, str, tuple[str, ...]], EgressService],
        *,
        runtime: str | None = None,
    ) -> None:
        self._provider = provider
        self._install_id = install_id
        self._folder = folder
        self._egress = egress
        self._runtime = runtime
        self._running = set[str]()

    async def pin(self, image: str) -> str:
        """The id of an image, which is ready to carry a program then.

        Raises:
            NotFound: It is nowhere to be had.
            KortixError: It cannot carry one; says what it lacks.
        """
        found = await self._provider.pin(image, _log.info)
        await self._provider.prepare(found, _log.info)
        return found

    @asynccontextmanager
    async def session(
        self, program: McpProgram, project_id: str, connector: str, attached: Attached
    ) -> AsyncIterator[Session]:
        """A session with a program that lives as long as this.

        Raises:
            KortixError: It could not be started, or does not speak the protocol.
        """
        async with self._started(program, project_id, connector, attached) as process:

            def why() -> str:
                return f"its program ended{_said(process, attached)}"

            async with program_session(process, why) as session:
                yield session

    async def reap(self) -> list[str]:
        """Remove containers and doors that an earlier host left; returns what was removed."""
        removed = await self._provider.reap(self._install_id, self._running)
        for left in self._folder.iterdir() if self._folder.is_dir() else ():
            if left.name not in self._running:
                shutil.rmtree(left, ignore_errors=True)
        return removed

    @asynccontextmanager
    async def _started(
        self, program: McpProgram, project_id: str, connector: str, attached: Attached
    ) -> AsyncIterator[ToolProcess]:
        image = await self._provider.prepare(program.image, _log.info)
        server_id = f"tool-{secrets.token_hex(6)}"
        self._running.add(server_id)
        async with AsyncExitStack() as stack:
            stack.callback(self._running.discard, server_id)
            token, door = None, None
            if program.hosts:
                token, door = secrets.token_urlsafe(24), self._folder / server_id
                stack.callback(shutil.rmtree, door, ignore_errors=True)
                service = self._egress(project_id, connector, program.hosts)
                listener = DoorListener(door, EgressProxy(service, token).handle)
                await listener.open()
                stack.push_async_callback(listener.close)
            spec = ToolServerSpec(
                server_id=server_id, install_id=self._install_id, project_id=project_id, connector=connector,
                image=image, command=program.command, door=door, runtime=self._runtime,
            )  # fmt: skip
            greeting = json.dumps({"environment": dict(attached.environment), "proxy": token}).encode()
            process = await self._provider.start(spec, greeting)
            stack.push_async_callback(process.close)
            yield process


def _said(process: ToolProcess, attached: Attached) -> str:
    """The last line that a program wrote to its standard error, without the credential that it was given."""
    values = [value.encode() for value in (*attached.secrets, *attached.environment.values()) if value]
    raw = Redactor.of(("credential", value) for value in values).data(process.complaints())
    for value in values:
        raw = raw.replace(value, b"[redacted]")
    lines = raw.decode("utf-8", "replace").strip().splitlines()
    return f": {visible_line(shorten(lines[-1], LONGEST_COMPLAINT))}" if lines else ""
