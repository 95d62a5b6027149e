"""The recovery key: shown once, on paper, typed by a person on a bad day.

160 random bits as eight groups of five characters. The fifth character of a group checks the other four and the group's
place, so that a typing error is named by its group instead of "wrong key".
"""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Final

from kortix_tui.base.errors import WrongKey
from kortix_tui.vault.secret import Secret

GROUPS: Final = 8
_DATA: Final = 4
_SIZE: Final = _DATA + 1
_BYTES: Final = 20
_ALPHABET: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
_MISREAD: Final = str.maketrans("018", "OIB")
"""Digits that the alphabet does not have, as what they were read from."""
_FIELD: Final = 0b100101
"""x^5 + x^2 + 1, which makes the 32 characters a field."""


def new() -> tuple[str, Secret]:
    """A fresh recovery key: the text for the person, and the key of the slot."""
    raw = os.urandom(_BYTES)
    letters = base64.b32encode(raw).decode()
    parts = [letters[at : at + _DATA] for at in range(0, len(letters), _DATA)]
    return "-".join(part + _check(place, part) for place, part in enumerate(parts)), _key(raw)


def parse(text: str) -> Secret:
    """The key of the slot from what a person typed; case, spaces and dashes do not matter.

    Raises:
        WrongKey: It cannot be a recovery key; the message names the first wrong group.
    """
    letters = "".join(char for char in text if not char.isspace() and char not in "-–—_.").upper().translate(_MISREAD)
    groups = [letters[at : at + _SIZE] for at in range(0, len(letters), _SIZE)]
    for place, group in enumerate(groups[:GROUPS]):
        strange = set(group) - set(_ALPHABET)
        if strange or (len(group) == _SIZE and _check(place, group[:_DATA]) != group[_DATA]):
            raise WrongKey(
                f"There is a typing error in group {place + 1} of the recovery key.",
                hint="Compare that group with the paper, character by character; the groups before it are right.",
            )
    if len(letters) != GROUPS * _SIZE:
        raise WrongKey(
            f"A recovery key has {GROUPS} groups of {_SIZE} characters; this has {len(letters)} characters.",
            hint="Type the whole key; spaces, dashes and case do not matter.",
        )
    return _key(base64.b32decode("".join(group[:_DATA] for group in groups)))


def _key(raw: bytes) -> Secret:
    """Slots take 32 bytes; spreading 160 random bits over them adds and loses nothing."""
    return Secret(hashlib.sha256(b"kxv1/recovery" + raw).digest())


def _check(place: int, part: str) -> str:
    """A character such that no single wrong character, swapped neighbours or swapped groups go unseen."""
    found = place + 1
    for char in part:
        found = _doubled(found) ^ _ALPHABET.index(char)
    return _ALPHABET[_doubled(found)]


def _doubled(value: int) -> int:
    value <<= 1
    return value ^ _FIELD if value >= len(_ALPHABET) else value
