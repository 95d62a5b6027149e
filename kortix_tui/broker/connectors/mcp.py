"""Tool servers that speak the Model Context Protocol over HTTP: their tools become actions, and are called.

A server decides what its tools are at every moment. So a tool is pinned by a fingerprint when a person accepts it, and
a call of one that has changed since is not sent. Connections stay open for a while: servers keep state in a session.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import rfc8785

from kortix_tui.base.errors import InvalidInput, KortixError
from kortix_tui.base.text import shorten, visible_line
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import Action, Catalogue, Materialised, McpCall, McpTool, Reply
from kortix_tui.broker.connectors.openapi.naming import Wanted, action_name, settle
from kortix_tui.broker.network.client import TOTAL_S, Reach, open_client
from kortix_tui.broker.network.exchange import LONGEST_ANSWER, MaybeSent, NotSent

if TYPE_CHECKING:
    import httpx
    from mcp import ClientSession
    from mcp.types import CallToolResult, Tool

    from kortix_tui.broker.connectors.credentials import Attached

START_S: Final = 30.0
IDLE_S: Final = 300.0
"""So long a server's session is kept without a call."""
MOST_SESSIONS: Final = 32
MOST_TOOLS: Final = 1000
LONGEST_STREAM: Final = 64 << 20
"""Bytes that one answer, or one stream of events, of a server may have."""
_LONGEST_SCHEMA: Final = 256 << 10
T = TypeVar("T")


@dataclass
class _Wish:
    """One call for a session's task."""

    call: McpCall
    answer: asyncio.Future[Reply] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    begun: bool = False


class ToolServers:
    """Sessions with tool servers, one for each endpoint and credential. Implements the runtime's `Tools`.

    Args:
        reach: Where the operator lets connectors go.
    """

    def __init__(self, reach: Reach) -> None:
        self._reach = reach
        self._held: dict[str, _Held] = {}

    async def close(self) -> None:
        """End every session."""
        held, self._held = list(self._held.values()), {}
        await asyncio.gather(*(one.close() for one in held))

    async def discover(self, endpoint: str, transport: str, attached: Attached) -> Catalogue:
        """What a server's tools are now.

        Raises:
            NotSent: It cannot be reached, or does not speak the protocol.
            InvalidInput: Its tools cannot be used.
        """
        async with _failing(endpoint), asyncio.timeout(TOTAL_S), _session(
            self._reach, endpoint, transport, attached
        ) as session:  # fmt: skip
            tools = await session.tools()
        return catalogue(tools, endpoint=endpoint)

    async def call(self, request: Materialised, call: McpCall, attached: Attached) -> Reply:
        """Call a tool.

        Raises:
            NotSent: Certainly without effect.
            MaybeSent: It may have run.
        """
        if call.transport == "stdio":
            raise NotSent("Tool servers over stdio are not served yet.", reason="invalid")
        key = _key(request, call, attached)
        held = self._held.get(key)
        if held is None or held.ended:
            if len(self._held) >= MOST_SESSIONS:
                await self._held.pop(next(iter(self._held))).close()
            held = self._held[key] = _Held(lambda: _session(self._reach, call.endpoint, call.transport, attached))
        return await held.call(call)


class _Held:
    """One session, in a task of its own, as its context must be left by the task that entered it."""

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[_Session]]) -> None:
        self._opened = opened
        self._wishes: asyncio.Queue[_Wish] = asyncio.Queue()
        self._task = asyncio.create_task(self._serve(), name="tool server")

    @property
    def ended(self) -> bool:
        return self._task.done()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def call(self, call: McpCall) -> Reply:
        """Have the session's task call a tool."""
        wish = _Wish(call)
        self._wishes.put_nowait(wish)
        try:
            async with asyncio.timeout(TOTAL_S + START_S):
                either: set[asyncio.Future[Any]] = {wish.answer, self._task}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if wish.answer.done():
                    return wish.answer.result()
        except TimeoutError:
            await self.close()
        why = _why(self._task)
        if wish.begun:
            raise MaybeSent(f"{_host(call.endpoint)} gave no answer: {why}. The call may have run.", reason="broken")
        raise NotSent(f"{_host(call.endpoint)} could not be used: {why}.", reason="unreachable")

    async def _serve(self) -> None:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(START_S):
                session = await stack.enter_async_context(self._opened())
                pinned = {tool.name: fingerprint(tool) for tool in await session.tools()}
            while True:
                try:
                    async with asyncio.timeout(IDLE_S):
                        wish = await self._wishes.get()
                except TimeoutError:
                    return
                if pinned.get(wish.call.tool) != wish.call.fingerprint:
                    pinned = {tool.name: fingerprint(tool) for tool in await session.tools()}
                if pinned.get(wish.call.tool) != wish.call.fingerprint:
                    wish.answer.set_exception(_changed(wish.call))
                    continue
                wish.begun = True
                result = await session.call(wish.call.tool, json.loads(wish.call.arguments))
                if not wish.answer.done():
                    wish.answer.set_result(_reply(result))


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
    return "it closed the connection" if error is None else _words(error)


def _words(error: BaseException) -> str:
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


@asynccontextmanager
async def _failing(endpoint: str) -> AsyncIterator[None]:
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
            f"The tool server {_host(endpoint)} could not be asked: {_words(error)}.", reason="unreachable",
            hint="Check its URL, its transport (http or sse) and the connection: kortix connectors test",
        ) from None  # fmt: skip


class _Session:
    """An initialised session. The package leaves a request waiting when its connection breaks; this does not."""

    def __init__(self, client: ClientSession, broken: asyncio.Event) -> None:
        self._client = client
        self._broken = broken

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool.

        Raises:
            ConnectionError: The connection broke.
        """
        return await self.unbroken(self._client.call_tool(tool, arguments))

    async def tools(self) -> list[Tool]:
        """All tools, page by page.

        Raises:
            InvalidInput: There are too many.
            ConnectionError: The connection broke.
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
            ConnectionError: It broke.
        """
        task, broken = asyncio.create_task(work), asyncio.create_task(self._broken.wait())
        try:
            await asyncio.wait({task, broken}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ConnectionError("the connection broke")
        finally:
            task.cancel()
            broken.cancel()
            await asyncio.gather(task, broken, return_exceptions=True)


@asynccontextmanager
async def _session(reach: Reach, endpoint: str, transport: str, attached: Attached) -> AsyncIterator[_Session]:
    """A session whose requests all carry the credential and go to the endpoint's server only."""
    from mcp import ClientSession
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    parts = urlsplit(endpoint)
    pinned = frozenset({(parts.scheme, parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))})
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
        session = await stack.enter_async_context(
            ClientSession(read, write, read_timeout_seconds=timedelta(seconds=TOTAL_S))
        )
        held = _Session(session, broken)
        await held.unbroken(session.initialize())
        yield held


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


def catalogue(tools: list[Tool], *, endpoint: str) -> Catalogue:
    """Tools as actions.

    Raises:
        InvalidInput: Two tools have one name.
    """
    notes = list[str]()
    tools = sorted(tools, key=lambda tool: tool.name)
    prints = [fingerprint(tool) for tool in tools]
    names = settle([Wanted(action_name(tool.name), tool.name) for tool in tools])
    actions = []
    for name, tool, pin in zip(names, tools, prints, strict=True):
        schema = dict(tool.inputSchema)
        unavailable = None
        if schema.get("type", "object") != "object" or len(json.dumps(schema)) > _LONGEST_SCHEMA:
            unavailable = "its input schema is no object, or is too large"
            schema = {"type": "object"}
            notes.append(f"{name} cannot be called: {unavailable}.")
        actions.append(
            Action(
                name=name, title=shorten(visible_line(tool.title or tool.name), 200),
                description=shorten(tool.description or "", 4000), risk=_risk(tool), input_schema=schema,
                operation=McpTool(tool=tool.name, fingerprint=pin), unavailable=unavailable,
            )
        )  # fmt: skip
    document = hashlib.sha256("\n".join(prints).encode()).hexdigest()
    return Catalogue(
        title=_host(endpoint), document_hash=document, base_url=endpoint, actions=tuple(actions), notes=tuple(notes)
    )


def fingerprint(tool: Tool) -> str:
    """SHA-256 over all that says what a tool is: name, description, input schema, hints."""
    whole = {
        "name": tool.name, "description": tool.description, "inputSchema": tool.inputSchema,
        "annotations": tool.annotations.model_dump(mode="json") if tool.annotations else None,
    }  # fmt: skip
    try:
        data = rfc8785.dumps(whole)
    except rfc8785.CanonicalizationError:  # whole numbers above 2^53
        data = json.dumps(whole, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()


def _risk(tool: Tool) -> Risk:
    """As the server hints; a server that lies is one that a person has connected. Without hints a tool may write."""
    hints = tool.annotations
    if hints is not None and hints.readOnlyHint:
        return Risk.READ
    if hints is not None and hints.destructiveHint:
        return Risk.DESTRUCTIVE
    return Risk.WRITE


def _reply(result: CallToolResult) -> Reply:
    """A tool's result as an answer: the text where it is nothing else, otherwise JSON."""
    from mcp.types import TextContent

    texts = [part.text for part in result.content if isinstance(part, TextContent)]
    if len(texts) == len(result.content) and result.structuredContent is None:
        kind, body = "text/plain; charset=utf-8", "\n".join(texts).encode("utf-8", "replace")
    else:
        kind, body = "application/json", result.model_dump_json(exclude_none=True, by_alias=True).encode()
    return Reply(
        status=500 if result.isError else 200, headers=(("content-type", kind),), body=body[:LONGEST_ANSWER],
        truncated=len(body) > LONGEST_ANSWER, size=len(body),
    )  # fmt: skip


def _key(request: Materialised, call: McpCall, attached: Attached) -> str:
    """Which session a call belongs to. The credential counts: a renewed token is another session."""
    credential = sorted([*attached.headers.items(), *attached.query.items(), *attached.cookies.items()])
    whole = [request.project_id, request.connector, call.endpoint, call.transport, credential]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()


def _host(endpoint: str) -> str:
    return visible_line(urlsplit(endpoint).netloc.rpartition("@")[2] or endpoint)
