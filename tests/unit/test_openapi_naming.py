"""Names of actions."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import InvalidInput
from kortix_tui.broker.connectors.openapi.naming import LONGEST, Wanted, action_name, settle


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("getCustomers", "get_customers"),
        ("listVersionsv2", "list_versionsv2"),
        ("HTTPResponse", "http_response"),
        ("find pet by id", "find_pet_by_id"),
        ("list-data-sets", "list_data_sets"),
        ("getUserIDs", "get_user_ids"),
        ("listURLsOfSite", "list_urls_of_site"),
        ("GetAsset", "get_asset"),
        ("isAsyncXAssets", "is_async_x_assets"),
        ("get_or_create", "get_or_create"),
        ("v2Pets", "v2_pets"),
        ("café.ouvrir", "cafe_ouvrir"),
        ("__x__", "x"),
        ("→", ""),
    ],
)
def test_words(text: str, name: str) -> None:
    assert action_name(text) == name


def test_a_name_of_its_own_stays_as_it_is() -> None:
    assert settle([Wanted("get", "GET /"), Wanted("get_pets", "GET /pets")]) == ["get", "get_pets"]


def test_all_that_want_one_name_get_a_suffix() -> None:
    first, second, other = settle([Wanted("get", "GET /a"), Wanted("get", "GET /b"), Wanted("put", "PUT /a")])
    assert first != second
    assert {name.rpartition("_")[0] for name in (first, second)} == {"get"}
    assert other == "put"


def test_the_suffix_is_the_same_whatever_else_collides() -> None:
    pair = settle([Wanted("get", "GET /a"), Wanted("get", "GET /b")])
    assert settle([Wanted("get", "GET /b"), Wanted("get", "GET /c"), Wanted("get", "GET /a")])[::2] == pair[::-1]


def test_a_long_name_keeps_its_beginning() -> None:
    (name,) = settle([Wanted("get_" + "word_" * 20, "GET /words")])
    assert len(name) <= LONGEST
    assert name.startswith("get_word_word_")


def test_a_name_that_looks_like_a_suffixed_one_takes_nothing() -> None:
    pair = [Wanted("get", "GET /a"), Wanted("get", "GET /b")]
    names = settle([*pair, Wanted(settle(pair)[0], "GET /c")])
    assert len(set(names)) == 3
    assert names[2] == settle(pair)[0]


def test_the_same_thing_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="Two actions are the same: GET /a"):
        settle([Wanted("get", "GET /a"), Wanted("get", "GET /a")])


_WORDS = st.sampled_from(["get", "get_pets", "get_" + "x" * 70, "", "put"])


@given(st.lists(st.builds(Wanted, _WORDS, st.text(max_size=5)), unique=True, max_size=12), st.randoms())
def test_no_order_changes_a_name(wanted: list[Wanted], rng: random.Random) -> None:
    names = dict(zip(wanted, settle(wanted), strict=True))
    shuffled = list(wanted)
    rng.shuffle(shuffled)
    assert dict(zip(shuffled, settle(shuffled), strict=True)) == names
    assert len(set(names.values())) == len(names)
    assert all(0 < len(name) <= LONGEST for name in names.values())
