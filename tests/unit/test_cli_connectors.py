"""`kortix connectors` and `connections` against a real API and a real provider; the host is the command's own."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from at_terminal import AtTerminal
from desk import git
from oauth_provider import CLIENT, SECRET, Provider
from shop import SEED, TOKEN, Shop, document, open_shop, operation
from tls import LOOPBACK

from kortix_tui.base.clock import to_text
from kortix_tui.base.paths import Home
from kortix_tui.broker.connectors.model import HttpCall, Materialised, RuleSource
from kortix_tui.cli.main import run
from kortix_tui.runtime.facade import Runtime
from kortix_tui.store.audit import SYSTEM

HEAD = "kortix_version: 2\ndefault_agent: script\npolicy: {default_mode: risk}\n"
AGENTS = "agents:\n  script:\n    kortix_permissions: [project.gitops.push]\n"
Say = Callable[..., str]


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        yield made


@pytest.fixture
def say(home: Home, repository: Path, shop: Shop, capfd: pytest.CaptureFixture[str]) -> Say:
    """Runs a command and gives all that it prints; the project declares the seed's connector."""
    config = Path(os.environ["KORTIX_CONFIG_HOME"])
    config.mkdir(parents=True, exist_ok=True, mode=0o700)
    reach = {"allow_private": list(LOOPBACK), "ca_certificates": [str(shop.ca.file)]}
    (config / "config.yaml").write_text(yaml.safe_dump({"connectors": reach}))

    def run_it(*arguments: str, status: int = 0, stdin: bytes = b"") -> str:
        before, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(stdin))
        try:
            found = run(arguments)
        finally:
            sys.stdin = before
        out, error = capfd.readouterr()
        assert found == status, out + error
        return out + error

    declare(repository, SEED % shop.spec)
    run_it("projects", "add", str(repository), "--slug", "acme")
    run_it("vault", "init", "--keyfile", "--no-recovery")
    return run_it


def declare(repository: Path, connectors: str) -> None:
    (repository / "kortix.yaml").write_text(HEAD + connectors + AGENTS)
    git(repository, "commit", "-qam", "Declare")


def parsed(said: str) -> Any:
    """The JSON in what a command prints, beside the words for the person."""
    start = min(at for at in (said.find("{"), said.find("[")) if at >= 0)
    return json.JSONDecoder().raw_decode(said[start:])[0]


def kept(home: Home) -> bytes:
    """Every byte of the home but the vault's encrypted ones."""
    return b"".join(path.read_bytes() for path in home.path.rglob("*") if path.is_file())


def test_a_newcomer_connects_the_seeds_connector(say: Say, shop: Shop, home: Home) -> None:
    listed = say("connectors", "ls")
    assert "billing-api" in listed and "needs you" in listed and "connectors sync billing-api" in listed
    said = say("connectors", "connect", "billing-api", "--token", "-", stdin=TOKEN.encode() + b"\n")
    assert "Billing" in said and "3 actions" in said, "it is read on the way"
    assert f"sent as header authorization to https://localhost:{shop.server.port} only" in said
    assert "billing-api is connected." in said and "connectors grant billing-api" in said
    assert "connected" in say("connectors", "ls")
    page = say("connectors", "show", "billing-api")
    assert "bearer" in page and "default (default)" in page and "connection.billing-api.default" in page
    tested = say("connectors", "test", "billing-api")
    assert "call get_invoices" in tested and "status 200" in tested
    answer = say("connectors", "call", "billing-api.get_invoice", '{"id": "a/b"}', "--reason", "a test")
    assert '{"seen": "/v1/invoices/a%2Fb"}' in answer and "done, status 200" in answer
    pages = listed + said + page + tested + answer + say("audit", "ls", "--json") + say("connections", "ls")
    assert TOKEN not in pages and TOKEN.encode() not in kept(home)


def test_answers_go_where_they_are_wanted(say: Say, tmp_path: Path) -> None:
    say("connectors", "connect", "billing-api", "--token", "-", stdin=TOKEN.encode())
    out, given = tmp_path / "out.json", tmp_path / "in.json"
    given.write_text('{"id": "from a file"}')
    say("connectors", "call", "billing-api.get_invoice", f"@{given}", "--out", str(out))
    assert json.loads(out.read_text()) == {"seen": "/v1/invoices/from%20a%20file"}
    report = parsed(say("connectors", "call", "billing-api.get_invoice", "-", "--json", stdin=b'{"id": "x"}'))
    assert (report["state"], report["status"]) == ("done", 200)
    assert "invalid_arguments" in say("connectors", "call", "billing-api.get_invoice", "{}", "--json", status=1)
    assert "CONNECTOR.ACTION" in say("connectors", "call", "billing-api", status=2)
    assert "cannot be read" in say("connectors", "call", "billing-api.get_invoice", "@/nowhere", status=1)


def test_json_is_in_stable_shapes(say: Say) -> None:
    made = parsed(say("connectors", "connect", "billing-api", "--token", "-", "--json", stdin=TOKEN.encode()))
    assert made["connection"]["account"] == "default" and made["warnings"] == []
    (listed,) = parsed(say("connectors", "ls", "--json"))
    assert (listed["slug"], listed["connected"], listed["auth"]) == ("billing-api", True, "bearer")
    assert parsed(say("connectors", "show", "billing-api", "--json")) == listed
    (account,) = parsed(say("connections", "ls", "billing-api", "--json"))
    assert account["state"] == "ready" and TOKEN not in json.dumps(account)


def test_values_on_the_command_line_are_not_taken_or_repeated(say: Say) -> None:
    for words in (("--token", "canary-value"), ("--client-secret", "canary-value"), ("canary-value",)):
        said = say("connectors", "connect", "billing-api", *words, status=2)
        assert "canary" not in said
    assert "--token -" in say("connectors", "connect", "billing-api", status=2), "nobody can be asked here"


def test_what_cannot_be_connected_says_why(say: Say) -> None:
    assert "billing-api" in say("connectors", "connect", "billing", "--token", "-", status=1, stdin=b"x")
    assert "There is no secret" in say("connectors", "connect", "billing-api", "--secret", "NOPE", status=1)
    assert "no value" in say("connectors", "connect", "billing-api", "--token", "-", status=1)
    assert "Nothing is connected yet" in say("connections", "ls")


def test_accounts_come_and_go(say: Say, shop: Shop) -> None:
    say("connectors", "connect", "billing-api", "--token", "-", stdin=TOKEN.encode())
    say("connections", "add", "billing-api", "--account", "sandbox", "--token", "-", stdin=b"other-canary-5")
    new = "The server refused the credential. Give a new one: kortix connectors connect billing-api --account sandbox"
    for words in (("test", "billing-api"), ("call", "billing-api.get_invoices")):
        refused = say("connectors", *words, "--account", "sandbox", status=1)
        assert "status 401" in refused and new in refused
    assert "use sandbox now" in say("connections", "default", "billing-api", "--account", "sandbox")
    assert "Add --yes" in say("connections", "rm", "billing-api", "--account", "sandbox", status=1)
    said = say("connections", "rm", "billing-api", "--account", "sandbox", "--yes")
    assert "is forgotten" in said and "connections default billing-api" in said
    say("connections", "default", "billing-api", "--account", "default")
    assert "status 200" in say("connectors", "test", "billing-api")
    assert "--account" in say("connections", "add", "billing-api", status=2)


def test_a_changed_document_is_shown_and_accepted_by_its_id(say: Say, shop: Shop) -> None:
    say("connectors", "sync", "billing-api")
    assert "Nothing has changed" in say("connectors", "sync", "billing-api")
    shop.document = document(paths={"/refunds": {"delete": operation("dropRefunds\u202e")}})
    said = say("connectors", "sync", "billing-api", status=1)
    assert "drop_refunds" in said and "(new)" in said and "\u202e" not in said
    found = re.search(r"accept billing-api --at (cat_\w+)", said)
    assert found is not None
    assert "accept billing-api" in say("connectors", "ls")
    refused = say("connectors", "accept", "billing-api", "--at", found[1], status=1)
    assert "decisions.unattended" in refused, "no person is at a terminal"
    with AtTerminal("connectors", "accept", "billing-api") as person:
        person.see(b"Accept it?")
        person.type("y\n")
        assert person.end() == 0
    assert "4" in say("connectors", "ls")
    assert "Nothing of billing-api waits" in say("connectors", "accept", "billing-api")


def test_what_ends_waiting_calls_says_so_before(say: Say, shop: Shop) -> None:
    say("connectors", "connect", "billing-api", "--token", "-", stdin=TOKEN.encode())
    with Runtime.open() as runtime:
        project = runtime.projects.find("acme")
        for number, account in enumerate(("default", "default", "sandbox")):
            wait_for_a_person(runtime, project.id, number, account)
    shop.document = document(paths={"/refunds": {"delete": operation("dropRefunds")}})
    assert "3 calls that wait end: they were asked about the old document" in say(
        "connectors", "sync", "billing-api", status=1
    )
    for account, said in (
        ("default", "2 calls that wait end: they were"),
        ("sandbox", "1 call that waits ends: it was"),
    ):
        told = say(
            "connectors", "connect", "billing-api", "--account", account, "--token", "-", stdin=TOKEN.encode()
        )  # fmt: skip
        assert f"When it is connected anew, {said} asked with the old credential." in told
    told = say("connectors", "connect", "billing-api", "--account", "third", "--token", "-", stdin=TOKEN.encode())
    assert "connected anew" not in told


def wait_for_a_person(runtime: Runtime, project_id: str, number: int, account: str) -> None:
    request = Materialised(
        project_id=project_id, connector="billing-api", action="create_invoice", definition_hash="d" * 64,
        document_hash="e" * 64, credential=None, credential_place=None, arguments="{}",
        call=HttpCall(method="POST", url="https://billing.example/v1/invoices", headers=(), body=b"{}"),
    )  # fmt: skip
    rule = RuleSource(source="connector", index=1, match="*")
    with runtime.context.store.write() as tx:
        tx.execute(
            "INSERT INTO calls (id, project_id, key, connector, action, account, risk, state, verdict, rule, reason,"
            " arguments, request, digest, created_by, created_at, expires_at) VALUES (?, ?, ?, 'billing-api',"
            " 'create_invoice', ?, 'write', 'pending', 'require_approval', ?, '', '{}', ?, ?, 'agent', ?, ?)",
            (
                f"cal_{number}", project_id, f"key{number}", account, rule.model_dump_json(),
                request.model_dump_json(), request.digest(),
                tx.now_text, to_text(tx.now.replace(year=tx.now.year + 1)),
            ),
        )  # fmt: skip
        tx.audit("connector.call.ask", scope="call", actor=SYSTEM)


def test_grants_are_change_requests(say: Say) -> None:
    said = say("connectors", "grant", "billing-api", "--agent", "script")
    assert "acme#1 is open" in said and "may use billing-api" in said
    assert "is open already" in say("connectors", "grant", "billing-api", "--agent", "script")
    assert "no longer use" in say("connectors", "revoke", "billing-api", "--agent", "script")
    assert "no connector" in say("connectors", "grant", "nothing", "--agent", "script", status=1)
    assert "connectors: [billing-api]" in say("cr", "diff", "1").replace('"', "")


def test_a_person_types_the_value_unseen(say: Say, shop: Shop) -> None:
    with AtTerminal("connectors", "connect", "billing-api") as person:
        person.see(b"The token of billing-api:")
        person.type(f"{TOKEN}\n")
        shown = person.see(b"is connected")
        assert person.end() == 0
        assert TOKEN.encode() not in shown + person.screen
    assert "status 200" in say("connectors", "test", "billing-api")


def test_a_person_agrees_in_a_browser_or_pastes_the_address(
    say: Say, shop: Shop, repository: Path, tmp_path: Path
) -> None:
    with Provider(shop.ca, methods={"none"}) as provider:
        declare(
            repository,
            f"connectors:\n  - slug: shop\n    provider: http\n    base_url: {provider.url('/api')}\n"
            f"    routes: [{{name: get_me, path: /me}}]\n    auth:\n      type: oauth2\n      client_id: {CLIENT}\n"
            f"      token_url: {provider.url('/token')}\n      authorization_url: {provider.url('/authorize')}\n"
            f"      device_authorization_url: {provider.url('/device')}\n",
        )
        for pasted in (True, False):
            with AtTerminal("connectors", "connect", "shop", columns=2000) as person:
                person.see(b"for a public client)")
                person.type("\n")
                url = re.search(rb"https://\S+/authorize\?\S+", person.see(b"press Enter"))
                assert url is not None
                address = provider.agree(url[0].decode())
                if pasted:
                    person.type("http://127.0.0.1/callback?code=nonsense\n")
                    person.see(b"does not answer")
                    person.type(address + "\n")
                else:
                    httpx.get(address, trust_env=False)
                person.see(b"shop is connected")
                assert person.end() == 0
            assert "status 200" in say("connectors", "test", "shop")
        with AtTerminal("connectors", "connect", "shop", "--device", columns=2000) as person:
            person.see(b"for a public client)")
            person.type("\n")
            person.see(b"The code to type there:")
            provider.agreed[person.see(b"\n").decode().strip()] = True
            person.see(b"shop is connected")
            assert person.end() == 0
        assert "in 59m" in say("connections", "ls")
        assert SECRET not in say("audit", "ls", "--json")
