import unittest

from acme_api.gateway import SandboxGateway
from acme_api.payments import Payments
from acme_api.subscriptions import Plan, Subscription, renew


class SubscriptionsTest(unittest.TestCase):
    def test_renewing_charges_the_price(self):
        payments = Payments(SandboxGateway())
        subscription = Subscription("globex", Plan("basic", 900))
        self.assertTrue(renew(subscription, payments))
        self.assertEqual((subscription.periods, payments.total()), (1, 900))

    def test_a_declined_card_ends_it(self):
        subscription = Subscription("globex", Plan("odd", 402))
        self.assertFalse(renew(subscription, Payments(SandboxGateway())))
        self.assertFalse(subscription.active)
