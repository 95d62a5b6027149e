"""The host's end of a person's shell: opened in the sandbox, carried both ways, recorded when it opens and closes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.base.words import Outcome, SessionStatus
from kortix_tui.guest import wire
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.control_frames import Closed, Data, Frame, Opened, OpenRequest, Resize, pack

if TYPE_CHECKING:
    from kortix_tui.sandbox.shell_stream import ShellStream

OpenShell = Callable[[str, int, int, str], "Awaitable[ShellStream]"]
Frames = AsyncIterator[tuple[Any, bytes]]
OPEN_S: Final = 30.0


class Traffic:
    """How many bytes went through a shell; the bytes themselves are kept nowhere."""

    def __init__(self) -> None:
        self.inward = 0
        self.outward = 0


async def serve_shell(
    context: Context, open_shell: OpenShell, request: OpenRequest, frames: Frames, writer: asyncio.StreamWriter
) -> None:
    """Serve one shell until it ends or the client hangs up."""
    shell = await _open(context, open_shell, request)
    began, traffic = time.monotonic(), Traffic()
    try:
        writer.write(pack(Opened()))
        await _relay(frames, writer, shell, traffic)
    finally:
        await asyncio.shield(_finish(context, request, shell, traffic, time.monotonic() - began))


async def _open(context: Context, open_shell: OpenShell, request: OpenRequest) -> ShellStream:
    session_id = request.session_id
    row = context.store.one("SELECT status, removed_at FROM sessions WHERE id = ?", (session_id,))
    try:
        if row is None or row[1] is not None:
            raise Refused("There is no such session, or it was removed.", hint="See `kortix sessions ls`.")
        if row[0] != SessionStatus.RUNNING:
            raise Refused(
                f"Session {session_id} is {row[0]}: it has no shell.",
                hint=f"Resume it first: kortix sessions resume {session_id}",
            )
        async with asyncio.timeout(OPEN_S):
            shell = await open_shell(session_id, request.rows, request.columns, request.term)
    except TimeoutError:
        await _audit(context, "session.shell.open", request, Outcome.FAILURE)
        raise Refused("The sandbox did not open a shell in time.", hint="Try again in a moment.") from None
    except KortixError:
        await _audit(context, "session.shell.open", request, Outcome.FAILURE)
        raise
    await _audit(context, "session.shell.open", request, Outcome.SUCCESS)
    return shell


async def _finish(context: Context, request: OpenRequest, shell: ShellStream, traffic: Traffic, seconds: float) -> None:
    with contextlib.suppress(KortixError):
        await shell.close()
    await _audit(
        context, "session.shell.close", request, Outcome.SUCCESS, seconds=round(seconds, 1), exit_code=shell.exit_code,
        bytes_in=traffic.inward, bytes_out=traffic.outward,
    )  # fmt: skip


async def _audit(context: Context, event: str, request: OpenRequest, outcome: Outcome, **detail: Any) -> None:
    # The peer is our own user; who that is comes from us, only the way in is what the peer says of itself.
    actor = request.actor.model_copy(update={"kind": "human", "name": context.actor.name})

    def write() -> None:
        with context.store.write() as tx:
            row = tx.execute("SELECT project_id FROM sessions WHERE id = ?", (request.session_id,)).fetchone()
            tx.audit(
                event, scope=f"session {request.session_id}", actor=actor, outcome=outcome,
                project_id=row[0] if row else None, session_id=request.session_id if row else None, **detail,
            )  # fmt: skip

    await asyncio.to_thread(write)


async def _relay(frames: Frames, writer: asyncio.StreamWriter, shell: ShellStream, traffic: Traffic) -> None:
    """Carry bytes both ways until the shell ends or the client hangs up."""

    async def inward() -> None:
        frame: Frame
        async for frame, body in frames:
            if isinstance(frame, Resize):
                await shell.resize(frame.rows, frame.columns)
            elif isinstance(frame, Data):
                traffic.inward += len(body)
                await shell.write(body)

    async def outward() -> None:
        while data := await shell.read():
            traffic.outward += len(data)
            for start in range(0, len(data), wire.PIECE):
                writer.write(pack(Data(), data[start : start + wire.PIECE]))
                await writer.drain()
        writer.write(pack(Closed(exit_code=shell.exit_code)))
        await writer.drain()

    ways = {asyncio.create_task(inward()), asyncio.create_task(outward())}
    try:
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in done:
            way.result()
    finally:
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
