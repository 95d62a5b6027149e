import unittest

from acme_api.errors import InvalidAmount, UnsupportedCurrency
from acme_api.money import check_amount, format_amount


class MoneyTest(unittest.TestCase):
    def test_formats_minor_units(self):
        self.assertEqual(format_amount(1250), "12.50 EUR")
        self.assertEqual(format_amount(5, "USD"), "0.05 USD")
        self.assertEqual(format_amount(1250, "JPY"), "1250 JPY")

    def test_refuses_what_is_no_amount(self):
        for amount in (0, -1, 1.5, "12", True, None):
            with self.subTest(amount=amount), self.assertRaises(InvalidAmount):
                check_amount(amount)

    def test_refuses_unknown_currencies(self):
        with self.assertRaises(UnsupportedCurrency):
            check_amount(100, "XYZ")
