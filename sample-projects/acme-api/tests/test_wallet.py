import unittest

from acme_api.errors import InvalidAmount
from acme_api.gateway import SandboxGateway
from acme_api.payments import Payments
from acme_api.wallet import Wallet


class WalletTest(unittest.TestCase):
    def setUp(self):
        self.wallet = Wallet("globex", Payments(SandboxGateway()))

    def test_topping_up_and_spending(self):
        self.assertEqual(self.wallet.top_up(2000), "20.00 EUR")
        self.assertEqual(self.wallet.spend(500), 1500)

    def test_no_credit(self):
        with self.assertRaises(InvalidAmount):
            self.wallet.spend(1)
