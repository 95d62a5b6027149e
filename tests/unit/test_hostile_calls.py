"""Attempts to have something sent that nobody approved, to learn a credential, or to leave a call without an end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import quote

import pytest
from brokered import Agent, Scene, open_scene, rewrite, until
from tls import Answer

from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState
from kortix_tui.broker.connectors.credentials import Attached, origin_of_url
from kortix_tui.runtime.call_memory import Remember
from kortix_tui.runtime.connection_keeping import Keeping, Kept
from kortix_tui.runtime.connection_rows import ConnectionDetails
from kortix_tui.runtime.sending import Cleaning
from kortix_tui.runtime.vault_acts import VaultActs
from kortix_tui.runtime.vault_calls import InitVault, SlotWish, UnlockVault
from kortix_tui.store.audit import Actor
from kortix_tui.vault.redaction import Redactor
from kortix_tui.vault.secret import Secret

OPERATOR = Actor(kind="human", name="op", via="cli", tty="/dev/pts/1")
FIRST, SECOND = "first-account-canary-8fK2", "second-account-canary-1Lq8"
REPLY = {"id": "7", "text": "Hello"}


class Connected:
    """A scene whose connector needs a token, with an open vault that holds one."""

    def __init__(self, scene: Scene, agent: Agent) -> None:
        self.scene, self.agent = scene, agent

    async def connect(self, value: str, account: str = "default") -> None:
        scene = self.scene
        origin = origin_of_url(scene.outside.server.url("", "127.0.0.1"))
        kept = Kept(
            project_id="prj_acme", connector="desk", account=account, auth="bearer",
            details=ConnectionDetails(auth={"type": "bearer"}, origin=origin), identifier=f"connection.desk.{account}",
            values={f"connection.desk.{account}": Secret(value.encode())},
        )  # fmt: skip
        await Keeping(scene.broker.custody).keep(kept, OPERATOR)

    def sent(self) -> list[str | None]:
        """The credential of each request that came to the outside."""
        return [one.header("authorization") for one in self.scene.outside.received]


@pytest.fixture
async def connected(home: Home, short_folder: Path) -> AsyncIterator[Connected]:
    async with open_scene(home, short_folder, "auth: {type: bearer}") as scene:
        wish = SlotWish(kind="keyfile", place=str(short_folder / "keys" / "vault.key"))
        await VaultActs(scene.broker.custody).init(InitVault(slots=(wish,)), (), OPERATOR)
        made = Connected(scene, await scene.broker.agent(await scene.session()))
        await made.connect(FIRST)
        yield made


@pytest.fixture
async def scene(home: Home, short_folder: Path) -> AsyncIterator[Scene]:
    async with open_scene(home, short_folder) as made:
        yield made


@pytest.fixture
async def agent(scene: Scene) -> Agent:
    return await scene.broker.agent(await scene.session())


# ---- another account than the one that was shown ------------------------------------------------------------------


async def test_a_call_that_was_asked_for_one_account_is_not_sent_with_another(connected: Connected) -> None:
    scene = connected.scene
    waiting = await scene.pending(connected.agent)
    await connected.connect(SECOND)  # under the same name
    await asyncio.to_thread(scene.decide, waiting["id"])
    report = await connected.agent.follow(waiting["id"])
    assert (report["state"], report["code"]) == ("superseded", "connector_changed")
    assert connected.sent() == []
    again = await scene.pending(connected.agent)
    await asyncio.to_thread(scene.decide, again["id"])
    assert (await connected.agent.follow(again["id"]))["state"] == "done"
    assert connected.sent() == [f"Bearer {SECOND}"]


async def test_a_remembered_approval_is_for_the_account_that_was_shown(connected: Connected) -> None:
    scene = connected.scene
    waiting = await scene.pending(connected.agent)
    remember = Remember(arguments=("id", "text"), most=5, hours=1)
    await asyncio.to_thread(scene.decide, waiting["id"], remember=remember)
    assert (await connected.agent.follow(waiting["id"]))["state"] == "done"
    assert (await connected.agent.call("desk.send_reply", REPLY))["state"] == "done"
    await connected.connect(SECOND)
    await scene.pending(connected.agent)
    assert connected.sent() == [f"Bearer {FIRST}"] * 2


# ---- the same call twice ------------------------------------------------------------------------------------------


async def test_a_repeated_request_that_joined_another_call_does_not_run_it_again(scene: Scene, agent: Agent) -> None:
    """As a guest does whose connection was lost, perhaps to another host; by then the call may have been approved."""
    first = await agent.call("desk.send_reply", REPLY, wait=0, key="a" * 32)
    joined = await agent.call("desk.send_reply", REPLY, wait=0, key="b" * 32)
    assert joined["id"] == first["id"]
    remember = Remember(arguments=("id", "text"), most=5, hours=1)
    await asyncio.to_thread(scene.decide, first["id"], remember=remember)
    assert (await agent.follow(first["id"]))["state"] == "done"
    again = await agent.call("desk.send_reply", REPLY, key="b" * 32)
    assert (again["id"], again["state"]) == (first["id"], "done") and len(scene.outside.effects) == 1
    assert scene.runtime.audit.list(event="connector.call.join", limit=9)[0].detail["call"] == first["id"]
    assert (await agent.call("desk.get_ticket", {"id": "7"}, key="b" * 32))["error"]["code"] == "invalid"


# ---- routes that change on the base branch ------------------------------------------------------------------------


async def test_a_route_that_leads_elsewhere_on_the_base_is_not_called_as_it_was(scene: Scene, agent: Agent) -> None:
    waiting = await scene.pending(agent)
    assert (await agent.call("desk.add_note", {"text": "x"}))["state"] == "done"
    rewrite(scene.repository, "path: /notes,", "path: /drafts,")
    rewrite(scene.repository, '"/tickets/{id}/replies"', '"/tickets/{id}/drafts"')
    report = await agent.call("desk.add_note", {"text": "x"})
    assert (report["state"], report["code"]) == ("refused", "action_changed")
    await asyncio.to_thread(scene.decide, waiting["id"])
    assert (await agent.follow(waiting["id"]))["state"] == "superseded"
    assert [target for _, target, _ in scene.outside.effects] == ["/notes"]


async def test_arguments_that_the_base_limits_are_not_taken_as_they_were(scene: Scene, agent: Agent) -> None:
    rewrite(scene.repository, "parameters: {text: string}", "parameters: {text: {type: string, maxLength: 3}}")
    report = await agent.call("desk.add_note", {"text": "too long"})
    assert (report["state"], report["code"]) == ("refused", "action_changed")
    later = await scene.broker.agent(await scene.session())
    assert (await later.call("desk.add_note", {"text": "too long"}))["code"] == "invalid_arguments"
    assert (await later.call("desk.add_note", {"text": "ok"}))["state"] == "done"


# ---- credentials in answers and in the store ----------------------------------------------------------------------


@pytest.mark.parametrize("shown", [len(FIRST) - 1, 14, 6, len("Bearer ") + 5])
def test_an_answer_that_is_cut_in_the_middle_of_the_credential_shows_nothing_of_it(shown: int) -> None:
    """An agent may choose where: the answer of many a service repeats what it was asked."""
    header = f"Bearer {FIRST}"
    attached = Attached(headers={"authorization": header}, secrets=(FIRST,))
    for whole in (FIRST, header, quote(header), json.dumps({"h": header})):
        body = b"x" * 100_000 + whole.encode()[:shown]
        clean = Cleaning(attached, Redactor.none()).data(body, cut=True)
        assert b"first-" not in clean and b"Bearer" not in clean and clean.startswith(b"x" * 100_000)


async def test_a_header_that_is_cut_shows_nothing_of_the_credential(connected: Connected) -> None:
    target = f"https://elsewhere.example/{'x' * 4050}?token={FIRST}&more={'y' * 100}"
    connected.scene.outside.answers["/tickets/7"] = Answer(302, headers=(("location", target),))
    report = await connected.agent.call("desk.get_ticket", {"id": "7"})
    assert report["status"] == 302 and FIRST[:6] not in json.dumps(report)


async def test_escapes_do_not_carry_a_value_into_the_store(connected: Connected) -> None:
    scene = connected.scene
    spelled = "".join(f"\\u{ord(one):04x}" for one in FIRST)
    for arguments in (f'{{"id": "7", "text": "{spelled}"}}', f'{{"id": "7", "{spelled}": 1}}'):
        report = await connected.agent.call("desk.send_reply", arguments, wait=0)
        assert report["state"] == "refused", report
    rows = scene.seeded.store.all("SELECT arguments, request, message, reason FROM calls")
    events = scene.seeded.store.all("SELECT * FROM audit")
    assert FIRST not in json.dumps([rows, events]) and connected.sent() == []


async def test_nothing_is_sent_while_values_in_its_answer_could_not_be_found(connected: Connected) -> None:
    """The session holds a value, and the vault is locked: an answer that repeats the value would be stored as it is."""
    scene, store = connected.scene, connected.scene.seeded.store
    rewrite(scene.repository, "auth: {type: bearer}", "auth: {type: none}")
    assert (await connected.agent.call("desk.send_reply", REPLY))["code"] == "connector_changed"
    session_id = await scene.session()
    agent = await scene.broker.agent(session_id)
    waiting = await scene.pending(agent)
    with store.write() as tx:
        tx.execute("INSERT INTO deliveries SELECT ?, id, 1, ? FROM secrets LIMIT 1", (session_id, tx.now_text))
        tx.audit("test.deliver", scope="test", actor=OPERATOR)
    await scene.broker.custody.lock(OPERATOR)
    await asyncio.to_thread(scene.decide, waiting["id"])
    assert (await agent.follow(waiting["id"], wait=1.5))["state"] == "approved" and connected.sent() == []
    await VaultActs(scene.broker.custody).unlock(UnlockVault(), (), OPERATOR)
    assert (await agent.follow(waiting["id"]))["state"] == "done" and connected.sent() == [None]


# ---- calls without an end -----------------------------------------------------------------------------------------


async def test_a_call_whose_end_could_not_be_written_is_unknown_soon(scene: Scene, agent: Agent) -> None:
    store = scene.seeded.store
    with store.write() as tx:  # as a full disk would
        tx.execute(
            "CREATE TRIGGER broken BEFORE UPDATE OF state ON calls WHEN NEW.state = 'done'"
            " BEGIN SELECT RAISE(ABORT, 'no room'); END"
        )
        tx.audit("test.trigger", scope="test", actor=OPERATOR)
    key = "k" * 32
    await agent.call("desk.add_note", {"text": "x"}, key=key, wait=0)
    await until(lambda: scene.broker.all_calls()[0].state is CallState.UNKNOWN)
    with store.write() as tx:
        tx.execute("DROP TRIGGER broken")
        tx.audit("test.trigger", scope="test", actor=OPERATOR)
    report = await agent.call("desk.add_note", {"text": "x"}, key=key)
    assert (report["state"], report["code"]) == ("unknown", "may_have_run") and len(scene.outside.effects) == 1
