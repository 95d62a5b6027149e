"""Public documents: each loads, with the operations and names that its notes say."""

from __future__ import annotations

from collections import Counter

import pytest
from documents import NAMES, loaded

from kortix_tui.base.words import Risk
from kortix_tui.broker.connectors.model import AuthHint, HttpOperation

COUNTS = {
    "v2.0-petstore-expanded.json": (4, 2, 1),
    "v2.0-uber.yaml": (5, 5, 0),
    "v3.0-api-with-examples.yaml": (2, 2, 0),
    "v3.0-link-example.json": (6, 5, 0),
    "v3.0-petstore-expanded.json": (4, 2, 1),
    "v3.0-uspto.yaml": (3, 2, 0),
    "v3.1-tictactoe.yaml": (3, 2, 0),
    "twilio_verify_v2.yaml": (57, 24, 8),
    "twilio_api_v2010.json.gz": (197, 103, 32),
}
"""Operations, those that read, those that delete."""

NAMED = {
    "v2.0-petstore-expanded.json": {"find_pets", "add_pet", "find_pet_by_id", "delete_pet"},
    "v2.0-uber.yaml": {"get_products", "get_estimates_price", "get_estimates_time", "get_me", "get_history"},
    "v3.0-api-with-examples.yaml": {"list_versionsv2", "get_version_detailsv2"},
    "v3.0-link-example.json": {"get_user_by_name", "merge_pull_request"},
    "v3.0-petstore-expanded.json": {"find_pets", "add_pet", "find_pet_by_id", "delete_pet"},
    "v3.0-uspto.yaml": {"list_data_sets", "list_searchable_fields", "perform_search"},
    "v3.1-tictactoe.yaml": {"get_board", "get_square", "put_square"},
    "twilio_verify_v2.yaml": {"create_verification", "delete_service", "fetch_bucket"},
    "twilio_api_v2010.json.gz": {"create_message", "list_call", "delete_address"},
}

SERVERS = {
    "v2.0-petstore-expanded.json": "http://petstore.swagger.io/api",
    "v2.0-uber.yaml": "https://api.uber.com/v1",
    "v3.0-api-with-examples.yaml": None,
    "v3.0-link-example.json": None,
    "v3.0-petstore-expanded.json": "https://petstore.swagger.io/v2",
    "v3.0-uspto.yaml": "https://developer.uspto.gov/ds-api",
    "v3.1-tictactoe.yaml": None,
    "twilio_verify_v2.yaml": "https://verify.twilio.com",
    "twilio_api_v2010.json.gz": "https://api.twilio.com",
}


def test_no_document_is_left_out() -> None:
    assert set(COUNTS) == set(NAMED) == set(SERVERS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_counts_names_and_server(name: str) -> None:
    catalogue = loaded(name)
    risks = Counter(action.risk for action in catalogue.actions)
    assert (len(catalogue.actions), risks[Risk.READ], risks[Risk.DESTRUCTIVE]) == COUNTS[name]
    names = {action.name for action in catalogue.actions}
    assert len(names) == len(catalogue.actions)
    assert names >= NAMED[name]
    assert catalogue.base_url == SERVERS[name]
    callable_ = [action for action in catalogue.actions if not action.unavailable]
    assert len(callable_) == (len(catalogue.actions) if catalogue.base_url else 0)


@pytest.mark.parametrize("name", NAMES)
def test_a_base_url_makes_every_operation_callable(name: str) -> None:
    catalogue = loaded(name, base_url="https://proxy.example.com/api/")
    assert catalogue.base_url == "https://proxy.example.com/api"
    assert not [action.name for action in catalogue.actions if action.unavailable]
    assert any("`base_url` is used instead" in note for note in catalogue.notes) == bool(SERVERS[name])


@pytest.mark.parametrize("name", [name for name, server in SERVERS.items() if server is None])
def test_without_a_server_the_place_of_the_document_counts(name: str) -> None:
    assert any("`base_url`" in note for note in loaded(name).notes)
    catalogue = loaded(name, source_url="https://specs.example.com/a/b.json")
    assert catalogue.base_url == "https://specs.example.com"
    assert not any(action.unavailable for action in catalogue.actions)


@pytest.mark.parametrize("name", NAMES)
def test_a_catalogue_comes_back_from_the_store(name: str) -> None:
    catalogue = loaded(name)
    assert type(catalogue).model_validate_json(catalogue.model_dump_json()) == catalogue


@pytest.mark.parametrize("name", NAMES)
def test_the_arguments_of_every_action_have_names_that_models_take(name: str) -> None:
    for action in loaded(name).actions:
        for key in action.input_schema["properties"]:
            assert key.replace("_", "").replace("-", "").replace(".", "").isalnum(), (action.name, key)
            assert len(key) <= 64


def test_a_parameter_with_a_sign_in_its_name_gets_one_of_letters() -> None:
    action = loaded("twilio_api_v2010.json.gz").action("list_call")
    assert action is not None
    assert isinstance(action.operation, HttpOperation)
    names = {one.key: one.name for one in action.operation.parameters}
    assert (names["StartTime"], names["StartTime_lt"], names["StartTime_gt"]) == (
        "StartTime",
        "StartTime<",
        "StartTime>",
    )


def test_ways_to_authenticate() -> None:
    assert loaded("twilio_api_v2010.json.gz").auth == (AuthHint(type="basic"),)
    assert loaded("v2.0-uber.yaml").auth == (AuthHint(type="api_key", place="query", name="server_token"),)
    assert loaded("v3.1-tictactoe.yaml").auth == (
        AuthHint(type="api_key", place="header", name="api-key"),
        AuthHint(
            type="oauth2",
            flows=("client_credentials",),
            token_url="https://learn.openapis.org/oauth/2.0/token",
            scopes=("board:read",),
        ),
        AuthHint(type="bearer"),
        AuthHint(
            type="oauth2",
            flows=("authorization_code",),
            token_url="https://learn.openapis.org/oauth/2.0/token",
            authorization_url="https://learn.openapis.org/oauth/2.0/auth",
            scopes=("board:read", "board:write"),
        ),
        AuthHint(type="basic"),
    )
