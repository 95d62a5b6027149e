"""A session's record as lines of text: what the agent printed as it is, what happened around it marked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kortix_tui.base.text import visible, visible_line, without_sgr
from kortix_tui.runtime.views import BUILD_MARK
from kortix_tui.store.records import Record

MARK = "·"


class RecordPrinter:
    """Writes records in order; output that ends in the middle of a line is continued by the next piece."""

    def __init__(
        self, write: Callable[[str], object], *, colour: bool, timestamps: bool = False, builds: bool = False
    ) -> None:
        """Prepare.

        Args:
            write: Gets text with its line ends.
            colour: Keep the colours that programs printed, and dim our own lines.
            timestamps: Begin each line with the local time.
            builds: Show what building an image printed, too.
        """
        self._builds = builds
        self._write = write
        self._colour = colour
        self._timestamps = timestamps
        self._open: str | None = None
        """The stream whose line is not ended yet."""

    def show(self, records: Iterable[Record]) -> None:
        """Write some records."""
        for record in records:
            if record.kind == "output":
                self._output(record)
            elif record.source == "host" and record.text.startswith(BUILD_MARK):
                if self._builds:
                    self._aside(record, visible_line(record.text))
            elif text := describe(record):
                self._aside(record, f"{MARK} {text}")

    def _aside(self, record: Record, text: str) -> None:
        """A line that the agent did not print."""
        self.end_line()
        line = f"{self._stamp(record)}{text}"
        self._write(f"\x1b[2m{line}\x1b[0m\n" if self._colour else f"{line}\n")

    def end_line(self) -> None:
        """End a line that was left open, and its colours."""
        if self._open is not None:
            self._write("\x1b[0m\n" if self._colour else "\n")
            self._open = None

    def _output(self, record: Record) -> None:
        text = visible(record.text, sgr=True)
        if not self._colour:
            text = without_sgr(text)
        if not text:
            return
        stream = f"{record.turn} {record.stream}"
        if self._open not in (None, stream):
            self.end_line()
        stamp = self._stamp(record)
        if stamp:
            lines = text.split("\n")
            starts = [stamp if self._open is None else "", *[stamp] * (len(lines) - 1)]
            if not lines[-1]:
                starts[-1] = ""
            text = "\n".join(start + line for start, line in zip(starts, lines, strict=True))
        self._write(text)
        self._open = None if text.endswith("\n") else stream
        if self._open is None and self._colour and "\x1b" in text:
            self._write("\x1b[0m")

    def _stamp(self, record: Record) -> str:
        return f"{record.at.astimezone():%H:%M:%S} " if self._timestamps else ""


def describe(record: Record) -> str:
    """What a record that is no output says to a person; empty for what says nothing."""
    data = record.data
    match record.kind:
        case "note":
            return visible_line(record.text)
        case "state":
            return _state(data)
        case "turn_started":
            return "The agent started."
        case "turn_ended":
            return _ended(data)
        case "gap":
            return "Some output is missing here: it came faster than it could be kept."
        case _:
            return ""


def _state(data: dict[str, object]) -> str:
    """A step of the sandbox's start. That it is ready is said by the host, with the names of branch and agent."""
    match data.get("name"):
        case "clone_started":
            return "Cloning the repository."
        case "clone_done":
            return "The repository is cloned."
        case "clone_failed":
            return visible_line(f"The repository could not be cloned: {data.get('message') or 'no reason given'}")
        case _:
            return ""


def _ended(data: dict[str, object]) -> str:
    match data.get("reason"):
        case "exited":
            return f"The agent ended with exit status {data.get('exit_code')}."
        case "cancelled":
            return "The agent was stopped."
        case "not_started":
            return visible_line(f"The agent could not be started: {data.get('message') or 'no reason given'}")
        case _:
            return f"The agent was ended by signal {data.get('signal')}."
