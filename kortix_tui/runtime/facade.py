"""`Runtime`: the one thing that the console and the command line call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kortix_tui.base.paths import Home
from kortix_tui.base.settings import Settings, load
from kortix_tui.runtime import demo_home
from kortix_tui.runtime.audit import Audit
from kortix_tui.runtime.changes import Changes
from kortix_tui.runtime.context import Context, operator_actor
from kortix_tui.runtime.loop import LoopThread
from kortix_tui.runtime.projects import Projects
from kortix_tui.runtime.sessions import Sessions
from kortix_tui.runtime.views import HostView
from kortix_tui.store import lock
from kortix_tui.store.audit import Actor
from kortix_tui.store.database import Store

if TYPE_CHECKING:
    from kortix_tui.runtime.approvals import Approvals
    from kortix_tui.runtime.call_records import CallRecords
    from kortix_tui.runtime.connections import Connections
    from kortix_tui.runtime.connectors import Connectors
    from kortix_tui.runtime.edits import Edits
    from kortix_tui.runtime.egress import EgressLog
    from kortix_tui.runtime.host import Host
    from kortix_tui.runtime.inbox import Inbox
    from kortix_tui.runtime.policies import Policies
    from kortix_tui.runtime.sandboxes import Sandboxes
    from kortix_tui.runtime.secrets import Secrets
    from kortix_tui.runtime.shells import Shells
    from kortix_tui.runtime.vault import VaultKeys


class Runtime:
    """One process's way to a home.

    Reads and requests work in any process. `hosting` makes this process act when no other does; it takes over
    within two seconds when the host goes.
    """

    def __init__(self, home: Home, settings: Settings, actor: Actor, *, kind: str = "command") -> None:
        self._kind = kind
        self._loop = LoopThread()
        self.context = Context(store=Store(home), settings=settings, actor=actor, loop=self._loop)
        self.context.ensure_host = self.start_hosting
        self.projects = Projects(self.context)
        self.sessions = Sessions(self.context)
        self.changes = Changes(self.context)
        self.audit = Audit(self.context)
        self._guard = threading.Lock()
        self._host: Host | None = None

    @classmethod
    def open(cls, *, via: str = "cli", kind: str = "command", home: Home | None = None) -> Self:
        """Open the operator's home with the operator's settings.

        Args:
            via: The way in, for the record: `cli` or `console`.
            kind: What this process is when it hosts: `command`, `console` or `serve`.
            home: Instead of the located one.
        """
        place = home or Home.locate()
        return cls(place, demo_home.settings_for(place, load()), operator_actor(via), kind=kind)

    # What few commands need is imported when it is asked for: start-up is measured.

    @cached_property
    def sandboxes(self) -> Sandboxes:
        """Templates and images."""
        from kortix_tui.runtime.sandboxes import Sandboxes

        return Sandboxes(self.context)

    @cached_property
    def shells(self) -> Shells:
        """Terminals in sandboxes."""
        from kortix_tui.runtime.shells import Shells

        return Shells(self.context)

    @cached_property
    def secrets(self) -> Secrets:
        """Secrets: names, exposures, who holds them; values go in and never come out."""
        from kortix_tui.runtime.secrets import Secrets

        return Secrets(self.context)

    @cached_property
    def vault(self) -> VaultKeys:
        """What opens the vault, and its state.

        Whoever asks for it is about to hold a key or a value, be it as a client of the host: the process is closed to
        others of the same user from here on.
        """
        from kortix_tui.runtime.vault import VaultKeys
        from kortix_tui.vault.memory import harden

        harden()

        return VaultKeys(self.context)

    @cached_property
    def inbox(self) -> Inbox:
        """Everything that waits for a person."""
        from kortix_tui.runtime.inbox import Inbox

        return Inbox(self.context, self.secrets, self.vault, self.approvals)

    @cached_property
    def approvals(self) -> Approvals:
        """Calls that wait for a person, and remembered approvals."""
        from kortix_tui.runtime.approvals import Approvals

        return Approvals(self.context)

    @cached_property
    def calls(self) -> CallRecords:
        """Brokered calls, whatever became of them, and the operator's own."""
        from kortix_tui.runtime.call_records import CallRecords

        return CallRecords(self.context)

    @cached_property
    def connectors(self) -> Connectors:
        """What connectors are declared, known and missing; reading and accepting what they can do."""
        from kortix_tui.runtime.connectors import Connectors

        return Connectors(self.context)

    @cached_property
    def connections(self) -> Connections:
        """Accounts of connectors: values go in and never come out.

        As with `vault`, the process is closed to others of the same user from here on.
        """
        from kortix_tui.runtime.connections import Connections
        from kortix_tui.vault.memory import harden

        harden()

        return Connections(self.context)

    @cached_property
    def edits(self) -> Edits:
        """Edits of the manifest, as change requests."""
        from kortix_tui.runtime.edits import Edits

        return Edits(self.context)

    @cached_property
    def policies(self) -> Policies:
        """What policy makes of calls, and a changed policy over the recorded ones."""
        from kortix_tui.runtime.policies import Policies

        return Policies(self.context)

    @cached_property
    def egress(self) -> EgressLog:
        """Attempts of sandboxes to reach the network."""
        from kortix_tui.runtime.egress import EgressLog

        return EgressLog(self.context)

    # Hosting

    def start_hosting(self) -> None:
        """Stand for host: act now when nobody else does, or as soon as the present host goes. Safe to repeat."""
        from kortix_tui.runtime.host import Host

        with self._guard:
            if self._host is None:
                demo_home.wake_desk(self.context.home)
                self._host = Host(self.context, self._kind)
                self._loop.call(self._host.start(), deadline_s=30)

    def stop_hosting(self) -> None:
        """Hand over: another open process becomes the host; sandboxes run on."""
        with self._guard:
            host, self._host = self._host, None
        if host is not None:
            self._loop.call(host.stop(), deadline_s=30)

    @contextmanager
    def hosting(self) -> Iterator[None]:
        """Stand for host while the block runs."""
        self.start_hosting()
        try:
            yield
        finally:
            self.stop_hosting()

    def host(self) -> HostView:
        """The process that acts now."""
        found = lock.holder(self.context.store)
        return HostView(
            host=found,
            silent=found is not None and lock.is_silent(self.context.store, found),
            here=self._host is not None and self._host.leads,
        )

    def unfinished(self) -> int:
        """Sessions that still need a host: they run, start, stop or have prompts to answer."""
        row = self.context.store.one(
            "SELECT count(*) FROM sessions WHERE removed_at IS NULL AND (wanted != 'stopped'"
            " OR status IN ('provisioning', 'running'))"
        )
        pending = self.context.store.one("SELECT count(*) FROM requests WHERE state IN ('pending', 'running')")
        return (row[0] if row else 0) + (pending[0] if pending else 0)

    def data_version(self) -> int:
        """Changes when any other process has written; poll it to know when to read again."""
        return self.context.store.data_version()

    def close(self) -> None:
        """Hand over and let go of everything."""
        self.stop_hosting()
        self._loop.close()
        self.context.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
