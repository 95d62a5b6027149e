"""Recovery keys: what a person types, and which errors are named."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.errors import WrongKey
from kortix_tui.vault import recovery

ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
TEXT, KEY = recovery.new()
PLACES = [place for place, char in enumerate(TEXT) if char != "-"]


def wrong_group(text: str) -> int:
    with pytest.raises(WrongKey) as caught:
        recovery.parse(text)
    found = re.search(r"group (\d)", caught.value.message)
    assert found, caught.value.message
    return int(found[1])


def test_the_shape() -> None:
    assert re.fullmatch(r"([A-Z2-7]{5}-){7}[A-Z2-7]{5}", TEXT)
    assert len(KEY) == 32 and recovery.parse(TEXT).matches(KEY)


def test_many_keys_come_back_and_differ() -> None:
    made = [recovery.new() for _ in range(200)]
    assert all(recovery.parse(text).matches(key) for text, key in made)
    assert len({text for text, _ in made}) == 200 and not made[0][1].matches(made[1][1])


@pytest.mark.parametrize(
    "typed",
    [TEXT.lower(), TEXT.replace("-", " "), TEXT.replace("-", ""), f"  {TEXT}\n", TEXT.replace("-", "\n"),
     TEXT.replace("O", "0").replace("I", "1").replace("B", "8"), TEXT.replace("-", "–")],
    ids=range(7),
)  # fmt: skip
def test_how_it_is_typed_does_not_matter(typed: str) -> None:
    assert recovery.parse(typed).matches(KEY)


def test_every_single_wrong_character_is_found_in_its_group() -> None:
    for place in PLACES:
        for char in ALPHABET:
            if char != TEXT[place]:
                assert wrong_group(TEXT[:place] + char + TEXT[place + 1 :]) == place // 6 + 1


def test_every_swap_of_neighbours_is_found_in_its_group() -> None:
    for first, second in pairwise(PLACES):
        if second == first + 1 and TEXT[first] != TEXT[second]:
            swapped = TEXT[:first] + TEXT[second] + TEXT[first] + TEXT[second + 1 :]
            assert wrong_group(swapped) == first // 6 + 1


def test_every_swap_of_groups_is_found() -> None:
    groups = TEXT.split("-")
    for first in range(8):
        for second in range(first + 1, 8):
            swapped = list(groups)
            swapped[first], swapped[second] = groups[second], groups[first]
            assert wrong_group("-".join(swapped)) == first + 1


@pytest.mark.parametrize("typed", ["", TEXT[:-1], TEXT[:41], TEXT + "-" + TEXT[:5], TEXT * 2], ids=range(5))
def test_an_incomplete_or_overlong_key_says_how_long_it_is(typed: str) -> None:
    with pytest.raises(WrongKey, match=rf"this has {len(typed.replace('-', ''))} characters"):
        recovery.parse(typed)


@given(st.text(max_size=80))
def test_anything_else_is_a_wrong_key_and_never_quoted(typed: str) -> None:
    with pytest.raises(WrongKey) as caught:
        recovery.parse(typed)
    assert caught.value.hint and (len(typed) < 12 or typed not in str(caught.value))
