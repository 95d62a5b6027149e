"""What can go wrong, each with a code for API clients."""


class AcmeError(Exception):
    """Base of all expected failures."""

    code = "failed"
    status = 400


class InvalidAmount(AcmeError):
    """The amount is not a positive whole number of minor units."""

    code = "invalid_amount"


class UnsupportedCurrency(AcmeError):
    """The currency is not one that we settle in."""

    code = "unsupported_currency"


class UnknownRecord(AcmeError):
    """Nothing of that id exists."""

    code = "not_found"
    status = 404


class Declined(AcmeError):
    """The customer's bank said no."""

    code = "declined"
    status = 402
