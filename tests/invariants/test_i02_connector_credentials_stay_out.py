"""I2: what a connector sends as its credential never crosses the door, whatever the server outside makes of it."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import secrets
import string
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from brokered import OPERATOR, Scene, open_scene, until
from canaries import Sweep
from tls import Answer, Received

from kortix_tui.base.paths import Home
from kortix_tui.runtime.connecting import Connecting
from kortix_tui.runtime.connection_calls import ConnectAccount
from kortix_tui.runtime.vault_acts import VaultActs
from kortix_tui.runtime.vault_calls import InitVault, SlotWish

AUTHS = {
    "bearer": "{type: bearer}",
    "basic": "{type: basic}",
    "header": "{type: api_key, in: header, name: X-Key}",
    "query": "{type: api_key, in: query, name: api_key}",
    "cookie": "{type: api_key, in: cookie, name: sid}",
    "custom": "{type: custom, name: X-Own, prefix: Tok}",
}


def fresh() -> bytes:
    """A credential that every place can carry."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(40)).encode()


@asynccontextmanager
async def connected(home: Home, folder: Path, auth: str) -> AsyncIterator[tuple[Scene, bytes]]:
    async with open_scene(home, folder, f"auth: {AUTHS[auth]}") as scene:
        broker = scene.broker
        wish = SlotWish(kind="keyfile", place=str(folder / "keys" / "vault.key"))
        await VaultActs(broker.custody).init(InitVault(slots=(wish,)), (), OPERATOR)
        connecting, value = Connecting(broker.custody, broker.preparing, broker.credentials), fresh()
        account = ConnectAccount(
            project_id="prj_acme", connector="desk", account="default", username="ada" if auth == "basic" else None
        )
        await connecting.connect(account, value, OPERATOR)
        await connecting.close()
        yield scene, value


def echo(request: Received) -> Answer:
    """Everything that came, in every spelling that a server may think of."""
    whole = request.head + request.body
    texts = [text for pair in request.headers for text in (pair[1], pair[1].rpartition(" ")[2])]
    texts += [request.target, request.target.rpartition("=")[2]]
    body = {
        "raw": whole.decode("latin-1"),
        "base64": base64.b64encode(whole).decode(),
        "parts": [base64.b64encode(text.encode()).decode() for text in texts],
        "urlsafe": [base64.urlsafe_b64encode(text.encode()).decode() for text in texts],
        "hex": [text.encode().hex() for text in texts],
        "quoted": [json.dumps(text) for text in texts],
    }
    target = request.target.replace("?", "&")
    headers = (
        ("content-type", "application/json"), ("location", f"https://elsewhere.example/?from={target}"),
        ("set-cookie", f"stolen={request.header('cookie')}"), ("x-request-id", texts[-1]),
        ("etag", request.header("authorization") or request.header("x-key") or "none"),
        ("www-authenticate", request.header("authorization") or "none"), ("content-encoding", "gzip"),
    )  # fmt: skip
    return Answer(200, gzip.compress(json.dumps(body).encode()), headers)


@pytest.mark.parametrize("auth", AUTHS)
async def test_no_byte_at_the_door_or_in_the_home_has_one(home: Home, short_folder: Path, auth: str) -> None:
    async with connected(home, short_folder, auth) as (scene, value):
        scene.outside.server.answer = echo
        session_id = await scene.session()
        await scene.broker.agent(session_id)
        heard = await talk(short_folder / "d0" / "door.sock", scene)
        sweep = Sweep({"CREDENTIAL": value})
        assert b'"state":"done"' in heard and sweep.labels(heard) == set()
        prompts = "\n".join(await until(lambda: scene.broker.prompts(session_id)))
        sent = scene.outside.received
        assert len(sent) == 3 and all(carries(request, value) for request in sent), "the server did get it"
        assert "answer of" in prompts and sweep.labels(prompts.encode()) == set()
        assert sweep.labels("\n".join(scene.broker.notes).encode()) == set()
        await scene.stop_hosting()
        assert [found for found in sweep.folder(home.path) if found.place != "vault.kxv"] == []


def carries(request: Received, value: bytes) -> bool:
    whole = request.head
    return value in whole or base64.b64encode(b"ada:" + value) in whole


async def talk(door: Path, scene: Scene) -> bytes:
    """Everything that an agent hears: lists, a read, a write that is approved while it waits, and one that is not."""
    heard = b""

    async def ask(method: str, path: str, body: bytes = b"") -> bytes:
        nonlocal heard
        reader, writer = await asyncio.open_unix_connection(str(door))
        head = f"{method} /v1/agent{path} HTTP/1.1\r\nhost: d\r\nauthorization: Bearer t\r\nconnection: close\r\n"
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        answer = await reader.read(-1)
        heard += answer
        writer.close()
        return answer

    def wish(action: str, arguments: dict[str, str], wait: int) -> bytes:
        text = json.dumps(arguments)
        key = secrets.token_hex(16)
        return json.dumps({"key": key, "connector": "desk", "action": action, "arguments": text, "wait": wait}).encode()

    await ask("GET", "/connectors")
    await ask("GET", "/actions")
    await ask("POST", "/calls", wish("get_ticket", {"id": "7"}, 20))
    asking = asyncio.create_task(ask("POST", "/calls", wish("send_reply", {"id": "7", "text": "x"}, 20)))
    view = (await until(scene.runtime.approvals.pending))[0]
    await asyncio.to_thread(scene.decide, view.id)
    answer = await asking
    await ask("GET", f"/calls/{view.id}/output")
    assert view.id.encode() in answer
    late = json.loads(
        (await ask("POST", "/calls", wish("send_reply", {"id": "8", "text": "x"}, 0))).partition(b"\r\n\r\n")[2]
    )
    await ask("GET", f"/calls/{late['id']}?leave=1")
    await asyncio.to_thread(scene.decide, late["id"])
    return heard


async def test_what_is_stored_and_shown_of_a_call_names_the_place_and_not_the_value(
    home: Home, short_folder: Path
) -> None:
    async with connected(home, short_folder, "query") as (scene, value):
        agent = await scene.broker.agent(await scene.session())
        report = await scene.pending(agent)
        view = scene.runtime.approvals.show(report["id"])
        assert view.credential == "default (api_key), in query api_key"
        assert value.decode() not in view.model_dump_json() and "api_key=" not in (view.url or "")


async def test_an_agent_cannot_send_a_value_that_the_vault_knows(home: Home, short_folder: Path) -> None:
    async with connected(home, short_folder, "bearer") as (scene, value):
        agent = await scene.broker.agent(await scene.session())
        for arguments in ({"text": f"x {value.decode()} y"}, {"text": base64.b64encode(value).decode()}):
            report = await agent.call("desk.add_note", arguments)
            assert (report["state"], report["code"]) == ("refused", "secret_in_arguments")
            assert value.decode() not in scene.broker.call(report["id"]).arguments
        report = await agent.call(
            "desk.send_reply", {"id": "7", "text": "x"}, reason=f"is it {value.decode()}?", wait=0
        )
        assert value.decode() not in scene.broker.call(report["id"]).reason
        assert scene.outside.received == []


async def test_while_the_vault_is_locked_an_approved_call_waits(home: Home, short_folder: Path) -> None:
    async with connected(home, short_folder, "bearer") as (scene, _):
        agent = await scene.broker.agent(await scene.session())
        report = await scene.pending(agent)
        await scene.broker.custody.lock(OPERATOR)
        await asyncio.to_thread(scene.decide, report["id"])
        refused = await agent.call("desk.get_ticket", {"id": "7"})
        assert refused["code"] == "vault_locked"
        assert scene.broker.call(report["id"]).state == "approved" and scene.outside.received == []
