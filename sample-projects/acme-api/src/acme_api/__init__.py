"""The payments service of a small shop."""

from acme_api.errors import AcmeError, Declined, InvalidAmount, UnknownRecord, UnsupportedCurrency
from acme_api.shortcuts import charge

__all__ = ["AcmeError", "Declined", "InvalidAmount", "UnknownRecord", "UnsupportedCurrency", "charge"]
