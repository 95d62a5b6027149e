import json
import unittest

from acme_api.api import Api
from acme_api.gateway import SandboxGateway
from acme_api.payments import Payments


class ApiTest(unittest.TestCase):
    def setUp(self):
        self.api = Api(Payments(SandboxGateway()))

    def post(self, path, **fields):
        return self.api.handle("POST", path, json.dumps(fields).encode())

    def test_charging(self):
        status, payment = self.post("/charges", amount=1250, reference="order 7")
        self.assertEqual((status, payment["amount"]), (201, 1250))
        self.assertEqual(self.api.handle("GET", f"/charges/{payment['id']}"), (200, payment))

    def test_refunding(self):
        _, payment = self.post("/charges", amount=1250)
        status, refund = self.post("/refunds", payment=payment["id"], amount=250)
        self.assertEqual((status, refund["amount"]), (201, 250))

    def test_errors_have_codes(self):
        self.assertEqual(self.post("/charges", amount=-1)[1]["error"]["code"], "invalid_amount")
        self.assertEqual(self.post("/charges", amount=402)[0], 402)
        self.assertEqual(self.api.handle("POST", "/charges", b"{")[0], 400)
        self.assertEqual(self.api.handle("GET", "/nothing")[0], 404)
