"""The one place that moves facts between threads. The user interface asks and goes on; it never waits.

Threads of the bridge's own block so that the user interface need not: one reads the lists when the store changed, one
reads what needs git or the vault's file besides, one follows the logs that are on the screen, and some do what a person
asked for.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

from kortix_tui.base.errors import KortixError
from kortix_tui.base.text import visible_line
from kortix_tui.console.facts import Facts
from kortix_tui.console.source import Records, Source
from kortix_tui.console.transcript import Transcript
from kortix_tui.console.widgets.lines import LineRing, LogLine

if TYPE_CHECKING:
    from kortix_tui.runtime.connector_views import ConnectorView

POLL_SECONDS = 0.1
"""How often the store is asked whether something changed; one cheap query."""
VAULT_SECONDS = 0.5
"""How often it is asked for what is read with git, too: a busy fleet writes all the time."""
CALLS_SECONDS = 0.2
"""How often it is asked for calls that wait."""
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
        self._facts_guard = threading.Lock()
        self._ended = threading.Event()
        self._again = threading.Event()
        self._vault_again = threading.Event()
        self._calls_again = threading.Event()
        self._connectors_again = threading.Event()
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
        self._threads = [
            self._thread("facts", partial(self._read_facts, self._again, self._read_lists, POLL_SECONDS, "problem")),
            self._thread(
                "vault",
                partial(self._read_facts, self._vault_again, self._read_vault, VAULT_SECONDS, "vault_problem"),
            ),
            self._thread(
                "calls",
                partial(self._read_facts, self._calls_again, self._read_calls, CALLS_SECONDS, "calls_problem"),
            ),
            self._thread(
                "connectors",
                partial(
                    self._read_facts, self._connectors_again, self._read_connectors, VAULT_SECONDS, "connectors_problem"
                ),
            ),
            self._thread("logs", self._read_logs),
        ]
        for number in range(WORKERS):
            self._thread(f"act-{number}", self._act)

    def stop(self) -> None:
        """End the threads. An act that is under way is not waited for: it is stored, and the host goes on with it."""
        self._ended.set()
        self.read_again()
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
        self._take(problem=f"This console cannot act: {error.message}")

    # Facts.

    @property
    def facts(self) -> Facts:
        """The newest facts."""
        return self._facts

    def read_again(self) -> None:
        """Read the lists soon, whatever the store says."""
        self._again.set()
        self._vault_again.set()
        self._calls_again.set()
        self._connectors_again.set()

    def _read_facts(self, again: threading.Event, read: Callable[[bool], None], seconds: float, problem: str) -> None:
        version, waited = -1, REREAD_SECONDS
        while not self._ended.is_set():
            asked = again.is_set()
            again.clear()
            try:
                newest = self._source.data_version()
                changed = asked or newest != version
                if changed or waited >= REREAD_SECONDS:
                    version, waited = newest, 0.0
                    read(changed)
            except KortixError as error:
                self._take(**{problem: str(error)})
            except Exception:
                log.exception("reading the lists failed")
                self._take(**{problem: "The state cannot be read; see the log."})
            again.wait(seconds)
            waited += seconds

    def _read_lists(self, _: bool) -> None:
        source = self._source
        self._take(
            sessions=tuple(source.sessions.list()),
            changes=tuple(source.changes.list()),
            projects=tuple(source.projects.list()),
            host=source.host(),
            unfinished=source.unfinished(),
            problem=None,
            loaded=True,
        )

    def _read_vault(self, changed: bool) -> None:
        """Agents are named by their grants, which are read with git: the other lists must not wait for that."""
        source = self._source
        fresh: dict[str, Any] = {"vault": source.vault.status(), "vault_problem": None}
        if changed:
            fresh["secrets"] = tuple(source.secrets.list())
            fresh["requests"] = tuple(source.secrets.requests())
            fresh["inbox"] = tuple(source.inbox.list())
        self._take(**fresh)

    def _read_calls(self, _: bool) -> None:
        """Calls that wait, by themselves: a vault or a repository that hangs must keep no decision back."""
        self._take(approvals=tuple(self._source.approvals.pending()), calls_problem=None)

    def _read_connectors(self, changed: bool) -> None:
        """What the base branches declare, read with git; one project that cannot be read hides no other."""
        if not changed:
            return
        source = self._source
        connectors: list[ConnectorView] = []
        faults: list[tuple[str, str]] = []
        for project in source.projects.list():
            try:
                connectors += source.connectors.list(project)
            except KortixError as error:
                faults.append((project.slug, error.message))
        self._take(connectors=tuple(connectors), connector_faults=tuple(faults), connectors_problem=None)

    def _take(self, **fresh: Any) -> None:
        with self._facts_guard:
            facts = replace(self._facts, **fresh)
            if "inbox" in fresh or "approvals" in fresh:
                facts = facts.with_calls()
            newer = facts != self._facts
            self._facts = facts
        if newer:
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
            self.read_again()
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
