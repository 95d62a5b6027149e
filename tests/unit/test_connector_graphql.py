"""GraphQL schemas become actions, against a real executor of GraphQL behind a real server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from graphql import build_schema, graphql_sync

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.arguments import build, check_arguments
from kortix_tui.broker.connectors.credentials import Attached
from kortix_tui.broker.connectors.graphql import catalogue, discover
from kortix_tui.broker.connectors.model import GraphqlOperation
from kortix_tui.broker.network.client import Reach, open_client
from kortix_tui.broker.network.exchange import send

SDL = """
"What a shop sells and to whom."
type Query {
  "One customer."
  customer(id: ID!): Customer
  customers(filter: CustomerFilter, first: Int = 10): [Customer!]!
  getHTTPStatus: String
  search(text: String!): [Found]
}
type Mutation { refund(order: ID!, cents: Int!, why: Why): Refund  note(id: ID!): Boolean @deprecated(reason: "old") }
type Subscription { ticks: Int }
enum Why { BROKEN LATE }
input CustomerFilter { name: String, not: CustomerFilter, tags: [String!] }
type Customer { id: ID! name: String address: Address friends(of: Int!): [Customer] best: Customer }
type Address { city: String country: Country }
type Country { code: String }
type Refund { id: ID! }
union Found = Customer | Refund
"""
REACH = Reach(allow_private=("127.0.0.0/8",))


class Root:
    def customer(self, _info: Any, id: str) -> dict[str, Any]:
        return {"id": id, "name": 'O"Neil', "address": {"city": "Oslo"}, "best": {"id": "9", "name": "B"}}

    def refund(self, _info: Any, order: str, cents: int, why: str | None = None) -> dict[str, Any]:
        return {"id": f"{order}-{cents}-{why}"}


@pytest.fixture
def endpoint() -> Iterator[str]:
    schema = build_schema(SDL)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.headers.get("authorization") != "Bearer key":
                self.send_response(401)
                self.end_headers()
                return
            result = graphql_sync(
                schema, asked["query"], Root(), variable_values=asked.get("variables"),
                operation_name=asked.get("operationName"),
            )  # fmt: skip
            body = json.dumps(result.formatted).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/graphql"
    server.shutdown()
    server.server_close()
    thread.join()


def test_each_field_is_an_action_with_a_fixed_document() -> None:
    found = catalogue(SDL.encode(), endpoint="https://shop.example/graphql")
    assert [(action.name, action.risk) for action in found.actions] == [
        ("query.customer", Risk.READ),
        ("query.customers", Risk.READ),
        ("query.get_http_status", Risk.READ),
        ("query.search", Risk.READ),
        ("mutation.note", Risk.WRITE),
        ("mutation.refund", Risk.WRITE),
    ]
    one = found.action("query.customer")
    assert one is not None and isinstance(one.operation, GraphqlOperation)
    assert one.operation.document == (
        "query customer($id: ID!) { customer(id: $id) { __typename id name"
        " address { __typename city } best { __typename id name } } }"
    )
    assert found.notes == ("Subscriptions cannot be called.",)
    note = found.action("mutation.note")
    assert note is not None and "Deprecated: old" in note.description


def test_arguments_are_checked_against_the_types() -> None:
    found = catalogue(SDL.encode(), endpoint="https://shop.example/graphql")
    refund, customers = found.action("mutation.refund"), found.action("query.customers")
    assert refund is not None and customers is not None
    check_arguments(refund, {"order": "7", "cents": 5, "why": "LATE"})
    check_arguments(customers, {"filter": {"name": "a", "not": {"tags": ["x"]}}})
    for action, wrong in (
        (refund, {"order": "7"}),
        (refund, {"order": "7", "cents": 5, "why": "OTHER"}),
        (refund, {"order": "7", "cents": "5"}),
        (customers, {"filter": {"not": {"tags": "x"}}}),
        (customers, {"filter": {"unknown": 1}}),
        (customers, {"more": 1}),
    ):
        with pytest.raises(InvalidInput):
            check_arguments(action, wrong)


def test_a_schema_has_one_hash_in_whatever_order_it_is_written() -> None:
    one = catalogue(b"type Query { a: Int b: Int }", endpoint="https://e.example/")
    other = catalogue(b"type Query { b: Int a: Int }", endpoint="https://e.example/")
    third = catalogue(b"type Query { b: Int a: String }", endpoint="https://e.example/")
    assert one.document_hash == other.document_hash != third.document_hash
    assert one.actions == other.actions


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"type Query {", b"\xff", b'{"data": {"__schema": {}}}', b"{" * 9000]
)
def test_what_is_no_schema_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput):
        catalogue(data, endpoint="https://e.example/")


async def test_a_server_tells_its_schema_and_is_called(endpoint: str) -> None:
    key = Attached(headers={"authorization": "Bearer key"})
    async with open_client(REACH) as client:
        found = await discover(client, endpoint, key)
        assert found.document_hash == catalogue(SDL.encode(), endpoint=endpoint).document_hash
        for name, arguments, wanted in (
            ("query.customer", {"id": '7") { id } #'}, {"id": '7") { id } #', "name": 'O"Neil'}),
            ("mutation.refund", {"order": "a", "cents": 3, "why": "LATE"}, {"id": "a-3-LATE"}),
        ):
            action = found.action(name)
            assert action is not None
            check_arguments(action, arguments)
            call = build(action, arguments, base_url=endpoint, headers={})
            reply = await send(client, call, credential_headers=key.headers, credential_query={}, credential_cookies={})
            answer = json.loads(reply.body)["data"][name.split(".")[1]]
            assert wanted.items() <= answer.items()


async def test_a_server_that_does_not_tell(endpoint: str) -> None:
    async with open_client(REACH) as client:
        with pytest.raises(InvalidInput, match="status 401"):
            await discover(client, endpoint, Attached())
