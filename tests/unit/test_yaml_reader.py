"""The YAML reader takes plain YAML, tells where everything stands, and refuses the rest with line and hint."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.base.faults import Place
from kortix_tui.base.yaml import Limits, YamlRefused, load, split_front_matter


def refused(raw: bytes, **options: object) -> YamlRefused:
    with pytest.raises(YamlRefused) as caught:
        load(raw, file="kortix.yaml", **options)  # type: ignore[arg-type]
    return caught.value


def test_reads_plain_data_with_places() -> None:
    document = load(b"a: 1\nb:\n  - x\n  - { c: 'y' }\n", file="f.yaml")
    assert document.data == {"a": 1, "b": ["x", {"c": "y"}]}
    assert document.key_place(("a",)) == Place("f.yaml", 1, 1)
    assert document.value_place(("a",)) == Place("f.yaml", 1, 4)
    assert document.value_place(("b", 0)) == Place("f.yaml", 3, 5)
    assert document.key_place(("b", 1, "c")) == Place("f.yaml", 4, 7)


def test_the_nearest_piece_above_stands_in_for_what_is_missing() -> None:
    document = load(b"a:\n  b: 1\n", file="f.yaml")
    assert document.value_place(("a", "missing", 3)) == Place("f.yaml", 2, 3)
    assert document.value_place(("missing",)) == Place("f.yaml", 1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("010", 10),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1.5e3", 1500.0),
        ("-.5", -0.5),
        ("True", True),
        ("~", None),
        ("", None),
        ("'1'", "1"),
        ('"\\u00e9"', "é"),
        ("|\n  two\n  lines", "two\nlines\n"),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
    ],
)
def test_scalars_mean_what_the_core_schema_says(text: str, value: object) -> None:
    assert load(f"a: {text}\n".encode() if text != "-" else b"a:\n-\n", file="f").data == {"a": value}


@pytest.mark.parametrize(
    ("raw", "code", "line"),
    [
        (b"a: &x 1\nb: *x\n", "alias", 1),
        (b"a: 1\nb: *x\n", "alias", 2),
        (b"&a a: 1\n", "alias", 1),
        (b"a: 1\n<<: { b: 2 }\n", "alias", 2),
        (b"a: 1\nb: 2\na: 3\n", "duplicate_key", 3),
        (b"a: {b: 1, 'b': 2}\n", "duplicate_key", 1),
        (b"a: !!python/object/apply:os.system [id]\n", "tag", 1),
        (b"a: !secret x\n", "tag", 1),
        (b"!!map {}\n", "tag", 1),
        (b"a:\n  1: x\n", "key_not_text", 2),
        (b"true: x\n", "key_not_text", 1),
        (b"~: x\n", "key_not_text", 1),
        (b"? [a]\n: b\n", "key_not_text", 1),
        (b"a: 1\n---\nb: 2\n", "several_documents", 2),
        (b"a: \xff\n", "not_utf8", 1),
        (b"a: 1\nb: \0\n", "not_text", 2),
        (b"a: 1\nb: \x07\n", "not_text", 2),
        (b"a:\n\tb: 1\n", "not_yaml", 2),
        (b"a: b: c\n", "not_yaml", 1),
        (b"a: [1,\n", "not_yaml", 2),
        (b"a: 'x\n", "not_yaml", 2),
        (b"a: .inf\n", "number", 1),
        (b"a: 1e999\n", "number", 1),
        (b"a: " + b"9" * 5000, "number", 1),
        (b"%NOPE\n---\na: 1\n", "not_yaml", 1),
    ],
)
def test_hostile_or_broken_text_is_refused_with_line_and_hint(raw: bytes, code: str, line: int) -> None:
    fault = refused(raw).faults[0]
    assert (fault.code, fault.line, fault.file) == (code, line, "kortix.yaml")
    assert fault.hint


def test_tabs_are_named() -> None:
    assert refused(b"a:\n\tb: 1\n").hint == "Indent with spaces, not tabs."


def test_size_depth_and_number_of_nodes_are_limited() -> None:
    assert refused(b"a: " + b"x" * (256 * 1024)).faults[0].code == "too_large"
    assert refused(b"{a: " * 33 + b"}" * 33).faults[0].code == "too_deep"
    assert refused(b"[" * 100_000).faults
    assert refused(b"- " * 2_000 + b"x").faults
    many = b"[" + b"1," * 60_000 + b"]"
    assert refused(many).faults[0].code == "too_many"
    assert load(b"{a: " * 32 + b"}" * 32, file="f").data
    assert refused(b"[1, 2, 3]", limits=Limits(nodes=3)).faults[0].code == "too_many"


def test_several_faults_are_told_together() -> None:
    faults = refused(b"a: 1\na: 2\nb: !x y\n3: z\n").faults
    assert [(fault.code, fault.line) for fault in faults] == [("duplicate_key", 2), ("tag", 3), ("key_not_text", 4)]


def test_empty_and_commented_files_hold_nothing() -> None:
    assert load(b"", file="f").data is None
    assert load(b"# only words\n", file="f").data is None
    assert load(b"\xef\xbb\xbfa: 1\n", file="f").data == {"a": 1}


def test_terminal_sequences_in_names_become_visible() -> None:
    fault = refused(b'"a\\e[31m": 1\n"a\\e[31m": 2\n').faults[0]
    assert "\x1b" not in str(fault)
    assert "␛[31m" in fault.message


def test_front_matter_keeps_lines_of_the_file() -> None:
    parts = split_front_matter(b"---\ndescription: x\n---\n\nBe kind.\n\n---\nStill the body.\n", file="a.md")
    assert parts.body == "Be kind.\n\n---\nStill the body."
    assert parts.head is not None
    document = load(parts.head, file="a.md", first_line=parts.first_line)
    assert document.key_place(("description",)) == Place("a.md", 2, 1)


def test_a_file_without_front_matter_is_all_body() -> None:
    assert split_front_matter(b"Be kind.\n", file="a.md").head is None
    assert split_front_matter(b"", file="a.md").body == ""


def test_front_matter_must_be_closed() -> None:
    with pytest.raises(YamlRefused) as caught:
        split_front_matter(b"---\ndescription: x\n", file="a.md")
    assert caught.value.faults[0].line == 1


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300) | st.text(max_size=300).map(lambda text: text.encode("utf-8", "replace")))
def test_anything_is_read_or_refused(raw: bytes) -> None:
    try:
        document = load(raw, file="f")
    except YamlRefused as error:
        assert all(fault.message and fault.hint for fault in error.faults)
    else:
        assert document.value_place(()).line >= 1
