"""Tool servers and providers that say what they were sent, and tools whose descriptions are no descriptions."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tls import LOOPBACK, Answer, LocalCa, Received, TlsServer

from kortix_tui.base.settings import ConnectorSettings
from kortix_tui.broker.connectors import oauth
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.model import Materialised, McpCall
from kortix_tui.broker.connectors.oauth import OAuthClient, OAuthFailed
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.guest import connectors
from kortix_tui.guest.mcp import Server
from kortix_tui.runtime.sending import Sending
from kortix_tui.vault.redaction import Redactor

TOKEN, SECRET, REFRESH = "tool-token-canary-3Qd9", "client-secret-canary-7Yh2", "refresh-token-canary-9Kw4"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def materialised(endpoint: str) -> Materialised:
    call = McpCall(endpoint=endpoint, transport="http", tool="add", fingerprint="f", arguments="{}")
    return Materialised(
        project_id="p", connector="desk", action="add", definition_hash="", document_hash="", credential="con_1",
        credential_place="header authorization", arguments="{}", call=call,
    )  # fmt: skip


@pytest.mark.parametrize("code", [-32000, -32600, 401])
async def test_a_tool_server_that_repeats_the_credential_in_its_refusal(code: int) -> None:
    """The message of a refusal becomes ours, and goes to the store, the record and the agent."""

    def answer(request: Received) -> Answer:
        asked = json.loads(request.body or b"{}")
        said = f"bad credential: {request.header('authorization')}"
        return Answer(body=json.dumps({"jsonrpc": "2.0", "id": asked.get("id"), "error": {
            "code": code, "message": said}}).encode())  # fmt: skip

    sending = Sending(ConnectorSettings(allow_private=LOOPBACK))
    attached = Attached(headers={"authorization": f"Bearer {TOKEN}"}, secrets=(TOKEN,))
    with TlsServer(answer) as server:
        sent = await sending.send(materialised(server.url("/mcp", "127.0.0.1")), attached, Redactor.none())
        await sending.close()
        assert server.received
    assert "bad credential" in str(sent.end.message)
    assert TOKEN not in str(sent.end) and TOKEN.encode() not in sent.body


@pytest.mark.parametrize("field", ["error_description", "error"])
async def test_a_provider_that_repeats_what_it_was_sent(tmp_path: Path, field: str) -> None:
    """Its words go to the record when a token cannot be renewed, and to the agent whose call needed it."""
    ca = LocalCa(tmp_path / "ca")

    def answer(request: Received) -> Answer:
        said = {"error": "invalid_grant", field: f"who is {request.body.decode()} {request.header('authorization')}"}
        return Answer(400, json.dumps(said).encode())

    with TlsServer(answer, ca=ca) as server:
        reach = Reach(allow_private=LOOPBACK, ca_certificates=(str(ca.file),))
        async with open_client(reach) as http:
            for way in ("basic", "post"):
                client = OAuthClient(token_url=server.url("/token"), client_id="me", client_auth=way)
                with pytest.raises(OAuthFailed) as caught:
                    await oauth.refresh(http, client, SECRET, REFRESH, NOW)
                shown = f"{caught.value} {caught.value.error} {caught.value.hint}"
                assert "who is" in shown and REFRESH not in shown and SECRET not in shown


@pytest.mark.parametrize("schema", [{"properties": None}, {"properties": []}, {"type": "array"}, {"properties": "x"}])
def test_one_hostile_tool_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any]) -> None:
    tool = {"title": "", "description": "", "risk": "write", "verdict": "always_run"}
    found = [
        {"name": "bad.tool", "input_schema": schema, **tool},
        {"name": "good.tool", "input_schema": {"type": "object", "properties": {"a": {}}}, **tool},
    ]
    monkeypatch.setattr(connectors, "actions", lambda connector=None: found)
    output = io.StringIO()
    server = Server(output)
    server.take('{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}')
    server.close()
    tools = json.loads(output.getvalue())["result"]["tools"]
    assert [one["name"] for one in tools][:2] == ["bad__tool", "good__tool"]
    assert all(one["inputSchema"]["type"] == "object" and one["inputSchema"]["properties"] for one in tools)
