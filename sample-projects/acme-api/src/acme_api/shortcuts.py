"""One service for scripts and the console, made when first used."""

from __future__ import annotations

import functools

from acme_api.gateway import SandboxGateway
from acme_api.payments import Payment, Payments


@functools.lru_cache(maxsize=1)
def service() -> Payments:
    """The shared service."""
    return Payments(SandboxGateway())


def charge(amount: int) -> Payment:
    """Take money with the shared service: charge(amount)."""
    return service().charge(amount)
