"""Invoices and how they are paid."""

from __future__ import annotations

from dataclasses import dataclass, field

from acme_api.errors import AcmeError, UnknownRecord
from acme_api.money import format_amount
from acme_api.payments import Payment, Payments


def surcharge(amount: int, percent: int) -> int:
    """What is added to an overdue amount, rounded down."""
    return amount * percent // 100


@dataclass
class Invoice:
    """What a customer owes, in the currency of the customer."""

    number: str
    customer: str
    lines: list[int] = field(default_factory=list)
    currency: str = "EUR"
    overdue: bool = False
    payment: Payment | None = None

    @property
    def total(self) -> int:
        """The sum, with five per cent more when overdue."""
        net = sum(self.lines)
        return net + surcharge(net, 5) if self.overdue else net

    def describe(self) -> str:
        """One line for the customer."""
        return f"{self.number}: {format_amount(self.total, self.currency)}"


class Invoices:
    """All open and paid invoices."""

    def __init__(self, payments: Payments) -> None:
        self._payments = payments
        self._by_number: dict[str, Invoice] = {}

    def add(self, invoice: Invoice) -> None:
        """Take in an invoice."""
        self._by_number[invoice.number] = invoice

    def pay(self, number: str) -> Payment:
        """Charge the customer, once."""
        invoice = self._by_number.get(number)
        if invoice is None:
            raise UnknownRecord(f"there is no invoice {number}")
        if invoice.payment is not None:
            raise AcmeError(f"invoice {number} is paid")
        invoice.payment = self._payments.charge(invoice.total, number, idempotency_key=f"invoice-{number}")
        return invoice.payment
