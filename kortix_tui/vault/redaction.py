"""Values taken out of text: every spelling of every known value, over any chunking, replaced by a marker.

One automaton finds all spellings in one pass. Overlapping and nested matches become one marker, of the longest; the
markers are chosen so that no spelling can match in or at one, so redacting twice changes nothing more.

A stream never waits for what is most likely ordinary: fewer than `SHORTEST` bytes of a value's beginning are let go at
once (and may be seen), more are held back until it is known what they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kortix_tui.base.text import visible_line
from kortix_tui.vault.needles import SHORTEST, needles
from kortix_tui.vault.secret import Secret

PIECE: Final = 12
"""Bytes of a value's beginning that are replaced where a stream ends in the middle of a value."""

_WINDOW: Final = 256 << 10
"""Bytes searched at once: a value that repeats itself matches at every byte, and each match costs memory."""


class Hit(NamedTuple):
    """Where a value is: bytes `start` to `end`. Overlapping ones are one hit, named after the longest."""

    label: str
    start: int
    end: int


class _Span(NamedTuple):
    start: int
    end: int
    needle: int


class Redactor:
    """Knows the values of one moment; never changes. Make one with `Redactor.of`. Safe to share between threads."""

    def __init__(self, spellings: dict[bytes, str]) -> None:
        self._needles = tuple(spellings)
        self._labels = tuple(spellings.values())
        self._longest = max(map(len, self._needles), default=0)
        if not spellings:
            return
        from ahocorasick_rs import BytesAhoCorasick, Implementation

        # Not the default, which for few needles is a table whose size one large value makes unbearable.
        self._automaton = BytesAhoCorasick(self._needles, implementation=Implementation.ContiguousNFA)
        heads: dict[bytes, list[bytes]] = {}
        for needle in self._needles:
            heads.setdefault(needle[:SHORTEST], []).append(needle)
        self._by_head = tuple(heads.values())
        self._heads = BytesAhoCorasick(heads, implementation=Implementation.ContiguousNFA)
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
        return [Hit(self._labels[span.needle], span.start, span.end) for span in self.spans(data)]

    def data(self, data: bytes) -> bytes:
        """The same bytes with markers in place of values."""
        spans = self.spans(data)
        if not spans:
            return data
        parts: list[bytes] = []
        at = 0
        for span in spans:
            parts += (data[at : span.start], self.marker(span))
            at = span.end
        return b"".join((*parts, data[at:]))

    def text(self, text: str, *, cut: bool = False) -> str:
        """The same text with markers in place of values.

        Args:
            text: Any text.
            cut: It is a piece of a longer one: it may begin and end in the middle of a value.
        """
        if not self or len(text) * 4 < SHORTEST:
            return text
        raw = text.encode("utf-8", "surrogatepass")
        clean = self.stream(resuming=True).feed(raw, final=True) if cut else self.data(raw)
        if clean == raw:
            return text
        try:
            return clean.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # a value that is not text began in the middle of a character
            return clean.decode("utf-8", "replace")

    def stream(self, *, resuming: bool = False) -> RedactingStream:
        """For bytes that come in pieces.

        Args:
            resuming: The first byte may be in the middle of a value.
        """
        return RedactingStream(self, resuming=resuming)

    # ---- for streams --------------------------------------------------------------------------------------------

    def spans(self, data: bytes) -> list[_Span]:
        """Merged matches, in order."""
        if not self or len(data) < SHORTEST:
            return []
        window = max(_WINDOW, 4 * self._longest)
        found: list[_Span] = []
        for at in range(0, len(data), window):
            piece = data[at : at + window + self._longest]
            matches = self._automaton.find_matches_as_indexes(piece, overlapping=True)
            found += [_Span(start + at, end + at, needle) for start, end, needle in _merged(matches)]
        return self.merged(found) if len(data) > window else found

    def merged(self, spans: Iterable[_Span]) -> list[_Span]:
        """Overlapping spans as one."""
        return _merged([(needle, start, end) for start, end, needle in sorted(spans, key=lambda span: span.end)])

    def marker(self, span: _Span) -> bytes:
        """What stands in place of a span."""
        return self._markers[self._labels[span.needle]]

    def begun(self, data: bytes) -> _Span | None:
        """The longest end of `data`, `SHORTEST` bytes or more, that begins a needle without being all of it."""
        first = max(0, len(data) - self._longest + 1)
        rest = data[first:]
        for head, at, _ in self._heads.find_matches_as_indexes(rest, overlapping=True) if self else ():
            for needle in self._by_head[head]:
                if len(needle) > len(rest) - at and needle.startswith(rest[at:]):
                    return _Span(first + at, len(data), self._needles.index(needle))
        return None

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
                if data.startswith(needle[at:]) and (found is None or len(needle) - at > found.end):
                    found = _Span(0, len(needle) - at, number)
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
        if self._automaton.find_matches_as_indexes(word):
            return False
        return not any(
            word in needle
            or any(
                needle.startswith(word[at:]) or needle.endswith(word[: len(word) - at]) for at in range(1, len(word))
            )
            for needle in edged
        )


def _merged(matches: Sequence[tuple[int, int, int]]) -> list[_Span]:
    """Overlapping matches (needle, start, end), which come in the order of their ends, as one of the longest's name.

    A value that repeats itself makes a match of every byte, so this is short: from the last end to the first.
    """
    spans: list[_Span] = []
    first = last = longest = name = -1
    for needle, start, end in reversed(matches):
        if end <= first or last < 0:
            if last >= 0:
                spans.append(_Span(first, last, name))
            first, last, longest, name = start, end, end - start, needle
            continue
        if start < first:
            first = start
        if end - start > longest:
            longest, name = end - start, needle
    if last >= 0:
        spans.append(_Span(first, last, name))
    spans.reverse()
    return spans


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
                extra.append(_Span(0, len(whole), inside))
            elif (ended := self.redactor.ended(whole)) is not None:
                extra.append(ended)
        begun = self.redactor.begun(whole)
        if final and begun is not None and begun.end - begun.start >= PIECE:
            extra.append(begun)
        end = len(whole) if final or begun is None else begun.start
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
        for span in spans:
            if span.start >= end:
                break
            if span.end <= out:
                continue
            parts.append(whole[out : span.start])
            # What only makes a value longer whose marker is out already needs no other.
            if not span.start < marked == out:
                parts.append(self.redactor.marker(span))
            out = marked = span.end
        parts.append(whole[out:end])
        out = max(out, end)
        start = max(0, min(end, len(whole) - SHORTEST + 1))
        self._kept, self._out, self._marked = whole[start:], out - start, marked - start
        return b"".join(parts)
