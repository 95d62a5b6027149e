"""OAuth that waits for a person in a browser. Lives in the host's memory only: a new host begins anew."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.ids import new_id
from kortix_tui.broker.connectors import oauth
from kortix_tui.broker.connectors.loopback import Loopback
from kortix_tui.runtime.connection_calls import Authorizing

if TYPE_CHECKING:
    import httpx

    from kortix_tui.base.clock import Clock

MOST = 8
"""Authorizations at a time."""
KEEP_S = 60.0
"""How long the outcome can be asked for."""


@dataclass(frozen=True)
class Consent:
    """What is wanted of the person.

    Attributes:
        name: Project, connector and account: a newer one of the same name ends the older.
        done: Stores the tokens; gives the connection's id.
    """

    name: tuple[str, str, str]
    client: oauth.OAuthClient
    secret: str | None = field(repr=False)
    http: httpx.AsyncClient
    clock: Clock
    done: Callable[[oauth.Tokens], Awaitable[str]]


@dataclass
class _Flow:
    consent: Consent
    task: asyncio.Task[str]
    loopback: Loopback | None


class Authorizations:
    """Those that are under way."""

    def __init__(self) -> None:
        self._flows: dict[str, _Flow] = {}

    async def begin(self, consent: Consent, grant: oauth.Grant, port: int) -> Authorizing:
        """Begin one; what comes back is stored by `consent.done`.

        Raises:
            Refused: Too many are under way, or the port is taken.
            KortixError: The provider cannot be asked.
        """
        for identity in [one for one, flow in self._flows.items() if flow.consent.name == consent.name]:
            await self.cancel(identity)
        if len(self._flows) >= MOST:
            raise Refused(f"{MOST} authorizations are under way.", hint="Finish one of them, or wait some minutes.")
        identity = new_id("oau")
        now = consent.clock.now()
        if grant == "device":
            begun = await oauth.device_code(consent.http, consent.client, consent.secret)
            work: Awaitable[oauth.Tokens] = oauth.wait_for_device(
                consent.http, consent.client, consent.secret, begun, consent.clock
            )
            self._start(identity, consent, work, None)
            return Authorizing(
                flow=identity, url=begun.complete_uri or begun.verification_uri, user_code=begun.user_code,
                expires_at=now + timedelta(seconds=begun.expires_s),
            )  # fmt: skip
        loopback = Loopback(consent.client)
        asked = await loopback.start(port)
        self._start(identity, consent, _browser(consent, loopback), loopback)
        return Authorizing(
            flow=identity, url=asked.url, redirect_uri=asked.redirect_uri,
            expires_at=now + timedelta(seconds=oauth.FLOW_S),
        )  # fmt: skip

    async def result(self, identity: str, wait_s: float, pasted: str | None) -> str | None:
        """The connection's id when it is done; `None` while it waits.

        Args:
            identity: The authorization's.
            wait_s: How long to wait for it, in seconds.
            pasted: The address that the person copied from the browser.

        Raises:
            NotFound: It is over, or was never begun here.
            KortixError: It failed; this is told once.
        """
        flow = self._flows.get(identity)
        if flow is None:
            raise NotFound("That authorization is over.", hint="Begin again: kortix connectors connect")
        if pasted is not None:
            if flow.loopback is None:
                raise InvalidInput("This authorization takes no address.", hint="Type the code on the page instead.")
            flow.loopback.give(pasted)
        await asyncio.wait([flow.task], timeout=wait_s)
        if not flow.task.done():
            return None
        self._flows.pop(identity, None)
        if flow.task.cancelled():
            raise NotFound("That authorization was ended.", hint="Begin again: kortix connectors connect")
        return flow.task.result()

    async def cancel(self, identity: str) -> None:
        """End one. Safe to repeat."""
        flow = self._flows.pop(identity, None)
        if flow is not None:
            flow.task.cancel()
            await asyncio.gather(flow.task, return_exceptions=True)

    async def close(self) -> None:
        """End all."""
        for identity in tuple(self._flows):
            await self.cancel(identity)

    def _start(self, identity: str, consent: Consent, work: Awaitable[oauth.Tokens], loopback: Loopback | None) -> None:
        async def run() -> str:
            try:
                return await consent.done(await work)
            finally:
                if loopback is not None:
                    await loopback.close()
                # Whoever asked may be gone: the outcome is kept for a while, not for ever.
                asyncio.get_running_loop().call_later(KEEP_S, self._flows.pop, identity, None)

        task = asyncio.create_task(run(), name=f"authorization {identity}")
        task.add_done_callback(_look)
        self._flows[identity] = _Flow(consent, task, loopback)


def _look(task: asyncio.Task[str]) -> None:
    """Nobody may ever ask for the outcome; it is no fault of the program then."""
    if not task.cancelled():
        task.exception()


async def _browser(consent: Consent, loopback: Loopback) -> oauth.Tokens:
    try:
        async with asyncio.timeout(oauth.FLOW_S):
            code = await loopback.code()
    except TimeoutError:
        raise oauth.OAuthFailed("Nobody agreed in time.", error="expired_token", hint="Begin again.") from None
    return await oauth.redeem(consent.http, consent.client, consent.secret, loopback.asked, code, consent.clock.now())
