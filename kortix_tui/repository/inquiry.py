"""The admission hook's one question to the host: do the new objects hold values of secrets?

Hook and host share a pair of connected sockets, whose other end git passes on to the hook. There is no path, no name
and nothing to find for anybody else; and when one side dies, the other knows at once. The hook never sees a value: it
says which objects came, and hears the verdict.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Final

from kortix_tui.base.errors import GitFailed, KortixError
from kortix_tui.repository.mirror import Mirror
from kortix_tui.repository.process import Git
from kortix_tui.repository.value_scan import FoundValue, ValueScan, ascii_words, refusal, search

UNSEARCHED: Final = "the push could not be searched for values of secrets"

_HEAD: Final = re.compile(rb"(\d{1,9}) ((?:tmp_objdir-)?incoming-\w{1,32})?\n\Z")


class Inquiry:
    """One push's question and answer.

    Args:
        mirror: Where the push goes.
        scan: What is known of values.
        tips: The commits that it brings.
        known: Refs (or beginnings of refs) whose commits were searched before, or are not the session's.
        binding: Whether a value keeps the push out. Rescued work is searched, told of and let in: no work is lost.
        objects: How many there may be at most.

    Attributes:
        found: What the search found.
        unsearched: Why there was no search although there should have been one.
    """

    def __init__(
        self,
        mirror: Mirror,
        scan: ValueScan | None,
        *,
        tips: Sequence[str],
        known: Sequence[str],
        binding: bool,
        objects: int,
    ) -> None:
        self.found: tuple[FoundValue, ...] = ()
        self.unsearched: str | None = None
        self._mirror = mirror
        self._scan = scan
        self._tips = tips
        self._known = known
        self._binding = binding
        self._objects = objects

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[int | None]:
        """Wait for the question as long as the block runs.

        Yields:
            The descriptor that git has to pass on to the hook, or `None` when there is nothing to search for.
        """
        if self._scan is not None and (barred := self._scan.barred()) is not None:
            self.unsearched = ascii_words(barred)
        if self._scan is None or self._scan.finder() is None:
            yield None
            return
        ours, theirs = socket.socketpair()
        with theirs:
            reader, writer = await asyncio.open_connection(sock=ours)
            answering = asyncio.create_task(self._answer(self._scan, reader, writer), name="push inquiry")
            try:
                yield theirs.fileno()
            finally:
                answering.cancel()
                (failed,) = await asyncio.gather(answering, return_exceptions=True)
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()
            if failed is not None and not isinstance(failed, asyncio.CancelledError):
                raise failed

    async def _answer(self, scan: ValueScan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            git, objects = await self._question(reader)
            refused = await self._judge(scan, git, objects)
            writer.write(f"refused {refused}\n".encode("ascii") if refused is not None else b"accepted\n")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return  # the push ended without a question, or without waiting for the answer
        finally:
            writer.close()  # a hook whose answer does not come is told so

    async def _question(self, reader: asyncio.StreamReader) -> tuple[Git, list[str]]:
        """The objects that came, and a git that sees them."""
        head = _HEAD.match(await reader.readline())
        if head is None or int(head[1]) > self._objects:
            raise GitFailed("The check of a push asked something else.", hint="Run kortix doctor.")
        width = len(self._mirror.object_format.zero) + 1
        listing = await reader.readexactly(int(head[1]) * width)
        git = self._mirror.git
        if head[2] is not None:
            folder = self._mirror.path / "objects" / head[2].decode("ascii")
            git = git.having(environment={"GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(str(folder))})
        return git, listing.decode("ascii").split()

    async def _judge(self, scan: ValueScan, git: Git, objects: Sequence[str]) -> str | None:
        """Why the push is refused, in ASCII words, or `None`."""
        self.unsearched = None
        finder, barred = scan.finder(), scan.barred()
        if barred is not None:
            self.unsearched = ascii_words(barred)
        elif finder is not None:
            try:
                known = (await self._mirror.refs(*self._known)).values()
                self.found = await search(git, finder, tips=self._tips, known=known, also=objects)
            except KortixError as error:
                self.unsearched = f"{UNSEARCHED}: {ascii_words(error.message)}"
        if not self._binding:
            return None
        return refusal(self.found) if self.found else self.unsearched


def _quoted(path: str) -> str:
    """As git reads one entry of a list of paths, which a colon would end."""
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'
