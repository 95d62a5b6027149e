"""What the console says beside its picture: title, bell and desktop notice, by the operator's settings."""

from __future__ import annotations

from collections.abc import Iterable

from console_source import FixedClock, MemorySource, a_day
from pseudo_terminal import ALLOWED, PseudoTerminal

from kortix_tui.base.settings import Notify
from kortix_tui.console.facts import Facts
from kortix_tui.console.notices import Notices, desktop, title


class Desk:
    def __init__(self, **settings: bool) -> None:
        self.written: list[str] = []
        self.clock = FixedClock()
        self.source: MemorySource = a_day()
        self.notices = Notices(Notify(**settings), self.written.append, self.clock.monotonic)

    def take(self, references: Iterable[int]) -> list[str]:
        """Facts with so many of the items waiting; what was written for them."""
        self.written.clear()
        inbox = tuple(self.source.inbox.list()[at] for at in references)
        self.notices.take(Facts(vault=self.source.vault.status(), inbox=inbox))
        return list(self.written)


def test_what_waits_at_the_start_rings_no_bell() -> None:
    desk = Desk()
    assert desk.take([0]) == ["\x1b[22;2t", "\x1b]2;! kortix: 1 waiting\x07"]
    assert desk.take([0]) == []


def test_what_starts_to_wait_rings_once_for_many() -> None:
    desk = Desk(title=False, desktop=True)
    desk.take([])
    assert desk.take([0, 1]) == ["\x07", desktop(2)]
    assert desk.take([0, 1, 2]) == [], "one bell in half a minute"
    desk.clock.seconds += 31
    assert desk.take([0]) == [], "less waits"
    assert desk.take([0, 2]) == ["\x07", desktop(2)]


def test_nothing_is_written_where_nothing_is_wanted() -> None:
    desk = Desk(title=False, bell=False)
    desk.take([])
    assert desk.take([0, 1]) == []
    desk.notices.close()
    assert desk.written == []


def test_facts_that_are_not_whole_are_no_news() -> None:
    desk = Desk()
    desk.notices.take(Facts())
    assert desk.written == []
    assert desk.take([0, 1])[-1] == title(2)


def test_every_sequence_is_one_that_is_allowed() -> None:
    for sequence in (title(0), title(12), desktop(1), desktop(12)):
        assert ALLOWED.sub("", sequence) == ""


def test_the_title_is_given_back() -> None:
    with PseudoTerminal("day") as terminal:
        terminal.press("", "INBOX 3!")
        terminal.process.terminate()
        while terminal.process.poll() is None or terminal.read():
            terminal.read()
        output = terminal.output.decode("utf-8", "replace")
    assert "\x1b]2;! kortix: 3 waiting\x07" in output
    assert output.index("\x1b]2;") > output.index("\x1b[22;2t")
    assert output.rindex("\x1b[23;2t") > output.rindex("\x1b]2;")
