from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cramped import cramped
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.store import records
from kortix_tui.store.records import Cleaner, RecordReader, RecordWriter, last_ordinal

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def append(writer: RecordWriter, seq: int, text: str = "x") -> None:
    writer.append(at=NOW, source="sandbox", kind="output", seq=seq, text=text)


def test_what_was_written_is_read_in_order(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    for seq in range(1, 51):
        append(writer, seq, f"line {seq}\n")
    reader = RecordReader(tmp_path)
    assert [record.text for record in reader.read()] == [f"line {seq}\n" for seq in range(1, 51)]
    assert reader.read() == []
    append(writer, 51)
    assert [record.seq for record in reader.read()] == [51]
    writer.close()


def test_a_repeated_record_is_stored_once_also_after_a_restart(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    for seq in (1, 2, 3):
        append(writer, seq)
    writer.close()
    again = RecordWriter(tmp_path)
    assert again.stored_seq == 3
    for seq in (2, 3, 4):
        append(again, seq)
    again.close()
    assert [record.seq for record in RecordReader(tmp_path).read()] == [1, 2, 3, 4]


def test_segments_rotate_and_a_reader_crosses_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 2000)
    writer, reader = RecordWriter(tmp_path), RecordReader(tmp_path)
    seen = list[int]()
    for seq in range(1, 301):
        append(writer, seq, "y" * 50)
        if seq % 7 == 0:
            seen += [record.n for record in reader.read(limit=3)]
    while found := reader.read(limit=10):
        seen += [record.n for record in found]
    writer.close()
    assert seen == list(range(1, 301))
    assert len(list(tmp_path.glob("*.jsonl"))) > 5
    assert last_ordinal(tmp_path) == 300
    assert [record.n for record in RecordReader.tail(tmp_path, 5).read()] == [296, 297, 298, 299, 300]


def test_the_oldest_segments_go_when_there_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 500)
    monkeypatch.setattr(records, "MAX_SEGMENTS", 4)
    writer = RecordWriter(tmp_path)
    for seq in range(1, 101):
        append(writer, seq, "z" * 50)
    writer.close()
    assert len(list(tmp_path.glob("*.jsonl"))) == 4
    found = RecordReader(tmp_path).read()
    assert found[-1].seq == 100 and found[0].n > 1


@given(cut=st.integers(min_value=0, max_value=2000))
def test_a_torn_tail_is_cut_and_never_read(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("torn")
    writer = RecordWriter(folder)
    for seq in range(1, 11):
        append(writer, seq, f"text {seq}")
    writer.close()
    segment = next(folder.glob("*.jsonl"))
    data = segment.read_bytes()
    segment.write_bytes(data[: max(0, len(data) - cut)])
    again = RecordWriter(folder)
    kept = again.stored_seq
    append(again, kept + 1, "after")
    again.close()
    assert [record.seq for record in RecordReader(folder).read()] == list(range(1, kept + 2))


@given(st.binary(max_size=200), st.lists(st.integers(min_value=1, max_value=9), max_size=60))
def test_cleaning_does_not_depend_on_the_chunks(data: bytes, sizes: list[int]) -> None:
    data = b"a\x1b[31mred\x1b[0m\xe2\x82\xac" + data
    whole = Cleaner().feed(data, final=True)
    cleaner, parts, rest = Cleaner(), [], data
    for size in sizes:
        parts.append(cleaner.feed(rest[:size]))
        rest = rest[size:]
    parts.append(cleaner.feed(rest, final=True))
    assert "".join(parts) == whole
    assert all(char >= " " or char in "\n\t\x1b" for char in whole)


def test_hostile_output_becomes_visible_text() -> None:
    cleaned = Cleaner().feed("\x1b]52;c;eA==\x07\x1b[2J\x1b[1mbold\x1b[0m\u202e\x9b31m".encode(), final=True)
    assert cleaned.replace("\x1b[1m", "").replace("\x1b[0m", "").count("\x1b") == 0
    assert "␛]52" in cleaned and "‹U+202E›" in cleaned and "‹U+009B›" in cleaned


def test_a_reader_is_told_of_segments_that_were_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 500)
    monkeypatch.setattr(records, "MAX_SEGMENTS", 4)
    writer, reader = RecordWriter(tmp_path), RecordReader(tmp_path)
    for seq in range(1, 101):
        append(writer, seq, "z" * 50)
        if seq == 3:
            assert [record.n for record in reader.read()] == [1, 2, 3]
    writer.close()
    gap, *rest = reader.read()
    assert gap.kind == "gap" and gap.data == {"first": 4, "last": rest[0].n - 1}
    assert rest[-1].n == 100


def test_a_full_disk_stores_no_half_record_and_counts_none_as_stored(short_folder: Path) -> None:
    with cramped(short_folder / "disk", "256k") as disk:
        writer = RecordWriter(disk.folder / "records")
        append(writer, 1, "kept")
        writer.sync()
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            for _ in range(10):  # what is left of a page may take the first
                append(writer, writer.stored_seq + 1, "y" * 3000)
        stored = writer.stored_seq
        disk.empty()
        append(writer, stored + 1, "after")
        writer.close()
        found = [(record.seq, record.text[:5]) for record in RecordReader(disk.folder / "records").read()]
    assert [seq for seq, _ in found] == list(range(1, stored + 2))
    assert found[0][1] == "kept" and found[-1][1] == "after"


def test_threads_that_write_at_once_tear_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "SEGMENT_BYTES", 5000)
    writer = RecordWriter(tmp_path)

    def work() -> None:
        for _ in range(200):
            writer.append(at=NOW, source="host", kind="note", text="x" * 40)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.close()
    assert [record.n for record in RecordReader(tmp_path).read(10_000)] == list(range(1, 801))


def test_a_closed_writer_writes_nothing_more(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path)
    writer.close()
    with pytest.raises(OSError, match="closed"):
        append(writer, 1)
    assert RecordReader(tmp_path).read() == []
