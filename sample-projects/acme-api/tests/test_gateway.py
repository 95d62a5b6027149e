import unittest

from acme_api.errors import Declined
from acme_api.gateway import SandboxGateway


class GatewayTest(unittest.TestCase):
    def test_accepts_and_numbers_authorizations(self):
        gateway = SandboxGateway()
        self.assertEqual(gateway.charge(100).id, "auth_1")
        self.assertEqual(gateway.charge(200, "two").id, "auth_2")
        self.assertEqual([one.amount for one in gateway.authorizations], [100, 200])

    def test_declines(self):
        with self.assertRaises(Declined):
            SandboxGateway().charge(402)
        with self.assertRaises(Declined):
            SandboxGateway(limit=10).charge(amount=11, reference="too much")
