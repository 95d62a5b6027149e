"""Giving money back."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from acme_api.errors import InvalidAmount
from acme_api.payments import Payment, Payments


@dataclass(frozen=True)
class Refund:
    """Money that was given back."""

    id: str
    payment_id: str
    amount: int


class Refunds:
    """All refunds; never more than was paid."""

    def __init__(self, payments: Payments) -> None:
        self._payments = payments
        self._returned: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def refund(self, payment_id: str, amount: int | None = None) -> Refund:
        """Give back a part, or what is left."""
        payment = self._payments.find(payment_id)
        left = payment.amount - self._returned.get(payment_id, 0)
        amount = left if amount is None else amount
        if not 0 < amount <= left:
            raise InvalidAmount(f"{left} is left to give back")
        self._returned[payment_id] = self._returned.get(payment_id, 0) + amount
        return Refund(id=f"ref_{next(self._numbers)}", payment_id=payment_id, amount=amount)

    def charge_again(self, payment: Payment) -> Payment:
        """Take the money once more, after a refund in error."""
        return self._payments.charge(payment.amount, f"again {payment.id}")
