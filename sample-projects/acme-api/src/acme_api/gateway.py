"""The card network, as far as we need it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Protocol

from acme_api.errors import Declined
from acme_api.money import DEFAULT_CURRENCY


@dataclass(frozen=True)
class Authorization:
    """The network's answer."""

    id: str
    amount: int
    currency: str = DEFAULT_CURRENCY


class Gateway(Protocol):
    """What we ask of a card network."""

    def charge(self, amount: int, reference: str = "") -> Authorization:
        """Move money. charge(amount) either succeeds or raises `Declined`."""
        ...


class SandboxGateway:
    """A network for development: declines 402 cents and above the limit, accepts everything else."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self.limit = limit
        self.authorizations: list[Authorization] = []
        self._numbers = itertools.count(1)

    def charge(self, amount: int, reference: str = "") -> Authorization:
        """Accept or decline.

        Args:
            amount: Minor units.
            reference: Shown on the statement.
        """
        if amount == 402 or amount > self.limit:
            raise Declined(f"the bank declined {reference or 'the payment'}")
        authorization = Authorization(id=f"auth_{next(self._numbers)}", amount=amount)
        self.authorizations.append(authorization)
        return authorization
