"""What an agent learns of secrets at its door, and how it asks for one (invariants I1, I2, I11)."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from bank import NEWER, OPERATOR, VALUE, Bank, open_bank

from kortix_tui.base.paths import Home
from kortix_tui.base.words import Exposure, SecretRequestState
from kortix_tui.broker.door import Door
from kortix_tui.broker.http import Peer, Request, Response
from kortix_tui.runtime import ledger as limits
from kortix_tui.runtime.vault_calls import DeclineRequest, ProvideSecret
from tests.support.door import SmallHost


@pytest.fixture
async def bank(home: Home, short_folder: Path) -> AsyncIterator[Bank]:
    async with open_bank(home, short_folder) as made:
        yield made


async def ask(bank: Bank, method: str, path: str, **body: Any) -> tuple[int, Any]:
    """What the door answers the agent."""

    async def pieces() -> AsyncIterator[bytes]:
        yield json.dumps(body).encode()

    host = SmallHost(bank.session_id, agent_token="t")
    host.secrets = bank.agent  # type: ignore[assignment]
    request = Request(method, path, "", (("authorization", "Bearer t"),), Peer(1, 1000, 1000), pieces())
    response = await Door(host).handle(request)
    assert isinstance(response, Response) and isinstance(response.body, bytes)
    assert VALUE not in response.body and NEWER not in response.body
    return response.status, json.loads(response.body)


async def states(bank: Bank) -> dict[str, str]:
    status, found = await ask(bank, "GET", "/v1/agent/secrets")
    assert status == 200
    return {one["identifier"]: one["state"] for one in found}


async def wish(bank: Bank, identifier: str = "STRIPE_API_KEY", **more: Any) -> tuple[int, Any]:
    return await ask(bank, "POST", "/v1/agent/secrets/request", identifier=identifier, **more)


async def test_every_state_of_a_secret(bank: Bank) -> None:
    bank.rewrite("secrets: [STRIPE_API_KEY]", "secrets: all")
    names = '"STRIPE_API_KEY","stripe_b","IN_CALLS","AT_HOSTS","PARKED","NOWHERE"'
    bank.pin(f'{{"everything":false,"names":[{names}]}}')
    bank.rewrite("secrets: all", f"secrets: [{names}]".replace('"', ""))
    await bank.delivery.standing(bank.session, bank.notes.append)  # fetches
    await bank.store()
    await bank.store("stripe_b", NEWER, name="STRIPE_API_KEY")
    await bank.store("IN_CALLS", NEWER, exposure="connector")
    await bank.store("AT_HOSTS", NEWER, exposure="egress-enforced", hosts=["api.example.com"])
    await bank.store("PARKED", NEWER, exposure="none")
    await bank.store("FOREIGN", NEWER)
    expected = {
        "STRIPE_API_KEY": "granted", "stripe_b": "shadowed", "IN_CALLS": "connector only", "AT_HOSTS": "egress only",
        "PARKED": "kept on the host", "FOREIGN": "not granted", "NOWHERE": "missing",
    }  # fmt: skip
    assert await states(bank) == expected
    assert list(await bank.deliver()) == ["STRIPE_API_KEY"]
    assert await states(bank) == expected | {"STRIPE_API_KEY": "delivered"}
    await bank.store(value=NEWER)
    assert await states(bank) == expected
    await bank.custody.lock(OPERATOR)
    assert await states(bank) == expected


async def test_a_tightened_base_branch_shows_as_not_granted(bank: Bank) -> None:
    await bank.store()
    await bank.deliver()
    bank.rewrite("secrets: [STRIPE_API_KEY]", "secrets: none")
    await bank.parcel()
    assert await states(bank) == {"STRIPE_API_KEY": "not granted"}


async def test_somebody_elses_own_is_not_even_named(bank: Bank) -> None:
    await bank.store("MINE", only_me=True)
    assert "MINE" not in await states(bank)
    bank.seeded.set("sessions", bank.session_id, attended=1)
    assert (await states(bank))["MINE"] == "not granted"
    bank.seeded.set("sessions", bank.session_id, owner="eve")
    assert "MINE" not in await states(bank)


async def test_a_request_is_one_row_one_event_and_one_line_in_the_record(bank: Bank) -> None:
    status, made = await wish(bank, reason="to \x1b[31mpay\nsoon", exposure="environment")
    assert status == 201 and made["state"] == "open" and made["exposure"] == "environment"
    row = bank.seeded.one("SELECT session_id, project_id, identifier, reason, state FROM secret_requests")
    assert row == (bank.session_id, "prj_acme", "STRIPE_API_KEY", "to ␛[31mpay␊soon", "open")
    event = bank.seeded.one("SELECT performed_by, scope FROM audit WHERE event = 'secret_request.create'")
    assert event == ("agent teller", "secret STRIPE_API_KEY")
    assert bank.notes == ["The agent asks for the secret STRIPE_API_KEY: to ␛[31mpay␊soon"]
    assert await wish(bank, "stripe_api_key", reason="again") == (201, made)
    assert bank.seeded.one("SELECT count(*) FROM secret_requests") == (1,) and len(bank.notes) == 1


async def test_the_default_keeps_the_value_on_the_host(bank: Bank) -> None:
    assert (await wish(bank))[1]["exposure"] == "connector"


@pytest.mark.parametrize(
    "body",
    [
        {"identifier": ""}, {"identifier": "-x"}, {"identifier": "a b"}, {"identifier": "A" * 129},
        {"identifier": "A\n"}, {"identifier": "A", "reason": "x" * 501}, {"identifier": "A", "exposure": "none"},
        {"identifier": "A", "exposure": "egress-enforced"}, {"identifier": "A", "value": "x"},
        {"identifier": "A", "session_id": "kbbbbbbbbbbb"},
    ],
)  # fmt: skip
async def test_a_request_that_is_none_is_refused(bank: Bank, body: dict[str, str]) -> None:
    assert (await ask(bank, "POST", "/v1/agent/secrets/request", **body))[0] == 422
    assert bank.seeded.one("SELECT count(*) FROM secret_requests") == (0,)


async def test_what_the_session_has_is_not_asked_for(bank: Bank) -> None:
    await bank.store()
    status, found = await wish(bank, "stripe_api_key")
    assert status == 403 and "STRIPE_API_KEY is stored and granted" in found["error"]["message"]
    assert found["error"]["hint"] == "It comes as $STRIPE_API_KEY with the next prompt."
    await bank.deliver()
    assert (await wish(bank))[1]["error"]["hint"] == "It is in this sandbox as $STRIPE_API_KEY."
    await bank.store("UNGRANTED", NEWER)
    assert (await wish(bank, "UNGRANTED"))[0] == 201


async def test_a_session_may_ask_for_so_much_and_no_more(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "OPEN_REQUESTS", 2)
    monkeypatch.setattr(limits, "ALL_REQUESTS", 3)
    first = (await wish(bank, "A"))[1]
    await wish(bank, "B")
    status, found = await wish(bank, "C")
    assert status == 403 and "2 requests are open" in found["error"]["message"]
    await bank.acts.decline(DeclineRequest(request_id=first["id"]), OPERATOR)
    assert (await wish(bank, "C"))[0] == 201
    status, found = await wish(bank, "D")
    assert status == 403 and "3 were made" in found["error"]["message"]


async def test_what_became_of_a_request_is_for_its_own_session(bank: Bank) -> None:
    made = (await wish(bank, exposure="environment"))[1]
    path = f"/v1/agent/secrets/request/{made['id']}"
    assert await ask(bank, "GET", path) == (200, made)
    await bank.acts.provide(ProvideSecret(request_id=made["id"]), VALUE, OPERATOR)
    assert (await ask(bank, "GET", path))[1]["state"] == SecretRequestState.PROVIDED
    assert await states(bank) == {"STRIPE_API_KEY": "granted"}
    assert (await ask(bank, "GET", "/v1/agent/secrets/request/srq_other"))[0] == 404
    bank.session_id = bank.seeded.session()
    assert (await ask(bank, "GET", path))[0] == 404


async def test_a_reason_that_holds_a_value_is_blacked_out_or_not_taken(bank: Bank) -> None:
    await bank.store()
    await bank.deliver()
    await wish(bank, "OTHER", reason=f"it begins as {VALUE.decode()}")
    assert bank.seeded.one("SELECT reason FROM secret_requests") == ("it begins as [redacted:STRIPE_API_KEY]",)
    await bank.custody.lock(OPERATOR)
    status, found = await wish(bank, "ANOTHER", reason=VALUE.decode())
    assert status == 503 and found["error"]["code"] == "vault_locked"
    assert bank.seeded.one("SELECT count(*) FROM secret_requests") == (1,)


async def test_an_identifier_that_spells_a_value_is_not_taken(bank: Bank) -> None:
    await bank.store()
    await bank.deliver()
    for spelled in (VALUE.decode(), VALUE.hex(), f"WANT_{VALUE.decode()}"):
        status, found = await wish(bank, spelled)
        assert status == 422 and VALUE.decode() not in found["error"]["message"]
    assert bank.seeded.one("SELECT count(*) FROM secret_requests") == (0,)


async def test_what_an_agent_wishes_for_moves_no_secret_that_is_there(bank: Bank) -> None:
    await bank.store("KEPT", exposure=Exposure.CONNECTOR)
    for name in ("KEPT", "OPENAI_API_KEY", "FRESH"):
        made = (await wish(bank, name, exposure="environment"))[1]
        await bank.acts.provide(ProvideSecret(request_id=made["id"]), NEWER, OPERATOR)
    exposures = dict(bank.seeded.store.all("SELECT identifier, exposure FROM secrets"))
    assert exposures == {"KEPT": "connector", "OPENAI_API_KEY": "none", "FRESH": "environment"}
    made = (await wish(bank, "KEPT", exposure="environment"))[1]
    await bank.acts.provide(ProvideSecret(request_id=made["id"], exposure=Exposure.ENVIRONMENT), NEWER, OPERATOR)
    assert bank.seeded.one("SELECT exposure FROM secrets WHERE identifier = 'KEPT'") == ("environment",)
