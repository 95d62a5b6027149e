"""Requests that are built from documents, at a server that is not ours and knows the same documents.

Prism finds a request that does not fit: an unknown path or method, a missing or malformed parameter, a body of another
media type or shape, missing authentication.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from documents import NAMES, loaded
from prism import prism
from samples import sample

from kortix_tui.broker.connectors.arguments import build, check_arguments, read_arguments
from kortix_tui.broker.connectors.model import Action, AuthHint, Catalogue, HttpCall, HttpOperation

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]


def send(client: httpx.Client, call: HttpCall, hints: tuple[AuthHint, ...]) -> httpx.Response:
    """As the host would: the call as it is, and one credential for each way that the document knows."""
    headers, query = dict(call.headers), dict[str, str]()
    for hint in hints:
        match hint.type, hint.place:
            case "basic", _:
                headers.setdefault("authorization", "Basic dXNlcjpwYXNz")
            case (("bearer" | "oauth2"), _):
                headers.setdefault("authorization", "Bearer token")
            case "api_key", "query":
                query[hint.name or ""] = "key"
            case "api_key", "header":
                headers[hint.name or ""] = "key"
    url = httpx.URL(call.url)
    if query:
        separator = "&" if url.query else ""
        url = url.copy_with(query=url.query + f"{separator}{httpx.QueryParams(query)}".encode())
    return client.send(httpx.Request(call.method, url, headers=headers, content=call.body))


def complaints(answer: httpx.Response) -> list[str]:
    """What Prism has against a request."""
    violations = json.loads(answer.headers.get("sl-violations", "[]"))
    of_request = [f"{one['location']}: {one['message']}" for one in violations if one["location"][0] == "request"]
    return of_request or ([f"{answer.status_code} {answer.text[:300]}"] if answer.status_code >= 400 else [])


def arguments(action: Action, rng: random.Random, *, all_of_it: bool) -> dict[str, Any]:
    """Made from the schema alone, and read and checked as an agent's are."""
    assert isinstance(action.operation, HttpOperation)
    made = sample(action.input_schema, rng, all_of_it=all_of_it)
    for one in action.operation.parameters:
        if one.place == "header" and one.key in made:
            made[one.key] = "text/plain; q=0.5"
    made = read_arguments(json.dumps(made))
    check_arguments(action, made)
    return made


def seen_by_prism(action: Action, given: dict[str, Any]) -> dict[str, Any]:
    """Prism keeps the last of several fields of one name: it never sees a list in a form."""
    assert isinstance(action.operation, HttpOperation)
    body = action.operation.body
    if body is None or body.encoding != "form":
        return given
    return {name: value for name, value in given.items() if name not in body.fields or not isinstance(value, list)}


def all_complaints(client: httpx.Client, catalogue: Catalogue) -> dict[str, list[str]]:
    rng = random.Random(11)
    found: dict[str, list[str]] = {}
    for action in catalogue.actions:
        for all_of_it in (False, True):
            given = seen_by_prism(action, arguments(action, rng, all_of_it=all_of_it))
            if not given.keys() >= set(action.input_schema.get("required", ())):
                continue
            assert catalogue.base_url is not None
            call = build(action, given, base_url=catalogue.base_url, headers={})
            if bad := complaints(send(client, call, catalogue.auth)):
                found[f"{action.name} {call.method} {call.url} {call.body!r}"] = bad
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_accepted(name: str, tmp_path: Path) -> None:
    with prism(name, tmp_path) as url, httpx.Client(timeout=30, trust_env=False) as client:
        catalogue = loaded(name, base_url=url)
        assert all_complaints(client, catalogue) == {}


def test_prism_would_have_complained(tmp_path: Path) -> None:
    with prism("v3.1-tictactoe.yaml", tmp_path) as url, httpx.Client(timeout=30, trust_env=False) as client:
        catalogue = loaded("v3.1-tictactoe.yaml", base_url=url)
        action = catalogue.action("put_square")
        assert action is not None
        call = build(action, {"row": 7, "column": 1, "body": "X"}, base_url=url, headers={})
        assert complaints(send(client, call, catalogue.auth))
        call = build(action, {"row": 1, "column": 1, "body": "Z"}, base_url=url, headers={})
        assert complaints(send(client, call, catalogue.auth))
