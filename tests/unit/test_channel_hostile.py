"""What a sandbox may send on its channel, and what closes it. Whatever comes from inside is a claim (I10, I11)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from kortix_tui.base.errors import DeadlineExceeded
from kortix_tui.guest import wire
from kortix_tui.sandbox import channel as module
from kortix_tui.sandbox.channel import Channel, ChannelClosed, ProtocolViolation
from kortix_tui.sandbox.frames import Committer, Record, TurnOrder, Welcome, incoming

HELLO = {
    "type": "hello", "version": 1, "session_id": "k", "boot": "b", "first_seq": 1, "last_seq": 0, "running": None,
    "ended": [], "cloned": False, "fresh": True,
}  # fmt: skip
WELCOME = Welcome(stored_seq=5, repository=None, agent_token="t", identity=Committer(name="a", email="b@c"))


@dataclass
class Pair:
    """A channel and the sandbox's bare end of it."""

    channel: Channel
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, header: dict[str, Any], body: bytes = b"") -> None:
        self.writer.write(wire.encode(header, body))

    async def receive(self) -> dict[str, Any]:
        size, head = struct.unpack(">II", await asyncio.wait_for(self.reader.readexactly(8), 10))
        return {
            **json.loads(await self.reader.readexactly(head)),
            "body": await self.reader.readexactly(size - 4 - head),
        }

    async def open(self) -> None:
        self.send(HELLO)
        await self.channel.hello()
        await self.channel.welcome(WELCOME)
        assert (await self.receive())["type"] == "welcome"

    async def records(self) -> list[Record]:
        async with asyncio.timeout(10):
            return [record async for record in self.channel.records()]


@pytest.fixture
async def pair(short_folder: Path) -> AsyncIterator[Pair]:
    made: asyncio.Future[Channel] = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        made.set_result(Channel(reader, writer))

    server = await asyncio.start_unix_server(connected, str(short_folder / "s"))
    reader, writer = await asyncio.open_unix_connection(str(short_folder / "s"))
    pair = Pair(await made, reader, writer)
    yield pair
    await pair.channel.close()
    writer.close()
    server.close()


def record(seq: int, kind: str = "note", **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "seq": seq,
        "at": 1.5,
        "kind": kind,
        "turn_id": None,
        "stream": None,
        "data": {"text": "x"},
        **fields,
    }


async def test_records_go_on_where_the_host_is_and_end_with_the_connection(pair: Pair) -> None:
    await pair.open()
    pair.send(record(6))
    pair.send({"type": "something newer", "id": "1"})
    pair.send(record(9, "gap", data={"from": 7, "to": 9}))
    pair.send(record(10, "output", stream="stdout", turn_id="t", data={}), b"\x00\xff")
    pair.writer.close()
    found = await pair.records()
    assert [(one.seq, one.kind) for one in found] == [(6, "note"), (9, "gap"), (10, "output")]
    assert isinstance(pair.channel.failure, ChannelClosed)


@pytest.mark.parametrize(
    "frames",
    [
        [record(5)],
        [record(7)],
        [record(6), record(6)],
        [record(6), record(5)],
        [record(0)],
        [record(-1)],
        [record(1 << 60)],
        [record(6, "gap", data={"from": 5, "to": 6})],
        [record(7, "gap", data={"from": 6, "to": 9})],
        [record(7, "gap", data={"from": 8, "to": 7})],
        [record(6, "no such kind")],
        [record(6, at="now")],
        [record(6, data={"text": 1})],
        [record(6, data=None)],
        [record(6, "output", stream="stdin", turn_id="t")],
        [record(6, "output", stream="stdout", turn_id=None)],
        [record(6, "output", stream="stdout", turn_id="t" * 129)],
        [record(6, "turn_ended", turn_id="t", data={"exit_code": 0})],
        [record(6, "turn_ended", turn_id="t", data={"exit_code": 256, "signal": None, "reason": "exited"})],
        [record(6, "turn_ended", turn_id="t", data={"exit_code": "0", "signal": None, "reason": "exited"})],
        [record(6, "turn_ended", turn_id="t", data={"exit_code": 0, "signal": None, "reason": "merged"})],
        [record(6, "state", data={"name": "merged", "message": ""})],
        [record(6, "state", data={"name": "ready", "message": "x" * 20_000})],
        [HELLO],
        [{"type": "pong"}],
        [{"type": "pong", "id": 3}],
        [{"type": "rescue_result", "id": "q1", "outcome": "saved", "commit": "HEAD", "ref": "r", "files": 0}],
        [{"type": "shell_closed", "id": "s1", "exit_code": -1}],
    ],
)
async def test_what_does_not_fit_closes_the_channel(pair: Pair, frames: list[dict[str, Any]]) -> None:
    await pair.open()
    for frame in frames:
        pair.send(frame)
    found = await pair.records()
    assert len(found) == len(frames) - 1
    assert isinstance(pair.channel.failure, ProtocolViolation)
    with pytest.raises(ChannelClosed):
        await pair.channel.ack(6)


@pytest.mark.parametrize(
    "raw",
    [
        struct.pack(">II", 1 << 31, 5),
        struct.pack(">II", 2, 0),
        wire.pack(b"not json"),
        wire.pack(b"[]"),
        wire.pack(b'{"type":"record","seq":6,"at":NaN,"kind":"note","data":{"text":""}}'),
        wire.pack(b"[" * 500_000),
    ],
)
async def test_bytes_that_are_no_frames_close_the_channel(pair: Pair, raw: bytes) -> None:
    await pair.open()
    pair.writer.write(raw)
    assert await pair.records() == []
    assert isinstance(pair.channel.failure, ProtocolViolation)


async def test_output_of_a_size_that_we_never_send_is_refused(pair: Pair) -> None:
    await pair.open()
    pair.send(record(6, "output", stream="stdout", turn_id="t", data={}), b"x" * (512 * 1024))
    assert await pair.records() == []
    assert isinstance(pair.channel.failure, ProtocolViolation)


@given(st.binary(max_size=200))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_of_a_header_raise_anything_else(raw: bytes) -> None:
    with contextlib.suppress(wire.FrameError, ValidationError):
        incoming(wire.parse_header(raw), b"")


@given(
    st.sampled_from(["record", "hello", "pong", "stopping", "status", "rescue_result", "shell_data", "shell_closed"]),
    st.dictionaries(
        st.sampled_from(["seq", "at", "kind", "data", "turn_id", "stream", "id", "outcome", "commit", "ended", "body"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        ),
    ),
)
@settings(deadline=None)
def test_no_json_raises_anything_else(kind: str, fields: dict[str, Any]) -> None:
    with contextlib.suppress(ValidationError):
        incoming({**fields, "type": kind}, b"")


@pytest.mark.parametrize(
    "first", [{**HELLO, "version": 2}, {**HELLO, "boot": 5}, record(1), {"type": "?"}, {**HELLO, "ended": ["x"] * 101}]
)
async def test_the_first_frame_is_a_hello_of_this_version(pair: Pair, first: dict[str, Any]) -> None:
    pair.send(first)
    with pytest.raises(ProtocolViolation):
        await pair.channel.hello()
    assert pair.channel.closed.is_set()


async def test_a_supervisor_that_says_nothing_or_leaves(pair: Pair) -> None:
    pair.writer.write(b"\x00\x00")
    with pytest.raises(DeadlineExceeded):
        await pair.channel.hello(deadline=0.05)
    assert await pair.reader.read() == b""


async def test_a_supervisor_that_leaves_before_it_greets(pair: Pair) -> None:
    pair.writer.close()
    with pytest.raises(ChannelClosed):
        await pair.channel.hello()


async def test_frames_right_behind_the_hello_are_not_lost(pair: Pair) -> None:
    pair.writer.write(wire.encode(HELLO) + wire.encode(record(6)) + wire.encode(record(7))[:20])
    await pair.channel.hello()
    pair.writer.write(wire.encode(record(7))[20:])
    await pair.channel.welcome(WELCOME)
    pair.writer.close()
    assert [one.seq for one in await pair.records()] == [6, 7]


async def test_bytes_read_with_the_request_come_first(pair: Pair) -> None:
    raw = wire.encode(HELLO)
    early = Channel(pair.channel._reader, pair.channel._writer, raw[:30])
    pair.writer.write(raw[30:])
    assert (await early.hello()).boot == "b"


async def test_an_answer_of_another_kind_is_a_violation_and_a_stranger_is_ignored(pair: Pair) -> None:
    await pair.open()
    asking = asyncio.create_task(pair.channel.rescue(1, "stop"))
    question = await pair.receive()
    assert (question["type"], question["n"], question["reason"]) == ("rescue", 1, "stop")
    pair.send({"type": "pong", "id": "nobody asked"})
    pair.send({"type": "pong", "id": question["id"]})
    with pytest.raises(ProtocolViolation):
        await asking


async def test_no_answer_is_waited_for_forever_and_closing_ends_every_wait(pair: Pair) -> None:
    await pair.open()
    with pytest.raises(DeadlineExceeded):
        await pair.channel.ping(deadline=0.05)
    asking = asyncio.create_task(pair.channel.rescue(1, "stop"))
    shell = await pair.channel.open_shell(rows=1, columns=1)
    reading = asyncio.create_task(shell.read())
    await pair.receive()
    pair.writer.close()
    with pytest.raises(ChannelClosed):
        await asking
    assert await reading == b"" and shell.exit_code is None


async def test_a_reader_that_is_behind_stops_the_sender(pair: Pair) -> None:
    await pair.open()
    body, sent = b"x" * 60_000, 0

    async def flood() -> None:
        nonlocal sent
        while sent < 2_000:
            pair.send(record(6 + sent, "output", stream="stdout", turn_id="t", data={}), body)
            sent += 1
            await pair.writer.drain()

    flooding = asyncio.create_task(flood())
    stalled = -1
    while stalled != sent or sent == 0:  # until a while brings no more
        stalled = sent
        await asyncio.sleep(0.2)
    assert sent < 300
    seen = 0
    async with asyncio.timeout(60):
        async for one in pair.channel.records():
            seen += 1
            assert one.seq == 5 + seen
            if seen == 2_000:
                break
    await flooding


async def test_a_shell_that_sends_more_than_its_window_is_cut_off(pair: Pair) -> None:
    await pair.open()
    shell = await pair.channel.open_shell(rows=1, columns=1)
    for _ in range(5):
        pair.send({"type": "shell_data", "id": shell.shell_id}, b"x" * 65536)
    assert await pair.records() == []
    assert isinstance(pair.channel.failure, ProtocolViolation)


async def test_reading_a_shell_opens_its_window_again(pair: Pair) -> None:
    await pair.open()
    shell = await pair.channel.open_shell(rows=1, columns=1)
    assert (await pair.receive())["type"] == "shell_open"
    for _ in range(10):
        pair.send({"type": "shell_data", "id": shell.shell_id}, b"x" * 65536)
        assert len(await shell.read()) == 65536
        assert (await pair.receive())["bytes"] == 65536
    pair.send({"type": "shell_closed", "id": shell.shell_id, "exit_code": 4})
    assert await shell.read() == b"" and shell.exit_code == 4


async def test_a_long_prompt_is_split(pair: Pair) -> None:
    await pair.open()
    prompt = "é" * 400_000
    sending = asyncio.create_task(pair.channel.start_turn(TurnOrder(turn_id="t", command=("x",)), prompt))
    first = await pair.receive()
    assert (first["type"], first["turn_id"], first["command"], first["more"]) == ("start_turn", "t", ["x"], True)
    data = first["body"]
    more = True
    while more:
        frame = await pair.receive()
        assert frame["type"] == "start_turn_more" and frame["turn_id"] == "t"
        data, more = data + frame["body"], frame["more"]
    await sending
    assert data.decode() == prompt


async def test_a_supervisor_that_goes_silent_is_noticed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PING_EVERY_S", 0.02)
    monkeypatch.setattr(module, "_SILENCE_S", 0.1)
    await pair.open()
    assert (await pair.receive())["type"] == "ping"
    assert await pair.records() == []
    assert isinstance(pair.channel.failure, ChannelClosed)
