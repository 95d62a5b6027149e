"""The supervisor's process: a session, and the forwarder beside it."""

from __future__ import annotations

import asyncio
import contextlib
import os

from kortix_tui.guest.forward import Forwarder, listen
from kortix_tui.guest.identity import NOBODY, Identity
from kortix_tui.guest.places import Places
from kortix_tui.guest.session import Session, log

_RESTART_S = 1.0


async def serve(session_id: str, places: Places, identity: Identity) -> None:
    """Serve a session until it is stopped.

    Args:
        session_id: Its name.
        places: Where things are.
        identity: The agent's account.
    """
    identity.join_group()
    os.makedirs(places.prompts, mode=0o700, exist_ok=True)
    for folder in (places.run, places.prompts):
        identity.share(folder, 0o750)
    server = listen(places.port)
    nobody = Identity(None if identity.uid is None else NOBODY)
    # Before the session opens anything that a fork would have to close again.
    forwarder = Forwarder(server, places.door, nobody)
    session = Session(session_id, places, identity)

    async def keep_forwarding() -> None:
        nonlocal forwarder
        while True:
            status = await session.children.wait(forwarder)
            log(f"the forwarder ended with {status} and is started again")
            await asyncio.sleep(_RESTART_S)
            forwarder = Forwarder(server, places.door, nobody)

    keeping = asyncio.create_task(keep_forwarding())
    try:
        await session.run()
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
        forwarder.end()
        server.close()
