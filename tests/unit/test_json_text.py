"""JSON texts are shown with the characters that are sent, and compared value by value."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kortix_tui.base.json_text import difference, indented, is_json, leaves

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_it_looks_as_the_usual_indentation_does(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert indented(text) == json.dumps(value, ensure_ascii=False, indent=2)


def test_no_character_of_a_value_changes() -> None:
    text = '{"a":1.10e+05,"b":[],"c":{},"d":"x\\u202e\\"{,","e":[1,{"f":-0}]}'
    assert indented(text).splitlines()[1:4] == ['  "a": 1.10e+05,', '  "b": [],', '  "c": {},']
    assert leaves(text) == {
        "a": "1.10e+05", "b": "[]", "c": "{}", "d": '"x\u202e\\"{,"', "e[0]": "1", "e[1].f": "-0"
    }  # fmt: skip


def test_a_key_that_is_no_word_is_quoted() -> None:
    assert leaves('{"a.b":{"":1},"c d":[2]}') == {'"a.b".""': "1", '"c d"[0]': "2"}


def test_what_differs() -> None:
    found, same = difference('{"a":1,"b":"x","c":[1,2]}', '{"a":1.0,"c":[1],"d":true}')
    assert [(one.kind, one.path, one.old, one.new) for one in found] == [
        ("changed", "a", "1", "1.0"), ("added", "d", None, "true"), ("removed", "b", '"x"', None),
        ("removed", "c[1]", "2", None),
    ]  # fmt: skip
    assert same == 1


def test_what_is_no_json() -> None:
    assert not is_json("{a}")
    assert not is_json("[" * 100_000)
    assert is_json('"text"')
