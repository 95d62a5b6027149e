"""Amounts are whole numbers of minor units, such as cents."""

from acme_api.errors import InvalidAmount, UnsupportedCurrency

DEFAULT_CURRENCY = "EUR"
DECIMALS = {"EUR": 2, "USD": 2, "GBP": 2, "CHF": 2, "JPY": 0}


def check_amount(amount, currency=DEFAULT_CURRENCY):
    """Refuse what cannot be charged."""
    if currency not in DECIMALS:
        raise UnsupportedCurrency(f"{currency} is not one of {', '.join(sorted(DECIMALS))}")
    if isinstance(amount, bool) or not isinstance(amount, int) or amount <= 0:
        raise InvalidAmount("an amount is a positive whole number of minor units")


def format_amount(amount, currency=DEFAULT_CURRENCY):
    """Write an amount for people: `12.50 EUR`."""
    decimals = DECIMALS[currency]
    if decimals == 0:
        return f"{amount} {currency}"
    whole, part = divmod(amount, 10**decimals)
    return f"{whole}.{part:0{decimals}d} {currency}"
