"""The host's end of a supervisor's channel.

Whatever comes from inside is a claim of the sandbox: each frame is checked against a model, sizes and counts are
limited, record numbers must grow without holes. What does not fit closes the channel with a typed error; the
supervisor connects again and repeats what was not acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections import deque
from collections.abc import AsyncIterator, Mapping
from typing import Any

from pydantic import ValidationError

from kortix_tui.base.errors import DeadlineExceeded, KortixError
from kortix_tui.guest import wire
from kortix_tui.sandbox.frames import (
    GapRecord,
    Hello,
    Incoming,
    Pong,
    Record,
    RescueResult,
    ShellClosed,
    ShellData,
    Status,
    Stopping,
    TurnOrder,
    Welcome,
    incoming,
)
from kortix_tui.sandbox.shell_stream import ShellStream

_HELLO_S = 20.0
_SEND_S = 30.0
_PING_EVERY_S = 10.0
_SILENCE_S = 30.0
_RECORDS = 64
_RESCUE_S = 150.0
_PROMPT_PIECE = 256 * 1024
_CHUNK = 256 * 1024


class ChannelClosed(KortixError):
    """The sandbox's supervisor is not connected any more; it connects again by itself."""

    code = "sandbox_disconnected"


class ProtocolViolation(KortixError):
    """The sandbox sent something that is not the protocol; its channel was closed."""

    code = "sandbox_protocol"


class Channel:
    """One connection of a supervisor.

    The order is `hello`, `welcome`, then everything else. Records must be taken by a task of their own: while they
    are not, nothing else is read either, and the sandbox waits.

    Args:
        reader: From the sandbox.
        writer: To the sandbox.
        trailing: What had been read already when the connection was upgraded.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, trailing: bytes = b"") -> None:
        self._reader = reader
        self._writer = writer
        self._trailing = trailing
        self._decoder = wire.Decoder()
        self._early: list[tuple[bytes, bytes]] = []
        self._sending = asyncio.Lock()
        self._records: deque[Record] = deque()
        self._news = asyncio.Event()
        self._space = asyncio.Event()
        self._last_seq = 0
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._shells: dict[str, ShellStream] = {}
        self._ids = itertools.count(1)
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = asyncio.get_running_loop().time()
        self.closed = asyncio.Event()
        """Set once nothing more will come or go."""
        self.failure: KortixError | None = None
        """Why it closed, when it was not `close` that did it."""

    # ---- opening --------------------------------------------------------------------------------------------

    async def hello(self, *, deadline: float = _HELLO_S) -> Hello:
        """The supervisor's first frame.

        Raises:
            ProtocolViolation: It is something else, or of a version that is not served.
            ChannelClosed: The supervisor left.
            DeadlineExceeded: It says nothing.
        """
        try:
            async with asyncio.timeout(deadline):
                data = self._trailing or await self._reader.read(_CHUNK)
                while data:
                    self._early += self._decoder.feed(data)
                    if self._early:
                        break
                    data = await self._reader.read(_CHUNK)
        except TimeoutError as error:
            raise await self._fail(DeadlineExceeded("The sandbox's supervisor does not speak.")) from error
        except (OSError, wire.FrameError) as error:
            raise await self._fail(_as_failure(error)) from error
        if not self._early:
            raise await self._fail(ChannelClosed("The sandbox's supervisor left."))
        try:
            frame = self._parse(*self._early.pop(0))
        except ProtocolViolation as error:
            raise await self._fail(error) from error
        if not isinstance(frame, Hello) or frame.version != wire.VERSION:
            raise await self._fail(
                ProtocolViolation(
                    "The sandbox's supervisor speaks another version.", hint="Stop and resume the session."
                )
            )
        return frame

    async def welcome(self, welcome: Welcome) -> None:
        """Answer the hello and begin to read.

        Args:
            welcome: Its `stored_seq` is where the records go on.

        Raises:
            ChannelClosed: The supervisor left.
        """
        self._last_seq = welcome.stored_seq
        await self._send({"type": "welcome", **welcome.model_dump(mode="json")})
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._keep_alive())]

    # ---- what the sandbox tells -----------------------------------------------------------------------------

    async def records(self) -> AsyncIterator[Record]:
        """Records in order, each once, until the channel closes."""
        async for batch in self.batches():
            for record in batch:
                yield record

    async def batches(self) -> AsyncIterator[list[Record]]:
        """The same, all together that wait at the moment: storing many at once costs little more than storing one."""
        while True:
            while self._records:
                batch = list(self._records)
                self._records.clear()
                self._space.set()
                yield batch
            if self.closed.is_set():
                return
            self._news.clear()
            await self._news.wait()

    async def _read(self) -> None:
        try:
            for header, body in self._early:
                await self._take(self._parse(header, body))
            self._early.clear()
            while data := await self._reader.read(_CHUNK):
                self._heard = asyncio.get_running_loop().time()
                for header, body in self._decoder.feed(data):
                    await self._take(self._parse(header, body))
        except (OSError, wire.FrameError, ProtocolViolation) as error:
            self._end(_as_failure(error))
        else:
            self._end(ChannelClosed("The sandbox's supervisor left."))

    def _parse(self, header: bytes, body: bytes) -> Incoming | None:
        try:
            return incoming(wire.parse_header(header), body)
        except (wire.FrameError, ValidationError) as error:
            raise ProtocolViolation("The sandbox sent a frame that is not valid.") from error

    async def _take(self, frame: Incoming | None) -> None:
        match frame:
            case None:
                pass  # a type of a newer supervisor
            case RescueResult() | Pong() | Stopping() | Status():
                answer = self._answers.get(frame.id)
                if answer is not None and not answer.done():
                    answer.set_result(frame)
            case ShellData():
                shell = self._shells.get(frame.id)
                if shell is not None and not shell.feed(frame.body):
                    raise ProtocolViolation("The sandbox sent more shell output than it was asked for.")
            case ShellClosed():
                shell = self._shells.pop(frame.id, None)
                if shell is not None:
                    shell.end(frame.exit_code)
            case Hello():
                raise ProtocolViolation("The sandbox greeted twice.")
            case _:
                self._check_number(frame)
                while len(self._records) >= _RECORDS:
                    self._space.clear()
                    await self._space.wait()
                self._records.append(frame)
                self._news.set()

    def _check_number(self, record: Record) -> None:
        first = record.seq
        if isinstance(record, GapRecord):
            first = record.data.first
            if record.data.last != record.seq or first > record.seq:
                raise ProtocolViolation("The sandbox sent a gap that is none.")
        if first != self._last_seq + 1:
            raise ProtocolViolation(f"The sandbox sent record {record.seq} where {self._last_seq + 1} was due.")
        self._last_seq = record.seq

    # ---- what the host asks ---------------------------------------------------------------------------------

    async def ack(self, seq: int) -> None:
        """Everything up to `seq` is stored; the sandbox may forget it."""
        await self._send({"type": "ack", "seq": seq})

    async def start_turn(self, order: TurnOrder, prompt: str) -> None:
        """Run a turn once the workspace is ready. What becomes of it comes as records.

        Args:
            order: What to run.
            prompt: What the person wrote.
        """
        data = prompt.encode("utf-8", "surrogatepass")
        pieces = [data[start : start + _PROMPT_PIECE] for start in range(0, len(data), _PROMPT_PIECE)] or [b""]
        header: dict[str, Any] = {"type": "start_turn", **order.model_dump(mode="json")}
        for number, piece in enumerate(pieces, start=1):
            await self._send({**header, "more": number < len(pieces)}, piece)
            header = {"type": "start_turn_more", "turn_id": order.turn_id}

    async def cancel_turn(self, turn_id: str) -> None:
        """End a turn's program: SIGTERM, after five seconds SIGKILL."""
        await self._send({"type": "cancel_turn", "turn_id": turn_id})

    async def rescue(self, number: int, reason: str, *, deadline: float = _RESCUE_S) -> RescueResult:
        """Have unsaved work pushed to `refs/kortix/rescue/<session>/<number>`.

        Raises:
            ChannelClosed: The supervisor left.
            DeadlineExceeded: It did not finish.
        """
        fields = {"type": "rescue", "n": number, "reason": reason}
        result: RescueResult = await self._ask(fields, RescueResult, deadline)
        return result

    async def ping(self, *, deadline: float = _SILENCE_S) -> None:
        """Return when the supervisor answers."""
        await self._ask({"type": "ping"}, Pong, deadline)

    async def status(self, *, deadline: float = 30.0) -> Status:
        """How many programs run, and whether the workspace has uncommitted work."""
        result: Status = await self._ask({"type": "status_request"}, Status, deadline)
        return result

    async def shutdown(self, grace_s: float) -> None:
        """End every program of the agent and the supervisor itself; returns when they are gone."""
        await self._ask({"type": "shutdown", "grace_s": grace_s}, Stopping, grace_s + 20.0)

    async def open_shell(
        self, *, rows: int, columns: int, term: str = "xterm-256color", environment: Mapping[str, str] | None = None
    ) -> ShellStream:
        """Open a person's shell.

        Args:
            rows: Of the person's terminal.
            columns: Of the person's terminal.
            term: What programs are told that it is.
            environment: Added to what every shell gets.

        Raises:
            ChannelClosed: The supervisor left.
        """
        shell = ShellStream(f"s{next(self._ids)}", self._send)
        self._shells[shell.shell_id] = shell
        header = {"type": "shell_open", "id": shell.shell_id, "rows": rows, "cols": columns, "term": term}
        await self._send({**header, "environment": dict(environment or {})})
        return shell

    async def _ask(self, header: dict[str, Any], model: type[Any], deadline: float) -> Any:
        request_id = f"q{next(self._ids)}"
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        try:
            async with asyncio.timeout(deadline):
                await self._send({**header, "id": request_id})
                frame = await answer
        except TimeoutError as error:
            raise DeadlineExceeded(f"The sandbox did not answer the {header['type']} in time.") from error
        finally:
            del self._answers[request_id]
        if not isinstance(frame, model):
            raise ProtocolViolation("The sandbox answered something else than it was asked.")
        return frame

    async def _send(self, header: dict[str, Any], body: bytes = b"") -> None:
        if self.closed.is_set():
            raise ChannelClosed("The sandbox is not connected.") from self.failure
        try:
            async with asyncio.timeout(_SEND_S), self._sending:
                self._writer.write(wire.encode(header, body))
                await self._writer.drain()
        except (OSError, TimeoutError) as error:
            failure = ChannelClosed("The sandbox's supervisor takes nothing.")
            self._end(failure)
            raise failure from error

    async def _keep_alive(self) -> None:
        """Notice a supervisor that is there and does not speak."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            # While our own consumer is behind, nothing is read: then silence is ours, not theirs.
            if len(self._records) >= _RECORDS:
                self._heard = loop.time()
            elif loop.time() - self._heard > _SILENCE_S:
                self._end(ChannelClosed("The sandbox's supervisor is silent."))
                return
            with contextlib.suppress(ChannelClosed):
                await self._send({"type": "ping", "id": "alive"})

    # ---- closing --------------------------------------------------------------------------------------------

    async def _fail(self, failure: KortixError) -> KortixError:
        self._end(failure)
        return failure

    def _end(self, failure: KortixError | None) -> None:
        if self.closed.is_set():
            return
        self.failure = failure
        self.closed.set()
        self._news.set()
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(ChannelClosed("The sandbox's supervisor left."))
        for shell in self._shells.values():
            shell.end(None)
        self._shells.clear()
        self._writer.close()

    async def close(self) -> None:
        """End the connection and everything that waits for it. The sandbox goes on, and connects again."""
        self._end(None)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _as_failure(error: Exception) -> KortixError:
    if isinstance(error, KortixError):
        return error
    if isinstance(error, wire.FrameError):
        return ProtocolViolation("The sandbox sent something that is not a frame.")
    return ChannelClosed("The connection to the sandbox broke.")
