"""The journal loses nothing that was not announced as lost, whatever is torn, full or behind (invariants I6, I7)."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kortix_tui.guest import wire
from kortix_tui.guest.journal import Cursor, Journal

Found = list[tuple[int, str, bytes]]


def everything(journal: Journal, first: int = 1) -> Found:
    """All that a host would get from `first` on, as (number, kind, body)."""
    cursor, found = Cursor(journal, first), []
    while frames := list(cursor.read(4096)):
        for header, body in wire.Decoder().feed(b"".join(frames)):
            fields = wire.parse_header(header)
            if fields["kind"] == "gap":
                assert fields["data"]["to"] == fields["seq"] >= fields["data"]["from"]
                assert fields["data"]["from"] == (found[-1][0] + 1 if found else first)
            else:
                assert fields["seq"] == (found[-1][0] + 1 if found else first)
            found.append((fields["seq"], fields["kind"], body))
    cursor.close()
    return found


def add(journal: Journal, body: bytes, kind: str = "output") -> int:
    return journal.append(kind, at=1.0, turn_id="t", stream="stdout", body=body)


def test_records_come_back_in_order_also_after_a_restart(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "j"), segment_bytes=500)
    assert journal.fresh and (journal.first_seq, journal.last_seq) == (1, 0)
    for number in range(100):
        assert add(journal, b"%d" % number) == number + 1
    again = Journal(str(tmp_path / "j"), segment_bytes=500)
    assert not again.fresh and (again.first_seq, again.last_seq) == (1, 100)
    assert [body for _, _, body in everything(again)] == [b"%d" % number for number in range(100)]
    assert everything(again, 51) == everything(again)[50:]
    assert everything(again, 101) == []
    journal.close()
    again.close()


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.data())
def test_a_tail_torn_at_any_byte_is_cut_and_nothing_before_it(bodies: list[bytes], data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        journal = Journal(folder)
        sizes = [0]
        for body in bodies:
            add(journal, body)
            (segment,) = Path(folder).iterdir()
            sizes.append(segment.stat().st_size)
        journal.close()
        cut = data.draw(st.integers(0, sizes[-1]))
        os.truncate(segment, cut)
        whole = sum(size <= cut for size in sizes) - 1
        again = Journal(folder)
        assert again.last_seq == whole
        assert [body for _, _, body in everything(again)] == bodies[:whole]
        assert add(again, b"new") == whole + 1
        assert [body for _, _, body in everything(again)] == [*bodies[:whole], b"new"]
        again.close()


@settings(deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 255))
def test_a_changed_byte_is_never_served_as_a_record(place: int, change: int) -> None:
    with TemporaryDirectory() as folder:
        journal = Journal(folder, segment_bytes=400)
        bodies = [b"body %d" % number for number in range(20)]
        for body in bodies:
            add(journal, body)
        journal.close()
        segments = sorted(Path(folder).iterdir())
        target = segments[place % len(segments)]
        raw = bytearray(target.read_bytes())
        if raw:
            raw[place % len(raw)] ^= change
            target.write_bytes(raw)
        again = Journal(folder, segment_bytes=400)
        for seq, kind, body in everything(again):
            assert kind == "gap" or body == bodies[seq - 1]
        again.close()


def test_a_full_ring_drops_the_oldest_and_says_so(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), ring_bytes=20_000, segment_bytes=2_000)
    for number in range(300):
        add(journal, b"%0200d" % number)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 20_000
    found = everything(journal)
    assert found[0][1] == "gap" and found[0][0] == journal.first_seq - 1
    assert found[-1] == (300, "output", b"%0200d" % 299)
    journal.close()


def test_acknowledged_segments_go_and_the_newest_stays(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), segment_bytes=1_000)
    for _ in range(50):
        add(journal, b"x" * 100)
    assert journal.waiting_bytes > 5_000
    journal.ack(30)
    assert 1 < journal.first_seq <= 31
    assert [seq for seq, _, _ in everything(journal, 31)] == list(range(31, 51))
    journal.ack(10_000)  # a lie: nothing above our own last number is believed
    assert journal.last_seq == 50 and journal.waiting_bytes == 0
    assert add(journal, b"y") == 51 and everything(journal, 51) == [(51, "output", b"y")]
    journal.close()


def test_a_host_that_is_ahead_gets_new_numbers_and_a_gap(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    add(journal, b"one")
    journal.advance(40)
    assert add(journal, b"two") == 41
    assert everything(journal, 41) == [(41, "output", b"two")]
    assert [(seq, kind) for seq, kind, _ in everything(journal)] == [(1, "output"), (40, "gap"), (41, "output")]
    again = Journal(str(tmp_path))
    assert again.next_seq == 42
    again.close()
    journal.close()


def test_a_disk_that_is_full_leaves_a_gap_and_a_sound_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(str(tmp_path))
    add(journal, b"before")
    real = os.pwrite

    def half(descriptor: int, data: bytes, offset: int) -> int:
        return real(descriptor, data[: len(data) // 2], offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half)
        for _ in range(3):
            with pytest.raises(OSError, match="full"):
                add(journal, b"lost")
    assert add(journal, b"after") == 5
    assert everything(journal) == [(1, "output", b"before"), (4, "gap", b""), (5, "output", b"after")]
    journal.close()
    assert everything(Journal(str(tmp_path)))[-1] == (5, "output", b"after")


def test_a_reader_follows_while_the_journal_grows_and_forgets(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), segment_bytes=300)
    cursor, seen = Cursor(journal, 1), []
    for number in range(200):
        add(journal, b"%d" % number)
        if number % 7 == 0:
            for header, _ in wire.Decoder().feed(b"".join(cursor.read())):
                seen.append(wire.parse_header(header)["seq"])
            journal.ack(seen[-1])
    while frames := list(cursor.read()):
        seen += [wire.parse_header(header)["seq"] for header, _ in wire.Decoder().feed(b"".join(frames))]
    assert seen == list(range(1, 201))
    cursor.close()
    journal.close()


def test_ends_of_turns_are_found_again(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), segment_bytes=300)
    for number in range(20):
        journal.append("turn_ended", at=1.0, turn_id=f"t{number}", data={})
        add(journal, b'"turn_ended"')
    assert journal.ended_turns() == {f"t{number}" for number in range(20)}
    journal.close()


class JournalMachine(RuleBasedStateMachine):
    """Against a plain list: appends, acks, kills with torn tails, and readers from anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()
        self.journal = Journal(self.folder.name, ring_bytes=4_000, segment_bytes=500)
        self.model: dict[int, bytes] = {}

    @rule(body=st.binary(max_size=400))
    def append(self, body: bytes) -> None:
        self.model[add(self.journal, body)] = body

    @precondition(lambda self: self.journal.last_seq > 0)
    @rule(data=st.data())
    def ack(self, data: st.DataObject) -> None:
        self.journal.ack(data.draw(st.integers(0, self.journal.last_seq)))

    @rule(lost=st.integers(0, 300))
    def kill(self, lost: int) -> None:
        newest = max(Path(self.folder.name).iterdir())
        os.truncate(newest, max(0, newest.stat().st_size - lost))
        stored = self.journal.last_seq  # the host had seen it all before the machine lost power
        self.journal.close()
        self.journal = Journal(self.folder.name, ring_bytes=4_000, segment_bytes=500)
        self.journal.advance(stored)

    @invariant()
    def every_record_is_there_or_in_a_gap(self) -> None:
        found = everything(self.journal)
        for seq, kind, body in found:
            assert kind == "gap" or self.model[seq] == body
        if found:
            assert found[-1][0] <= self.journal.last_seq

    def teardown(self) -> None:
        self.journal.close()
        self.folder.cleanup()


JournalMachine.TestCase.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
TestJournalMachine = JournalMachine.TestCase
