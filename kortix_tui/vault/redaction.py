"""Values taken out of text: every spelling of every known value, over any chunking, replaced by a marker.

One automaton finds the beginnings of all spellings in one pass, and what follows is compared: an automaton of whole
spellings takes seconds to build for thousands of values, in which nothing else of this process runs. Overlapping and
nested matches become one marker, of the longest; the markers are chosen so that no spelling can match in or at one, so
redacting twice changes nothing more.

A stream never waits for what is most likely ordinary: fewer than `SHORTEST` bytes of a value's beginning are let go at
once (and may be seen), more are held back until it is known what they are.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kortix_tui.base.text import visible_line
from kortix_tui.vault.needles import SHORTEST, needles
from kortix_tui.vault.secret import Secret

PIECE: Final = 12
"""Bytes of a value's beginning that are replaced where a stream ends in the middle of a value."""

_HEAD: Final = 16
"""Bytes of a spelling that the automaton knows: more than the beginnings that kinds of keys and addresses share."""
_WINDOW: Final = 256 << 10
"""Bytes searched at once: a value that repeats itself matches at every byte, and each match costs memory."""

_COLOUR: Final = re.compile(rb"\x1b\[[0-9;]{0,64}m")

_Span = tuple[int, int, int]
"""Start, end, and the number of a needle."""


class Hit(NamedTuple):
    """Where a value is: bytes `start` to `end`. Overlapping ones are one hit, named after the longest."""

    label: str
    start: int
    end: int


class Redactor:
    """Knows the values of one moment; never changes. Make one with `Redactor.of`. Safe to share between threads."""

    def __init__(self, spellings: dict[bytes, str]) -> None:
        self._needles = tuple(spellings)
        self._labels = tuple(spellings.values())
        self._longest = max(map(len, self._needles), default=0)
        if not spellings:
            return
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        heads: dict[bytes, list[int]] = {}
        self._starts: dict[bytes, list[int]] = {}
        for number, needle in enumerate(self._needles):
            heads.setdefault(needle[:_HEAD], []).append(number)
            self._starts.setdefault(needle[:SHORTEST], []).append(number)
        # Not the default: for few needles that would be a table of all states and bytes.
        self._automaton = BytesAhoCorasick(heads, implementation=Implementation.ContiguousNFA)
        self._by_head = tuple(heads.values())
        self._markers = self._choose_markers()

    @classmethod
    def of(cls, values: Iterable[tuple[str, Secret | bytes]]) -> Redactor:
        """A redactor for these values, each with the identifier that its marker names.

        Takes about 0.1 ms a value; for thousands of them call it in a thread.
        """
        spellings: dict[bytes, str] = {}
        for label, value in values:
            for needle in needles(value if isinstance(value, bytes) else value.use("redaction")):
                spellings.setdefault(needle, label)
        return cls(spellings)

    @classmethod
    def none(cls) -> Redactor:
        """One that knows no value and changes nothing."""
        return cls({})

    def __bool__(self) -> bool:
        return bool(self._needles)

    def __repr__(self) -> str:
        return f"<Redactor of {len(set(self._labels))} values>"

    # ---- whole texts --------------------------------------------------------------------------------------------

    def hits(self, data: bytes) -> list[Hit]:
        """Where values are, in order."""
        return [Hit(self._labels[needle], start, end) for start, end, needle in self.spans(data)]

    def data(self, data: bytes) -> bytes:
        """The same bytes with markers in place of values."""
        spans = self.spans(data)
        if not spans:
            return data
        parts: list[bytes] = []
        at = 0
        for start, end, needle in spans:
            parts += (data[at:start], self.marker(needle))
            at = end
        return b"".join((*parts, data[at:]))

    def text(self, text: str, *, cut: bool = False) -> str:
        """The same text with markers in place of values, also of those whose parts differ in colour.

        Args:
            text: Any text; of a terminal's language only colours are understood.
            cut: It is a piece of a longer one: it may begin and end in the middle of a value.
        """
        if not self or len(text) * 4 < SHORTEST:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        clean = self.stream(resuming=True).feed(raw, final=True) if cut else self.data(raw)
        if b"\x1b" in clean:
            clean = self._through_colours(clean)
        if clean == raw:
            return text
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not text began in the middle of a character
            return clean.decode("utf-8", "replace")

    def _through_colours(self, data: bytes) -> bytes:
        """Markers for values that a highlighter or a search has painted part by part; the colours stay."""
        places: list[int] = []
        shifts = [0]
        for colour in _COLOUR.finditer(data):
            places.append(colour.start() - shifts[-1])
            shifts.append(shifts[-1] + len(colour[0]))

        def painted(plain: int) -> int:
            return plain + shifts[bisect_right(places, plain)]

        parts: list[bytes] = []
        at = 0
        for start, end, needle in self.spans(_COLOUR.sub(b"", data)):
            first, last = painted(start), painted(end - 1) + 1
            parts += (data[at:first], self.marker(needle), *_COLOUR.findall(data[first:last]))
            at = last
        return b"".join((*parts, data[at:]))

    def stream(self, *, resuming: bool = False) -> RedactingStream:
        """For bytes that come in pieces.

        Args:
            resuming: The first byte may be in the middle of a value.
        """
        return RedactingStream(self, resuming=resuming)

    # ---- for streams --------------------------------------------------------------------------------------------

    def spans(self, data: bytes) -> list[_Span]:
        """Merged matches, in order."""
        found: list[_Span] = []
        for first in range(0, len(data), _WINDOW) if self else ():
            piece = data[first : first + _WINDOW + _HEAD - 1]
            for head, start, _ in self._automaton.find_matches_as_indexes(piece, overlapping=True):
                at = first + start
                for number in self._by_head[head]:
                    needle = self._needles[number]
                    if data.startswith(needle, at):
                        found.append((at, at + len(needle), number))
        return self.merged(found) if found else found

    def merged(self, spans: Sequence[_Span]) -> list[_Span]:
        """Overlapping spans as one, which has the longest's name; in order."""
        merged: list[_Span] = []
        first, last, name, longest = 0, -1, 0, 0
        for start, end, number in sorted(spans):
            if start < last:
                last = max(last, end)
                if end - start > longest:
                    longest, name = end - start, number
                continue
            if last >= 0:
                merged.append((first, last, name))
            first, last, name, longest = start, end, number, end - start
        if last >= 0:
            merged.append((first, last, name))
        return merged

    def marker(self, needle: int) -> bytes:
        """What stands in place of a needle."""
        return self._markers[self._labels[needle]]

    def begun(self, data: bytes) -> _Span | None:
        """The longest end of `data`, `SHORTEST` bytes or more, that begins a needle without being all of it."""
        rest = data[max(0, len(data) - self._longest + 1) :]
        starts: list[tuple[int, int]] = []
        for head, at, _ in self._automaton.find_matches_as_indexes(rest, overlapping=True):
            starts += ((at, number) for number in self._by_head[head] if self._goes_on(number, rest[at:]))
        if starts:
            at, number = min(starts)
            return len(data) - len(rest) + at, len(data), number
        for length in range(min(_HEAD - 1, len(rest)), SHORTEST - 1, -1):
            end = rest[-length:]
            for number in self._starts.get(end[:SHORTEST], ()):
                if self._goes_on(number, end):
                    return len(data) - length, len(data), number
        return None

    def _goes_on(self, number: int, beginning: bytes) -> bool:
        needle = self._needles[number]
        return len(needle) > len(beginning) and needle.startswith(beginning)

    def is_inside(self, data: bytes) -> int | None:
        """The number of a needle that has all of `data` in it."""
        return next((number for number, needle in enumerate(self._needles) if data in needle), None)

    def ended(self, data: bytes) -> _Span | None:
        """The longest beginning of `data`, `SHORTEST` bytes or more, that ends a needle."""
        head = data[:SHORTEST]
        found: _Span | None = None
        for number, needle in enumerate(self._needles if len(head) == SHORTEST else ()):
            at = needle.find(head)
            while at >= 0:
                if data.startswith(needle[at:]) and (found is None or len(needle) - at > found[1]):
                    found = (0, len(needle) - at, number)
                at = needle.find(head, at + 1)
        return found

    # ---- markers ------------------------------------------------------------------------------------------------

    def _choose_markers(self) -> dict[str, bytes]:
        """For each label the first marker that no needle can match in, around or at the edge of."""
        edged = [needle for needle in self._needles if any(edge in needle for edge in (b"[", b"]", b"<", b">", b"*"))]
        plain = next((word for word in (b"[redacted]", b"[***]", b"<***>") if self._suits(word, edged)), b"***")
        named = {label: f"[redacted:{visible_line(label)}]".encode() for label in set(self._labels)}
        return {label: word if self._suits(word, edged) else plain for label, word in named.items()}

    def _suits(self, word: bytes, edged: Sequence[bytes]) -> bool:
        if self.spans(word):
            return False
        return not any(
            word in needle
            or any(
                needle.startswith(word[at:]) or needle.endswith(word[: len(word) - at]) for at in range(1, len(word))
            )
            for needle in edged
        )


class RedactingStream:
    """One stream's bytes, redacted as they come.

    `redactor` may be replaced between two calls; what was let go before stays as it was.
    """

    def __init__(self, redactor: Redactor, *, resuming: bool = False) -> None:
        self.redactor = redactor
        self._opening = resuming
        self._kept = b""
        """The newest bytes: those that are held back, and some that are out but may begin a value."""
        self._out = 0
        """How many of them are out."""
        self._marked = 0
        """Up to where a marker stands for them."""

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """What can be shown after this piece.

        Args:
            data: The next bytes; may be empty.
            final: Nothing follows: what is held back comes out, or a marker in place of a value's beginning.
        """
        whole = self._kept + data
        if not self.redactor:
            shown = whole[self._out :]
            self._kept, self._out, self._marked = b"", 0, 0
            self._opening = self._opening and not whole
            return shown
        extra: list[_Span] = []
        if self._opening:
            inside = self.redactor.is_inside(whole)
            if inside is not None and not final:
                return self._wait(whole)
            self._opening = False
            if inside is not None and len(whole) >= PIECE:
                extra.append((0, len(whole), inside))
            elif (ended := self.redactor.ended(whole)) is not None:
                extra.append(ended)
        begun = self.redactor.begun(whole)
        if final and begun is not None and len(whole) - begun[0] >= PIECE:
            extra.append(begun)
        end = len(whole) if final or begun is None else begun[0]
        spans = self.redactor.spans(whole)
        return self._show(whole, self.redactor.merged((*spans, *extra)) if extra else spans, end)

    def _wait(self, whole: bytes) -> bytes:
        """All bytes so far are in the middle of a value, or so few that this means nothing."""
        shown = whole[self._out :] if len(whole) < SHORTEST else b""
        self._kept = whole
        self._out += len(shown)
        return shown

    def _show(self, whole: bytes, spans: Sequence[_Span], end: int) -> bytes:
        """Let everything before `end` out, and all of a match that begins before it."""
        parts: list[bytes] = []
        out, marked = self._out, self._marked
        for first, last, needle in spans:
            if first >= end:
                break
            if last <= out:
                continue
            parts.append(whole[out:first])
            # What only makes a value longer whose marker is out already needs no other.
            if not first < marked == out:
                parts.append(self.redactor.marker(needle))
            out = marked = last
        parts.append(whole[out:end])
        out = max(out, end)
        start = max(0, min(end, len(whole) - SHORTEST + 1))
        self._kept, self._out, self._marked = whole[start:], out - start, marked - start
        return b"".join(parts)
