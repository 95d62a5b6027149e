"""From the sandbox's claims to the session's record: redacted, cleaned, stored, acknowledged, in this order."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from kortix_tui.base.text import visible
from kortix_tui.base.words import PromptState
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.sandbox.channel import Channel, ChannelClosed
from kortix_tui.sandbox.frames import (
    GapRecord,
    NoteRecord,
    OutputRecord,
    Record,
    StateRecord,
    TurnEndedData,
    TurnEndedRecord,
    TurnStartedRecord,
)
from kortix_tui.store import records
from kortix_tui.store.records import Cleaner, RecordWriter, newest
from kortix_tui.vault.redaction import RedactingStream, Redactor

NOTES: Final = 10_000
STREAMS: Final = 64
ENDS: Final = 256
RETRY_S: Final = 1.0
RESERVE_BYTES: Final = 64 << 20
"""Space that output never takes: the store needs it to say that the disk is full."""


@dataclass(frozen=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        certain: Whether somebody saw it end; otherwise it may have had effects.
        cancelled: Whether it ended because it was told to.
    """

    state: PromptState
    exit_code: int | None
    message: str | None
    certain: bool = True
    cancelled: bool = False

    @classmethod
    def unseen(cls) -> TurnEnd:
        """It ended, and nobody knows how."""
        return cls(PromptState.UNKNOWN, None, "The turn ended unseen; it may have had effects.", certain=False)

    @classmethod
    def of(cls, data: TurnEndedData) -> TurnEnd:
        """What the supervisor says of it."""
        match data.reason:
            case "exited" if data.exit_code == 0:
                return cls(PromptState.FINISHED, 0, None)
            case "exited":
                return cls(PromptState.FAILED, data.exit_code, f"The agent ended with exit status {data.exit_code}.")
            case "cancelled":
                return cls(PromptState.FAILED, data.exit_code, "Stopped before it was finished.", cancelled=True)
            case "not_started":
                return cls(PromptState.FAILED, None, f"The agent could not be started: {visible(data.message)}")
            case _ if data.signal is not None:
                return cls(PromptState.FAILED, None, f"The agent was ended by signal {data.signal}.")
            case _:
                return cls.unseen()


class _Stream:
    """One stream of one turn on its way to the record."""

    def __init__(self, redacting: RedactingStream) -> None:
        self._redacting = redacting
        self._cleaner = Cleaner()

    def feed(self, redactor: Redactor, data: bytes) -> str:
        """What can be stored after this piece; the values may have changed since the last."""
        self._redacting.redactor = redactor
        return self._text(self._redacting.feed(data), final=False)

    def rest(self) -> str:
        """What is still held back: the beginning of something that never came to its end."""
        return self._text(self._redacting.feed(b"", final=True), final=True)

    def _text(self, data: bytes, *, final: bool) -> str:
        # Once more: what cleaning joins or spells differently can be a value now.
        return self._redacting.redactor.text(self._cleaner.feed(data, final=final))


_Streams = dict[tuple[str | None, str], _Stream]


class Recording:
    """Fills one session's record. What it learns wakes the runner through `changed`.

    All writing happens in worker threads, one piece of work at a time. While the disk is short nothing is stored and
    nothing is acknowledged: the sandbox keeps its records and, in the end, its programs wait. The same while the
    values that must not be stored are not known.

    Args:
        session_id: Whose record.
        context: Where it is.
        changed: Set when something was learned.
        redactor: The values that must not be stored, as known now. Called in the loop.
        holding: Why nothing of the sandbox may be stored now, or `None`. Called in the loop, together with `redactor`,
            so whoever changes what both say does it there.
    """

    def __init__(
        self,
        session_id: str,
        context: Context,
        changed: asyncio.Event,
        *,
        redactor: Callable[[], Redactor] = Redactor.none,
        holding: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._session_id = session_id
        self._redactor = redactor
        self._holding = holding
        self._context = context
        self._changed = changed
        self._writer: RecordWriter | None = None
        self._writing = asyncio.Lock()
        self._notes: list[tuple[datetime, str]] = []
        self._noting: asyncio.Task[None] | None = None
        self._streams: _Streams = {}
        self._left: list[dict[str, Any]] = []
        """What streams held back when their connection broke, for the next batch."""
        self._fed_seq = 0
        self._ends: dict[str, TurnEnd] = {}
        self._last_seq = 0
        self.is_ready = False
        self.clone_fault: str | None = None
        self.shortage: str | None = None
        """Why nothing can be stored at this moment."""

    async def open(self, ledger: Ledger) -> None:
        """Open the files, and remember how a turn ended that the store still calls running."""
        if self._writer is not None:
            return
        folder = self._context.home.records(self._session_id)
        prompt = ledger.prompt(self._session_id, PromptState.RUNNING)

        def read() -> tuple[RecordWriter, records.Record | None]:
            # Its start bounds the search: without it a turn that still prints would have the whole record read.
            writer = RecordWriter(folder)
            return writer, newest(folder, prompt.id, "turn_started", "turn_ended") if prompt else None

        self._writer, last = await asyncio.to_thread(read)
        if last is not None and last.turn is not None and last.kind == "turn_ended":
            self._ends[last.turn] = TurnEnd.of(TurnEndedData.model_validate(last.data))

    async def close(self) -> None:
        """Store the last notes, sync and close the files."""
        if self._noting is not None:
            self._noting.cancel()
            await asyncio.gather(self._noting, return_exceptions=True)
        async with self._writing:
            writer, self._writer = self._writer, None
            if writer is not None:
                with contextlib.suppress(OSError):  # a full disk: what matters was not acknowledged
                    await asyncio.to_thread(self._finish, writer)

    def _finish(self, writer: RecordWriter) -> None:
        try:
            self._write_notes(writer)
        finally:
            writer.close()

    def attach(self, last_seq: int) -> None:
        """A supervisor connected; it has records up to `last_seq`.

        It repeats what was not stored, so the streams begin anew, perhaps in the middle of a value.
        """
        self._last_seq = last_seq
        if self._fed_seq <= self.stored_seq:  # otherwise some of it is repeated
            self._left += _rest(self._streams)
        self._streams = {}
        self.is_ready = False
        self.clone_fault = None

    @property
    def stored_seq(self) -> int:
        """The newest sandbox record that is stored for good."""
        return self._writer.synced_seq if self._writer is not None else 0

    @property
    def caught_up(self) -> bool:
        """Whether everything that the supervisor had when it connected is stored."""
        return self.stored_seq >= self._last_seq

    def turn_end(self, turn_id: str) -> TurnEnd | None:
        """How a turn ended, as far as the record tells."""
        return self._ends.get(turn_id)

    # Notes of the host

    def note(self, text: str) -> None:
        """A line of the host's own; written soon."""
        self._notes.append((self._context.clock.now(), _clean(self._redactor(), text)))
        del self._notes[:-NOTES]
        if self._noting is None or self._noting.done():
            self._noting = asyncio.create_task(self._note(), name=f"notes {self._session_id}")

    async def _note(self) -> None:
        while self._notes:
            try:
                async with self._writing:
                    if self._writer is None:
                        return  # written when the record is opened
                    await asyncio.to_thread(self._write_notes, self._writer)
            except OSError:
                await asyncio.sleep(RETRY_S)

    def _write_notes(self, writer: RecordWriter) -> None:
        while self._notes:
            at, text = self._notes[0]
            writer.append(at=at, source="host", kind="note", text=text)
            del self._notes[0]

    # Records of the sandbox

    async def fill(self, channel: Channel, spoken: Callable[[], Awaitable[None]]) -> None:
        """Store records until the channel closes; each batch is on disk before the sandbox hears of it.

        Args:
            channel: Where they come from.
            spoken: Called before a batch is acknowledged.
        """
        streams = self._streams
        async for claims in channel.batches():
            redactor = await self._permitted(channel)
            if redactor is None:
                return
            batch, entries = await asyncio.to_thread(self._entries, claims, redactor, streams)
            while not await self._stored(entries):
                if channel.closed.is_set():
                    return  # the sandbox repeats what was not acknowledged
                await asyncio.sleep(RETRY_S)
            await spoken()
            self._learn(batch)
            with contextlib.suppress(ChannelClosed):  # it is told when it comes back
                await channel.ack(batch[-1].seq)

    async def _permitted(self, channel: Channel) -> Redactor | None:
        """Wait until all values are known that must not be stored; `None` when the channel closes first."""
        while True:
            why, redactor = self._holding(), self._redactor()
            if why is None:
                return redactor
            self._lacks(why)
            if channel.closed.is_set():
                return None
            await asyncio.sleep(RETRY_S)

    async def _stored(self, entries: list[dict[str, Any]]) -> bool:
        """Store a batch; false while the disk does not take it, or nothing may be stored."""
        shortage = self._holding()
        if shortage is None:
            async with self._writing:
                if self._writer is None:
                    return False
                try:
                    await asyncio.to_thread(self._write, self._writer, entries)
                except OSError as error:
                    shortage = str(error.strerror or error)
        self._lacks(shortage)
        return shortage is None

    def _lacks(self, shortage: str | None) -> None:
        if shortage != self.shortage:
            self.shortage = shortage
            self._changed.set()

    def _write(self, writer: RecordWriter, entries: list[dict[str, Any]]) -> None:
        if shutil.disk_usage(self._context.home.path).free < RESERVE_BYTES:
            # What is left is for the store: it must be able to say so, and to stop sessions.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write_notes(writer)
        now = self._context.clock.now()
        for entry in entries:
            writer.append(at=now, source="sandbox", **entry)
        writer.sync()

    def _entries(
        self, claims: list[Record], redactor: Redactor, streams: _Streams
    ) -> tuple[list[Record], list[dict[str, Any]]]:
        """The records without values, and what is stored of them.

        Made once, however often storing is tried: redacting and cleaning remember what was cut.
        """
        self._fed_seq = claims[-1].seq
        batch = [_without_values(record, redactor) for record in claims]
        entries, self._left = self._left, []
        for record in batch:
            fields: dict[str, Any] = {}
            match record:
                case OutputRecord():
                    stream = _stream(streams, record.turn_id, record.stream, redactor)
                    text = stream.feed(redactor, record.body)
                    fields = {"turn": record.turn_id, "stream": record.stream, "text": text}
                case TurnEndedRecord():
                    entries += _rest(streams, record.turn_id)
                    fields = {"turn": record.turn_id, "data": record.data.model_dump()}
                case TurnStartedRecord():
                    for name in ("stdout", "stderr"):
                        _stream(streams, record.turn_id, name, redactor, resuming=False)
                    fields = {"turn": record.turn_id, "data": record.data.model_dump()}
                case StateRecord() | GapRecord():
                    fields["data"] = record.data.model_dump()
                case NoteRecord():
                    fields["text"] = visible(record.data.text)
            entries.append({"kind": record.kind, "seq": record.seq, **fields})
        return batch, entries

    def _learn(self, batch: list[Record]) -> None:
        for record in batch:
            match record:
                case TurnEndedRecord():
                    # The first word counts: an end that is told again, or otherwise, changes nothing.
                    self._ends.setdefault(record.turn_id, TurnEnd.of(record.data))
                    while len(self._ends) > ENDS:
                        del self._ends[next(iter(self._ends))]
                case StateRecord() if record.data.name == "ready":
                    self.is_ready = True
                case StateRecord() if record.data.name == "clone_failed" and record.seq > self._last_seq:
                    # An older one tells of an attempt that broke off with an earlier host; the next is under way.
                    self.clone_fault = visible(record.data.message)
        self._changed.set()


def _stream(streams: _Streams, turn_id: str | None, name: str, redactor: Redactor, *, resuming: bool = True) -> _Stream:
    """A turn's stream. One whose turn was not seen to start may begin in the middle of a value."""
    key = (turn_id, name)
    if key not in streams:
        streams[key] = _Stream(redactor.stream(resuming=resuming))
    while len(streams) > STREAMS:  # a sandbox can make up any number of turns
        del streams[next(iter(streams))]
    return streams[key]


def _rest(streams: _Streams, turn_id: str | None = None) -> list[dict[str, Any]]:
    """What streams still hold back: those of one turn, which ends, or all."""
    keys = [key for key in streams if turn_id is None or key[0] == turn_id]
    texts = {key: streams.pop(key).rest() for key in keys}
    return [
        {"kind": "output", "turn": turn, "stream": name, "text": text} for (turn, name), text in texts.items() if text
    ]


def _clean(redactor: Redactor, text: str) -> str:
    return redactor.text(visible(redactor.text(text)))


def _without_values(record: Record, redactor: Redactor) -> Record:
    """The record with markers in its texts; those of output come in pieces and are done elsewhere."""
    match record:
        case StateRecord() | TurnEndedRecord():
            message = redactor.text(record.data.message, cut=True)
            return record.model_copy(update={"data": record.data.model_copy(update={"message": message})})
        case NoteRecord():
            text = redactor.text(record.data.text, cut=True)
            return record.model_copy(update={"data": record.data.model_copy(update={"text": text})})
    return record
