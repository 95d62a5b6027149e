"""The one place that moves facts between threads. The user interface asks and goes on; it never waits.

Three threads of the bridge's own block so that the user interface need not: one reads the lists when the store
changed, one follows the logs that are on the screen, and one at a time does what a person asked for.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any, TypeVar

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import visible_line
from kortix_tui.console.source import Records, Source
from kortix_tui.console.transcript import Transcript
from kortix_tui.console.widgets.lines import LineRing, LogLine
from kortix_tui.runtime.views import ChangeView, HostView, SessionView
from kortix_tui.store.models import Project

POLL_SECONDS = 0.1
"""How often the store is asked whether something changed; one cheap query."""
REREAD_SECONDS = 5.0
"""A silent host writes nothing, so that it is silent is only found by looking."""
LOG_POLL_SECONDS = 0.1
LOG_TAIL = 5_000
"""Records that a log opens with."""
LOG_BATCH = 2_000
KEPT_LOGS = 8
"""Logs that are not on the screen but stay in memory, so that going back to them shows them at once."""
JOIN_SECONDS = 5.0
WORKERS = 4
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True)
class Facts:
    """Everything that the lists show, of one moment. Replaced whole, so a reader never sees half of a change."""

    sessions: tuple[SessionView, ...] = ()
    changes: tuple[ChangeView, ...] = ()
    projects: tuple[Project, ...] = ()
    host: HostView = field(default_factory=lambda: HostView(host=None, silent=False, here=False))
    unfinished: int = 0
    problem: str | None = None
    loaded: bool = False

    def session(self, session_id: str | None) -> SessionView | None:
        """The session of an id."""
        return next((session for session in self.sessions if session.id == session_id), None)

    def change(self, change_id: str | None) -> ChangeView | None:
        """The change request of an id."""
        return next((change for change in self.changes if change.id == change_id), None)

    def project(self, slug: str) -> Project | None:
        """The project of a slug."""
        return next((project for project in self.projects if project.slug == slug), None)


@dataclass
class _Followed:
    ring: LineRing
    transcript: Transcript
    records: Records | None = None
    wanted: bool = True


class Bridge:
    """Facts and logs for the user interface, and its acts for the runtime."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._facts = Facts()
        self.nothing = LineRing()
        """An empty log, for panes without a session."""
        self._answers: deque[Callable[[], None]] = deque()
        self._followed: dict[str, _Followed] = {}
        self._guard = threading.Lock()
        self._ended = threading.Event()
        self._again = threading.Event()
        self._wake: Callable[[], None] = lambda: None
        self._threads: list[threading.Thread] = []
        self._acts: SimpleQueue[Callable[[], None]] = SimpleQueue()

    # Life.

    def start(self, wake: Callable[[], None], *, host: bool = True) -> None:
        """Start the threads.

        Args:
            wake: Called from any thread when there is an answer or a new fact; must only post a message.
            host: Whether to stand for host.
        """
        self._wake = wake
        if host:
            self.submit(lambda source: source.start_hosting(), lambda _: None, self._cannot_host)
        self._threads = [self._thread("facts", self._read_facts), self._thread("logs", self._read_logs)]
        for number in range(WORKERS):
            self._thread(f"act-{number}", self._act)

    def stop(self) -> None:
        """End the threads. An act that is under way is not waited for: it is stored, and the host goes on with it."""
        self._ended.set()
        self._again.set()
        for _ in range(WORKERS):
            self._acts.put(_nothing)  # wakes those that wait for an act
        for thread in self._threads:
            thread.join(JOIN_SECONDS)

    @staticmethod
    def _thread(name: str, work: Callable[[], None]) -> threading.Thread:
        # Daemon threads: an act that waits for the world must not keep the program from ending.
        thread = threading.Thread(target=work, name=f"console-{name}", daemon=True)
        thread.start()
        return thread

    def _cannot_host(self, error: KortixError) -> None:
        self._take(replace(self._facts, problem=f"This console cannot act: {error.message}"))

    # Facts.

    @property
    def facts(self) -> Facts:
        """The newest facts."""
        return self._facts

    def read_again(self) -> None:
        """Read the lists soon, whatever the store says."""
        self._again.set()

    def _read_facts(self) -> None:
        version, waited = -1, REREAD_SECONDS
        while not self._ended.is_set():
            asked = self._again.is_set()
            self._again.clear()
            try:
                newest = self._source.data_version()
                if asked or newest != version or waited >= REREAD_SECONDS:
                    version, waited = newest, 0.0
                    self._take(self._load())
            except KortixError as error:
                self._take(replace(self._facts, problem=str(error)))
            except Exception:
                log.exception("reading the lists failed")
                self._take(replace(self._facts, problem="The state cannot be read; see the log."))
            self._again.wait(POLL_SECONDS)
            waited += POLL_SECONDS

    def _load(self) -> Facts:
        source = self._source
        return Facts(
            sessions=tuple(source.sessions.list()),
            changes=tuple(source.changes.list()),
            projects=tuple(source.projects.list()),
            host=source.host(),
            unfinished=source.unfinished(),
            loaded=True,
        )

    def _take(self, facts: Facts) -> None:
        if facts != self._facts:
            self._facts = facts
            self._wake()

    # Logs.

    def follow(self, session_id: str) -> LineRing:
        """The session's log; it fills while it is followed."""
        with self._guard:
            known = self._followed.get(session_id)
            if known is None:
                ring = LineRing()
                known = self._followed[session_id] = _Followed(ring, Transcript(ring))
            known.wanted = True
            return known.ring

    def follow_only(self, session_ids: set[str]) -> None:
        """Stop following all others. What was read of them is kept while they are few."""
        with self._guard:
            for session_id, followed in self._followed.items():
                followed.wanted = session_id in session_ids
            idle = [session_id for session_id, followed in self._followed.items() if not followed.wanted]
            for session_id in idle[:-KEPT_LOGS]:
                del self._followed[session_id]

    def _read_logs(self) -> None:
        while not self._ended.is_set():
            with self._guard:
                wanted = [(key, followed) for key, followed in self._followed.items() if followed.wanted]
            busy = False
            for session_id, followed in wanted:
                try:
                    if followed.records is None:
                        followed.records = self._source.sessions.records(session_id, tail=LOG_TAIL)
                    batch = followed.records.read(LOG_BATCH)
                except (KortixError, OSError) as error:
                    log.exception("reading the log of session %s failed", session_id)
                    followed.ring.extend([LogLine(visible_line(f"This log cannot be read: {error}"), source="error")])
                    followed.wanted = False
                    continue
                followed.transcript.feed(batch)
                busy = busy or len(batch) >= LOG_BATCH
            if not busy:
                self._ended.wait(LOG_POLL_SECONDS)

    # Acts.

    def submit(
        self, act: Callable[[Source], T], done: Callable[[T], None], failed: Callable[[KortixError], None]
    ) -> None:
        """Do something that may block; one of the two answers is called later, on the user interface.

        Args:
            act: Runs in a thread of the bridge.
            done: Gets its result.
            failed: Gets its failure, also an unexpected one, in words for a person.
        """

        def run() -> None:
            try:
                answer = _call(done, act(self._source))
            except KortixError as error:
                answer = _call(failed, error)
            except Exception as error:
                log.exception("an act of the console failed")
                kind = type(error).__name__
                answer = _call(failed, KortixError(f"Something went wrong: {kind}.", hint="See the console's log."))
            self._answers.append(answer)
            self._again.set()
            self._wake()

        self._acts.put(run)

    def _act(self) -> None:
        while not self._ended.is_set():
            self._acts.get()()

    def take_answers(self) -> None:
        """Call the answers that have come; on the user interface only."""
        while self._answers:
            self._answers.popleft()()


def _nothing() -> None:
    """An act that does nothing."""


def _call(function: Callable[[Any], None], value: Any) -> Callable[[], None]:
    return lambda: function(value)
