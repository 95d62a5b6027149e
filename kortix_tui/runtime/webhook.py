"""Tells the operator's webhook when something starts to wait for a person. The host does it, console or not."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from pydantic import BaseModel, ConfigDict

from kortix_tui.broker.network.client import Reach, open_client, server_of
from kortix_tui.runtime.context import Context

POLL_S: Final = 1.0
DEADLINE_S: Final = 10.0
TRIES: Final = 3
PAUSE_S: Final = 5.0
EVERYWHERE: Final = ("0.0.0.0/0", "::/0")
"""The operator names the place in the settings of this machine; only metadata addresses stay closed."""
_WAITING: Final = (
    "SELECT 'approval', c.id, p.slug, c.session_id, c.connector || '.' || c.action, c.created_at FROM calls c"
    " JOIN projects p ON p.id = c.project_id WHERE c.state = 'pending'"
    " UNION ALL SELECT 'change request', p.slug || '#' || r.number, p.slug, r.session_id, r.title, r.created_at"
    " FROM change_requests r JOIN projects p ON p.id = r.project_id WHERE r.status = 'open'"
    " UNION ALL SELECT 'secret request', s.id, p.slug, s.session_id, s.identifier, s.created_at"
    " FROM secret_requests s JOIN projects p ON p.id = s.project_id WHERE s.state = 'open'"
    " ORDER BY 6, 2"
)
log = logging.getLogger(__name__)


class Notice(BaseModel):
    """What is sent: where to look, and no argument, body or value."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    reference: str
    project: str
    session: str | None
    title: str


class Webhook:
    """Posts one JSON object for each thing that starts to wait while this process is the host."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._url = context.settings.notify.webhook
        self._known: set[str] = set()

    async def run(self) -> None:
        """Watch until cancelled; ends at once where no webhook is set.

        What waits already was told by the host before, or was there to be seen.
        """
        if self._url is None:
            return
        begun = False
        while True:
            try:
                waiting = await asyncio.to_thread(self._waiting)
                fresh = [notice for notice in waiting if begun and notice.reference not in self._known]
                self._known, begun = {notice.reference for notice in waiting}, True
                if fresh:
                    await self._send(self._url, fresh)
            except Exception as error:  # a webhook never ends a host's term
                log.warning("the webhook could not be served: %s", type(error).__name__)
            await asyncio.sleep(POLL_S)

    def _waiting(self) -> list[Notice]:
        return [
            Notice(kind=row[0], reference=row[1], project=row[2], session=row[3], title=row[4])
            for row in self._context.store.all(_WAITING)
        ]

    async def _send(self, url: str, notices: list[Notice]) -> None:
        reach = Reach(allow_private=EVERYWHERE, ca_certificates=self._context.settings.connectors.ca_certificates)
        async with open_client(reach, pinned=frozenset({server_of(url)})) as client:
            for notice in notices:
                fault = ""
                for attempt in range(TRIES):
                    try:
                        async with asyncio.timeout(DEADLINE_S):
                            answer = await client.post(url, json=notice.model_dump())
                        if answer.status_code < 500:
                            break
                        fault = f"it answered {answer.status_code}"
                    except Exception as error:
                        fault = type(error).__name__
                    if attempt + 1 < TRIES:
                        await asyncio.sleep(PAUSE_S)
                else:
                    log.warning("the webhook was not told of %s: %s", notice.reference, fault)
