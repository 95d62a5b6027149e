"""Plans that renew."""

from __future__ import annotations

from dataclasses import dataclass

from acme_api.errors import Declined
from acme_api.payments import Payments


@dataclass(frozen=True)
class Plan:
    """What is sold."""

    name: str
    price: int
    currency: str = "EUR"


@dataclass
class Subscription:
    """Who bought it, and how often it was paid."""

    customer: str
    plan: Plan
    periods: int = 0
    active: bool = True


def renew(subscription: Subscription, payments: Payments) -> bool:
    """Charge for one more period; a declined card ends the subscription."""
    plan = subscription.plan
    try:
        payments.charge(
            amount=plan.price,
            reference=f"{plan.name} for {subscription.customer}",
            idempotency_key=f"{subscription.customer}-{plan.name}-{subscription.periods}",
        )
    except Declined:
        subscription.active = False
        return False
    subscription.periods += 1
    return True
