"""Tool servers that speak the Model Context Protocol: their tools become actions, and are called.

A server decides what its tools are at every moment. So a tool is pinned by a fingerprint when a person accepts it, and
a call of one that has changed since is not sent. Connections stay open for a while: servers keep state in a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kortix_tui.base.errors import InvalidInput, Refused
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.connectors.mcp_session import IDLE_S, START_S, Session, http_session, words
from kortix_tui.broker.connectors.mcp_tools import catalogue, fingerprint, refusal, reply
from kortix_tui.broker.connectors.model import Catalogue, Materialised, McpCall, McpProgram, Reply
from kortix_tui.broker.network.client import TOTAL_S, Reach
from kortix_tui.broker.network.exchange import MaybeSent, NotSent

if TYPE_CHECKING:
    from kortix_tui.broker.connectors.credentials import Attached
    from kortix_tui.broker.connectors.mcp_programs import Programs
    from kortix_tui.manifest.connectors import McpConnector

PROGRAM_START_S: Final = 120.0
"""As `START_S`, for a program: our layer of its image may have to be made anew."""
MOST_SESSIONS: Final = 16
"""Of which each may be a program in a container."""
_CLOSED: Final = -32000
_TIMED_OUT: Final = 408
"""What the protocol's package reports as if the server had said it."""


@dataclass
class _Wish:
    """One call for a session's task."""

    call: McpCall
    answer: asyncio.Future[Reply] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    begun: bool = False


class ToolServers:
    """Sessions with tool servers, one for each connector, endpoint and credential. Implements the runtime's `Tools`.

    Args:
        reach: Where the operator lets connectors go.
        programs: Runs servers over stdio; without it, they are refused.
    """

    def __init__(self, reach: Reach, programs: Programs | None = None) -> None:
        self._reach = reach
        self._programs = programs
        self._held: dict[str, _Held] = {}
        self._parting: list[_Held] = []

    async def close(self) -> None:
        """End every session."""
        held, self._held, self._parting = [*self._held.values(), *self._parting], {}, []
        await asyncio.gather(*(one.close() for one in held))

    async def discover(self, endpoint: str, transport: str, attached: Attached) -> Catalogue:
        """What a server's tools are now.

        Raises:
            NotSent: It cannot be reached, or does not speak the protocol.
            InvalidInput: Its tools cannot be used.
        """
        hint = "Check its URL, its transport (http or sse) and the connection: kortix connectors test"
        async with _failing(_host(endpoint), hint), asyncio.timeout(TOTAL_S), http_session(
            self._reach, endpoint, transport, attached
        ) as session:  # fmt: skip
            tools = await session.tools()
        return catalogue(tools, title=_host(endpoint), endpoint=endpoint)

    async def discover_program(self, project_id: str, connector: McpConnector, attached: Attached) -> Catalogue:
        """What the tools of a server over stdio are; its image is fetched and made ready where it is not.

        Raises:
            Refused: No engine runs programs here.
            NotFound: The image is nowhere to be had.
            NotSent: The program does not start, or does not speak the protocol.
            InvalidInput: Its tools cannot be used.
            KortixError: The image cannot carry a program.
        """
        programs, name = self._able(), connector.image or ""
        image = await programs.pin(name)
        program = McpProgram(image=image, command=connector.command or (), hosts=connector.hosts)
        shown = visible_line(name)
        hint = "Check its command, its image and the connection."
        async with _failing(shown, hint), asyncio.timeout(TOTAL_S), programs.session(
            program, project_id, connector.slug, attached
        ) as session:  # fmt: skip
            tools = await session.tools()
        return catalogue(tools, title=shown, endpoint=f"stdio:{name}@{image}", image=image)

    async def call(self, request: Materialised, call: McpCall, attached: Attached) -> Reply:
        """Call a tool.

        Raises:
            NotSent: Certainly without effect.
            MaybeSent: It may have run.
        """
        key = _key(request, call, attached)
        if self._open_one(key) is None:
            await self._make_room()
        held = self._open_one(key)
        if held is None:
            held = self._held[key] = self._open(request, call, attached)
        return await held.call(call)

    def _open_one(self, key: str) -> _Held | None:
        held = self._held.get(key)
        return None if held is None or held.parting else held

    def _open(self, request: Materialised, call: McpCall, attached: Attached) -> _Held:
        if call.transport != "stdio":
            return _Held(lambda: http_session(self._reach, call.endpoint, call.transport, attached), START_S)
        program = call.program
        if program is None or self._programs is None:
            raise NotSent(_NO_PROGRAMS, reason="invalid")
        programs, project_id, connector = self._programs, request.project_id, request.connector
        return _Held(lambda: programs.session(program, project_id, connector, attached), PROGRAM_START_S)

    def _able(self) -> Programs:
        if self._programs is None:
            raise Refused(_NO_PROGRAMS, hint="Set sandbox.provider: docker.")
        return self._programs

    async def _make_room(self) -> None:
        """End the session that has been open longest, of those that nobody waits for."""
        self._parting = [held for held in (*self._parting, *self._held.values()) if held.parting and not held.ended]
        self._held = {key: held for key, held in self._held.items() if not held.parting}
        if len(self._held) < MOST_SESSIONS:
            return
        idle = next((other for other, held in self._held.items() if not held.waiting), None)
        if idle is None:
            raise NotSent(
                f"{MOST_SESSIONS} tool servers are in use.", reason="unreachable", hint="Try again in a moment."
            )
        await self._held.pop(idle).close()


_NO_PROGRAMS: Final = "Tool servers over stdio need Docker on this machine."


class _Held:
    """One session, in a task of its own, as its context must be left by the task that entered it.

    Args:
        opened: Opens it.
        start_s: How long that may take.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[Session]], start_s: float) -> None:
        self._opened = opened
        self._start_s = start_s
        self._wishes: asyncio.Queue[_Wish] = asyncio.Queue()
        self._task = asyncio.create_task(self._serve(), name="tool server")
        self._left = False
        self.waiting = 0

    @property
    def parting(self) -> bool:
        """Whether it takes no call any more."""
        return self._left or self._task.done()

    @property
    def ended(self) -> bool:
        """Whether nothing of it is left."""
        return self._task.done()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def call(self, call: McpCall) -> Reply:
        """Have the session's task call a tool."""
        wish = _Wish(call)
        self._wishes.put_nowait(wish)
        self.waiting += 1
        try:
            async with asyncio.timeout(TOTAL_S + self._start_s):
                either: set[asyncio.Future[Any]] = {wish.answer, self._task}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if wish.answer.done():
                    return wish.answer.result()
        except TimeoutError:
            await self.close()
        finally:
            self.waiting -= 1
            wish.answer.cancel()  # what nobody waits for any more is not begun
        why = _why(self._task)
        if wish.begun:
            raise MaybeSent(f"{_host(call.endpoint)} gave no answer: {why}. The call may have run.", reason="broken")
        raise NotSent(f"{_host(call.endpoint)} could not be used: {why}.", reason="unreachable")

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            stack.callback(self._part)
            async with asyncio.timeout(self._start_s):
                session = await stack.enter_async_context(self._opened())
                pinned = {tool.name: fingerprint(tool) for tool in await session.tools()}
            stack.callback(self._part)  # before the session is left, which takes a while
            while True:
                try:
                    async with asyncio.timeout(IDLE_S):
                        wish = await self._wishes.get()
                except TimeoutError:
                    if self._wishes.empty():
                        return
                    continue
                if pinned.get(wish.call.tool) != wish.call.fingerprint:
                    pinned = {tool.name: fingerprint(tool) for tool in await session.tools()}
                if wish.answer.done():
                    continue
                if pinned.get(wish.call.tool) != wish.call.fingerprint:
                    wish.answer.set_exception(_changed(wish.call))
                    continue
                wish.begun = True
                answer = await _answer(session, wish.call)
                if not wish.answer.done():
                    wish.answer.set_result(answer)

    def _part(self) -> None:
        self._left = True


async def _answer(session: Session, call: McpCall) -> Reply:
    from mcp import McpError

    try:
        return reply(await session.call(call.tool, json.loads(call.arguments)))
    except McpError as error:
        if error.error.code in (_CLOSED, _TIMED_OUT):
            raise
        return refusal(error.error)


def _changed(call: McpCall) -> NotSent:
    return NotSent(
        f"The tool {visible_line(shorten(call.tool, 100))} is not any more what a person accepted.",
        reason="tool_changed", hint="A person must look at it: kortix connectors sync",
    )  # fmt: skip


def _why(task: asyncio.Task[None]) -> str:
    """Why a session ended, in words that hold nothing of what was sent."""
    if not task.done() or task.cancelled():
        return "it took too long"
    error: BaseException | None = task.exception()
    return "it closed the connection" if error is None else words(error)


@asynccontextmanager
async def _failing(shown: str, hint: str) -> AsyncIterator[None]:
    try:
        yield
    except InvalidInput:
        raise
    except Exception as error:
        found: BaseException = error
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        if isinstance(found, InvalidInput):
            raise found from None
        raise NotSent(
            f"The tool server {shown} could not be asked: {words(error)}.", reason="unreachable", hint=hint
        ) from None


def _key(request: Materialised, call: McpCall, attached: Attached) -> str:
    """Which session a call belongs to. The credential counts: a renewed token is another session."""
    parts = (attached.headers, attached.query, attached.cookies, attached.environment)
    program = call.program.model_dump(mode="json") if call.program is not None else None
    whole = [
        request.project_id, request.connector, call.endpoint, call.transport, program, request.credential,
        [sorted(part.items()) for part in parts],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _host(endpoint: str) -> str:
    return visible_line(urlsplit(endpoint).netloc.rpartition("@")[2] or endpoint)
