"""Prepaid wallets, kept in the house currency."""

from __future__ import annotations

from acme_api.errors import InvalidAmount
from acme_api.money import format_amount
from acme_api.payments import Payments


class Wallet:
    """Money that a customer has paid ahead."""

    def __init__(self, customer: str, payments: Payments) -> None:
        self.customer = customer
        self.balance = 0
        self._payments = payments

    def top_up(self, amount: int) -> str:
        """Charge the customer's card and add it to the wallet."""
        payment = self._payments.charge(amount, f"wallet of {self.customer}")
        self.balance += payment.amount
        return format_amount(self.balance)

    def spend(self, amount: int) -> int:
        """Take from the wallet."""
        if amount > self.balance:
            raise InvalidAmount("the wallet holds less than that")
        self.balance -= amount
        return self.balance
