"""Edits of grants: the data changes by exactly one name, the text by nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kortix_tui.base.errors import InvalidInput, NotFound, Refused
from kortix_tui.base.yaml import load
from kortix_tui.manifest.edit import add_to_grant, remove_from_grant

HEAD = "kortix_version: 2  # keep\nagents:\n"


def added(grant: str, name: str = "NEW", **options: Any) -> str:
    """The text of an agent's body after one more secret."""
    return add_to_grant((HEAD + grant).encode(), "a", "secrets", name, **options).decode().removeprefix(HEAD)


def removed(grant: str, name: str) -> str:
    return remove_from_grant((HEAD + grant).encode(), "a", "secrets", name).decode().removeprefix(HEAD)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  a:\n", "  a: {secrets: [NEW]}\n"),
        ("  a:  # nothing yet\n  b: {}\n", "  a: {secrets: [NEW]}  # nothing yet\n  b: {}\n"),
        ("  a: ~\n", "  a: {secrets: [NEW]}\n"),
        ("  a: {}\n", "  a: {secrets: [NEW]}\n"),
        ("  a: {skills: all}\n", "  a: {skills: all, secrets: [NEW]}\n"),
        ("  a: {skills: all, }\n", "  a: {skills: all, secrets: [NEW], }\n"),
        ("  a: {secrets: [A]}\n", "  a: {secrets: [A, NEW]}\n"),
        ("  a: {secrets}\n", "  a: {secrets: [NEW]}\n"),
        ("  a: {secrets: , skills: all}\n", "  a: {secrets: [NEW] , skills: all}\n"),
        ("  a:\n    skills: all  # why\n", "  a:\n    skills: all  # why\n    secrets: [NEW]\n"),
        ("  a:\n    skills: all", "  a:\n    skills: all\n    secrets: [NEW]"),
        ("  a:\n    skills:\n    - x\n\n  b: {}\n", "  a:\n    skills:\n    - x\n    secrets: [NEW]\n\n  b: {}\n"),
        ("  a:\n    note: |\n      text\n\n", "  a:\n    secrets: [NEW]\n    note: |\n      text\n\n"),
        ("  a:\n    secrets:\n", "  a:\n    secrets: [NEW]\n"),
        ("  a:\n    secrets: none # c\n", "  a:\n    secrets: [NEW] # c\n"),
        ("  a:\n    secrets: 'none'\n", "  a:\n    secrets: [NEW]\n"),
        ("  a:\n    secrets: []\n", "  a:\n    secrets: [NEW]\n"),
        ("  a:\n    secrets: [# none\n    ]\n", "  a:\n    secrets: [NEW # none\n    ]\n"),
        ("  a:\n    secrets: [ A,B ]\n", "  a:\n    secrets: [ A,B, NEW ]\n"),
        ("  a:\n    secrets: [A,] # c\n", "  a:\n    secrets: [A, NEW,] # c\n"),
        ('  a:\n    "secrets": ["A", "B"]\n', '  a:\n    "secrets": ["A", "B", "NEW"]\n'),
        ("  a:\n    secrets: ['A', B]\n", "  a:\n    secrets: ['A', B, NEW]\n"),
        (
            "  a:\n    secrets: [\n      A, # 1\n      B # 2, and more\n    ]\n",
            "  a:\n    secrets: [\n      A, # 1\n      B, # 2, and more\n      NEW\n    ]\n",
        ),
        (
            "  a:\n    secrets: [\n      A,\n      B, # 2\n    ]\n",
            "  a:\n    secrets: [\n      A,\n      B, # 2\n      NEW,\n    ]\n",
        ),
        ("  a:\n    secrets: [\n      A\n    , B\n    ]\n", "  a:\n    secrets: [\n      A\n    , B, NEW\n    ]\n"),
        (
            "  a:\n    secrets:\n      - A # 1\n      # later\n",
            "  a:\n    secrets:\n      - A # 1\n      - NEW\n      # later\n",
        ),
        ("  a:\n    secrets:\n    -   'A'\n  b: {}\n", "  a:\n    secrets:\n    -   'A'\n    -   'NEW'\n  b: {}\n"),
        ("  a:\r\n    secrets:\r\n      - A\r\n", "  a:\r\n    secrets:\r\n      - A\r\n      - NEW\r\n"),
        ("  a:\n    secrets:\n      - A", "  a:\n    secrets:\n      - A\n      - NEW"),
    ],
)
def test_adding_keeps_style_and_everything_else(before: str, after: str) -> None:
    assert added(before) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  a: {secrets: [A, B]}\n", "  a: {secrets: [B]}\n"),
        ("  a:\n    secrets: [A]\n", "  a:\n    secrets: []\n"),
        ("  a:\n    secrets: [A,] # c\n", "  a:\n    secrets: [] # c\n"),
        ("  a:\n    secrets: [B, A]\n", "  a:\n    secrets: [B]\n"),
        ("  a:\n    secrets: [B, A, C]\n", "  a:\n    secrets: [B, C]\n"),
        ("  a:\n    secrets: [B, A,\n      C]\n", "  a:\n    secrets: [B, \n      C]\n"),
        ("  a:\n    secrets: [B, # b\n      A]\n", "  a:\n    secrets: [B # b\n      ]\n"),
        ("  a:\n    secrets: [\n      A, # a\n      B\n    ]\n", "  a:\n    secrets: [\n      B\n    ]\n"),
        ("  a:\n    secrets: [\n      B, # b\n      A # a\n    ]\n", "  a:\n    secrets: [\n      B # b\n    ]\n"),
        ("  a:\n    secrets: [\n      B,\n      A,\n    ]\n", "  a:\n    secrets: [\n      B,\n    ]\n"),
        ("  a:\n    secrets: [A, B, a]\n", "  a:\n    secrets: [B]\n"),
        ("  a:\n    secrets:\n      - B # b\n      - A # a\n", "  a:\n    secrets:\n      - B # b\n"),
        ("  a:\n    secrets:\n      - B\n      - A", "  a:\n    secrets:\n      - B"),
        (
            "  a:\n    'secrets' :  # s\n      - A\n    skills: all\n",
            "  a:\n    'secrets' : []  # s\n    skills: all\n",
        ),
        ("  a:\n    secrets: none\n", "  a:\n    secrets: none\n"),
        ("  a:\n", "  a:\n"),
    ],
)
def test_removing_takes_the_name_its_comma_and_its_own_comment(before: str, after: str) -> None:
    assert removed(before, "A") == after


def test_a_name_that_is_granted_already_changes_nothing() -> None:
    text = "  a:\n    secrets: [Stripe_Key]\n"
    assert added(text, "STRIPE_KEY") == text
    everything = (HEAD + "  a:\n    connectors: all\n").encode()
    assert add_to_grant(everything, "a", "connectors", "billing") == everything


@pytest.mark.parametrize("name", ["123", "1.5", "1e5", "0x1F", "true", "null", "no", "y", "none", "2026-01-01"])
def test_a_name_stays_a_text(name: str) -> None:
    import yaml

    edited = added("  a: {}\n", name)
    assert yaml.safe_load(HEAD + edited)["agents"]["a"]["secrets"] == [name]


def test_all_grants_no_brokered_secret_and_is_replaced_only_when_asked() -> None:
    text = "  a:\n    secrets: all  # for now\n"
    with pytest.raises(Refused, match=r"kortix.yaml:4: `agents.a.secrets` is `all`") as caught:
        added(text)
    assert "has to be named" in str(caught.value)
    assert added(text, replace_all=True) == "  a:\n    secrets: [NEW]  # for now\n"
    assert added('  a:\n    secrets: "*"\n', replace_all=True) == "  a:\n    secrets: [NEW]\n"
    with pytest.raises(Refused, match="cannot be taken out"):
        removed(text, "A")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("  a: &base\n    skills: all\n", "kortix.yaml:3:6"),
        ("  b: {}\n  a:\n    <<: {skills: all}\n", "kortix.yaml:5:5"),
        ("  a:\n    secrets: *names\n", "kortix.yaml:4:14"),
        ("  a:\n    secrets: [&x A]\n", "kortix.yaml:4:15"),
        ("  a:\n    secrets: A\n", "kortix.yaml:4: "),
        ("  a:\n    secrets: [1]\n", "kortix.yaml:4: "),
        ("  a:\n    secrets: {A: yes}\n", "kortix.yaml:4: "),
        ("  a: [secrets]\n", "kortix.yaml:3: "),
        ("  a:\n    ? secrets\n    :\n      - A\n", None),
        ("  a:\n    secrets:\n      -\n        A\n", "kortix.yaml:6: `agents.a.secrets` is written in a way"),
        ("  a:\n    ? skills\n    : all\n", "kortix.yaml:4: `agents.a.secrets` is written in a way"),
        ("  a: {skills\n", "kortix.yaml:"),
    ],
)
def test_what_cannot_be_edited_safely_is_refused_with_its_line(text: str, line: str | None) -> None:
    if line is None:
        assert load((HEAD + added(text)).encode(), file="x").data["agents"] == {"a": {"secrets": ["A", "NEW"]}}  # type: ignore[index]
        return
    with pytest.raises(InvalidInput) as caught:
        added(text)
    assert line in caught.value.message and caught.value.hint


def test_unknown_agents_keys_and_names_are_refused() -> None:
    with pytest.raises(NotFound, match="declares no agent `b`") as caught:
        add_to_grant(HEAD.encode() + b"  builder: {}\n", "b", "secrets", "A", file="ops/agents.yaml")
    assert "builder" in str(caught.value) and "ops/agents.yaml" in caught.value.message
    for broken in (b"agents: []\n", b"- a\n", b""):
        with pytest.raises(NotFound):
            add_to_grant(broken, "a", "secrets", "A")
    with pytest.raises(InvalidInput, match="`models` is no grant"):
        add_to_grant(HEAD.encode() + b"  a: {}\n", "a", "models", "A")
    for name in ("", "all", "*", "A B", "A]", "A\n", "-A", "A" * 129, "ä"):
        with pytest.raises(InvalidInput, match="cannot be granted"):
            added("  a: {}\n", name)


def test_a_deprecated_key_is_edited_where_it_stands() -> None:
    text = (HEAD + "  a:\n    kortix_cli: [project.read]\n").encode()
    edited = add_to_grant(text, "a", "kortix_permissions", "project.write")
    assert edited.decode() == HEAD + "  a:\n    kortix_cli: [project.read, project.write]\n"


def test_a_byte_order_mark_and_a_second_one_are_no_surprise() -> None:
    body = (HEAD + "  a:\n    secrets: [A]\n").encode()
    assert add_to_grant(b"\xef\xbb\xbf" + body, "a", "secrets", "B") == b"\xef\xbb\xbf" + body.replace(
        b"[A]", b"[A, B]"
    )


# ---- any manifest in any style ----------------------------------------------------------------------------

NAMES = ("ALPHA", "beta.two", "GAMMA-3", "123", "true", "no", "1e5", "delta", "0x1F")
COMMENTS = ("", "", "  # plain", " # [a, {b: 'c\", - d", "  # ünï 😀", "\t# tab")
names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True)
comment = st.sampled_from(COMMENTS)


def spelled(name: str, quote: str) -> str:
    return f"{quote}{name}{quote}" if quote or name not in ("123", "true", "1e5", "0x1F") else f'"{name}"'


@st.composite
def flow_lists(draw: st.DrawFn, items: Sequence[str], pad: str) -> str:
    """`[…]` over one line or several, with comments wherever they may stand."""
    text = draw(st.sampled_from(["[", "[ ", "[\n" + pad + "  ", "[ # open\n" + pad + "  "]))
    for index, item in enumerate(items):
        text += item
        if index < len(items) - 1 or draw(st.booleans()):
            text += draw(
                st.sampled_from([",", ", ", " ,", ",\n" + pad + "  ", ", # c, d]\n" + pad, "\n" + pad + " , "])
            )
    return text + draw(st.sampled_from(["]", " ]", "\n" + pad + "]", " # last, one ]\n" + pad + "]"]))


@st.composite
def grants(draw: st.DrawFn, pad: str) -> tuple[list[str], str]:
    """What the agent has, and a text of it that follows `secrets:`."""
    if draw(st.integers(0, 4)) == 0:
        return [], draw(st.sampled_from(["", " ~", " none", ' "none"', " []", " [ ]", " [\n" + pad + "]"]))
    held = draw(names)
    quote = draw(st.sampled_from(["", "", "'", '"']))
    items = [spelled(name, draw(st.sampled_from([quote, quote, "'"]))) for name in held]
    if draw(st.booleans()):
        return held, " " + draw(flow_lists(items, pad + " "))
    dent = pad + draw(st.sampled_from(["", " ", "    "]))
    gap = draw(st.sampled_from([" ", "   "]))
    lines = []
    for item in items:
        if draw(st.integers(0, 3)) == 0:
            lines.append(draw(st.sampled_from(["", dent + "# between", "# at the left"])))
        lines.append(dent + "-" + gap + item + draw(comment))
    return held, draw(comment) + "\n" + "\n".join(lines)


OTHERS = (
    "skills: [x, y]",
    "skills:\nPAD- x\nPAD- y",
    "file: 'a.md'",
    "note: |\nPAD text: [\n\nPAD   more",
    "sandbox: s",
)


@st.composite
def manifests(draw: st.DrawFn) -> tuple[bytes, list[str]]:
    """A manifest with an agent `target`, and the secrets that it has."""
    step = " " * draw(st.integers(1, 4))
    pad = step * 2
    key = draw(st.sampled_from(["target", "'target'", '"target"']))
    secrets = draw(st.sampled_from(["secrets", "'secrets'", '"secrets"']))
    before = draw(st.lists(st.sampled_from(OTHERS), max_size=2, unique_by=lambda other: other[:3]))
    after = draw(
        st.lists(st.sampled_from([o for o in OTHERS if o[:3] not in {b[:3] for b in before}]), max_size=2,
                 unique_by=lambda other: other[:3])
    )  # fmt: skip
    shape = draw(st.sampled_from(["block", "block", "block", "flow", "null", "absent"]))
    held: list[str] = []
    if shape == "null":
        body = f"{step}{key}:" + draw(st.sampled_from(["", " {}", " ~", " null", " { }"])) + draw(comment)
    elif shape == "flow":
        held = draw(names)
        inner = draw(flow_lists([spelled(name, "'") for name in held], pad))
        body = f"{step}{key}: {{skills: all, {secrets}: {inner}}}" + draw(comment)
    else:
        entries = [other.replace("PAD", pad) for other in before]
        if shape == "block":
            held, text = draw(grants(pad))
            entries.append(f"{secrets}:{text}" + draw(comment))
        entries += [other.replace("PAD", pad) for other in after]
        if not entries:
            entries = ["file: a.md"]
        body = f"{step}{key}:{draw(comment)}\n" + "\n".join(pad + entry for entry in entries)
    parts = [
        draw(st.sampled_from(["# yaml-language-server: x", "---", "kortix_version: 2", "x: {agents: {target: [1]}}"])),
        "agents:" + draw(comment),
        *draw(st.lists(st.sampled_from(["", step + "# a comment", step + "first: {secrets: [ALPHA]}"]), max_size=2,
                       unique=True)),
        body,
        *draw(st.lists(st.sampled_from(["", "# end", step + "# deep", step + "last:\n" + pad + "secrets: [no]"]),
                       max_size=3, unique=True)),
    ]  # fmt: skip
    text = "\n".join(parts) + draw(st.sampled_from(["", "\n", "\n\n"]))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    raw = text.encode() if draw(st.booleans()) else b"\xef\xbb\xbf" + text.encode()
    return raw, held


def data_of(raw: bytes) -> Any:
    return load(raw, file="kortix.yaml").data


def but_for_the_grant(data: Any) -> tuple[Any, Any]:
    """Everything else, and the grant with its empty forms made one."""
    target = dict(data["agents"].pop("target") or {})
    grant = target.pop("secrets", None)
    return (data, target), [] if grant in (None, "none") else grant


def survives(old: bytes, new: bytes, at_most: int) -> None:
    """All lines but a few are there, byte by byte and in order."""
    import difflib

    blocks = difflib.SequenceMatcher(None, old.splitlines(True), new.splitlines(True), autojunk=False)
    touched = sum(stop - start for tag, start, stop, _, _ in blocks.get_opcodes() if tag != "equal")
    assert touched <= at_most


@settings(max_examples=300, deadline=None)
@given(manifests(), st.sampled_from((*NAMES, "FRESH", "None")))
def test_any_manifest_gains_exactly_one_name_and_loses_it_again(manifest: tuple[bytes, list[str]], name: str) -> None:
    raw, held = manifest
    rest, grant = but_for_the_grant(data_of(raw))
    assert grant == held
    edited = add_to_grant(raw, "target", "secrets", name)
    if name.casefold() in {item.casefold() for item in held}:
        assert edited == raw
        return
    assert but_for_the_grant(data_of(edited)) == (rest, [*held, name])
    survives(raw, edited, at_most=2)  # the line that gets a comma or a value; a last line that had no break
    back = remove_from_grant(edited, "target", "secrets", name)
    assert but_for_the_grant(data_of(back)) == (rest, held)
    if held:
        assert back == raw


@settings(max_examples=300, deadline=None)
@given(manifests(), st.data())
def test_any_manifest_loses_exactly_one_name(manifest: tuple[bytes, list[str]], data: st.DataObject) -> None:
    raw, held = manifest
    name = data.draw(st.sampled_from([*held, "ABSENT"]))
    rest, _ = but_for_the_grant(data_of(raw))
    edited = remove_from_grant(raw, "target", "secrets", name)
    assert but_for_the_grant(data_of(edited)) == (rest, [item for item in held if item != name])
    if name == "ABSENT":
        assert edited == raw
    survives(raw, edited, at_most=3)
