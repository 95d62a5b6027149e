import unittest

from acme_api.errors import AcmeError, UnknownRecord
from acme_api.gateway import SandboxGateway
from acme_api.invoices import Invoice, Invoices, surcharge
from acme_api.payments import Payments


class InvoicesTest(unittest.TestCase):
    def setUp(self):
        self.payments = Payments(SandboxGateway())
        self.invoices = Invoices(self.payments)

    def test_overdue_invoices_cost_five_per_cent_more(self):
        self.assertEqual(surcharge(1000, 5), 50)
        self.assertEqual(Invoice("7", "globex", [600, 400]).total, 1000)
        self.assertEqual(Invoice("7", "globex", [600, 400], overdue=True).total, 1050)

    def test_describes_itself_in_its_own_currency(self):
        self.assertEqual(Invoice("7", "globex", [1050], currency="USD").describe(), "7: 10.50 USD")

    def test_paying_charges_the_total(self):
        self.invoices.add(Invoice("7", "globex", [600, 400], overdue=True))
        self.assertEqual(self.invoices.pay("7").amount, 1050)

    def test_an_invoice_is_paid_once(self):
        self.invoices.add(Invoice("7", "globex", [600]))
        self.invoices.pay("7")
        with self.assertRaises(AcmeError):
            self.invoices.pay("7")
        self.assertEqual(self.payments.total(), 600)

    def test_unknown_invoices(self):
        with self.assertRaises(UnknownRecord):
            self.invoices.pay("8")
