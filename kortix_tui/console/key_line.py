"""Keys stand in line: each is given out when the one before has done all that it does.

Textual hands keys on as fast as they come, and looks their bindings up later. What is typed quickly, pasted into
the terminal, or late on a slow link would so be taken by whatever has the focus *then*: of `/x`, the `x` would stop
a session instead of being searched for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from textual.app import App
from textual.dom import DOMNode
from textual.events import Callback, Event
from textual.message_pump import MessagePump

OVERDUE_SECONDS = 0.5
"""A key that takes longer, because its widget went away with it, no longer holds the others up."""
PASSES = 2
"""A binding often posts a message, whose handler then opens a screen: the second pass waits for that."""


class KeyLine:
    """Delivers keys and pastes one after the other."""

    def __init__(self, app: App[Any], deliver: Callable[[Event], Awaitable[None]]) -> None:
        """Make an empty line.

        Args:
            app: Whose widgets take the keys.
            deliver: Gives one to the widget that has the focus.
        """
        self._app = app
        self._deliver = deliver
        self._waiting: deque[Event] = deque()
        self._number = 0
        self._busy = False

    async def take(self, event: Event) -> None:
        """Deliver an event now or when its turn comes."""
        self._waiting.append(event)
        if not self._busy:
            await self._next()
        elif len(self._waiting) == 1:
            self._app.set_timer(OVERDUE_SECONDS, partial(self._done, self._number))

    async def _next(self) -> None:
        if not self._waiting:
            self._busy = False
            return
        self._busy = True
        self._number += 1
        target: DOMNode = self._app.focused or self._app.screen
        await self._deliver(self._waiting.popleft())
        await _Way(deque([*target.ancestors_with_self] * PASSES), partial(self._done, self._number)).follow()

    async def _done(self, number: int) -> None:
        if number == self._number and self._busy:
            await self._next()
            if self._busy and self._waiting:
                self._app.set_timer(OVERDUE_SECONDS, partial(self._done, self._number))


class _Way:
    """Goes the way that an event goes, from queue to queue; whatever was in them is done by then."""

    def __init__(self, nodes: deque[MessagePump], arrived: Callable[[], Awaitable[None]]) -> None:
        self._nodes = nodes
        self._arrived = arrived

    async def follow(self) -> None:
        while self._nodes:
            node = self._nodes.popleft()
            # A bound method, not a closure: Textual looks at the signature of each new function that it calls.
            if node.is_running and node.post_message(Callback(callback=self.follow)):
                return
        await self._arrived()
