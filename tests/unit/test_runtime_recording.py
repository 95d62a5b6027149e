"""Records on their way from a sandbox to the disk."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from cramped import cramped

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings
from kortix_tui.guest import wire
from kortix_tui.runtime import recording as module
from kortix_tui.runtime.context import Context
from kortix_tui.runtime.ledger import Ledger
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.runtime.recording import Recording
from kortix_tui.sandbox.channel import Channel
from kortix_tui.sandbox.frames import Welcome
from kortix_tui.store.audit import SYSTEM
from kortix_tui.store.database import Store
from kortix_tui.store.records import Record, RecordReader
from kortix_tui.vault.redaction import Redactor

SESSION = "kaaaaaaaaaaa"
VALUE = "tok_5f2c9a7e41d8b6300c"
KNOWN = Redactor.of([("API-TOKEN", VALUE.encode())])


async def nothing() -> None:
    pass


class Supervisor:
    """The sandbox's end of a channel that a recording fills from."""

    def __init__(self, recording: Recording, folder: Any) -> None:
        self.recording = recording
        self.folder = folder
        self.acked = 0
        self._seq = 0

    async def connect(self) -> None:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        self._reader, self._writer = await asyncio.open_connection(sock=theirs)
        self.channel = Channel(reader, writer)
        hello = {"type": "hello", "version": 1, "session_id": SESSION, "boot": "ab", "first_seq": 1, "last_seq": 0}
        self._writer.write(wire.encode({**hello, "running": None, "ended": [], "cloned": True, "fresh": True}, b""))
        await self.channel.hello()
        self.recording.attach(0)
        stored = self.recording.stored_seq
        await self.channel.welcome(Welcome.model_validate({
            "stored_seq": stored, "repository": None, "agent_token": "t", "identity": {"name": "a", "email": "a@b"},
        }))  # fmt: skip
        self._seq = stored
        self.filling = asyncio.create_task(self.recording.fill(self.channel, nothing))
        self._hearing = asyncio.create_task(self._hear())

    async def _hear(self) -> None:
        decoder = wire.Decoder()
        while data := await self._reader.read(65536):
            for header, _ in decoder.feed(data):
                frame = wire.parse_header(header)
                self.acked = frame["seq"] if frame["type"] == "ack" else self.acked

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> int:
        self._seq += 1
        header = {"type": "record", "seq": self._seq, "at": 0.0, "kind": kind, "turn_id": None, "stream": None}
        self._writer.write(wire.encode({**header, "data": {}, **fields}, body))
        return self._seq

    def output(self, body: bytes, turn: str = "t1") -> int:
        return self.send("output", body, turn_id=turn, stream="stdout")

    def end(self, turn: str, code: int) -> int:
        data = {"exit_code": code, "signal": None, "reason": "exited", "message": ""}
        return self.send("turn_ended", turn_id=turn, data=data)

    async def until(self, seq: int) -> None:
        async with asyncio.timeout(20):
            while self.acked < seq:
                await asyncio.sleep(0.005)

    async def leave(self) -> None:
        self._writer.close()
        await self.channel.close()
        await self.filling
        self._hearing.cancel()
        await asyncio.gather(self._hearing, return_exceptions=True)

    def stored(self) -> list[Record]:
        return RecordReader(self.folder).read(100_000)


@asynccontextmanager
async def supervised(home: Home, **options: Any) -> AsyncIterator[Supervisor]:
    loop = LoopThread()
    store = Store(home)
    context = Context(store=store, settings=Settings(), actor=SYSTEM, loop=loop)
    recording = Recording(SESSION, context, asyncio.Event(), **options)
    ledger = Ledger(store, 0)
    await recording.open(ledger)
    supervisor = Supervisor(recording, home.records(SESSION))
    await supervisor.connect()
    try:
        yield supervisor
    finally:
        await supervisor.leave()
        await recording.close()
        await ledger.close()
        store.close()


async def test_records_and_notes_at_once_are_each_stored_once(home: Home) -> None:
    async with supervised(home) as supervisor:
        for number in range(500):
            last = supervisor.output(f"line {number}\n".encode())
            if number % 5 == 0:
                supervisor.recording.note(f"note {number}")
                await asyncio.sleep(0)
        await supervisor.until(last)
    found = supervisor.stored()
    assert [record.n for record in found] == list(range(1, 601))
    assert [record.seq for record in found if record.kind == "output"] == list(range(1, 501))
    assert [record.text for record in found if record.kind == "note"] == [f"note {n}" for n in range(0, 500, 5)]


async def test_what_the_disk_does_not_take_is_not_acknowledged_and_comes_later(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host says what is wrong and stores everything once there is room again."""
    monkeypatch.setattr(module, "RESERVE_BYTES", 1 << 20)
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    home.sessions.mkdir(exist_ok=True)
    with cramped(home.path.parent / "disk", "8m") as disk:
        async with supervised(Home(disk.folder)) as supervisor:
            await supervisor.until(supervisor.output("caf\u00e9 \u20ac".encode()[:-1]))
            disk.fill(left=100_000)
            last = 0
            for number in range(50):
                last = supervisor.output((b"\xac" if number == 0 else b"") + b"y" * 1000 + b"\n")
            async with asyncio.timeout(20):
                while supervisor.recording.shortage is None:
                    await asyncio.sleep(0.005)
            assert supervisor.acked == 1
            supervisor.recording.note("said in need")
            disk.empty()
            await supervisor.until(last)
            assert supervisor.recording.shortage is None
        found = supervisor.stored()
    assert [record.seq for record in found if record.seq] == list(range(1, last + 1))
    assert "".join(record.text for record in found if record.seq)[:6] == "café €"
    assert "said in need" in [record.text for record in found]


async def test_what_was_not_acknowledged_when_the_connection_broke_is_stored_once(home: Home) -> None:
    async with supervised(home) as supervisor:
        for number in range(200):
            supervisor.output(f"{number}\n".encode())
        await supervisor.leave()
        await supervisor.connect()
        for number in range(supervisor.recording.stored_seq, 200):
            last = supervisor.output(f"{number}\n".encode())
        await supervisor.until(last if supervisor.recording.stored_seq < 200 else 0)
    texts = [record.text for record in supervisor.stored() if record.seq]
    assert texts == [f"{number}\n" for number in range(200)]


async def test_the_first_word_on_a_turns_end_counts(home: Home) -> None:
    async with supervised(home) as supervisor:
        supervisor.end("t1", 3)
        await supervisor.until(supervisor.end("t1", 0))
        end = supervisor.recording.turn_end("t1")
        assert end is not None and end.exit_code == 3


async def test_a_sandbox_that_makes_up_turns_costs_no_memory(home: Home) -> None:
    async with supervised(home) as supervisor:
        for number in range(1000):
            supervisor.output(b"\x1b[", turn=f"u{number}")
            last = supervisor.end(f"t{number}", 0)
        await supervisor.until(last)
        assert len(supervisor.recording._ends) <= module.ENDS
        assert len(supervisor.recording._streams) <= module.STREAMS


async def test_what_a_stream_holds_back_is_stored_at_the_turns_end(home: Home) -> None:
    async with supervised(home) as supervisor:
        supervisor.output(b"almost\x1b[3")
        await supervisor.until(supervisor.end("t1", 0))
    text = "".join(record.text for record in supervisor.stored())
    assert text.startswith("almost") and "[3" in text and "\x1b" not in text


def text_of(found: list[Record]) -> str:
    return "".join(record.text for record in found if record.kind == "output")


@pytest.mark.parametrize("at", [1, 6, 7, 12, len(VALUE) - 1])
async def test_a_value_is_not_stored_also_when_it_comes_in_pieces(home: Home, at: int) -> None:
    async with supervised(home, redactor=lambda: KNOWN) as supervisor:
        supervisor.output(f"one {VALUE[:at]}".encode())
        supervisor.output(f"{VALUE[at:]} two\x1b[31m{VALUE}\x1b[m {VALUE[:5]}".encode())
        await supervisor.until(supervisor.end("t1", 0))
    text = text_of(supervisor.stored())
    shown = VALUE[:at] if at < 8 else ""
    assert text == f"one {shown}[redacted:API-TOKEN] two\x1b[31m[redacted:API-TOKEN]\x1b[m {VALUE[:5]}"


@pytest.mark.parametrize("at", [7, 10, len(VALUE) - 8])
async def test_a_value_that_is_cut_by_a_lost_connection(home: Home, at: int) -> None:
    async with supervised(home, redactor=lambda: KNOWN) as supervisor:
        await supervisor.until(supervisor.output(f"one {VALUE[:at]}".encode()))
        await supervisor.leave()
        await supervisor.connect()
        supervisor.output(f"{VALUE[at:]} two".encode())
        await supervisor.until(supervisor.end("t1", 0))
    text = text_of(supervisor.stored())
    assert VALUE[at:] not in text and text.startswith("one ") and text.endswith("[redacted:API-TOKEN] two")


async def test_ordinary_text_that_looked_like_a_value_is_kept_over_a_lost_connection(home: Home) -> None:
    async with supervised(home, redactor=lambda: KNOWN) as supervisor:
        await supervisor.until(supervisor.output(b"one tok_5f2c9"))
        assert text_of(supervisor.stored()) == "one "
        await supervisor.leave()
        await supervisor.connect()
        await supervisor.until(supervisor.output(b"00 two"))
    assert text_of(supervisor.stored()) == "one tok_5f2c900 two"


@pytest.mark.parametrize("length", [11, 12, len(VALUE) - 1])
async def test_a_turn_that_ends_within_a_value(home: Home, length: int) -> None:
    async with supervised(home, redactor=lambda: KNOWN) as supervisor:
        supervisor.output(f"one {VALUE[:length]}".encode())
        await supervisor.until(supervisor.end("t1", 0))
    shown = VALUE[:length] if length < 12 else "[redacted:API-TOKEN]"
    assert text_of(supervisor.stored()) == f"one {shown}"


async def test_no_value_passes_in_what_the_supervisor_says(home: Home) -> None:
    said = f"could not start: {VALUE} and {VALUE[:15]}"
    async with supervised(home, redactor=lambda: KNOWN) as supervisor:
        supervisor.send("note", data={"text": said})
        supervisor.send("state", data={"name": "clone_failed", "message": said})
        ended = {"exit_code": None, "signal": None, "reason": "not_started", "message": said}
        await supervisor.until(supervisor.send("turn_ended", turn_id="t1", data=ended))
        supervisor.recording.note(f"git said {VALUE}")
        end = supervisor.recording.turn_end("t1")
        assert supervisor.recording.clone_fault == "could not start: [redacted:API-TOKEN] and [redacted:API-TOKEN]"
        assert end is not None and end.message is not None and VALUE[:12] not in end.message
    found = supervisor.stored()
    assert not any(VALUE[:12] in record.model_dump_json() for record in found)
    assert "git said [redacted:API-TOKEN]" in [record.text for record in found]


async def test_nothing_is_stored_while_the_values_are_not_known(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes meanwhile waits in the sandbox, and is redacted with what is known afterwards."""
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    locked: list[str] = []
    options = {"redactor": lambda: Redactor.none() if locked else KNOWN, "holding": lambda: next(iter(locked), None)}
    async with supervised(home, **options) as supervisor:
        await supervisor.until(supervisor.output(f"one {VALUE[:15]}".encode()))
        locked.append("the vault is locked")
        last = supervisor.output(f"{VALUE[15:]} two {VALUE}".encode())
        async with asyncio.timeout(20):
            while supervisor.recording.shortage is None:
                await asyncio.sleep(0.005)
        supervisor.recording.note("the vault was locked")
        async with asyncio.timeout(20):
            while not any(record.kind == "note" for record in supervisor.stored()):
                await asyncio.sleep(0.005)
        assert supervisor.recording.shortage == "the vault is locked"
        assert supervisor.acked == 1 and text_of(supervisor.stored()) == "one "
        locked.clear()
        await supervisor.until(last)
        assert supervisor.recording.shortage is None
    assert text_of(supervisor.stored()) == "one [redacted:API-TOKEN] two [redacted:API-TOKEN]"


async def test_a_sandbox_can_leave_while_nothing_may_be_stored(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0.01)
    async with supervised(home, holding=lambda: "the vault is locked") as supervisor:
        supervisor.output(b"one")
        async with asyncio.timeout(20):
            while supervisor.recording.shortage is None:
                await asyncio.sleep(0.005)
    assert supervisor.stored() == []


async def test_a_value_that_is_added_while_a_turn_runs(home: Home) -> None:
    known = [Redactor.none()]
    async with supervised(home, redactor=lambda: known[-1]) as supervisor:
        await supervisor.until(supervisor.output(b"one "))
        known.append(KNOWN)
        await supervisor.until(supervisor.output(VALUE.encode()))
    assert text_of(supervisor.stored()) == "one [redacted:API-TOKEN]"
