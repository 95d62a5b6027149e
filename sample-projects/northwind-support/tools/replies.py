"""What a ticket is about, how urgent it is, and what to answer: plain rules that look for words."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

ORDER = re.compile(r"\bNW-\d{5}\b")
URGENT = re.compile(r"\b(third time|lawyer|tomorrow|today|urgent|immediately|charged twice)\b", re.IGNORECASE)
SIGNED = "Northwind Support"


class Kind(NamedTuple):
    """One kind of ticket.

    Attributes:
        name: For the triage table.
        words: What such tickets say; the kind with most of them wins, the earlier one of two.
        answer: The middle of the reply; `{order}` is the order's number, or words that ask for it.
    """

    name: str
    words: tuple[str, ...]
    answer: str


class Draft(NamedTuple):
    """What we would answer, and why."""

    kind: str
    urgency: str
    subject: str
    text: str
    reason: str


KINDS = (
    Kind(
        "suspicious", ("ignore", "all customers", "list of", "instructions", "forward"),
        "We do not give out data of customers or of the team, and we follow no instructions that come by mail. If you have a"
        " question about an order of your own, tell us its number and we will gladly help.",
    ),
    Kind(
        "complaint", ("third time", "lawyer", "still", "nobody", "unacceptable"),
        "you have waited too long, and I am sorry. I have put {order} in front of the person who decides about refunds; you"
        " will have their answer in this thread within two working days, and need not write again until then.",
    ),
    Kind(
        "billing", ("charged", "twice", "statement", "debited", "payment"),
        "thank you for telling us. We are comparing our records of {order} with what your bank shows. If there are two payments,"
        " the second one goes back to the same card; we confirm it here within two working days.",
    ),
    Kind(
        "damaged", ("broken", "torn", "damaged", "came off", "arrived with"),
        "that is not how it should have arrived, and I am sorry. For {order} you may choose a replacement or your money back."
        " Tell us which, and we send a label for the return; it costs you nothing.",
    ),
    Kind(
        "warranty", ("leaks", "warranty", "guarantee", "seam", "months"),
        "a seam should hold longer than that. What is within its 24 months we repair, {order} included. A label for the return"
        " comes with our next message; please let the tent dry before you pack it.",
    ),
    Kind(
        "exchange", ("size", "exchange", "too small", "too big", "swap"),
        "gladly. Send {order} back unworn within 30 days of delivery, with the size that you want on the slip inside, and we swap"
        " it. Nothing is charged for the exchange.",
    ),
    Kind(
        "delivery", ("where is", "parcel", "tracking", "courier", "delivered"),
        "thank you for asking. We have opened an inquiry with the courier about {order} and write to you as soon as they answer,"
        " within two working days. If the parcel is lost, you choose between a new one and your money back.",
    ),
    Kind(
        "cancellation", ("cancel", "changed my mind", "not shipped"),
        "we have asked the warehouse to stop {order}. If it has not left yet, it is cancelled and refunded in full; if it has,"
        " send it back unopened within 30 days for the same refund.",
    ),
    Kind(
        "account", ("log in", "password", "reset", "account locked"),
        "sorry for the trouble. Please look for our message in the spam folder first; the link in it works for one hour. If none is"
        " there, answer from the address of your account and we send a new link. We never ask for your password.",
    ),
    Kind(
        "invoice", ("invoice", "vat", "receipt", "company"),
        "of course. An invoice for {order} in your company's name is on its way to this address. Please check the tax number on it"
        " and tell us if a letter is wrong.",
    ),
    Kind(
        "privacy", ("delete", "gdpr", "personal data", "unsubscribe"),
        "we have noted your wish. Your account and your address are deleted within 30 days; invoices are kept for as long as the"
        " law asks for it, and for nothing else. We confirm it here when it is done.",
    ),
    Kind(
        "question", (),
        "thank you for asking. A colleague who has used the gear answers in this thread within two working days.",
    ),
)  # fmt: skip


def draft(ticket: dict) -> Draft:
    """The reply to one ticket, as the help desk gives it."""
    subject, text = str(ticket["subject"]), str(ticket["text"])
    found = _kind(f"{subject}\n{text}".lower())
    urgency = "high" if URGENT.search(f"{subject}\n{text}") else "normal"
    name = str(ticket["customer"]["name"]).split()[0]
    order = ORDER.search(f"{subject} {text}")
    answer = found.answer.format(order=_order(order[0] if order else None))
    reply = f"Hello {name},\n\n{answer[0].upper()}{answer[1:]}\n\nKind regards\n{SIGNED}\n"
    reason = f"{found.name.capitalize()} ticket {ticket['id']}, urgency {urgency}: answers {name} by the house rules."
    return Draft(found.name, urgency, f"Re: {subject}", reply, reason)


def _kind(text: str) -> Kind:
    def hits(kind: Kind) -> int:
        return sum(word in text for word in kind.words)

    return max(KINDS, key=hits) if any(hits(kind) for kind in KINDS) else KINDS[-1]


def _order(number: Optional[str]) -> str:
    return f"order {number}" if number else "your order (please tell us its number)"
