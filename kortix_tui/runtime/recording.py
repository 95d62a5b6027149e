"""From the sandbox's claims to the session's record: cleaned, stored, acknowledged, in this order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from kortix_tui.base.text import visible
from kortix_tui.base.words import PromptState
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.sandbox.channel import Channel
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
from kortix_tui.store.records import Cleaner, RecordWriter, newest

BATCH: Final = 256


@dataclass(frozen=True)
class TurnEnd:
    """How a turn ended.

    Attributes:
        certain: Whether somebody saw it end; otherwise it may have had effects.
    """

    state: PromptState
    exit_code: int | None
    message: str | None
    certain: bool = True

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
                return cls(PromptState.FAILED, data.exit_code, "Stopped before it was finished.")
            case "not_started":
                return cls(PromptState.FAILED, None, f"The agent could not be started: {visible(data.message)}")
            case _ if data.signal is not None:
                return cls(PromptState.FAILED, None, f"The agent was ended by signal {data.signal}.")
            case _:
                return cls.unseen()


class Recording:
    """Fills one session's record. What it learns wakes the runner through `changed`."""

    def __init__(self, session_id: str, context: Context, changed: asyncio.Event) -> None:
        self._session_id = session_id
        self._context = context
        self._changed = changed
        self._writer: RecordWriter | None = None
        self._cleaners: dict[tuple[str | None, str], Cleaner] = {}
        self._ends: dict[str, TurnEnd] = {}
        self._last_seq = 0
        self.is_ready = False
        self.clone_fault: str | None = None

    def open(self, ledger: Ledger) -> None:
        """Open the files, and remember how a turn ended that the store still calls running."""
        if self._writer is not None:
            return
        folder = self._context.home.records(self._session_id)
        self._writer = RecordWriter(folder)
        prompt = ledger.prompt(self._session_id, PromptState.RUNNING)
        if prompt is not None and (record := newest(folder, "turn_ended", prompt.id)) is not None:
            self._ends[prompt.id] = TurnEnd.of(TurnEndedData.model_validate(record.data))

    async def close(self) -> None:
        """Sync and close the files."""
        writer, self._writer = self._writer, None
        if writer is not None:
            await asyncio.to_thread(writer.close)

    def attach(self, last_seq: int) -> None:
        """A supervisor connected; it has records up to `last_seq`."""
        self._last_seq = last_seq
        self.is_ready = False
        self.clone_fault = None

    @property
    def stored_seq(self) -> int:
        """The newest sandbox record that is stored."""
        return self._open_writer().stored_seq

    @property
    def caught_up(self) -> bool:
        """Whether everything that the supervisor had when it connected is stored."""
        return self.stored_seq >= self._last_seq

    def turn_end(self, turn_id: str) -> TurnEnd | None:
        """How a turn ended, as far as the record tells."""
        return self._ends.get(turn_id)

    def note(self, text: str) -> None:
        """A line of the host's own."""
        now = self._context.clock.now()
        self._open_writer().append(at=now, source="host", kind="note", text=visible(text))

    async def fill(self, channel: Channel) -> None:
        """Store records until the channel closes; each batch is on disk before the sandbox hears of it."""
        pending: list[Record] = []
        arrived, space = asyncio.Event(), asyncio.Event()
        space.set()

        async def store() -> None:
            while True:
                await arrived.wait()
                arrived.clear()
                batch, pending[:] = list(pending), []
                space.set()
                if batch:
                    await asyncio.to_thread(self._store, batch)
                    self._learn(batch)
                    await channel.ack(batch[-1].seq)

        storing = asyncio.create_task(store())
        try:
            async for record in channel.records():
                pending.append(record)
                arrived.set()
                if len(pending) >= BATCH:
                    space.clear()
                    await asyncio.wait({storing, asyncio.ensure_future(space.wait())}, return_when="FIRST_COMPLETED")
                if storing.done():
                    break
        finally:
            storing.cancel()
            result = await asyncio.gather(storing, return_exceptions=True)
            if isinstance(result[0], OSError):
                raise result[0]  # the disk: nothing more can be recorded, so nothing more may be acknowledged

    def _store(self, batch: list[Record]) -> None:
        writer, now = self._open_writer(), self._context.clock.now()
        for record in batch:
            fields: dict[str, Any] = {}
            match record:
                case OutputRecord():
                    cleaner = self._cleaners.setdefault((record.turn_id, record.stream), Cleaner())
                    fields = {"turn": record.turn_id, "stream": record.stream, "text": cleaner.feed(record.body)}
                case TurnStartedRecord() | TurnEndedRecord():
                    fields = {"turn": record.turn_id, "data": record.data.model_dump()}
                case StateRecord() | GapRecord():
                    fields["data"] = record.data.model_dump()
                case NoteRecord():
                    fields["text"] = visible(record.data.text)
            writer.append(at=now, source="sandbox", kind=record.kind, seq=record.seq, **fields)
        writer.sync()

    def _learn(self, batch: list[Record]) -> None:
        for record in batch:
            match record:
                case TurnEndedRecord():
                    self._ends[record.turn_id] = TurnEnd.of(record.data)
                case StateRecord() if record.data.name == "ready":
                    self.is_ready = True
                case StateRecord() if record.data.name == "clone_failed":
                    self.clone_fault = visible(record.data.message)
        self._changed.set()

    def _open_writer(self) -> RecordWriter:
        if self._writer is None:
            self._writer = RecordWriter(self._context.home.records(self._session_id))
        return self._writer
