"""The HTTP face: JSON in, JSON out."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from acme_api.errors import AcmeError, InvalidAmount, UnknownRecord
from acme_api.money import DEFAULT_CURRENCY
from acme_api.payments import Payments
from acme_api.refunds import Refunds


@dataclass(frozen=True)
class ChargeRequest:
    """The body of `POST /charges`."""

    amount: Any
    currency: str = DEFAULT_CURRENCY
    reference: str = ""
    key: str | None = None


class Api:
    """Routes requests; made to be called by any server."""

    def __init__(self, payments: Payments) -> None:
        self._payments = payments
        self._refunds = Refunds(payments)

    def handle(self, method: str, path: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
        """Answer with a status and a document."""
        try:
            return self._route(method, path, body)
        except AcmeError as error:
            return error.status, {"error": {"code": error.code, "message": str(error)}}

    def _route(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if (method, path) == ("POST", "/charges"):
            return 201, self._charge(_read(body))
        if method == "GET" and path.startswith("/charges/"):
            return 200, asdict(self._payments.find(path.rpartition("/")[2]))
        if (method, path) == ("POST", "/refunds"):
            fields = _read(body)
            return 201, asdict(self._refunds.refund(str(fields.get("payment")), fields.get("amount")))
        raise UnknownRecord(f"{method} {path} is not served")

    def _charge(self, fields: dict[str, Any]) -> dict[str, Any]:
        known = {name: fields[name] for name in ("amount", "currency", "reference", "key") if name in fields}
        request = ChargeRequest(**{"amount": None, **known})
        payment = self._payments.charge(request.amount, request.reference, idempotency_key=request.key)
        return asdict(payment)


def _read(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except ValueError as error:
        raise InvalidAmount("the body is not JSON") from error
    if not isinstance(fields, dict):
        raise InvalidAmount("the body is not an object")
    return fields
