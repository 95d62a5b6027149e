"""What judging, watching and decoding cost: one call by `send` beside the same request made by httpx directly."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from sides import alternate, report
from tls import LOOPBACK, Answer, LocalCa, TlsServer

from kortix_tui.broker.connectors.model import HttpCall
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import send

CALLS = 200


async def _seconds(call: Callable[[], Awaitable[object]]) -> float:
    await call()
    started = time.perf_counter()
    for _ in range(CALLS):
        await call()
    return time.perf_counter() - started


def test_a_call_over_a_kept_connection(tmp_path: Path, runs: int, tell: Callable[[str], None]) -> None:
    ca = LocalCa(tmp_path / "ca")
    body = b'{"items": [' + b'"something", ' * 1000 + b'"end"]}'
    reach = Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))

    with TlsServer(lambda request: Answer(body=body), ca=ca) as server:
        call = HttpCall(method="GET", url=server.url("/x"))
        context = ssl.create_default_context(cafile=ca.file)

        async def brokered() -> float:
            async with open_client(reach) as client:
                return await _seconds(
                    lambda: send(
                        client,
                        call,
                        credential_headers={"authorization": "Bearer word"},
                        credential_query={},
                        credential_cookies={},
                    )
                )

        async def direct() -> float:
            async with httpx.AsyncClient(verify=context, trust_env=False) as client:
                return await _seconds(lambda: client.get(call.url, headers={"authorization": "Bearer word"}))

        ours, theirs = alternate(runs, lambda: asyncio.run(brokered()), lambda: asyncio.run(direct()))
    tell(report(f"{CALLS} calls over a kept TLS connection, against bare httpx", "1.2", ours, theirs))
