"""Connector verbs behind a small host's door: they remember calls, and answer when the test says so."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from kortix_tui.base.errors import NotFound
from kortix_tui.base.words import CallState, Risk, Verdict
from kortix_tui.broker.services import LONGEST_HOLD_S, ActionInfo, CallReport, CallWish, ConnectorInfo


def an_action(name: str, risk: Risk = Risk.READ, verdict: Verdict = Verdict.RUN) -> ActionInfo:
    return ActionInfo(
        name=name, title=f"Title of {name}", description="What it does.", risk=risk, verdict=verdict,
        input_schema={"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
    )  # fmt: skip


@dataclass
class SmallConnectors:
    """Two actions of one connector: one runs at once, one waits for `decide`."""

    wishes: list[CallWish] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    unheard: list[str] = field(default_factory=list)
    known: dict[str, CallReport] = field(default_factory=dict)
    answers: dict[str, CallReport] = field(default_factory=dict)
    whole: bytes = b""
    hold_s: float = 0.5
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def connectors(self) -> list[ConnectorInfo]:
        return [
            ConnectorInfo(
                slug="billing", name="Billing", provider="openapi", actions=2, connected=True, problem=None,
                accounts=("default",),
            )
        ]  # fmt: skip

    async def actions(self, connector: str | None = None, /) -> list[ActionInfo]:
        if connector not in (None, "billing"):
            raise NotFound(f"This session may not use {connector}.", hint="kortix connectors ls")
        return [
            an_action("billing.get_customer"),
            an_action("billing.create_refund", Risk.WRITE, Verdict.ASK),
        ]

    async def call(self, wish: CallWish, /) -> CallReport:
        found = next((one for one in self.known.values() if one.id == f"call_{wish.key[:8]}"), None)
        if found is None:
            self.wishes.append(wish)
            found = CallReport(
                id=f"call_{wish.key[:8]}", connector=wish.connector, action=wish.action, state=CallState.PENDING,
                message="A person was asked. End your turn; you will be told.",
            )  # fmt: skip
            if wish.action in self.answers:
                found = self.answers[wish.action].model_copy(update={"id": found.id})
            async with self.changed:
                self.known[found.id] = found
                self.changed.notify_all()
        return await self.report(found.id, wish.wait, False)

    async def report(self, call_id: str, wait: float, leave: bool, /) -> CallReport:
        if call_id not in self.known:
            raise NotFound("This session made no such call.")
        if leave:
            self.left.append(call_id)
        try:
            async with asyncio.timeout(min(wait, self.hold_s, LONGEST_HOLD_S)), self.changed:
                await self.changed.wait_for(lambda: self.known[call_id].state.final)
        except TimeoutError:
            pass
        return self.known[call_id]

    async def output(self, call_id: str, /) -> tuple[bytes, str]:
        return self.whole, "application/octet-stream"

    async def lost(self, call_id: str, /) -> None:
        self.unheard.append(call_id)

    # ---- what a test does -----------------------------------------------------------------------------------

    async def asked(self) -> str:
        """The id of the first call, once it is there."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(lambda: self.known)
        return next(iter(self.known))

    async def decide(self, call_id: str, **outcome: object) -> None:
        """Let a call end."""
        async with self.changed:
            self.known[call_id] = self.known[call_id].model_copy(update=outcome)
            self.changed.notify_all()
