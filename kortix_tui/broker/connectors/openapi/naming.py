"""Names of actions: readable, and independent of the order in which a document lists them.

Policies match names, so a name must say what the document's author meant: `getCustomers` is `get_customers`, which the
rule `get_*` matches.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from kortix_tui.base.errors import InvalidInput
from kortix_tui.base.text import shorten, visible_line

LONGEST: Final = 64
_SUFFIX_DIGITS: Final = (6, 16, 40)
# Before a capital after a small letter or digit, and before the last capital of a run that begins a word; the plural of
# an abbreviation (`IDs`, `URLs`) stays one word.
_WORD_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z](?!s(?![a-z]))[a-z])")
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9]+")


class Wanted(NamedTuple):
    """A name that an action would like to have.

    Attributes:
        name: Of any length.
        identity: What sets the action apart from all others of its connector, for example `GET /pets listPets`.
    """

    name: str
    identity: str


def action_name(text: str) -> str:
    """The words of an identifier in small letters, joined by `_`; empty when it has no letter or digit.

    `getCustomers` → `get_customers`, `HTTPResponse` → `http_response`, `listVersionsv2` → `list_versionsv2`,
    `find pet by id` → `find_pet_by_id`.
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode() if not text.isascii() else text
    return _NOT_PLAIN.sub("_", _WORD_BREAK.sub("_", plain)).strip("_").lower()


def settle(wanted: Sequence[Wanted]) -> list[str]:
    """The names that actions get: what they want, at most 64 characters, each once.

    All that want one name, or too long a one, get a suffix from their identity: no name depends on an order.

    Raises:
        InvalidInput: Two actions have the same name and identity.
    """
    count = Counter(one.name for one in wanted)
    for digits in _SUFFIX_DIGITS:
        names = [
            _with_suffix(one, digits) if count[one.name] > 1 or not 0 < len(one.name) <= LONGEST else one.name
            for one in wanted
        ]
        if len(set(names)) == len(names):
            return names
    double = Counter(wanted).most_common(1)[0][0]
    raise InvalidInput(
        f"Two actions are the same: {shorten(visible_line(double.identity), 200)}.", hint="Remove one of them."
    )


def _with_suffix(wanted: Wanted, digits: int) -> str:
    suffix = hashlib.sha256(wanted.identity.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    head = wanted.name[: LONGEST - digits - 1].rstrip("_.")
    return f"{head}_{suffix}" if head else suffix
