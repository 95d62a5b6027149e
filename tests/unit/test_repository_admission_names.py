"""The admission hook's rules on names, for any names."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.repository.admission_hook import Refusal, check_collisions, check_name

NAMES = st.binary(min_size=1, max_size=12).filter(lambda name: b"/" not in name and b"\0" not in name)
WORDS = st.text(st.sampled_from("aAeEéÉßſKſ\u0301\u212aı"), min_size=1, max_size=4).map(str.encode)


@given(NAMES)
def test_an_admitted_name_moves_no_cursor_and_is_one_path(name: bytes) -> None:
    hostile = any(byte < 0x20 or byte in (0x7F, 0x5C) for byte in name)
    if hostile:
        with pytest.raises(Refusal):
            check_name(name)
    else:
        check_name(name)


def _same_elsewhere(one: bytes, other: bytes) -> bool:
    """Whether a file system without case, or with another composition, holds both for one name."""
    texts = [name.decode("utf-8", "surrogateescape") for name in (one, other)]
    return any(
        unicodedata.normalize(form, texts[0]).lower() == unicodedata.normalize(form, texts[1]).lower()
        for form in ("NFC", "NFD")
    )


@given(st.lists(WORDS, unique=True, min_size=2, max_size=5))
def test_two_admitted_names_are_two_files_everywhere(names: list[bytes]) -> None:
    try:
        check_collisions(names, set(names))
    except Refusal:
        return
    for at, one in enumerate(names):
        assert not any(_same_elsewhere(one, other) for other in names[at + 1 :])


@given(st.lists(WORDS, unique=True, min_size=1, max_size=5))
def test_old_collisions_block_nobody(names: list[bytes]) -> None:
    check_collisions([*names, b"quite-another"], {b"quite-another"})
