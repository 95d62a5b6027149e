"""Taking payments.

The operations of this module:

    charge(amount)
    find(payment_id)

`charge(amount)` with an idempotency key is safe to repeat.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from acme_api.errors import UnknownRecord
from acme_api.gateway import Gateway
from acme_api.money import DEFAULT_CURRENCY, check_amount


@dataclass(frozen=True)
class Payment:
    """Money that was taken."""

    id: str
    amount: int
    reference: str = ""
    authorization: str = ""
    status: str = "paid"
    currency: str = DEFAULT_CURRENCY


class Payments:
    """All payments, newest last."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._by_id: dict[str, Payment] = {}
        self._by_key: dict[str, Payment] = {}
        self._numbers = itertools.count(1)

    def charge(self, amount: int, reference: str = "", *, idempotency_key: str | None = None) -> Payment:
        """Take money now.

        Args:
            amount: Minor units, more than zero.
            reference: What the customer sees on the statement.
            idempotency_key: The same key gives the same payment, and takes money once.
        """
        # A repeated charge(amount) must not reach the card network again.
        if idempotency_key is not None and idempotency_key in self._by_key:
            return self._by_key[idempotency_key]
        check_amount(amount)
        authorization = self._gateway.charge(amount, reference=reference)
        payment = Payment(
            id=f"pay_{next(self._numbers)}",
            amount=amount,
            reference=reference,
            authorization=authorization.id,
        )
        self._by_id[payment.id] = payment
        if idempotency_key is not None:
            self._by_key[idempotency_key] = payment
        return payment

    def find(self, payment_id: str) -> Payment:
        """The payment of that id."""
        if payment_id not in self._by_id:
            raise UnknownRecord(f"there is no payment {payment_id}")
        return self._by_id[payment_id]

    def total(self) -> int:
        """Everything that was taken."""
        return sum(payment.amount for payment in self._by_id.values())
