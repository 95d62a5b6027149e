"""A value that does not show itself: no representation, comparison, pickle or JSON of it exists."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NoReturn

from kortix_tui.base.errors import VaultFailed


class Secret:
    """Bytes that only `use` gives out.

    `bytes` cannot be wiped in Python. What can be done is done: the own copy is a `bytearray` that `wipe` overwrites,
    and whoever calls `use` keeps the answer for as short as possible.

    Args:
        value: The bytes; they are copied.
        on_use: Told the reason at each `use`, before the value is given out; raising there withholds it.
    """

    __slots__ = ("__weakref__", "_data", "_on_use", "_wiped")

    def __init__(self, value: bytes | bytearray | memoryview, *, on_use: Callable[[str], None] | None = None) -> None:
        self._data = bytearray(value)
        self._on_use = on_use
        self._wiped = False

    def use(self, reason: str) -> bytes:
        """Give out the value.

        Args:
            reason: What it is needed for, in a few words, for whoever watches uses.

        Raises:
            VaultFailed: It was wiped.
        """
        if self._wiped:
            raise VaultFailed("This copy of a secret was wiped.", hint="Read it from the vault again.")
        if self._on_use is not None:
            self._on_use(reason)
        return bytes(self._data)

    def wipe(self) -> None:
        """Overwrite the own copy. Safe to call twice."""
        self._data[:] = bytes(len(self._data))
        self._wiped = True

    def matches(self, other: Secret) -> bool:
        """Whether both hold the same bytes, in time that does not depend on where they differ."""
        return not self._wiped and not other._wiped and hmac.compare_digest(self._data, other._data)

    def __len__(self) -> int:
        return len(self._data)

    def __repr__(self) -> str:
        return "<Secret>"

    __str__ = __repr__

    def __format__(self, specification: str) -> str:
        return "<Secret>"

    def __eq__(self, other: object) -> bool:
        # Equality would be an oracle, and assertion messages would print both sides.
        return self is other

    def __hash__(self) -> int:
        return id(self)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("A secret is never pickled or copied.")
