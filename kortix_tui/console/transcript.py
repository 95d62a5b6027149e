"""A session's records as lines of a log: output as it was printed, and what happened around it in words."""

from __future__ import annotations

from collections.abc import Iterable

from kortix_tui.base.text import visible, visible_line
from kortix_tui.console.widgets.lines import LineRing, LogLine
from kortix_tui.store.records import Record


class Transcript:
    """Feeds records into a line ring. Output that ends in the middle of a line goes on in the same line."""

    def __init__(self, ring: LineRing) -> None:
        self._ring = ring
        self._open: str | None = None
        self._text = ""

    def feed(self, records: Iterable[Record]) -> None:
        """Take in some records."""
        for record in records:
            if record.kind == "output":
                self._output(record)
            elif text := describe(record):
                self._open = None
                # The host saw it, or the sandbox says so: a reader must be able to tell one from the other.
                source = "host" if record.source == "host" else "sandbox"
                self._ring.extend(LogLine(line, _time(record), source) for line in text.split("\n"))

    def _output(self, record: Record) -> None:
        # The record is safe already; sanitising what is safe changes nothing, and this is the door of the console.
        text = visible(record.text, sgr=True)
        if not text:
            return
        stream = f"{record.turn} {record.stream}"
        at, source = _time(record), "error" if record.stream == "stderr" else "agent"
        pieces = text.split("\n")
        if self._open == stream:
            self._text += pieces.pop(0)
            self._ring.amend(LogLine(self._text, at, source))
        if pieces:
            self._ring.extend(LogLine(piece, at, source) for piece in pieces[:-1])
            if pieces[-1]:
                self._ring.extend([LogLine(pieces[-1], at, source)])
            self._text = pieces[-1]
            self._open = stream if pieces[-1] else None


def describe(record: Record) -> str:
    """What a record that is no output says to a person; empty for what says nothing."""
    data = record.data
    match record.kind:
        case "note":
            return visible(record.text).strip("\n")
        case "state":
            name = str(data.get("name", "")).replace("_", " ")
            return visible_line(f"{name}: {data['message']}" if data.get("message") else name)
        case "turn_started":
            return "the agent started"
        case "turn_ended":
            return _ended(data)
        case "gap":
            return "some output is missing here: it came faster than it could be kept"
        case _:
            return ""


def _ended(data: dict[str, object]) -> str:
    match data.get("reason"):
        case "exited":
            return visible_line(f"the agent ended with exit status {data.get('exit_code')}")
        case "cancelled":
            return "the agent was stopped"
        case "not_started":
            return visible_line(f"the agent could not be started: {data.get('message') or 'no reason given'}")
        case _:
            return visible_line(f"the agent was ended by signal {data.get('signal')}")


def _time(record: Record) -> str:
    return f"{record.at.astimezone():%H:%M:%S}"
