"""What redaction costs: against a pace of 50 MB/s, the bare automaton, and the cleaning that follows it."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable

from ahocorasick_rs import BytesAhoCorasick, Implementation
from sides import alternate, report

from kortix_tui.store.records import Cleaner
from kortix_tui.vault.needles import needles
from kortix_tui.vault.redaction import Redactor

NEEDLES = 1000
MEGABYTES = 32
PACE = 50.0
"""MB/s that are asked for."""
CHUNK = 64 << 10


def values(count: int) -> list[tuple[str, bytes]]:
    rng = random.Random(7)
    letters = string.ascii_letters + string.digits + "-_"
    return [(f"SECRET-{number}", "".join(rng.choices(letters, k=40)).encode()) for number in range(count)]


def thousand() -> list[tuple[str, bytes]]:
    """As many values as have a thousand spellings together."""
    return values(NEEDLES // len(needles(values(1)[0][1])) + 1)


def log() -> bytes:
    """What a build prints: words, paths, numbers, colours."""
    rng = random.Random(8)
    words = ["Compiling", "src/app/main.py", "\x1b[32mok\x1b[0m", "warning:", "https://example.com/x", "12.4s", "café"]
    text = "".join(" ".join(rng.choices(words, k=9)) + f" {rng.getrandbits(64):x}\n" for _ in range(20_000)).encode()
    return (text * (MEGABYTES * 1_000_000 // len(text) + 1))[: MEGABYTES * 1_000_000]


def timed(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_a_whole_text(runs: int, tell: Callable[[str], None]) -> None:
    redactor, text = Redactor.of(thousand()), log()
    assert redactor.data(text) is text
    mine, reference = alternate(runs, lambda: timed(lambda: redactor.data(text)), lambda: MEGABYTES / PACE)
    tell(report(f"redacting {MEGABYTES} MB with {NEEDLES} needles against {PACE:.0f} MB/s, CPU", "1", mine, reference))


def test_a_stream(runs: int, tell: Callable[[str], None]) -> None:
    redactor, text = Redactor.of(thousand()), log()
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]

    def ours() -> float:
        stream = redactor.stream()
        return timed(lambda: [stream.feed(chunk) for chunk in chunks])

    mine, reference = alternate(runs, ours, lambda: MEGABYTES / PACE)
    tell(report(f"a stream of {CHUNK >> 10} KiB chunks against {PACE:.0f} MB/s, CPU", "1", mine, reference))

    spellings = [needle for _, value in thousand() for needle in needles(value)]
    bare = BytesAhoCorasick(spellings, implementation=Implementation.ContiguousNFA)
    mine, reference = alternate(
        runs, ours, lambda: timed(lambda: [bare.find_matches_as_indexes(chunk) for chunk in chunks])
    )
    tell(report("the same against the bare automaton, CPU", "1.5", mine, reference))


def test_the_way_into_the_record(runs: int, tell: Callable[[str], None]) -> None:
    """What a session's output costs with redaction and without: cleaning is needed in any case."""
    redactor, text = Redactor.of(thousand()), log()[: MEGABYTES * 250_000]
    chunks = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]

    def ours() -> float:
        stream, cleaner = redactor.stream(), Cleaner()
        return timed(lambda: [redactor.text(cleaner.feed(stream.feed(chunk))) for chunk in chunks])

    def theirs() -> float:
        cleaner = Cleaner()
        return timed(lambda: [cleaner.feed(chunk) for chunk in chunks])

    mine, reference = alternate(runs, ours, theirs)
    tell(report("output redacted, cleaned and redacted against cleaned only, CPU", "2", mine, reference))


def test_text_full_of_values(runs: int, tell: Callable[[str], None]) -> None:
    """Somebody prints all values again and again."""
    found = thousand()
    redactor = Redactor.of(found)
    text = b"\n".join(value for _, value in found) * 1000
    pace = len(text) / 1_000_000 / PACE
    mine, reference = alternate(runs, lambda: timed(lambda: redactor.data(text)), lambda: pace)
    tell(report(f"text of nothing but values against {PACE:.0f} MB/s, CPU", "none", mine, reference))


def test_making_one(runs: int, tell: Callable[[str], None]) -> None:
    """At each change of the vault, with 2,000 secrets."""
    many = values(2000)
    spellings = [needle for _, value in many for needle in needles(value)]

    def theirs() -> float:
        return timed(lambda: BytesAhoCorasick(spellings, implementation=Implementation.ContiguousNFA))

    mine, reference = alternate(runs, lambda: timed(lambda: Redactor.of(many)), theirs)
    tell(report("a redactor of 2,000 secrets against its bare automaton, CPU", "none", mine, reference))
