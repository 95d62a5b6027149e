import unittest
from unittest import mock

import acme_api
from acme_api.errors import Declined, InvalidAmount, UnknownRecord
from acme_api.gateway import Authorization, SandboxGateway
from acme_api.payments import Payments


class RecordingGateway:
    """Accepts everything and remembers what it was asked."""

    def __init__(self):
        self.asked = []

    def charge(self, amount, reference=""):
        self.asked.append((amount, reference))
        return Authorization(id=f"auth_{len(self.asked)}", amount=amount)


class PaymentsTest(unittest.TestCase):
    def setUp(self):
        self.gateway = RecordingGateway()
        self.payments = Payments(self.gateway)

    def test_charge_takes_money_once(self):
        payment = self.payments.charge(1250, "order 7")
        self.assertEqual((payment.amount, payment.status), (1250, "paid"))
        self.assertEqual(self.gateway.asked, [(1250, "order 7")])

    def test_the_same_key_gives_the_same_payment(self):
        first = self.payments.charge(1250, idempotency_key="k")
        again = self.payments.charge(1250, idempotency_key="k")
        self.assertIs(first, again)
        self.assertEqual(len(self.gateway.asked), 1)

    def test_amounts_are_checked_before_the_network_is_asked(self):
        with self.assertRaises(InvalidAmount):
            self.payments.charge(0)
        self.assertEqual(self.gateway.asked, [])

    def test_payments_are_found_by_id(self):
        payment = self.payments.charge(amount=99)
        self.assertEqual(self.payments.find(payment.id), payment)
        with self.assertRaises(UnknownRecord):
            self.payments.find("pay_0")

    def test_the_total_counts_everything(self):
        for amount in (100, 250, 3):
            self.payments.charge(amount)
        self.assertEqual(self.payments.total(), 353)

    def test_a_declined_card_leaves_no_payment(self):
        payments = Payments(SandboxGateway(limit=10))
        with self.assertRaises(Declined):
            payments.charge(11)
        self.assertEqual(payments.total(), 0)

    def test_the_network_gets_the_reference(self):
        gateway = mock.Mock()
        gateway.charge.return_value = Authorization(id="auth_9", amount=5)
        payment = Payments(gateway).charge(
            5,
            "order 9",
        )
        gateway.charge.assert_called_once_with(5, reference="order 9")
        self.assertEqual(payment.authorization, "auth_9")


class ShortcutTest(unittest.TestCase):
    def test_charge_is_exported(self):
        self.assertEqual(acme_api.charge(700).amount, 700)
