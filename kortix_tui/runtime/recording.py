"""From the sandbox's claims to the session's record: cleaned, stored, acknowledged, in this order."""

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

NOTES: Final = 10_000
CLEANERS: Final = 64
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


class Recording:
    """Fills one session's record. What it learns wakes the runner through `changed`.

    All writing happens in worker threads, one piece of work at a time. While the disk is short nothing is stored and
    nothing is acknowledged: the sandbox keeps its records and, in the end, its programs wait.
    """

    def __init__(self, session_id: str, context: Context, changed: asyncio.Event) -> None:
        self._session_id = session_id
        self._context = context
        self._changed = changed
        self._writer: RecordWriter | None = None
        self._writing = asyncio.Lock()
        self._notes: list[tuple[datetime, str]] = []
        self._noting: asyncio.Task[None] | None = None
        self._cleaners: dict[tuple[str | None, str], Cleaner] = {}
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
        """A supervisor connected; it has records up to `last_seq`."""
        self._last_seq = last_seq
        self._cleaners.clear()
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
        self._notes.append((self._context.clock.now(), visible(text)))
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
        async for batch in channel.batches():
            entries = await asyncio.to_thread(self._entries, batch)
            while not await self._stored(entries):
                if channel.closed.is_set():
                    return  # the sandbox repeats what was not acknowledged
                await asyncio.sleep(RETRY_S)
            await spoken()
            self._learn(batch)
            with contextlib.suppress(ChannelClosed):  # it is told when it comes back
                await channel.ack(batch[-1].seq)

    async def _stored(self, entries: list[dict[str, Any]]) -> bool:
        """Store a batch; false while the disk does not take it."""
        shortage: str | None = None
        async with self._writing:
            if self._writer is None:
                return False
            try:
                await asyncio.to_thread(self._write, self._writer, entries)
            except OSError as error:
                shortage = str(error.strerror or error)
        if shortage != self.shortage:
            self.shortage = shortage
            self._changed.set()
        return shortage is None

    def _write(self, writer: RecordWriter, entries: list[dict[str, Any]]) -> None:
        if shutil.disk_usage(self._context.home.path).free < RESERVE_BYTES:
            # What is left is for the store: it must be able to say so, and to stop sessions.
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write_notes(writer)
        now = self._context.clock.now()
        for entry in entries:
            writer.append(at=now, source="sandbox", **entry)
        writer.sync()

    def _entries(self, batch: list[Record]) -> list[dict[str, Any]]:
        """What is stored of records; made once, however often storing is tried: cleaning remembers cut characters."""
        entries: list[dict[str, Any]] = []
        for record in batch:
            fields: dict[str, Any] = {}
            match record:
                case OutputRecord():
                    text = self._cleaner(record.turn_id, record.stream).feed(record.body)
                    fields = {"turn": record.turn_id, "stream": record.stream, "text": text}
                case TurnEndedRecord():
                    entries += self._rest(record.turn_id)
                    fields = {"turn": record.turn_id, "data": record.data.model_dump()}
                case TurnStartedRecord():
                    fields = {"turn": record.turn_id, "data": record.data.model_dump()}
                case StateRecord() | GapRecord():
                    fields["data"] = record.data.model_dump()
                case NoteRecord():
                    fields["text"] = visible(record.data.text)
            entries.append({"kind": record.kind, "seq": record.seq, **fields})
        return entries

    def _cleaner(self, turn_id: str | None, stream: str) -> Cleaner:
        cleaner = self._cleaners.setdefault((turn_id, stream), Cleaner())
        while len(self._cleaners) > CLEANERS:  # a sandbox can make up any number of turns
            del self._cleaners[next(iter(self._cleaners))]
        return cleaner

    def _rest(self, turn_id: str) -> list[dict[str, Any]]:
        """What a turn's streams still hold back: the beginning of something that never came to its end."""
        held = {key: self._cleaners.pop(key) for key in list(self._cleaners) if key[0] == turn_id}
        texts = {stream: cleaner.feed(b"", final=True) for (_, stream), cleaner in held.items()}
        return [
            {"kind": "output", "turn": turn_id, "stream": stream, "text": text}
            for stream, text in texts.items()
            if text
        ]

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
