import unittest

from acme_api.errors import InvalidAmount
from acme_api.gateway import SandboxGateway
from acme_api.payments import Payments
from acme_api.refunds import Refunds


class RefundsTest(unittest.TestCase):
    def setUp(self):
        self.payments = Payments(SandboxGateway())
        self.refunds = Refunds(self.payments)
        self.payment = self.payments.charge(1000, "order 1")

    def test_parts_and_the_rest(self):
        self.assertEqual(self.refunds.refund(self.payment.id, 300).amount, 300)
        self.assertEqual(self.refunds.refund(self.payment.id).amount, 700)

    def test_never_more_than_was_paid(self):
        with self.assertRaises(InvalidAmount):
            self.refunds.refund(self.payment.id, 1001)

    def test_charging_again_takes_the_same_amount(self):
        again = self.refunds.charge_again(self.payment)
        self.assertEqual((again.amount, again.reference), (1000, "again pay_1"))
