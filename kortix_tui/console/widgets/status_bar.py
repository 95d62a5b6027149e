"""The first two lines of every screen: who acts and how it goes, and the views with their counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kortix_tui.console.widgets.bar import Bar, Part

ROOMY = 100


@dataclass(frozen=True)
class Status:
    """What the status line says. All texts are safe.

    Attributes:
        host: Who acts: `this console`, `pid 4711`, or what is wrong.
        host_ok: Whether somebody does.
        running: Sessions that run or start.
        waiting: Running sessions that wait for a person.
        stopped: Sessions that are stopped.
        failed: Sessions that failed.
        inbox: Things that wait for a person.
        place: `local` or `ssh`.
        clock: Local time of day.
    """

    host: str = ""
    host_ok: bool = True
    running: int = 0
    waiting: int = 0
    stopped: int = 0
    failed: int = 0
    inbox: int = 0
    place: str = ""
    clock: str = ""


class StatusBar(Bar):
    """Line one."""

    back_role = "bar"

    def __init__(self, status: Status | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._status = status or Status()

    @property
    def status(self) -> Status:
        """What is shown."""
        return self._status

    @status.setter
    def status(self, status: Status) -> None:
        if status != self._status:
            self._status = status
            self.refresh()

    def left(self) -> Sequence[Part]:
        """Name, host, counts."""
        status = self._status
        parts = [Part(" kortix ", "title.focused")]
        # On a narrow screen a host that is well gives its room to the counts.
        if status.host and (not status.host_ok or self.size.width >= ROOMY):
            parts.append(Part(f" {status.host} ", "muted" if status.host_ok else "error"))
        for count, word, role in (
            (status.running, "running", "state.running"),
            (status.waiting, "waiting", "state.waiting"),
            (status.failed, "failed", "state.failed"),
            (status.stopped, "stopped", "muted"),
        ):
            if count:
                parts.append(Part(f"  {count} {word}", role))
        return parts

    def right(self) -> Sequence[Part]:
        """Inbox, place, clock."""
        status = self._status
        parts = []
        if status.inbox:
            parts.append(Part(f" INBOX {status.inbox}! ", "state.waiting"))
        if status.place:
            parts.append(Part(f" {status.place} ", "muted"))
        if status.clock:
            parts.append(Part(f" {status.clock} ", "muted"))
        return parts


@dataclass(frozen=True)
class Tab:
    """One view: its key, name and count. `urgent` marks what waits for a person."""

    key: str
    name: str
    count: int = 0
    urgent: bool = False


class TabBar(Bar):
    """Line two."""

    def __init__(self, tabs: Sequence[Tab], active: str, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._tabs = tuple(tabs)
        self._active = active

    @property
    def tabs(self) -> tuple[Tab, ...]:
        """The views."""
        return self._tabs

    @tabs.setter
    def tabs(self, tabs: Sequence[Tab]) -> None:
        if tuple(tabs) != self._tabs:
            self._tabs = tuple(tabs)
            self.refresh()

    def left(self) -> Sequence[Part]:
        """The views in order of their keys."""
        parts = [Part(" ")]
        for tab in self._tabs:
            active = tab.name == self._active
            parts.append(Part(f"{tab.key} ", "key"))
            parts.append(Part(tab.name, "title.focused" if active else "muted"))
            if tab.count:
                parts.append(Part(f" {tab.count}{'!' * tab.urgent}", "state.waiting" if tab.urgent else "muted"))
            parts.append(Part("   "))
        return parts
