"""The supervisor as a part of the test's own process: same code, same user, its folders elsewhere."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

from kortix_tui.guest.identity import Identity
from kortix_tui.guest.places import Places
from kortix_tui.guest.session import Session


def places(folder: Path) -> Places:
    """Everything of a sandbox below one folder, made where the image would have it."""
    for name in ("state", "run/prompts", "workspace", "home"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    return Places(
        door=str(folder / "door" / "door.sock"),
        state=str(folder / "state"),
        run=str(folder / "run"),
        workspace=str(folder / "workspace"),
        home=str(folder / "home"),
    )


@contextlib.asynccontextmanager
async def running(session_id: str, where: Places) -> AsyncIterator[Session]:
    """A supervisor at work. Leaving ends it and its programs as a sandbox's death does: nothing is tidied up."""
    session = Session(session_id, where, Identity(None, where.home))
    task = asyncio.create_task(session.run())
    try:
        yield session
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        for process, _ in session.children._waiting.values():
            assert isinstance(process, subprocess.Popen)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
