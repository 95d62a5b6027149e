"""Connectors from the operator's side: read, connected, changed outside, accepted; against a real API over TLS."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import git
from graphql import build_schema, graphql_sync
from shop import SEED, TOKEN, Shop, ShopDesk, document, open_shop, operation
from tls import Answer, Received, TlsServer

from kortix_tui.base.errors import Conflict, InvalidInput, KortixError, NotFound, Refused, VaultLocked
from kortix_tui.base.paths import Home
from kortix_tui.base.words import CallState, ConnectionState, Exposure, Level, Verdict
from kortix_tui.runtime.connector_views import SyncResult
from kortix_tui.vault.secret import Secret

BASIC = {"auth": {"type": "http", "scheme": "basic"}}
KEY = {"auth": {"type": "apiKey", "in": "query", "name": "api_key"}}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


@pytest.fixture
def desk(home: Home, short_folder: Path, shop: Shop) -> Iterator[ShopDesk]:
    made = ShopDesk(home, short_folder / "repo", shop.ca)
    yield made
    made.runtime.close()


def sync(desk: ShopDesk, slug: str = "billing-api") -> SyncResult:
    return desk.runtime.connectors.sync(desk.project, slug)


def connect(desk: ShopDesk, value: str | None = TOKEN, slug: str = "billing-api", **options: object) -> str:
    secret = None if value is None else Secret(value.encode())
    return desk.runtime.connections.connect(desk.project, slug, secret, **options).connection.id  # type: ignore[arg-type]


def call(desk: ShopDesk, action: str, arguments: str = "{}", **options: str) -> tuple[CallState, str | None]:
    report = desk.runtime.calls.call(desk.project, "billing-api", action, arguments, **options)
    return report.state, report.code


# The seed's excerpt


def test_the_seeds_excerpt_works_as_written(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    runtime, project = desk.runtime, desk.project
    before = runtime.connectors.show(project, "billing-api")
    assert (before.actions, before.connected, before.auth) == (None, False, "none")
    assert "connectors sync billing-api" in (before.problem or "")

    result = sync(desk)
    assert (result.state, result.changed, result.actions) == ("accepted", True, 3)
    assert result.base_url == shop.server.url("/v1")
    needs = runtime.connectors.auth(project, "billing-api")
    assert (needs.type, needs.place, needs.from_document) == ("bearer", "header authorization", True)
    assert needs.origin == f"https://localhost:{shop.server.port}"
    assert "Nobody has connected" in (runtime.connectors.show(project, "billing-api").problem or "")

    connect(desk)
    shown = runtime.connectors.show(project, "billing-api")
    assert shown.connected and shown.problem is None and not shown.gates_off
    assert [(one.account, one.auth, one.state) for one in shown.connections] == [
        ("default", "bearer", ConnectionState.READY)
    ]
    verdicts = {action.name: action.verdict for action in runtime.policies.view(project, "billing-api").actions}
    assert verdicts == {
        "get_invoices": Verdict.RUN, "get_invoice": Verdict.RUN, "create_invoice": Verdict.ASK,
    }  # fmt: skip
    report = runtime.calls.call(project, "billing-api", "get_invoice", '{"id": "7"}')
    assert (report.state, report.status) == (CallState.DONE, 200)
    assert shop.calls[-1].target == "/v1/invoices/7" and TOKEN in (shop.calls[-1].header("authorization") or "")
    assert TOKEN.encode() not in desk.everything()
    assert desk.redacts(TOKEN.encode()), "a stored credential is found in texts"


def test_who_may_use_it_is_shown(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec, agents="  reader:\n    connectors: [billing-api]\n  greedy:\n    connectors: all\n")
    assert desk.runtime.connectors.show(desk.project, "billing-api").agents == ("greedy", "reader")


def test_gates_that_are_off_are_said(desk: ShopDesk, shop: Shop) -> None:
    desk.declare((SEED % shop.spec).split("    policies:")[0])
    assert not desk.runtime.connectors.show(desk.project, "billing-api").gates_off
    manifest = desk.repository / "kortix.yaml"
    manifest.write_text(manifest.read_text().replace("policy: {default_mode: risk}\n", ""))
    git(desk.repository, "commit", "-qam", "No mode")
    desk.runtime.connectors.refresh(desk.project)
    assert desk.runtime.connectors.show(desk.project, "billing-api").gates_off


# Changes outside


def test_a_changed_document_waits_for_a_person(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    first = sync(desk)
    assert not sync(desk).changed
    shop.document = document(paths={"/refunds": {"delete": operation("dropRefunds")}})
    found = sync(desk)
    assert (found.state, found.changed) == ("pending", True)
    assert found.difference is not None and found.difference.added == ("drop_refunds",)
    runtime, project = desk.runtime, desk.project
    shown = runtime.connectors.show(project, "billing-api")
    assert shown.pending and shown.actions == first.actions
    catalogue = runtime.connectors.catalogue(project, "billing-api")
    assert catalogue is not None and catalogue.action("drop_refunds") is None

    with pytest.raises(Refused):
        runtime.connectors.accept(project, "billing-api", found.catalogue_id, terminal=False)
    with pytest.raises(Conflict):
        runtime.connectors.accept(project, "billing-api", first.catalogue_id, terminal=True)
    waiting = runtime.connectors.pending(project, "billing-api")
    assert waiting is not None and waiting.difference == found.difference
    after = runtime.connectors.accept(project, "billing-api", waiting.catalogue_id, terminal=True)
    assert (after.actions, after.pending) == (4, False)
    assert runtime.connectors.pending(project, "billing-api") is None
    assert desk.events("connector.accept") == ["connector.accept denied", "connector.accept"]


def test_a_document_that_went_back_waits_no_more(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    shop.document = document(paths={"/refunds": {"delete": operation("dropRefunds")}})
    assert sync(desk).state == "pending"
    shop.document = document()
    assert (sync(desk).state, sync(desk).changed) == ("accepted", False)
    assert not desk.runtime.connectors.show(desk.project, "billing-api").pending


def test_only_the_newest_reading_can_be_accepted(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    shop.document = document(paths={"/a": {"get": operation("getA")}})
    older = sync(desk)
    shop.document = document(paths={"/b": {"delete": operation("dropB")}})
    sync(desk)
    with pytest.raises(Conflict):
        desk.runtime.connectors.accept(desk.project, "billing-api", older.catalogue_id, terminal=True)
    catalogue = desk.runtime.connectors.catalogue(desk.project, "billing-api")
    assert catalogue is not None and catalogue.action("get_a") is None


def test_a_document_that_moves_its_server_keeps_the_credential_home(desk: ShopDesk, shop: Shop, tmp_path: Path) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    connect(desk)
    with open_shop(tmp_path / "other") as thief:
        shop.document = document() | {"servers": [{"url": thief.server.url("/v1")}]}
        found = sync(desk)
        assert found.state == "pending" and found.difference is not None and found.difference.base_url is not None
        assert call(desk, "get_invoices")[0] is CallState.DONE, "the accepted document is in force"
        desk.runtime.connectors.accept(desk.project, "billing-api", found.catalogue_id, terminal=True)
        assert call(desk, "get_invoices")[0] is not CallState.DONE
        assert "connect again" in (desk.runtime.connectors.show(desk.project, "billing-api").problem or "")
        assert not thief.server.received


def test_a_document_in_the_repository_counts_with_the_merge(desk: ShopDesk, shop: Shop) -> None:
    spec = document({})
    spec["servers"] = [{"url": shop.server.url("/v1")}]
    shop.wants = None
    connector = SEED % "billing.json"
    desk.declare(connector, billing_dot_json=json.dumps(spec))
    assert call(desk, "get_invoices")[0] is CallState.DONE, "nobody has to ask for it"
    assert call(desk, "get_refunds")[1] == "action_not_found"
    spec["paths"]["/refunds"] = {"get": operation("getRefunds")}
    desk.declare(connector, billing_dot_json=json.dumps(spec))
    assert call(desk, "get_refunds")[0] is CallState.DONE
    assert not desk.runtime.connectors.show(desk.project, "billing-api").pending


def test_routes_need_no_reading(desk: ShopDesk, shop: Shop) -> None:
    shop.wants = None
    desk.declare(
        f"connectors:\n  - slug: billing-api\n    provider: http\n    base_url: {shop.server.url('/v1')}\n"
        "    routes:\n      - {name: get_things, path: /things}\n"
    )
    assert call(desk, "get_things")[0] is CallState.DONE
    assert shop.calls[-1].target == "/v1/things"


@pytest.mark.parametrize(
    "broken",
    [b"", b"<html>", b"{}", b'{"openapi": "3.0.0", "paths": {}}', b'{"a": 1, "a": 2}', b"[" * 5000, b"x" * (17 << 20)],
    ids=["empty", "html", "object", "no paths", "twice", "deep", "huge"],
)
def test_a_document_that_cannot_be_read_changes_nothing(desk: ShopDesk, shop: Shop, broken: bytes) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    shop.document = broken
    with pytest.raises(KortixError) as caught:
        sync(desk)
    assert caught.value.message
    assert desk.runtime.connectors.show(desk.project, "billing-api").actions == 3


def test_a_closed_address_is_not_asked(home: Home, short_folder: Path, shop: Shop) -> None:
    desk = ShopDesk(home, short_folder / "repo", shop.ca, connectors={"ca_certificates": [str(shop.ca.file)]})
    try:
        desk.declare(SEED % shop.spec)
        with pytest.raises(KortixError, match="localhost"):
            sync(desk)
        assert shop.server.accepted == 0
    finally:
        desk.runtime.close()


def test_names_that_are_not_there_are_said(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    for ask in (desk.runtime.connectors.show, desk.runtime.connectors.sync, desk.runtime.connectors.auth):
        with pytest.raises(NotFound, match="billing") as caught:
            ask(desk.project, "billing")
        assert "billing-api" in (caught.value.hint or "")


# Accounts


def test_the_value_must_fit_where_it_goes(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    with pytest.raises(InvalidInput, match="line break") as caught:
        connect(desk, "canary\r\nx: y")
    assert "canary" not in str(caught.value)
    assert not desk.runtime.connections.list(desk.project)
    with pytest.raises(InvalidInput, match="account"):
        connect(desk, account="../x")


def test_basic_needs_a_user_and_a_query_key_stands_in_the_query(desk: ShopDesk, shop: Shop) -> None:
    shop.document, shop.wants = document(BASIC), ("authorization", "Basic YWRhOnB3LWNhbmFyeS05")
    desk.declare(SEED % shop.spec)
    sync(desk)
    with pytest.raises(InvalidInput, match="user name"):
        connect(desk, "pw-canary-9")
    connect(desk, "pw-canary-9", username="ada")
    assert call(desk, "get_invoices")[0] is CallState.DONE
    shop.document, shop.wants = document(KEY), None
    changed = sync(desk)
    assert changed.state == "pending", "a document that sends the credential elsewhere waits for a person"
    waiting = desk.runtime.connectors.pending(desk.project, "billing-api")
    assert waiting is not None and waiting.auth == ("basic in header authorization", "api_key in query api_key")
    desk.runtime.connectors.accept(desk.project, "billing-api", changed.catalogue_id, terminal=True)
    assert "made for auth basic" in (desk.runtime.connectors.show(desk.project, "billing-api").problem or "")
    connect(desk, "key-canary-8")
    assert call(desk, "get_invoices")[0] is CallState.DONE
    assert shop.calls[-1].target == "/v1/invoices?api_key=key-canary-8"
    assert b"key-canary-8" not in desk.everything()


def test_several_accounts(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    connect(desk)
    connect(desk, "another-canary-77", account="sandbox")
    runtime, project = desk.runtime, desk.project
    assert [(one.account, one.is_default) for one in runtime.connections.list(project)] == [
        ("default", True), ("sandbox", False),
    ]  # fmt: skip
    assert call(desk, "get_invoices")[0] is CallState.DONE
    assert call(desk, "get_invoices", account="sandbox")[0] is CallState.FAILED
    assert "another-canary-77" in (shop.calls[-1].header("authorization") or "")
    assert call(desk, "get_invoices", account="nobody")[1] == "account_required"
    runtime.connections.make_default(project, "billing-api", "sandbox")
    runtime.connections.remove(project, "billing-api", "sandbox")
    assert call(desk, "get_invoices")[1] == "account_required", "no other account is chosen by itself"
    runtime.connections.make_default(project, "billing-api", "default")
    assert call(desk, "get_invoices")[0] is CallState.DONE
    assert [event for event in desk.events("connection.") if event != "connection.list"] == [
        "connection.create", "connection.create", "connection.default", "connection.delete", "connection.default",
    ]  # fmt: skip


def test_connecting_again_keeps_the_account_and_counts_up(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    assert connect(desk, "wrong-canary-11") == connect(desk)
    assert call(desk, "get_invoices")[0] is CallState.DONE
    row = desk.runtime.context.store.one("SELECT version FROM connections")
    assert row == (2,)


def test_a_secret_can_be_bound_and_is_held_fast(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    runtime, project = desk.runtime, desk.project
    desk.store("SHOP_KEY", b"environment-canary-1")
    with pytest.raises(KortixError, match="exposure connector"):
        connect(desk, None, secret="SHOP_KEY")
    runtime.secrets.expose(project, "SHOP_KEY", Exposure.CONNECTOR)
    connect(desk, None, secret="shop_key")
    assert call(desk, "get_invoices")[0] is CallState.FAILED, "it is the wrong one still"
    runtime.secrets.rotate(project, "SHOP_KEY", Secret(TOKEN.encode()))
    assert call(desk, "get_invoices")[0] is CallState.DONE
    for change in (
        lambda: runtime.secrets.unset(project, "SHOP_KEY"),
        lambda: runtime.secrets.expose(project, "SHOP_KEY", Exposure.ENVIRONMENT),
        lambda: runtime.secrets.share(project, "SHOP_KEY", only_me=True),
        lambda: runtime.secrets.set(project, "SHOP_KEY", Secret(TOKEN.encode()), exposure=Exposure.ENVIRONMENT),
    ):
        with pytest.raises(Refused, match="billing-api/default"):
            change()
    runtime.connections.remove(project, "billing-api")
    assert runtime.secrets.find(project, "SHOP_KEY"), "what was bound stays"
    runtime.secrets.unset(project, "SHOP_KEY")


def test_removing_a_connection_forgets_its_value(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    connect(desk)
    assert [one.identifier for one in desk.runtime.secrets.list()] == ["connection.billing-api.default"]
    with pytest.raises(Refused, match="billing-api/default"):
        desk.runtime.secrets.unset(desk.project, "connection.billing-api.default")
    desk.runtime.connections.remove(desk.project, "billing-api")
    assert not desk.runtime.secrets.list() and not desk.runtime.connections.list(desk.project)
    assert not desk.redacts(TOKEN.encode())
    assert call(desk, "get_invoices")[0] is CallState.REFUSED
    with pytest.raises(NotFound):
        desk.runtime.connections.remove(desk.project, "billing-api")


def test_a_locked_vault_sends_nothing(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    connect(desk)
    desk.runtime.vault.lock()
    assert call(desk, "get_invoices")[0] in (CallState.FAILED, CallState.REFUSED)
    assert not shop.calls
    with pytest.raises(VaultLocked):
        connect(desk)
    assert len(desk.runtime.connections.list(desk.project)) == 1


def test_a_connector_without_auth_takes_no_credential(desk: ShopDesk, shop: Shop) -> None:
    shop.document, shop.wants = document({}), None
    desk.declare(SEED % shop.spec)
    sync(desk)
    with pytest.raises(Refused, match="needs no credential"):
        connect(desk)
    assert desk.runtime.connectors.show(desk.project, "billing-api").connected
    assert call(desk, "get_invoices")[0] is CallState.DONE


def test_checks_choose_a_read_that_needs_nothing(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    test, probe = desk.runtime.connectors.check(desk.project, "billing-api")
    assert not test.passed and probe is None
    sync(desk)
    connect(desk)
    test, probe = desk.runtime.connectors.check(desk.project, "billing-api")
    assert [check.level for check in test.checks] == [Level.OK, Level.OK]
    assert probe is not None and probe.name == "get_invoices"
    assert not desk.runtime.connectors.check(desk.project, "billing-api", "nobody")[0].passed


def test_checks_call_only_what_policy_runs(desk: ShopDesk, shop: Shop) -> None:
    text = (SEED % shop.spec).replace("always_run", "require_approval")
    desk.declare(text)
    sync(desk)
    connect(desk)
    test, probe = desk.runtime.connectors.check(desk.project, "billing-api")
    assert test.passed and probe is None
    assert test.checks[-1].message == "not tried: policy asks about every read"
    assert test.checks[-1].level is Level.WARN


# A server that tells what it can do only to those who are signed in


def test_a_graphql_server_is_asked_with_the_credential(desk: ShopDesk, shop: Shop) -> None:
    schema = build_schema("type Query { invoice(id: ID!): String } type Mutation { drop(id: ID!): Boolean }")

    def answer(request: Received) -> Answer:
        if request.header("authorization") != f"Bearer {TOKEN}":
            return Answer(401)
        asked = json.loads(request.body)
        result = graphql_sync(schema, asked["query"], {"invoice": "paid"}, variable_values=asked.get("variables"))
        return Answer(body=json.dumps(result.formatted).encode())

    with TlsServer(answer, ca=shop.ca) as server:
        desk.declare(
            f"connectors:\n  - slug: billing-api\n    provider: graphql\n    endpoint: {server.url('/graphql')}\n"
            "    auth: {type: bearer}\n"
        )
        with pytest.raises(Refused, match="only to those who are signed in"):
            sync(desk)
        assert not server.received
        connect(desk)
        assert sync(desk).actions == 2
        report = desk.runtime.calls.call(desk.project, "billing-api", "query.invoice", '{"id": "7"}')
        assert report.state is CallState.DONE and "paid" in (report.body or "")


def test_a_source_that_is_away_stops_nobody_from_connecting(desk: ShopDesk, shop: Shop) -> None:
    desk.declare(SEED % shop.spec)
    sync(desk)
    desk.repository.rename(desk.repository.with_name("away"))
    connect(desk)
    assert desk.runtime.connectors.show(desk.project, "billing-api").connected
