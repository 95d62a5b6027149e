"""The action table: no two meanings for a key in one place, overrides that cannot break it."""

from __future__ import annotations

from collections import Counter

import pytest

from kortix_tui.console.keymap import ACTIONS, Keymap, Where, action, bindings, show_key

LOST = ("ctrl+shift", "alt+", "ctrl+enter", "ctrl+j", "ctrl+m", "ctrl+i", "ctrl+h", "ctrl+b", "ctrl+a")


def test_ids_are_unique_and_keys_have_one_meaning_in_a_place() -> None:
    assert len({entry.id for entry in ACTIONS}) == len(ACTIONS)
    for place in Where:
        keys = Counter(key for entry in ACTIONS if entry.where is place for key in entry.keys)
        assert [key for key, count in keys.items() if count > 1] == []


def test_no_key_needs_what_tmux_or_ssh_loses() -> None:
    assert [entry.id for entry in ACTIONS for key in entry.keys if key.startswith(LOST)] == []


def test_half_pages_and_deletion_are_where_the_design_wants_them() -> None:
    assert action("move.half_down").keys == ("ctrl+d",)
    assert action("move.half_up").keys == ("ctrl+u",)
    assert action("session.remove").keys == ("D",)


def test_bindings_carry_the_ids() -> None:
    found = bindings(Where.SESSIONS)
    assert {getattr(entry, "id", None) for entry in found} == {e.id for e in ACTIONS if e.where is Where.SESSIONS}


def test_an_override_replaces_keys() -> None:
    keymap = Keymap({"session.stop": "s, ctrl+x"})
    assert not keymap.problems
    assert keymap.overrides == {"session.stop": "s,ctrl+x"}
    assert keymap.shown("session.stop") == "s"
    listed = dict(keymap.help([Where.SESSIONS])[0][1])
    assert listed["s ctrl+x"].id == "session.stop"


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"session.stpo": "s"}, "no action"),
        ({"session.stop": " , "}, "no key"),
        ({"session.stop": "n"}, "already session.new"),
        ({"session.stop": "j"}, "already move.down"),
        ({"session.stop": "?"}, "already app.help"),
        ({"log.wrap": "1"}, "already view.sessions"),
    ],
)
def test_a_bad_override_is_ignored_and_reported(overrides: dict[str, str], reason: str) -> None:
    keymap = Keymap(overrides)
    assert reason in keymap.problems[0].reason
    assert not keymap.overrides


def test_keys_are_shown_as_people_write_them() -> None:
    shown = {key: show_key(key) for key in ("question_mark", "slash", "pagedown", "ctrl+p", "enter", "escape", "F")}
    assert list(shown.values()) == ["?", "/", "pgdn", "ctrl+p", "enter", "esc", "F"]
