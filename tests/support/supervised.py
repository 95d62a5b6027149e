"""A real sandbox with our supervisor in it, and a small host at its door."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kortix_tui.base.ids import new_session_id
from kortix_tui.repository.door import GitDoor
from kortix_tui.repository.mirror import Mirror
from kortix_tui.sandbox.docker.hardening import container_name
from kortix_tui.sandbox.frames import Repository, TurnEndedData, TurnOrder
from kortix_tui.sandbox.provider import SandboxSpec
from tests.support.door import SmallHost, open_door
from tests.support.engine import Bench, bench


@dataclass
class Sandbox:
    """One running session."""

    bench: Bench
    spec: SandboxSpec
    host: SmallHost
    mirror: Mirror
    door: Path
    turns: int = 0

    async def run(self, *command: str, prompt: str = "") -> tuple[TurnEndedData, str]:
        """Run a program as a turn; its end, and what it wrote to both streams."""
        self.turns += 1
        turn_id = f"t{self.turns}"
        channel = await self.host.connected()
        await channel.start_turn(TurnOrder(turn_id=turn_id, command=command), prompt)
        end = await self.host.ended(turn_id)
        return end.data, (self.host.output(turn_id) + self.host.output(turn_id, "stderr")).decode()

    async def sh(self, script: str) -> str:
        """Run a shell script that must succeed."""
        end, text = await self.run("bash", "-ec", script)
        assert end.exit_code == 0, text
        return text

    async def python(self, code: str) -> str:
        """Run Python that must succeed."""
        end, text = await self.run("python3", "-c", code)
        assert end.exit_code == 0, text
        return text

    @property
    def container(self) -> str:
        return container_name(self.spec.session_id)

    def git(self, *arguments: str) -> str:
        """Look into the mirror."""
        done = subprocess.run(["git", *arguments], cwd=self.mirror.path, capture_output=True, check=True)
        return done.stdout.decode().strip()

    def logs(self) -> str:
        """What the supervisor printed."""
        done = subprocess.run(["docker", "logs", self.container], capture_output=True, check=True)
        return (done.stdout + done.stderr).decode()


@asynccontextmanager
async def sandbox(
    folder: Path, *, repository: bool = True, serve: bool = True, **changes: Any
) -> AsyncIterator[Sandbox]:
    """A sandbox with a clone of a small repository, gone afterwards.

    Args:
        folder: Where the host's things are.
        repository: Whether the agent has access to it.
        serve: Whether the door is served; otherwise the test does it.
        changes: Other than the usual fields of the specification.
    """
    session_id = new_session_id()
    source = folder / "source"
    people = {f"GIT_{role}_{part}": "a@b" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    for words in (
        ("init", "-q", "-b", "main", str(source)),
        ("-C", str(source), "commit", "-q", "--allow-empty", "-m", "zero"),
    ):
        subprocess.run(["git", *words], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **people})
    (source / "a.txt").write_text("a\n")
    for words in (("add", "."), ("commit", "-qm", "one")):
        subprocess.run(
            ["git", "-C", str(source), *words], check=True, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), **people}
        )
    mirror, _ = await Mirror.create_from(folder / "mirror.git", str(source))
    base = await mirror.copy_base("main")
    await mirror.create_session_branch(session_id, base)
    host = SmallHost(
        session_id,
        repository=Repository(branch=session_id, base_branch="main", base_commit=base) if repository else None,
        git=GitDoor(mirror, session_id, "main") if repository else None,
        environment={"FROM_HOST": "yes"},
    )
    door = folder / "door"
    door.mkdir(mode=0o711)
    async with bench(door) as made, contextlib.AsyncExitStack() as stack:
        if serve:
            await stack.enter_async_context(open_door(door, host))
        spec = made.spec(session_id, **changes)
        await made.provider.start(spec)
        yield Sandbox(made, spec, host, mirror, door)
