"""Where the browser comes back to after a person agreed: one page on this machine's loopback address (RFC 8252)."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from kortix_tui.base.errors import KortixError, Refused
from kortix_tui.broker.connectors.oauth import Authorization, OAuthClient, OAuthFailed, authorization, read_redirect

HEAD_S: Final = 10.0
MAX_HEAD: Final = 16 << 10
_PATH: Final = "/callback"
_PAGE: Final = (
    "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {length}\r\n"
    "cache-control: no-store\r\nreferrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n"
    "connection: close\r\n\r\n"
)


class Loopback:
    """Listens for one answer. Whoever else on this machine calls it does not know the state, and changes nothing."""

    def __init__(self, client: OAuthClient) -> None:
        self._client = client
        self._server: asyncio.Server | None = None
        self._code: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._tasks = set[asyncio.Task[None]]()
        self.asked: Authorization

    async def start(self, port: int = 0) -> Authorization:
        """Listen.

        Args:
            port: For providers that want the exact address registered; otherwise any free one.

        Raises:
            Refused: The port is taken.
            InvalidInput: The provider's authorization URL is not known.
        """
        try:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", port, limit=MAX_HEAD)
        except OSError as error:
            raise Refused(
                f"Port {port} of 127.0.0.1 cannot be used: {error.strerror}.", hint="Choose another: --port N"
            ) from error
        number = self._server.sockets[0].getsockname()[1]
        self.asked = authorization(self._client, f"http://127.0.0.1:{number}{_PATH}")
        return self.asked

    async def code(self) -> str:
        """Wait for the code; the caller has the deadline.

        Raises:
            OAuthFailed: The person or the provider said no.
        """
        return await asyncio.shield(self._code)

    def give(self, text: str) -> None:
        """Take the address that the person copied from a browser on another machine.

        Raises:
            Refused: It answers another request.
            KortixError: It has no code, or says no.
        """
        try:
            code = read_redirect(text, self.asked)
        except OAuthFailed as error:
            if not self._code.done():
                self._code.set_exception(error)
            raise
        if not self._code.done():
            self._code.set_result(code)

    async def close(self) -> None:
        """Listen no more. Safe to call again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await server.wait_closed()
        if not self._code.done():
            self._code.cancel()
        elif not self._code.cancelled():
            self._code.exception()  # looked at, so that nobody complains that it was not

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs this callback as a task
        self._tasks.add(task)
        try:
            async with asyncio.timeout(HEAD_S):
                line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n", 1)[0]
                status, text = self._answer(line.decode("ascii", "replace"))
                page = f"<!doctype html><title>kortix</title><p>{text}</p>".encode()
                writer.write(_PAGE.format(status=status, length=len(page)).encode() + page)
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # the caller left or is none of ours, or the listening ends: nobody waits for this task's word
        finally:
            self._tasks.discard(task)
            with contextlib.suppress(OSError):
                writer.close()

    def _answer(self, line: str) -> tuple[str, str]:
        method, _, rest = line.partition(" ")
        target = rest.partition(" ")[0]
        if method != "GET" or target.partition("?")[0] != _PATH:
            return "404 Not Found", "There is nothing here."
        try:
            self.give(target)
        except Refused:
            return "400 Bad Request", "This does not answer what was asked. Begin again in the terminal."
        except KortixError:
            return "200 OK", "It was not agreed to. The terminal says more; this window can be closed."
        return "200 OK", "Done. You can close this window and go back to the terminal."
