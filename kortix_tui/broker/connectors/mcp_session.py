"""One session with a tool server, by whichever way its messages travel."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from kortix_tui.base.errors import InvalidInput, KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.broker.network.client import TOTAL_S, Reach, open_client, server_of

if TYPE_CHECKING:
    import httpx
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp import ClientSession
    from mcp.shared.message import SessionMessage
    from mcp.types import CallToolResult, Tool

    from kortix_tui.broker.connectors.credentials import Attached
    from kortix_tui.sandbox.tool_server import ToolProcess

START_S: Final = 30.0
IDLE_S: Final = 300.0
"""So long a server's session is kept without a call."""
MOST_TOOLS: Final = 1000
LONGEST_STREAM: Final = 64 << 20
"""Bytes that one answer, or one stream of events, of a server may have."""
_BROKE: Final = "the connection broke, or could not be made"
T = TypeVar("T")


class SessionBroke(KortixError):
    """The connection to a tool server, or its program, ended. The message says how, and holds nothing of what was
    sent."""

    code: ClassVar[str] = "session_broke"


def words(error: BaseException) -> str:
    """Why something failed, without the full stop; holds nothing of what was sent."""
    import httpx
    from mcp import McpError

    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    match error:
        case KortixError():
            return error.message.rstrip(".")
        case httpx.HTTPStatusError():
            return f"it answered with status {error.response.status_code}"
        case McpError():
            return f"it says {visible_line(shorten(error.error.message, 200))!r}"
        case TimeoutError() | httpx.TimeoutException():
            return "it did not answer in time"
        case httpx.HTTPError() | OSError():
            return "the connection broke, or could not be made"
        case _:
            return f"it does not speak the protocol ({type(error).__name__})"


class Session:
    """An initialised session. The package leaves a request waiting when its connection breaks; this does not.

    Args:
        client: The package's.
        broken: Set when the connection breaks.
        why: How it broke, in words.
    """

    def __init__(self, client: ClientSession, broken: asyncio.Event, why: Callable[[], str]) -> None:
        self._client = client
        self._broken = broken
        self._why = why

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool.

        Raises:
            SessionBroke: The connection broke.
        """
        return await self.unbroken(self._client.call_tool(tool, arguments))

    async def tools(self) -> list[Tool]:
        """All tools, page by page.

        Raises:
            InvalidInput: There are too many.
            SessionBroke: The connection broke.
        """
        found: list[Tool] = []
        cursor: str | None = None
        while True:
            page = await self.unbroken(self._client.list_tools(cursor))
            found += page.tools
            cursor = page.nextCursor
            if len(found) > MOST_TOOLS or (cursor is not None and not page.tools):
                raise InvalidInput(f"The tool server lists more than {MOST_TOOLS} tools, or a list without end.")
            if cursor is None:
                return found

    async def unbroken(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for the package, or for the connection to break.

        Raises:
            SessionBroke: It broke.
        """
        from mcp import McpError

        task, broken = asyncio.create_task(work), asyncio.create_task(self._broken.wait())
        try:
            await asyncio.wait({task, broken}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not (self._broken.is_set() and isinstance(task.exception(), McpError)):
                return task.result()
            raise SessionBroke(self._why())
        finally:
            task.cancel()
            broken.cancel()
            await asyncio.gather(task, broken, return_exceptions=True)


@asynccontextmanager
async def http_session(reach: Reach, endpoint: str, transport: str, attached: Attached) -> AsyncIterator[Session]:
    """A session whose requests all carry the credential and go to the endpoint's server only."""
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    pinned = frozenset({server_of(endpoint)})
    broken = asyncio.Event()
    async with AsyncExitStack() as stack:

        def client(headers: Any = None, timeout: Any = None, auth: Any = None) -> httpx.AsyncClient:
            """The one client, in the shape that the package asks for; its own settings of it do not count."""
            made = open_client(reach, pinned=pinned)
            made.headers.update({**(headers or {}), **attached.headers})
            made.params = made.params.merge(dict(attached.query))
            if attached.cookies:
                made.headers["cookie"] = "; ".join(f"{name}={value}" for name, value in attached.cookies.items())
            _watch(made, broken, listening=transport == "sse")
            return made

        if transport == "sse":
            read, write = await stack.enter_async_context(sse_client(endpoint, httpx_client_factory=client))
        else:
            http = await stack.enter_async_context(client())
            read, write, _ = await stack.enter_async_context(streamable_http_client(endpoint, http_client=http))
        yield await stack.enter_async_context(_initialised(read, write, broken, lambda: _BROKE))


@asynccontextmanager
async def program_session(process: ToolProcess, why: Callable[[], str]) -> AsyncIterator[Session]:
    """A session over a program's standard input and output; `why` says how the program ended."""
    import anyio
    from mcp.shared.message import SessionMessage

    broken, faults = asyncio.Event(), list[str]()
    incoming, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, outgoing = anyio.create_memory_object_stream[SessionMessage](0)
    pumps = [
        asyncio.create_task(_receive(process, incoming, broken, faults), name="tool server out"),
        asyncio.create_task(_send(process, outgoing, broken), name="tool server in"),
    ]
    try:
        async with _initialised(read, write, broken, lambda: faults[0] if faults else why()) as session:
            yield session
    finally:
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)


async def _receive(
    process: ToolProcess,
    sink: MemoryObjectSendStream[SessionMessage | Exception],
    broken: asyncio.Event,
    faults: list[str],
) -> None:
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCMessage
    from pydantic import ValidationError

    try:
        while (line := await process.receive()) is not None:
            try:
                message = JSONRPCMessage.model_validate_json(line)
            except ValidationError:
                continue  # many programs print a greeting first
            await sink.send(SessionMessage(message))
    except KortixError as error:
        faults.append(error.message.rstrip("."))
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        return  # whoever waits is told by `broken`
    finally:
        broken.set()
        sink.close()


async def _send(process: ToolProcess, source: MemoryObjectReceiveStream[SessionMessage], broken: asyncio.Event) -> None:
    try:
        async for one in source:
            await process.send(one.message.model_dump_json(by_alias=True, exclude_none=True).encode())
    except OSError:
        broken.set()
    finally:
        source.close()


@asynccontextmanager
async def _initialised(
    read: MemoryObjectReceiveStream[SessionMessage | Exception],
    write: MemoryObjectSendStream[SessionMessage],
    broken: asyncio.Event,
    why: Callable[[], str],
) -> AsyncIterator[Session]:
    from mcp import ClientSession

    limit = timedelta(seconds=TOTAL_S)
    async with ClientSession(read, write, read_timeout_seconds=limit) as client:
        session = Session(client, broken, why)
        await session.unbroken(client.initialize())
        yield session


def _watch(client: httpx.AsyncClient, broken: asyncio.Event, *, listening: bool) -> None:
    """Have a client tell when a connection breaks, and break off an answer that does not end.

    Args:
        listening: Whether the server's answers come over the stream that a GET opens.
    """
    import httpx

    class Watched(httpx.AsyncByteStream):
        def __init__(self, stream: httpx.AsyncByteStream, counts: bool) -> None:
            self._stream = stream
            self._counts = counts

        async def __aiter__(self) -> AsyncIterator[bytes]:
            left = LONGEST_STREAM
            try:
                async for piece in self._stream:
                    left -= len(piece)
                    if left < 0:
                        raise httpx.ReadError("the answer is too long")
                    yield piece
            except Exception:
                if self._counts:
                    broken.set()
                raise

        async def aclose(self) -> None:
            await self._stream.aclose()

    original = client.send

    async def send(request: httpx.Request, **options: Any) -> httpx.Response:
        counts = listening or request.method != "GET"
        if request.method == "GET":  # a stream on which nothing may come for long
            request.extensions["timeout"]["read"] = IDLE_S + START_S
        try:
            response = await original(request, **options)
        except Exception:
            if counts:
                broken.set()
            raise
        if isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = Watched(response.stream, counts)
        return response

    client.send = send  # type: ignore[method-assign]
